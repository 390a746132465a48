"""Promise: on a host whose initramfs made /sysroot read-only, the next image is staged and booted all the same.

Boots: 2
Minutes: 1, in a machine
"""

from harness.agent import config, no_action

PATH, BROUGHT = "/etc/lab/settings.conf", "/etc/lab/app.conf"
FIRST, SECOND = "rendered-worker-a", "rendered-worker-b"
NOT_IN = {"container": "no initramfs made /sysroot read-only"}


def read_only(test, when):
    """Fails unless nothing can be written below /sysroot and /usr."""
    for mount in ("/sysroot", "/usr"):
        options = test.machine.run("findmnt", "--noheadings", "--output=VFS-OPTIONS", "--target", mount).strip().split(",")
        test.same(f"{mount} is read-only, {when}", "ro" in options, True)
    tried = test.machine.run("sh", "-c", "touch /sysroot/lab 2>&1 || true")
    test.same(f"a file below /sysroot is refused, {when}", "Read-only file system" in tried, True)


def play(test):
    machine, agent, images, registry = test.machine, test.agent, test.images, test.registry()
    digest = images.next("v2", {BROUGHT.lstrip("/"): "from = image\n"}, {"machineconfig": SECOND})
    image = registry.push(images.layout.path, "v2", digest)

    # Boot 1: it is really so; the agent makes it writable for its worker alone.
    machine.boot()
    read_only(test, "before")
    agent.settle(config(FIRST, {PATH: "version = 1\n"}), no_action(PATH), registry)
    agent.set_target(config(SECOND, {PATH: "version = 1\n", BROUGHT: "from = image\n"}), image)
    agent.wait_status("staging", lambda status: status["phase"] == "Staging")
    read_only(test, "while it stages")

    # Boot 2
    machine.next_boot()
    test.same("booted image", agent.wait_done(SECOND, image)["booted"]["digest"], digest)
    test.same(BROUGHT, machine.read(BROUGHT), "from = image\n")
    read_only(test, "after")
    test.same("faults in the journal", agent.logged("FAULT"), [])
