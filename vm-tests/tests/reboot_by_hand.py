"""Promise: an administrator who reboots at an unsuited moment, while an image is being staged, and when it is staged and the
agent has not rebooted yet, does no harm: the update goes on and ends in Done, and the agent reboots no more than it has to.

Boots: 3
Minutes: 0.2; in a machine 11
"""

import signal

from harness.agent import config, no_action

PATH, BROUGHT, VERSION = "/etc/lab/settings.conf", "/etc/lab/app.conf", "/usr/share/lab/version"
FIRST, SECOND = "rendered-worker-a", "rendered-worker-b"
# A recent logind lets root reboot against an inhibitor by this rule alone, of which systemd brings an example.
RULES, RULE = "/usr/share/polkit-1/rules.d", "10-systemd-logind-root-ignore-inhibitors.rules"


def play(test):
    machine, agent, images, registry = test.machine, test.agent, test.images, test.registry()
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
    agent.wait_phase("staging", lambda: agent.set_target(second, image))
    registry.process.send_signal(signal.SIGSTOP)
    test.same("it was in the middle", staged(machine), [])
    machine.run("sh", "-c", f"[ ! -e {RULES}/{RULE}.example ] || cp {RULES}/{RULE}.example /etc/polkit-1/rules.d/{RULE}")
    machine.run("systemctl", "--no-block", "reboot")

    # Boot 2: the old deployment. The image is staged now, somebody holds the agent's reboot back, and the administrator
    # reboots all the same.
    machine.next_boot()
    status = agent.wait_status("the old deployment", lambda status: status["phase"] == "Staging")
    test.same("what is booted", status["booted"]["deployment"], old)
    machine.block_shutdown()
    registry.process.send_signal(signal.SIGCONT)
    status = agent.wait_status("the reboot", lambda status: "backup" in (status["waiting"] or ""))
    test.same("it is staged", status["staged"], image)
    test.same("reboots that were asked for", agent.logged("REBOOT"), [])
    machine.run("systemctl", "--no-block", "--check-inhibitors=no", "reboot")

    # Boot 3: what was staged.
    machine.next_boot()
    status = agent.wait_done(SECOND, image)
    test.same("booted image", status["booted"]["digest"], digest)
    test.same(VERSION, machine.read(VERSION), "2\n")
    for path, text in ((PATH, "version = 2\n"), (BROUGHT, "from = image\n"), (var, "version = 2\n")):
        test.same(path, machine.run("cat", path), text)
    test.same("its argument, once", machine.run("cat", "/proc/cmdline").split().count("lab.second=1"), 1)
    test.same("nothing is left for the next boot", (staged(machine), status.get("nextBoot")), ([], None))
    test.same("reboots that were asked for", agent.logged("REBOOT"), [])
    test.same("faults in the journal", agent.logged("FAULT"), [])
    test.same("boots", machine.boots, 3)


def staged(machine):
    """Returns the lines of libostree about a staged deployment."""
    return [line for line in machine.run("ostree", "admin", "status").splitlines() if "(staged)" in line]
