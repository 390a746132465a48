"""Promise: the agent is killed in every phase of an image switch, and in the middle of its commit; each time the next one goes
on, and the host ends Done with that image, with one reboot, and with nothing done twice.

Boots: 7
Minutes: 0.6; in a machine 11
"""

from harness.agent import DIES_ONCE, ORDER, UNIT, config, no_action

PATH, VAR, VERSION = "/etc/lab/settings.conf", "/var/lib/lab/data.conf", "/usr/share/lab/version"


def planned(test, set_target):
    """The plan is written down, and nothing is done: the first record of a start."""
    test.machine.run("systemctl", "stop", UNIT)
    dies_at(test, "recorded", set_target)
    test.machine.run("systemctl", "--no-block", "start", UNIT)
    test.agent.wait_log("the start after the one that died", lambda lines: len(lines) == 3, "STARTED")


def staging(test, set_target):
    """The pull, which takes longer than a look at the record, has begun."""
    test.same("the phase", test.agent.kill_in("staging", set_target), "staging")


def applying(test, set_target):
    """Twice: before the files, and when all but the reboot is done, which somebody holds back."""
    test.machine.block_shutdown()
    test.same("the phase", test.agent.kill_in("applying", set_target), "applying")
    blocked = test.agent.wait_status("the block", lambda status: "backup" in (status["waiting"] or ""))
    test.same("the phase before the reboot", blocked["phase"], "Rebooting")
    test.agent.kill()
    test.agent.start()
    test.agent.wait_status("the block again", lambda status: "backup" in (status["waiting"] or ""))
    test.machine.unblock_shutdown()


def rebooting(test, set_target):
    """The reboot is written down; whether logind has been asked already is left to chance."""
    test.same("the phase", test.agent.kill_in("rebooting", set_target), "rebooting")


def verifying(test, set_target):
    """The first record that the agent of the next boot writes says so."""
    dies_at(test, "recorded", set_target)


def committing(test, set_target):
    """The new config is the committed one, and the record is still there."""
    dies_at(test, "committed", set_target)


def dies_at(test, point, set_target):
    """Has the agent that starts next die at one of its fail points."""
    test.machine.run("sh", "-c", f"echo MCA_FAIL_POINT=kill:{point} >{ORDER}")
    set_target()


KILLS = (planned, staging, applying, rebooting, verifying, committing)


def play(test):
    machine, agent, images, registry = test.machine, test.agent, test.images, test.registry()
    machine.boot()
    machine.write(f"/etc/systemd/system/{UNIT}.d/10-lab.conf", DIES_ONCE)
    machine.run("systemctl", "daemon-reload")
    agent.settle(config("rendered-worker-0", {PATH: "version = 0\n"}), no_action(PATH), registry)

    # One boot for each, with an image of its own; a file and an argument beside it.
    for number, kill in enumerate(KILLS, 1):
        name, text = f"rendered-worker-{number}", f"version = {number}\n"
        brought = f"/etc/lab/app-{number}.conf"
        machine_config = config(name, {PATH: text, VAR: text, brought: text}, kernelArguments=[f"lab.number={number}"])
        digest = images.next(f"v{number + 1}", {brought.lstrip("/"): text, VERSION.lstrip("/"): text}, {"machineconfig": name})
        image = registry.push(images.layout.path, f"v{number + 1}", digest)
        kill(test, lambda machine_config=machine_config, image=image: agent.set_target(machine_config, image))
        machine.next_boot()
        status = agent.wait_done(name, image)
        if kill in (verifying, committing):
            agent.start()
            test.same("how the first agent of this boot ended", agent.unit("NRestarts"), "1")
        test.same("booted image", status["booted"]["digest"], digest)
        for path in (PATH, VAR, VERSION, brought):
            test.same(path, machine.run("cat", path), text)
        arguments = [word for word in machine.run("cat", "/proc/cmdline").split() if word.startswith("lab.number=")]
        test.same("its argument, once, and no older one", arguments, [f"lab.number={number}"])
        test.same("faults in the journal", agent.logged("FAULT"), [])
        test.same("boots", machine.boots, number + 1)
    updates = machine.run("machine-config-agent", "history")
    test.same("an update for each", [updates.count(f"rendered-worker-{number}") > 0 for number in range(1, 7)], [True] * 6)
