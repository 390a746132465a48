"""Promise: the agent is killed in every phase of an image switch, and in the middle of its commit; each time the next one goes
on, and the host ends Done with that image, with one reboot, and with nothing done twice.

Boots: 7
Minutes: 0.6; in a machine 11
"""

from lab.agent import DIES_ONCE, ORDER, UNIT, config, no_action

PATH, VAR, VERSION = "/etc/lab/settings.conf", "/var/lib/lab/data.conf", "/usr/share/lab/version"


def planned(lab, want):
    """The plan is written down, and nothing is done: the first record of a start."""
    lab.machine.run("systemctl", "stop", UNIT)
    dies_at(lab, "recorded", want)
    lab.machine.run("systemctl", "--no-block", "start", UNIT)
    lab.agent.told("the start after the one that died", lambda lines: len(lines) == 3, "STARTED")


def staging(lab, want):
    """The pull, which takes longer than a look at the record, has begun."""
    lab.same("the phase", lab.agent.kill_in("staging", want), "staging")


def applying(lab, want):
    """Twice: before the files, and when all but the reboot is done, which somebody holds back."""
    lab.machine.block_shutdown()
    lab.same("the phase", lab.agent.kill_in("applying", want), "applying")
    blocked = lab.agent.status("the block", lambda status: "backup" in (status["waiting"] or ""))
    lab.same("the phase before the reboot", blocked["phase"], "Applying")
    lab.agent.kill()
    lab.agent.start()
    lab.agent.status("the block again", lambda status: "backup" in (status["waiting"] or ""))
    lab.machine.unblock_shutdown()


def rebooting(lab, want):
    """The reboot is written down; whether logind has been asked already is left to chance."""
    lab.same("the phase", lab.agent.kill_in("rebooting", want), "rebooting")


def verifying(lab, want):
    """The first record that the agent of the next boot writes says so."""
    dies_at(lab, "recorded", want)


def committing(lab, want):
    """The new config is the committed one, and the record is still there."""
    dies_at(lab, "committed", want)


def dies_at(lab, point, want):
    """Has the agent that starts next die at one of its fail points."""
    lab.machine.run("sh", "-c", f"echo MCA_FAIL_POINT=kill:{point} >{ORDER}")
    want()


KILLS = (planned, staging, applying, rebooting, verifying, committing)


def play(lab):
    machine, agent, images, registry = lab.machine, lab.agent, lab.images, lab.registry()
    machine.boot()
    machine.write(f"/etc/systemd/system/{UNIT}.d/10-lab.conf", DIES_ONCE)
    machine.run("systemctl", "daemon-reload")
    agent.settle(config("rendered-worker-0", {PATH: "version = 0\n"}), no_action(PATH), registry)

    # One boot for each, with an image of its own; a file and an argument beside it.
    for number, kill in enumerate(KILLS, 1):
        name, text = f"rendered-worker-{number}", f"version = {number}\n"
        brought = f"/etc/lab/app-{number}.conf"
        wanted = config(name, {PATH: text, VAR: text, brought: text}, kernelArguments=[f"lab.number={number}"])
        digest = images.next(f"v{number + 1}", {brought.lstrip("/"): text, VERSION.lstrip("/"): text}, {"machineconfig": name})
        image = registry.push(images.layout.path, f"v{number + 1}", digest)
        kill(lab, lambda wanted=wanted, image=image: agent.want(wanted, image))
        machine.next_boot()
        status = agent.done(name, image)
        if kill in (verifying, committing):
            agent.start()
            lab.same("how the first agent of this boot ended", agent.unit("NRestarts"), "1")
        lab.same("booted image", status["booted"]["digest"], digest)
        for path in (PATH, VAR, VERSION, brought):
            lab.same(path, machine.run("cat", path), text)
        arguments = [word for word in machine.run("cat", "/proc/cmdline").split() if word.startswith("lab.number=")]
        lab.same("its argument, once, and no older one", arguments, [f"lab.number={number}"])
        lab.same("faults in the journal", agent.logged("FAULT"), [])
        lab.same("boots", machine.boots, number + 1)
    updates = machine.run("machine-config-agent", "history")
    lab.same("an update for each", [updates.count(f"rendered-worker-{number}") > 0 for number in range(1, 7)], [True] * 6)
