"""Promise: a file below /etc that was changed on the host, and that the image brings, is the config's after the switch:
libostree's merge would keep the local version, so the agent writes it. What no config names stays as the administrator left it.

Boots: 2
Minutes: 0.2; in a machine 2
"""

from harness.agent import config, no_action

PATH, BROUGHT, CHANGED = "/etc/lab/settings.conf", "/etc/lab/app.conf", "/etc/lab/both.conf"
# Debian's own; no config names it, and the image has another version.
OWN = "/etc/issue.net"
FIRST, SECOND = "rendered-worker-a", "rendered-worker-b"


def play(test):
    machine, agent, images, registry = test.machine, test.agent, test.images, test.registry()
    layer = {path.lstrip("/"): "from = image\n" for path in (BROUGHT, CHANGED, OWN)}
    digest = images.next("v2", layer, {"machineconfig": SECOND})
    image = registry.push(images.layout.path, "v2", digest)
    second = config(SECOND, {PATH: "version = 1\n", BROUGHT: "from = image\n", CHANGED: "from = image\n"})

    # Boot 1: an administrator's own versions.
    machine.boot()
    agent.settle(config(FIRST, {PATH: "version = 1\n"}), no_action(PATH), registry)
    for path in (CHANGED, OWN):
        machine.write(path, "from = administrator\n")
    written = {step["target"]: step["because"] for step in agent.plan(second, image)["steps"] if step["op"] == "write-file"}
    test.same("files to write, and why", written, {CHANGED: "locally-modified"})
    agent.set_target(second, image)

    # Boot 2
    machine.next_boot()
    test.same("booted image", agent.wait_done(SECOND, image)["booted"]["digest"], digest)
    brought = {path: machine.read(f"/usr{path}") for path in (BROUGHT, CHANGED, OWN)}
    test.same("what the image brings", set(brought.values()), {"from = image\n"})
    test.same(CHANGED, machine.read(CHANGED), "from = image\n")
    test.same(BROUGHT, machine.read(BROUGHT), "from = image\n")
    # That the merge does keep local versions: else this promise would show nothing.
    test.same(OWN, machine.read(OWN), "from = administrator\n")
    test.same("reboots that were asked for", len(agent.logged("REBOOT")), 1)
    test.same("faults in the journal", agent.logged("FAULT"), [])
