"""Promise: the way back to the deployment before ends where it has to, also when the power fails on it, in the one deployment
and in the other, and when the agent is killed there; a corrected image is taken then.

Boots: 8
Minutes: 0.7; in a machine 11
"""

from harness.agent import DIES_ONCE, ORDER, UNIT, config, no_action

PATH, WRITTEN, VERSION = "/etc/lab/settings.conf", "/etc/lab/written.conf", "/usr/share/lab/version"
FIRST, SECOND, THIRD, FOURTH = (f"rendered-worker-{letter}" for letter in "abcd")
SETTINGS, WITHIN = "/etc/machine-config-agent/settings.toml", 10
CHECK = "etc/machine-config-agent/health.d/10-app"
FAILS, WELL = b"#!/bin/sh\necho 'the app does not answer' >&2\nexit 7\n", b"#!/bin/sh\nexit 0\n"


def image(test, version, check):
    """Makes an image with a health check and puts it into the registry."""
    digest = test.images.next(f"v{version}", {VERSION.lstrip("/"): f"{version}\n"}, {}, {CHECK: check})
    return test.registry().push(test.images.layout.path, f"v{version}", digest)


def target_config(name, version):
    """Returns a config with a file that is there already and one that is not."""
    return config(name, {PATH: f"version = {version}\n", WRITTEN: f"{version}\n"})


def held(test, name, old):
    """Waits until the target is held, in the deployment before, with nothing left of the update."""
    machine, agent = test.machine, test.agent
    status = agent.wait_status(f"the hold of {name}", lambda status: status["state"] == "Degraded" and status["phase"] == "Idle")
    test.same("the fault", status["fault"]["reason"], "HealthCheckFailed")
    for words in ("health check 10-app: exit code 7: the app does not answer", name):
        test.same(f"{status['fault']['message']} names {words!r}", words in status["fault"]["message"], True)
    test.same("what is current", status["current"]["config"], FIRST)
    test.same("the deployment", machine.deployment, old)
    test.same(VERSION, machine.read(VERSION), "1\n")
    test.same(PATH, machine.read(PATH), "version = 1\n")
    test.same("the file beside it is gone", machine.exists(WRITTEN), False)
    test.same("staged", status["staged"], None)


def play(test):
    machine, agent = test.machine, test.agent
    second, third, fourth = image(test, 2, FAILS), image(test, 3, FAILS), image(test, 4, WELL)

    # Boot 1
    machine.boot()
    old = machine.deployment
    machine.write(SETTINGS, f'[health]\nwithin = "{WITHIN * machine.TIMEOUT_FACTOR}s"\n')
    machine.write(f"/etc/systemd/system/{UNIT}.d/10-lab.conf", DIES_ONCE)
    machine.run("systemctl", "daemon-reload")
    agent.settle(config(FIRST, {PATH: "version = 1\n"}), no_action(PATH, WRITTEN), test.registry())
    agent.set_target(target_config(SECOND, 2), second)

    # Boot 2: the image is not healthy; the power fails when the way back is written down.
    machine.next_boot()
    machine.wait_console(f"to {SECOND}: falling-back", WITHIN + 60)
    machine.cut()

    # Boots 3 and 4: it goes on, and the power fails in the deployment before, when what was done there is to be undone.
    machine.switch_on()
    machine.wait_console("Requesting a reboot from logind: Node will reboot into its previous deployment")
    machine.next_boot(until=f"to {SECOND}: rolling-back")
    machine.cut()

    # Boot 5: nothing of it is left.
    machine.boot()
    held(test, SECOND, old)

    # Boot 6: another image that is not healthy. Somebody holds back the reboot into the deployment before.
    agent.set_target(target_config(THIRD, 3), third)
    machine.next_boot()
    machine.block_shutdown()
    blocked = agent.wait_status("the block", lambda status: "backup" in (status["waiting"] or ""))
    test.same("the phase", blocked["phase"], "FallingBack")
    agent.kill()
    agent.start()
    agent.wait_status("the block again", lambda status: "backup" in (status["waiting"] or ""))
    # The first record of the next boot's agent says that it takes back; it dies there.
    machine.write(ORDER, "MCA_FAIL_POINT=kill:recorded\n")
    machine.unblock_shutdown()

    # Boot 7
    machine.next_boot()
    held(test, THIRD, old)
    test.same("how the first agent of this boot ended", agent.unit("NRestarts"), "1")

    # Boot 8: the corrected image.
    agent.set_target(target_config(FOURTH, 4), fourth)
    machine.next_boot()
    agent.wait_done(FOURTH, fourth)
    test.same(VERSION, machine.read(VERSION), "4\n")
    test.same(PATH, machine.read(PATH), "version = 4\n")
    test.same(WRITTEN, machine.read(WRITTEN), "4\n")
    machine.run("ostree", "fsck", "--quiet")
