"""Promise: on a host whose initramfs made /sysroot read-only, the next image is staged and booted all the same.

Boots: 2
Minutes: 1, in a machine
"""

from lab.agent import config, no_action

PATH, BROUGHT = "/etc/lab/settings.conf", "/etc/lab/app.conf"
FIRST, SECOND = "rendered-worker-a", "rendered-worker-b"
NOT_IN = {"container": "no initramfs made /sysroot read-only"}


def read_only(lab, when):
    """Fails unless nothing can be written below /sysroot and /usr."""
    for mount in ("/sysroot", "/usr"):
        options = lab.machine.run("findmnt", "--noheadings", "--output=VFS-OPTIONS", "--target", mount).strip().split(",")
        lab.same(f"{mount} is read-only, {when}", "ro" in options, True)
    tried = lab.machine.run("sh", "-c", "touch /sysroot/lab 2>&1 || true")
    lab.same(f"a file below /sysroot is refused, {when}", "Read-only file system" in tried, True)


def play(lab):
    machine, agent, images, registry = lab.machine, lab.agent, lab.images, lab.registry()
    digest = images.next("v2", {BROUGHT.lstrip("/"): "from = image\n"}, {"machineconfig": SECOND})
    image = registry.push(images.layout.path, "v2", digest)

    # Boot 1: it is really so; the agent makes it writable for its worker alone.
    machine.boot()
    read_only(lab, "before")
    agent.settle(config(FIRST, {PATH: "version = 1\n"}), no_action(PATH), registry)
    agent.want(config(SECOND, {PATH: "version = 1\n", BROUGHT: "from = image\n"}), image)
    agent.status("staging", lambda status: status["phase"] == "Staging")
    read_only(lab, "while it stages")

    # Boot 2
    machine.next_boot()
    lab.same("booted image", agent.done(SECOND, image)["booted"]["digest"], digest)
    lab.same(BROUGHT, machine.read(BROUGHT), "from = image\n")
    read_only(lab, "after")
    lab.same("faults in the journal", agent.logged("FAULT"), [])
