"""Promise: the service is what systemd can hold: ended when it hangs, started again, reloaded, stopped at once, confined.

Boots: 2
Minutes: 0.4; in a machine 5
"""

import re
import signal
import time

from harness.agent import UNIT, config, no_action

PATH, SETTINGS = "/etc/lab/settings.conf", "/etc/machine-config-agent/settings.toml"
FIRST, SECOND, THIRD, FOURTH = (f"rendered-worker-{letter}" for letter in "abcd")
# Exposure by `systemd-analyze security`; 9.6 without any hardening. Newer systemd counts a little differently.
EXPOSURE = 5.0


def play(test):
    machine, agent, images, registry = test.machine, test.agent, test.images, test.registry()
    machine.boot()
    agent.trust(registry)
    agent.set_policy(no_action(PATH))
    agent.set_target(config(FIRST, {PATH: "version = 1\n"}))
    # An interval that a person can wait for.
    machine.write(f"/etc/systemd/system/{UNIT}.d/10-lab.conf", f"[Service]\nWatchdogSec={4 * machine.TIMEOUT_FACTOR}s\n")
    machine.run("systemctl", "daemon-reload")
    agent.start()
    agent.wait_done(FIRST)

    score = machine.run("systemd-analyze", "security", "--no-pager", UNIT).strip().splitlines()[-1]
    print(f"        {score.strip(' →')}", flush=True)
    test.same(f"exposure of at most {EXPOSURE}", float(re.search(r"[0-9]+\.[0-9]", score)[0]) <= EXPOSURE, True)

    machine.write(SETTINGS, "repair = ['/etc/lab']\n[os]\nstall = '10m'\n")
    machine.run("systemctl", "reload", UNIT)
    test.same("it was read", len(agent.logged("RELOADED")), 1)
    machine.write(SETTINGS, "repair = '/etc/lab'\n")
    machine.run("systemctl", "reload", UNIT)
    told = [line["MESSAGE"] for line in agent.logged("SETTINGS_INVALID")]
    # At once, and to who asks.
    test.same("what is wrong with it", {f"{SETTINGS} is invalid: line 1" in line for line in told}, {True})
    # Until it is corrected the node is Degraded, and works.
    machine.write(SETTINGS, "repair = ['/etc/lab']\n[os]\nstall = '10m'\n")
    machine.run("systemctl", "reload", UNIT)
    test.same("it is active", agent.unit("ActiveState"), "active")

    test.same("an idle agent is not ended", agent.unit("NRestarts"), "0")
    # One that hangs is ended.
    hanging = agent.unit("MainPID")
    machine.run("kill", "-STOP", hanging)
    machine.wait_process_end(hanging)
    agent.start()
    test.same("and started again", agent.unit("NRestarts"), "1")
    agent.set_target(config(SECOND, {PATH: "version = 2\n"}))
    agent.wait_done(SECOND)
    test.same(PATH, machine.read(PATH), "version = 2\n")

    # No lock-out: the usual limit is five starts in ten seconds.
    for _ in range(6):
        agent.kill()
        agent.start()
    test.same("started again each time", agent.unit("NRestarts"), "7")
    agent.set_target(config(THIRD, {PATH: "version = 3\n"}))
    agent.wait_done(THIRD)

    # A registry that takes connections and says nothing: no progress, so no sign of life, and an end.
    digest = images.next("hangs", {PATH.lstrip("/"): "version = 4\n"}, {"machineconfig": FOURTH})
    image = registry.push(images.layout.path, "hangs", digest)
    pulling = agent.unit("MainPID")
    registry.process.send_signal(signal.SIGSTOP)
    agent.set_target(config(FOURTH, {PATH: "version = 4\n"}), image)
    machine.wait_process_end(pulling)
    registry.process.send_signal(signal.SIGCONT)
    machine.next_boot()
    test.same("the next process went on", agent.wait_done(FOURTH, image)["booted"]["digest"], digest)

    began = time.monotonic()
    machine.run("systemctl", "stop", UNIT)
    test.same("an idle agent stops within 5 s", time.monotonic() - began < 5 * machine.TIMEOUT_FACTOR, True)
    test.same("and well", (agent.unit("Result"), agent.unit("ActiveState")), ("success", "inactive"))
