"""Promise: the service is what systemd can hold: ended when it hangs, started again, reloaded, stopped at once, confined.

Boots: 1
"""

import os
import re
import select
import signal
import time
from pathlib import Path

from lab.agent import UNIT, config, no_action

PATH, SETTINGS = "/etc/lab/settings.conf", "/etc/machine-config-agent/settings.toml"
FIRST, SECOND, THIRD = "rendered-worker-a", "rendered-worker-b", "rendered-worker-c"
# Exposure by `systemd-analyze security`; 9.6 without any hardening. Newer systemd counts a little differently.
EXPOSURE = 5.0


def ended(pid):
    """Waits for the end of a process."""
    poll = os.pidfd_open(pid)
    try:
        return bool(select.select([poll], [], [], 60)[0])
    finally:
        os.close(poll)


def play(lab):
    machine, agent = lab.machine, lab.agent
    machine.boot()
    agent.policy(no_action(PATH))
    agent.want(config(FIRST, {PATH: "version = 1\n"}))
    # An interval that a person can wait for.
    machine.write(f"/etc/systemd/system/{UNIT}.d/10-lab.conf", "[Service]\nWatchdogSec=2s\n")
    machine.run("systemctl", "daemon-reload")
    agent.start()
    agent.done(FIRST)
    group = Path(f"/proc/{machine.leader}/root/sys/fs/cgroup/system.slice/{UNIT}/cgroup.procs")

    score = machine.run("systemd-analyze", "security", "--no-pager", UNIT).strip().splitlines()[-1]
    print(f"        {score.strip(' →')}", flush=True)
    lab.same(f"exposure of at most {EXPOSURE}", float(re.search(r"[0-9]+\.[0-9]", score)[0]) <= EXPOSURE, True)

    machine.write(SETTINGS, "repair = ['/etc/lab']\n[os]\nstall = '10m'\n")
    machine.run("systemctl", "reload", UNIT)
    lab.same("it was read", len(agent.logged("RELOADED")), 1)
    machine.write(SETTINGS, "repairs = ['/etc/lab']\n")
    machine.run("systemctl", "reload", UNIT)
    told = [line["MESSAGE"] for line in agent.logged("FAULT")]
    lab.same("what is wrong with it", [f"{SETTINGS} is not understood: line 1" in line for line in told], [True])
    lab.same("it is active", agent.unit("ActiveState"), "active")

    lab.same("an idle agent is not ended", agent.unit("NRestarts"), "0")
    hanging = int(group.read_text())
    os.kill(hanging, signal.SIGSTOP)
    lab.same("one that hangs is ended", ended(hanging), True)
    agent.start()
    lab.same("and started again", agent.unit("NRestarts"), "1")
    agent.want(config(SECOND, {PATH: "version = 2\n"}))
    agent.done(SECOND)
    lab.same(PATH, machine.read(PATH), "version = 2\n")

    # No lock-out: the usual limit is five starts in ten seconds.
    for count in range(6):
        pid = int(group.read_text())
        os.kill(pid, signal.SIGKILL)
        lab.same("ended", ended(pid), True)
        agent.start()
    lab.same("started again each time", agent.unit("NRestarts"), "7")
    agent.want(config(THIRD, {PATH: "version = 3\n"}))
    agent.done(THIRD)

    began = time.monotonic()
    machine.run("systemctl", "stop", UNIT)
    lab.same("an idle agent stops within 5 s", time.monotonic() - began < 5, True)
    lab.same("and well", (agent.unit("Result"), agent.unit("ActiveState")), ("success", "inactive"))
