"""Promise: a file below /etc that was changed on the host, and that the image brings, is the config's after the switch:
libostree's merge would keep the local version, so the agent writes it. What no config names stays as the administrator left it.

Boots: 2
Minutes: 0.2; in a machine 2
"""

from lab.agent import config, no_action

PATH, BROUGHT, CHANGED = "/etc/lab/settings.conf", "/etc/lab/app.conf", "/etc/lab/both.conf"
# Debian's own; no config names it, and the image has another version.
OWN = "/etc/issue.net"
FIRST, SECOND = "rendered-worker-a", "rendered-worker-b"


def play(lab):
    machine, agent, images, registry = lab.machine, lab.agent, lab.images, lab.registry()
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
    lab.same("files to write, and why", written, {CHANGED: "locally-modified"})
    agent.want(second, image)

    # Boot 2
    machine.next_boot()
    lab.same("booted image", agent.done(SECOND, image)["booted"]["digest"], digest)
    brought = {path: machine.read(f"/usr{path}") for path in (BROUGHT, CHANGED, OWN)}
    lab.same("what the image brings", set(brought.values()), {"from = image\n"})
    lab.same(CHANGED, machine.read(CHANGED), "from = image\n")
    lab.same(BROUGHT, machine.read(BROUGHT), "from = image\n")
    # That the merge does keep local versions: else this promise would show nothing.
    lab.same(OWN, machine.read(OWN), "from = administrator\n")
    lab.same("reboots that were asked for", len(agent.logged("REBOOT")), 1)
    lab.same("faults in the journal", agent.logged("FAULT"), [])
