"""Promise: a file without a policy reboots the host by logind; the next boot verifies, and is Done.

Boots: 2
Minutes: 0.1; in a machine 1
"""

from harness.agent import config, no_action

HARMLESS, PATH = "/etc/lab/settings.conf", "/etc/lab/kernel.conf"
FIRST, SECOND = "rendered-worker-a", "rendered-worker-b"


def play(test):
    machine, agent = test.machine, test.agent
    # Boot 1: the first target needs no reboot, the next one does.
    machine.boot()
    before = machine.boot_id()
    agent.set_policy(no_action(HARMLESS))
    files = {HARMLESS: "version = 1\n"}
    agent.set_target(config(FIRST, files))
    agent.start()
    agent.wait_done(FIRST)
    test.same("boot id with the first target", machine.boot_id(), before)
    agent.set_target(config(SECOND, {**files, PATH: "reserved = 1\n"}))

    # Boot 2: the agent is started by the boot, and nobody helps it.
    machine.next_boot()
    agent.wait_done(SECOND)
    after = machine.boot_id()
    test.same("another boot", after != before, True)
    test.same(PATH, machine.read(PATH), "reserved = 1\n")
    boots = [line["_BOOT_ID"] for line in agent.logged("REBOOT")]
    test.same("boots that asked for a reboot", boots, [before.replace("-", "")])
    committed = [(line["MCA_CONFIG"], line["_BOOT_ID"]) for line in agent.logged("COMMITTED", "ADOPTED")]
    test.same("commits", committed, [(FIRST, before.replace("-", "")), (SECOND, after.replace("-", ""))])
    test.same("faults in the journal", agent.logged("FAULT"), [])
    test.same("boots", machine.boots, 2)
