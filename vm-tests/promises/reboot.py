"""Promise: a file without a policy reboots the host by logind; the next boot verifies, and is Done.

Boots: 2
Minutes: 0.1; in a machine 1
"""

from lab.agent import config, no_action

HARMLESS, PATH = "/etc/lab/settings.conf", "/etc/lab/kernel.conf"
FIRST, SECOND = "rendered-worker-a", "rendered-worker-b"


def play(lab):
    machine, agent = lab.machine, lab.agent
    # Boot 1: the first target needs no reboot, the next one does.
    machine.boot()
    before = machine.boot_id()
    agent.policy(no_action(HARMLESS))
    files = {HARMLESS: "version = 1\n"}
    agent.want(config(FIRST, files))
    agent.start()
    agent.done(FIRST)
    lab.same("boot id with the first target", machine.boot_id(), before)
    agent.want(config(SECOND, {**files, PATH: "reserved = 1\n"}))

    # Boot 2: the agent is started by the boot, and nobody helps it.
    machine.next_boot()
    agent.done(SECOND)
    after = machine.boot_id()
    lab.same("another boot", after != before, True)
    lab.same(PATH, machine.read(PATH), "reserved = 1\n")
    boots = [line["_BOOT_ID"] for line in agent.logged("REBOOT")]
    lab.same("boots that asked for a reboot", boots, [before.replace("-", "")])
    committed = [(line["MCA_CONFIG"], line["_BOOT_ID"]) for line in agent.logged("COMMITTED", "ADOPTED")]
    lab.same("commits", committed, [(FIRST, before.replace("-", "")), (SECOND, after.replace("-", ""))])
    lab.same("faults in the journal", agent.logged("FAULT"), [])
    lab.same("boots", machine.boots, 2)
