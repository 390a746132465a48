"""Promise: an administrator makes the older deployment the one that boots, and reboots: that is told and left alone, over more
reboots too; who goes back by hand has a node that is Done again.

Boots: 5
Minutes: 0.2; in a machine 5
"""

from harness import faults
from harness.agent import config, no_action

PATH, BROUGHT, VERSION = "/etc/lab/settings.conf", "/etc/lab/app.conf", "/usr/share/lab/version"
FIRST, SECOND = "rendered-worker-a", "rendered-worker-b"
ARGUMENT = "lab.second=1"
# Debian's `ostree admin` can't make a deployment that is there the default; libostree can.
TOOL = "usr/bin/lab-os-image"


def play(test):
    machine, agent, images, registry = test.machine, test.agent, test.images, test.registry()
    layer, tool = {BROUGHT.lstrip("/"): "from = image\n", VERSION.lstrip("/"): "2\n"}, images.program("os-image")
    digest = images.next("v2", layer, {"machineconfig": SECOND}, {TOOL: tool})
    image = registry.push(images.layout.path, "v2", digest)

    def make_default(deployment):
        """As `bootc rollback` and `rpm-ostree rollback` do it."""
        machine.run_writable(f"/{TOOL}", "default", "/", deployment)

    # Boots 1 and 2: from one image to the next.
    machine.put(TOOL, tool, 0o755)
    machine.boot()
    old = agent.settle(config(FIRST, {PATH: "version = 1\n"}), no_action(PATH), registry)["booted"]["deployment"]
    second = config(SECOND, {PATH: "version = 1\n", BROUGHT: "from = image\n"}, kernelArguments=[ARGUMENT])
    agent.set_target(second, image)
    machine.next_boot()
    new = agent.wait_done(SECOND, image)["booted"]["deployment"]
    test.same("its argument, once", on_line(machine), 1)

    # The older one is made the default: the idle agent tells what the next boot would run, and nothing else happens.
    def next_is_old(status):
        words = f"the deployment {old}"
        return (status["fault"] or {}).get("reason") == "ConfigDrift" and words in status["fault"]["message"]

    agent.wait_status("what the next boot takes", next_is_old, lambda: make_default(old))
    test.same("the next boot", agent.wait_status("it", next_is_old)["nextBoot"]["deployment"], old)
    machine.run("systemctl", "--no-block", "reboot")

    # Boots 3 and 4: the older one, and it stays. The agent neither goes back by itself nor reboots.
    def rolled_back(status):
        words = (status["fault"] or {}).get("message", "")
        return f'expected target osImageURL "{image}"' in words and f"file {BROUGHT} is missing" in words

    for again in (True, False):
        machine.next_boot()
        status = agent.wait_status("drift", rolled_back)
        test.same("how it is", (status["state"], status["fault"]["reason"], status["phase"]),
                 ("Degraded", "ConfigDrift", "Idle"))
        test.same("the deployment", (status["booted"]["deployment"], status.get("nextBoot")), (old, None))
        faults.printed(test, "rollback_by_hand")
        test.same(VERSION, machine.read(VERSION), "1\n")
        test.same("the argument on the older line", on_line(machine), 0)
        agent.wait_log("the agent's word", lambda lines: len(lines) >= 2, "DRIFT")
        if again:
            machine.run("systemctl", "--no-block", "reboot")
    # The agent has looked at it and has nothing to do: it answers, and nothing was begun.
    machine.run("systemctl", "reload", "machine-config-agent.service")
    test.same("reboots that the agent asked for", len(agent.logged("REBOOT")), 1)

    # Boot 5: back by hand, too.
    make_default(new)
    machine.run("systemctl", "--no-block", "reboot")
    machine.next_boot()
    status = agent.wait_done(SECOND, image)
    test.same("booted", (status["booted"]["deployment"], status["booted"]["digest"]), (new, digest))
    test.same(BROUGHT, machine.read(BROUGHT), "from = image\n")
    test.same("its argument, still once", on_line(machine), 1)
    test.same("reboots that the agent asked for in all", len(agent.logged("REBOOT")), 1)
    test.same("updates that were begun", machine.run("machine-config-agent", "history").count(SECOND), 1)
    test.same("faults in the journal", agent.logged("FAULT"), [])


def on_line(machine):
    """Returns how often the kernel's line has the argument of the second config."""
    return machine.run("cat", "/proc/cmdline").split().count(ARGUMENT)
