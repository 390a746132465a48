"""Promise: a new deployment that becomes healthy after a while is waited for, by systemd's events, also by another agent
after the first one was killed; then it is Done.

Boots: 2
Minutes: 0.2; in a machine 2
"""

from harness.agent import config, no_action

PATH, VERSION = "/etc/lab/settings.conf", "/usr/share/lab/version"
FIRST, SECOND = "rendered-worker-a", "rendered-worker-b"
SETTINGS, CHECK = "/etc/machine-config-agent/settings.toml", "etc/machine-config-agent/health.d/10-app"
NAME, GO, UP = "lab-slow.service", "/run/lab-go", "/run/lab-up"
# It fails until it may start; systemd starts it again and again.
UNIT = f"""[Unit]
StartLimitIntervalSec=0
[Service]
Type=notify
NotifyAccess=all
Restart=always
RestartSec=200ms
ExecStart=/bin/sh -c '[ -e {GO} ] || exit 3; systemd-notify --ready; exec sleep infinity'
[Install]
WantedBy=multi-user.target
"""
WAITS = f"#!/bin/sh\n[ -e {UP} ] || {{ echo 'not yet' >&2; exit 1; }}\n".encode()


def play(test):
    machine, agent, images, registry = test.machine, test.agent, test.images, test.registry()
    layer = {VERSION.lstrip("/"): "2\n", f"usr/lib/systemd/system/{NAME}": UNIT}
    digest = images.next("slow", layer, {"machineconfig": SECOND}, {CHECK: WAITS})
    image = registry.push(images.layout.path, "slow", digest)

    # Boot 1
    machine.boot()
    machine.write(SETTINGS, f'[health]\nunits = ["{NAME}"]\nwithin = "5m"\n')
    agent.settle(config(FIRST, {PATH: "version = 1\n"}), no_action(PATH), registry)
    agent.set_target(config(SECOND, {PATH: "version = 1\n"}), image)

    # Boot 2: the unit is not active yet. The agent that waits for it is killed, and the next one waits on.
    machine.next_boot()
    machine.run("systemctl", "--no-block", "start", NAME)
    agent.wait_status("the unit", lambda status: f"{NAME}, which is not active yet" == status.get("waiting"))
    agent.kill()
    agent.wait_log("the next agent", lambda lines: len(lines) == 2, "STARTED")
    agent.wait_status("the unit, by another agent", lambda status: f"{NAME}, which is not active yet" == status.get("waiting"))
    machine.run("touch", GO)
    agent.wait_status("the check", lambda status: "health check 10-app: exit code 1: not yet" in (status["waiting"] or ""))
    lines = machine.run("journalctl", "--no-pager", "--output=cat", "--unit=machine-config-agent-health.service")
    test.same("the check is a unit of systemd", "Health check 10-app (for machine-config-agent)" in lines, True)
    machine.run("touch", UP)
    status = agent.wait_done(SECOND, image)
    test.same("booted image", status["booted"]["digest"], digest)
    test.same("trials", [len(agent.logged(name)) for name in ("TRIAL_STARTED", "TRIAL_PASSED")], [1, 1])
    test.same("reboots that were asked for", len(agent.logged("REBOOT")), 1)
    test.same("faults in the journal", agent.logged("FAULT"), [])
    test.same("no unit is left", machine.run("systemctl", "list-units", "--all", "--no-legend", "machine-config-agent-health*"), "")
