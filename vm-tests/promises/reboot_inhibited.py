"""Promise: a reboot waits for who blocks the shutdown, names it in the status, and goes on when the block ends.

Boots: 2
Minutes: 0.1; in a machine 1
"""

from lab.agent import config

PATH, CONFIG = "/etc/lab/kernel.conf", "rendered-worker-a"


def play(lab):
    machine, agent = lab.machine, lab.agent
    machine.boot()
    before = machine.boot_id()
    machine.block_shutdown()
    agent.want(config(CONFIG, {PATH: "reserved = 1\n"}))
    agent.start()
    status = agent.status("the block", lambda status: "backup" in (status["waiting"] or ""))
    lab.same("why", status["waiting"].startswith("the reboot, which is blocked by backup (pid "), True)
    lab.same("its reason", status["waiting"].endswith("uid 0): nightly run"), True)
    lab.same("no reboot is asked for", agent.logged("REBOOT"), [])
    lab.same("it is told once", len(agent.logged("REBOOT_BLOCKED")), 1)
    lab.same("the same boot", machine.boot_id(), before)

    # The block ends. Nobody tells the agent but logind.
    machine.unblock_shutdown()
    machine.next_boot()
    agent.done(CONFIG)
    lab.same("asked for once", len(agent.logged("REBOOT")), 1)
    lab.same("faults in the journal", agent.logged("FAULT"), [])
    lab.same("boots", machine.boots, 2)
