"""Promise: the service is what systemd can hold: ended when it hangs, started again, reloaded, stopped at once, confined.

Boots: 2
Minutes: 0.4; in a machine 5
"""

import re
import signal
import time

from lab.agent import UNIT, config, no_action

PATH, SETTINGS = "/etc/lab/settings.conf", "/etc/machine-config-agent/settings.toml"
FIRST, SECOND, THIRD, FOURTH = (f"rendered-worker-{letter}" for letter in "abcd")
# Exposure by `systemd-analyze security`; 9.6 without any hardening. Newer systemd counts a little differently.
EXPOSURE = 5.0


def play(lab):
    machine, agent, images, registry = lab.machine, lab.agent, lab.images, lab.registry()
    machine.boot()
    agent.trust(registry)
    agent.policy(no_action(PATH))
    agent.want(config(FIRST, {PATH: "version = 1\n"}))
    # An interval that a person can wait for.
    machine.write(f"/etc/systemd/system/{UNIT}.d/10-lab.conf", f"[Service]\nWatchdogSec={4 * machine.PATIENCE}s\n")
    machine.run("systemctl", "daemon-reload")
    agent.start()
    agent.done(FIRST)

    score = machine.run("systemd-analyze", "security", "--no-pager", UNIT).strip().splitlines()[-1]
    print(f"        {score.strip(' →')}", flush=True)
    lab.same(f"exposure of at most {EXPOSURE}", float(re.search(r"[0-9]+\.[0-9]", score)[0]) <= EXPOSURE, True)

    machine.write(SETTINGS, "repair = ['/etc/lab']\n[os]\nstall = '10m'\n")
    machine.run("systemctl", "reload", UNIT)
    lab.same("it was read", len(agent.logged("RELOADED")), 1)
    machine.write(SETTINGS, "repairs = ['/etc/lab']\n")
    machine.run("systemctl", "reload", UNIT)
    told = [line["MESSAGE"] for line in agent.logged("SETTINGS_INVALID")]
    lab.same("what is wrong with it", [f"{SETTINGS} is not understood: line 1" in line for line in told], [True])
    lab.same("it is active", agent.unit("ActiveState"), "active")

    lab.same("an idle agent is not ended", agent.unit("NRestarts"), "0")
    # One that hangs is ended.
    hanging = agent.unit("MainPID")
    machine.run("kill", "-STOP", hanging)
    machine.gone(hanging)
    agent.start()
    lab.same("and started again", agent.unit("NRestarts"), "1")
    agent.want(config(SECOND, {PATH: "version = 2\n"}))
    agent.done(SECOND)
    lab.same(PATH, machine.read(PATH), "version = 2\n")

    # No lock-out: the usual limit is five starts in ten seconds.
    for _ in range(6):
        agent.kill()
        agent.start()
    lab.same("started again each time", agent.unit("NRestarts"), "7")
    agent.want(config(THIRD, {PATH: "version = 3\n"}))
    agent.done(THIRD)

    # A registry that takes connections and says nothing: no progress, so no sign of life, and an end.
    digest = images.next("hangs", {PATH.lstrip("/"): "version = 4\n"}, {"machineconfig": FOURTH})
    image = registry.push(images.layout.path, "hangs", digest)
    pulling = agent.unit("MainPID")
    registry.process.send_signal(signal.SIGSTOP)
    agent.want(config(FOURTH, {PATH: "version = 4\n"}), image)
    machine.gone(pulling)
    registry.process.send_signal(signal.SIGCONT)
    machine.next_boot()
    lab.same("the next process went on", agent.done(FOURTH, image)["booted"]["digest"], digest)

    began = time.monotonic()
    machine.run("systemctl", "stop", UNIT)
    lab.same("an idle agent stops within 5 s", time.monotonic() - began < 5 * machine.PATIENCE, True)
    lab.same("and well", (agent.unit("Result"), agent.unit("ActiveState")), ("success", "inactive"))
