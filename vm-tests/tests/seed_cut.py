"""Promise: the power is cut while a seed is made of a host; after the boot its services run, the daemon has removed what was made,
and /etc, /var and deployments are as before.

Boots: 2
Minutes: 0.3; in a machine 3
"""

from harness.agent import FOLLOW, REPORT, config, no_action
from harness.stateroots import old_system, unchanged

PATH, FIRST = "/etc/lab/settings.conf", "rendered-worker-a"
RECORD, OWN = "/var/lib/machine-config-agent/seed.json", "/var/lib/machine-config-agent/machine-config-agent-seed"
# The kubelet of a node starts with the boot; this engine runs only where something starts it.
UNITS = {"kubelet": "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n",
         "crio": "[Service]\nExecStart=/bin/sleep infinity\n"}
# It takes no room, and longer to be archived than the cut takes; it is where nobody compares.
LARGE = "/var/lib/systemd/large"
CREATE = ("machine-config-agent", "seed", "create", "--image", "registry.invalid/seed:1", "--version", "1", "--form", "classic",
          "--include", LARGE, "--yes")
RESTORED = "Restored the host after an interrupted seed"


def play(test):
    machine, agent = test.machine, test.agent

    # Boot 1: the power is cut while /var is archived.
    machine.boot()
    agent.settle(config(FIRST, {PATH: "version = 1\n"}), no_action(PATH))
    for name, text in UNITS.items():
        machine.write(f"/etc/systemd/system/{name}.service", text)
    machine.run("sh", "-ec", f"truncate -s 7G {LARGE}; systemctl daemon-reload")
    machine.run("systemctl", "enable", "--now", "kubelet.service")
    machine.run("systemctl", "start", "crio.service")
    machine.run("sync")
    before = old_system(machine)
    begin = ("systemd-run", "--quiet", "--no-block", "--collect", "--unit=lab-seed", *CREATE)
    # The record is told as it is replaced; the first word of all is the agent's report, which is there.
    agent.wait("the archives of the seed", ["tail", *FOLLOW, REPORT, RECORD],
               lambda seen: seen.get("step") == "archive-host", lambda: machine.run(*begin))
    machine.cut()

    # Boot 2: without hands.
    machine.boot()
    agent.wait_done(FIRST)
    test.same("the daemon says it", RESTORED in machine.run("journalctl", "--boot", "--no-pager", "--output=cat"), True)
    for name in UNITS:
        test.same(f"{name} runs", machine.run("systemctl", "is-active", name), "active\n")
    test.same("left of the seed", [path for path in (RECORD, OWN) if machine.exists(path)], [])
    unchanged(machine, before, "after the cut")
