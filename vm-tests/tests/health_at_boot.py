"""Promise: a health check may wait until the host has come up: what the agent does does not keep a boot from being over.

Boots: 2
Minutes: 0.2; in a machine 2
"""

from harness.agent import config, no_action

PATH, VERSION = "/etc/lab/settings.conf", "/usr/share/lab/version"
FIRST, SECOND = "rendered-worker-a", "rendered-worker-b"
CHECK, NAME, BEGUN, STATE = "etc/machine-config-agent/health.d/10-up", "lab-hold.service", "/run/lab-begun", "/run/lab-state"
# The boot goes on when the check has begun, and the check when the boot is over.
UNIT = f"""[Service]
Type=oneshot
ExecStart=/bin/sh -c 'mkfifo {BEGUN} 2>/dev/null; read word <{BEGUN}'
"""
WAITS = f"""#!/bin/sh
mkfifo {BEGUN} 2>/dev/null
systemctl is-system-running >{STATE}
echo begun >{BEGUN}
timeout 120 systemctl is-system-running --wait >>{STATE}
""".encode()


def play(test):
    machine, agent, images, registry = test.machine, test.agent, test.images, test.registry()
    units = "usr/lib/systemd/system"
    links = {f"{units}/{NAME}": UNIT, f"{units}/multi-user.target.d/lab.conf": f"[Unit]\nWants={NAME}\n"}
    layer = {VERSION.lstrip("/"): "2\n", **links}
    digest = images.next("up", layer, {"machineconfig": SECOND}, {CHECK: WAITS})
    image = registry.push(images.layout.path, "up", digest)

    # Boot 1
    machine.boot()
    agent.settle(config(FIRST, {PATH: "version = 1\n"}), no_action(PATH), registry)
    agent.set_target(config(SECOND, {PATH: "version = 1\n"}), image)

    # Boot 2: the check began before the boot was over, and ended well after.
    machine.next_boot()
    status = agent.wait_done(SECOND, image)
    test.same("booted image", status["booted"]["digest"], digest)
    test.same("what systemd said to the check", machine.read(STATE).split(), ["starting", "running"])
    test.same("faults in the journal", agent.logged("FAULT"), [])
