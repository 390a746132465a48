"""Promise: the power fails while the next deployment is staged; the next boot goes on and ends in Done.

Boots: 3
"""

from lab.agent import config, no_action

PATH, BROUGHT, VERSION = "/etc/lab/settings.conf", "/etc/lab/app.conf", "/usr/share/lab/version"
FIRST, SECOND = "rendered-worker-a", "rendered-worker-b"


def play(lab):
    machine, agent, images, registry = lab.machine, lab.agent, lab.images, lab.registry()
    second = config(SECOND, {PATH: "version = 1\n", BROUGHT: "from = image\n"})
    brought = {BROUGHT.lstrip("/"): "from = image\n", VERSION.lstrip("/"): "2\n"}
    digest = images.next("v2", brought, {"machineconfig": SECOND})
    image = registry.push(images.layout.path, "v2", digest)

    # Boot 1: the switch begins, and the power fails when the agent writes that it stages.
    machine.boot()
    agent.settle(config(FIRST, {PATH: "version = 1\n"}), no_action(PATH), registry)
    # What the administrator wrote is on the disk; what the agent writes is its own business.
    machine.run("sync")
    agent.want(second, image)
    machine.run("sync")
    agent.status("staging", lambda status: status["phase"] == "Staging")
    machine.cut()

    # Boot 2: the old deployment; the agent goes on by itself.
    machine.boot()
    # Boot 3: what was staged in boot 2.
    machine.next_boot()
    status = agent.done(SECOND, image)
    lab.same("booted image", status["booted"]["digest"], digest)
    lab.same(BROUGHT, machine.read(BROUGHT), "from = image\n")
    machine.run("ostree", "fsck", "--quiet")
