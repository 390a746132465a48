"""Promise: a file under the policy None is changed without a reboot, and the journal tells what was done.

Boots: 1
Minutes: 0.1; in a machine 2
"""

from harness.agent import config, no_action

PATH = "/etc/lab/settings.conf"
FIRST, SECOND = "rendered-worker-a", "rendered-worker-b"


def play(test):
    machine, agent = test.machine, test.agent
    # Boot 1: the unit becomes active by its own READY=1; the first target, then the next.
    machine.boot()
    boot = machine.boot_id()
    agent.set_policy(no_action(PATH))
    agent.set_target(config(FIRST, {PATH: "version = 1\n"}))
    agent.start()
    test.same("type of the unit", agent.unit("Type"), "notify")
    test.same("state of the unit", agent.unit("ActiveState"), "active")
    agent.wait_done(FIRST)
    test.same(PATH, machine.read(PATH), "version = 1\n")
    process = agent.unit("MainPID")

    agent.set_target(config(SECOND, {PATH: "version = 2\n"}))
    agent.wait_done(SECOND)
    test.same(PATH, machine.read(PATH), "version = 2\n")
    test.same("boot id", machine.boot_id(), boot)
    test.same("process of the agent", agent.unit("MainPID"), process)

    committed = [line["MCA_CONFIG"] for line in agent.logged("COMMITTED", "ADOPTED")]
    test.same("committed configs in the journal", committed, [FIRST, SECOND])
    test.same("reboots in the journal", agent.logged("REBOOT"), [])
    test.same("faults in the journal", agent.logged("FAULT"), [])
    # As docs/install.md says: Debian has no service that does it.
    machine.run("journalctl", "--update-catalog")
    explained = machine.run("journalctl", "--catalog", "--no-pager", "--unit", "machine-config-agent")
    test.same("the catalog explains the lines", "Subject: The agent started" in explained, True)
