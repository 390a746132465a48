"""Promise: an administrator who reboots at an unsuited moment, while an image is being staged, and when it is staged and the
agent has not rebooted yet, does no harm: the update goes on and ends in Done, and the agent reboots no more than it has to.

Boots: 3
Minutes: 0.2; in a machine 11
"""

import signal

from lab.agent import config, no_action

PATH, BROUGHT, VERSION = "/etc/lab/settings.conf", "/etc/lab/app.conf", "/usr/share/lab/version"
FIRST, SECOND = "rendered-worker-a", "rendered-worker-b"


def play(lab):
    machine, agent, images, registry = lab.machine, lab.agent, lab.images, lab.registry()
    # Arguments and a file beside the image: nothing is to be done twice, or lost.
    var = "/var/lib/lab/data.conf"
    second = config(SECOND, {PATH: "version = 2\n", BROUGHT: "from = image\n", var: "version = 2\n"},
                    kernelArguments=["lab.second=1"])
    layer = {BROUGHT.lstrip("/"): "from = image\n", VERSION.lstrip("/"): "2\n"}
    digest = images.next("v2", layer, {"machineconfig": SECOND})
    image = registry.push(images.layout.path, "v2", digest)

    # Boot 1: the registry stands still in the middle of the pull, and the administrator reboots.
    machine.boot()
    old = agent.settle(config(FIRST, {PATH: "version = 1\n"}), no_action(PATH), registry)["booted"]["deployment"]
    agent.comes_to("staging", lambda: agent.want(second, image))
    registry.process.send_signal(signal.SIGSTOP)
    lab.same("it was in the middle", staged(machine), [])
    machine.run("systemctl", "--no-block", "reboot")

    # Boot 2: the old deployment. The image is staged now, somebody holds the agent's reboot back, and the administrator
    # reboots all the same.
    machine.next_boot()
    status = agent.status("the old deployment", lambda status: status["phase"] == "Staging")
    lab.same("what is booted", status["booted"]["deployment"], old)
    machine.block_shutdown()
    registry.process.send_signal(signal.SIGCONT)
    status = agent.status("the reboot", lambda status: "backup" in (status["waiting"] or ""))
    lab.same("it is staged", status["staged"], image)
    lab.same("reboots that were asked for", agent.logged("REBOOT"), [])
    machine.run("systemctl", "--no-block", "--check-inhibitors=no", "reboot")

    # Boot 3: what was staged.
    machine.next_boot()
    status = agent.done(SECOND, image)
    lab.same("booted image", status["booted"]["digest"], digest)
    lab.same(VERSION, machine.read(VERSION), "2\n")
    for path, text in ((PATH, "version = 2\n"), (BROUGHT, "from = image\n"), (var, "version = 2\n")):
        lab.same(path, machine.run("cat", path), text)
    lab.same("its argument, once", machine.run("cat", "/proc/cmdline").split().count("lab.second=1"), 1)
    lab.same("nothing is left for the next boot", (staged(machine), status.get("nextBoot")), ([], None))
    lab.same("reboots that were asked for", agent.logged("REBOOT"), [])
    lab.same("faults in the journal", agent.logged("FAULT"), [])
    lab.same("boots", machine.boots, 3)


def staged(machine):
    """Returns the lines of libostree about a staged deployment."""
    return [line for line in machine.run("ostree", "admin", "status").splitlines() if "(staged)" in line]
