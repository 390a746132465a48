"""Promise: a file under the policy None is changed without a reboot, and the journal tells what was done.

Boots: 1
Minutes: 0.1; in a machine 2
"""

from lab.agent import config, no_action

PATH = "/etc/lab/settings.conf"
FIRST, SECOND = "rendered-worker-a", "rendered-worker-b"


def play(lab):
    machine, agent = lab.machine, lab.agent
    # Boot 1: the unit becomes active by its own READY=1; the first target, then the next.
    machine.boot()
    boot = machine.boot_id()
    agent.policy(no_action(PATH))
    agent.want(config(FIRST, {PATH: "version = 1\n"}))
    agent.start()
    lab.same("type of the unit", agent.unit("Type"), "notify")
    lab.same("state of the unit", agent.unit("ActiveState"), "active")
    agent.done(FIRST)
    lab.same(PATH, machine.read(PATH), "version = 1\n")
    process = agent.unit("MainPID")

    agent.want(config(SECOND, {PATH: "version = 2\n"}))
    agent.done(SECOND)
    lab.same(PATH, machine.read(PATH), "version = 2\n")
    lab.same("boot id", machine.boot_id(), boot)
    lab.same("process of the agent", agent.unit("MainPID"), process)

    committed = [line["MCA_CONFIG"] for line in agent.logged("COMMITTED", "ADOPTED")]
    lab.same("committed configs in the journal", committed, [FIRST, SECOND])
    lab.same("reboots in the journal", agent.logged("REBOOT"), [])
    lab.same("faults in the journal", agent.logged("FAULT"), [])
    # As docs/install.md says: Debian has no service that does it.
    machine.run("journalctl", "--update-catalog")
    explained = machine.run("journalctl", "--catalog", "--no-pager", "--unit", "machine-config-agent")
    lab.same("the catalog explains the lines", "Subject: The agent started" in explained, True)
