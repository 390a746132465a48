"""Promise: a reboot waits for who blocks the shutdown, names it in the status, and goes on when the block ends.

Boots: 2
Minutes: 0.1; in a machine 1
"""

from harness import faults
from harness.agent import config

PATH, CONFIG = "/etc/lab/kernel.conf", "rendered-worker-a"


def play(test):
    machine, agent = test.machine, test.agent
    machine.boot()
    before = machine.boot_id()
    machine.block_shutdown()
    agent.set_target(config(CONFIG, {PATH: "reserved = 1\n"}))
    agent.start()
    status = agent.wait_status("the block", lambda status: "backup" in (status["waiting"] or ""))
    test.same("why", status["waiting"].startswith("the reboot, which is blocked by backup (pid "), True)
    faults.printed(test, "reboot_blocked")
    test.same("its reason", status["waiting"].endswith("uid 0): nightly run"), True)
    test.same("no reboot is asked for", agent.logged("REBOOT"), [])
    test.same("it is told once", len(agent.logged("REBOOT_BLOCKED")), 1)
    test.same("the same boot", machine.boot_id(), before)

    # The block ends. Nobody tells the agent but logind.
    machine.unblock_shutdown()
    machine.next_boot()
    agent.wait_done(CONFIG)
    test.same("asked for once", len(agent.logged("REBOOT")), 1)
    test.same("faults in the journal", agent.logged("FAULT"), [])
    test.same("boots", machine.boots, 2)
