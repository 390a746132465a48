"""Promise: a new deployment whose health check fails is left for the one before, by itself and within the set time; the
cause is told, the target is held, and a corrected image is taken.

Boots: 4
Minutes: 0.4; in a machine 6
"""

from harness import faults
from harness.agent import config, no_action

PATH, WRITTEN, VERSION = "/etc/lab/settings.conf", "/etc/lab/written.conf", "/usr/share/lab/version"
FIRST, SECOND, THIRD = "rendered-worker-a", "rendered-worker-b", "rendered-worker-c"
SETTINGS, WITHIN = "/etc/machine-config-agent/settings.toml", 10
CHECK = "etc/machine-config-agent/health.d/10-app"
FAILS = b"#!/bin/sh\necho 'the app does not answer' >&2\nexit 7\n"
# Besides the time of the trial: the reboot, the agent's start and the undo, on a machine that has other work.
AROUND = 60


def play(test):
    machine, agent, images, registry = test.machine, test.agent, test.images, test.registry()
    digest = images.next("ill", {VERSION.lstrip("/"): "2\n"}, {}, {CHECK: FAILS})
    image = registry.push(images.layout.path, "ill", digest)
    corrected = images.next("well", {VERSION.lstrip("/"): "3\n"}, {}, {CHECK: b"#!/bin/sh\nexit 0\n"})
    well = registry.push(images.layout.path, "well", corrected)

    # Boot 1: version 1. The target brings another image, and a file that is written beside it.
    machine.boot()
    old, within = machine.deployment, WITHIN * machine.TIMEOUT_FACTOR
    machine.write(SETTINGS, f'[health]\nwithin = "{within}s"\n')
    agent.settle(config(FIRST, {PATH: "version = 1\n"}), no_action(PATH), registry)
    agent.set_target(config(SECOND, {PATH: "version = 2\n", WRITTEN: "2\n"}), image)

    # Boot 2: version 2. It does not prove itself; what is waited for is told meanwhile.
    machine.next_boot()
    test.same("another deployment", machine.deployment != old, True)
    test.same(VERSION, machine.read(VERSION), "2\n")
    agent.wait_status("the check that fails", lambda status: "10-app: exit code 7" in (status["waiting"] or ""))

    # Boot 3: version 1 again, as it was; Degraded with the cause, and nothing is tried any more.
    machine.next_boot()
    test.same("the deployment before", machine.deployment, old)
    status = agent.wait_status("the hold", lambda status: status["state"] == "Degraded" and status["phase"] == "Idle")
    test.same("the fault", status["fault"]["reason"], "HealthCheckFailed")
    faults.printed(test, "image_ill")
    for words in ("health check 10-app: exit code 7: the app does not answer", SECOND):
        test.same(f"it names {words!r}", words in status["fault"]["message"], True)
    test.same(VERSION, machine.read(VERSION), "1\n")
    test.same(PATH, machine.read(PATH), "version = 1\n")
    test.same("the file beside it is gone", machine.exists(WRITTEN), False)
    test.same("reboots that were asked for", len(agent.logged("REBOOT")), 2)
    started, undone = agent.logged("TRIAL_STARTED"), agent.logged("ROLLED_BACK")
    test.same("one trial, one undo", (len(started), len(undone)), (1, 1))
    micros = int(undone[0]["__REALTIME_TIMESTAMP"]) - int(started[0]["__REALTIME_TIMESTAMP"])
    test.same(f"back within the time ({micros / 1e6:.1f} s)", within <= micros / 1e6 < within + AROUND * machine.TIMEOUT_FACTOR, True)

    # The command that the message advises shows what the check said, and not the agent's own lines.
    said = machine.run("journalctl", "--no-pager", "--output=cat", "--identifier=machine-config-agent-health").splitlines()
    test.same("the check's own words", any(line == "10-app: the app does not answer" for line in said), True)
    test.same("nothing of the agent", any("failed before this start" in line for line in said), False)

    # The target is held: a restart, which looks at everything, leaves it so.
    machine.run("systemctl", "restart", "machine-config-agent.service")
    agent.wait_status("the hold", lambda status: status["state"] == "Degraded" and status["phase"] == "Idle")
    test.same("reboots that were asked for", len(agent.logged("REBOOT")), 2)

    # Who has only this boot's journal reads there, too, why the node is as it is.
    lines = machine.run("journalctl", "--no-pager", "--output=cat", "--boot", "MCA_FAULT=HealthCheckFailed").splitlines()
    for words in ("failed before this start (falling-back)", "failed before this start (undone)"):
        test.same(f"told once: {words}", sum(words in line and "the app does not answer" in line for line in lines), 1)

    # Boot 4: the corrected image.
    agent.set_target(config(THIRD, {PATH: "version = 3\n", WRITTEN: "3\n"}), well)
    machine.next_boot()
    status = agent.wait_done(THIRD, well)
    test.same("booted image", status["booted"]["digest"], corrected)
    test.same(WRITTEN, machine.read(WRITTEN), "3\n")
    test.same("trials that ended", len(agent.logged("TRIAL_PASSED", "TRIAL_FAILED")), 2)
