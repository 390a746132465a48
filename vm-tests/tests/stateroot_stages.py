"""Promise: the stages of stateroot.yaml lead through a preparation that leaves the old system bit-identical, a reboot into the new
one, which is Done there, and back into the old one, bit-identical; idle again, nothing is left. Nobody runs a verb.

Boots: 3
Minutes: 0.4
"""

from harness.agent import config, no_action
from harness.seed import DATA, TEXT, Seed
from harness.stateroots import IDLE, Stages, booted, enable, old_system, rhcos_paths, stateroot, unchanged, usr

PATH = "/etc/lab/settings.conf"
FIRST, OTHER = "rendered-worker-a", "rendered-worker-seed"
VERSION, NEW = "4.17.2", "rhcos_4.17.2"


def play(test):
    machine, agent = test.machine, test.agent
    first, policy = config(FIRST, {PATH: "version = 1\n"}), no_action(PATH)
    seed = Seed(VERSION, config(OTHER, {PATH: "of the seed\n"}), policy)
    image = seed.push(test.images, test.registry())
    stages = Stages(agent, image, VERSION)

    # Boot 1: a stage that can't come next is refused; the seed is prepared.
    machine.boot()
    old = machine.deployment
    agent.settle(first, policy, test.registry())
    enable(machine)
    before, contents = old_system(machine), usr(machine)
    stages.set("Upgrade")
    refused = stages.wait("UpgradeInProgress", "False", "InvalidTransition")
    test.same("what may come next", refused["validNextStages"], ["Prep"])
    stages.set("Prep")
    prepared = stages.wait("PrepCompleted", "True", "Completed")
    test.same("what may come next", prepared["validNextStages"], ["Idle", "Upgrade"])
    unchanged(machine, before, "after its preparation")
    test.same("the new stateroot is listed", NEW in stateroot(machine, "list"), True)

    # Boot 2: the new system. Its /etc has no file with a stage.
    stages.set("Upgrade")
    machine.next_boot()
    test.same("its stateroot", booted(machine), NEW)
    agent.wait_done(OTHER)
    upgraded = stages.wait("UpgradeCompleted", "True", "Completed")
    test.same("what may come next", upgraded["validNextStages"], ["Idle", "Rollback"])
    agent.wait_log("the end of the trial", lambda lines: True, "STATEROOT_PASSED")
    test.same(PATH, machine.read(PATH), "of the seed\n")
    test.same(DATA, machine.read(DATA), TEXT)
    unchanged(machine, before, "seen from the new one")

    # Boot 3: the old system. The file still desires what it did when that was left.
    stages.set("Rollback")
    machine.next_boot()
    test.same("the deployment", machine.deployment, old)
    agent.wait_done(FIRST)
    back = stages.wait("RollbackCompleted", "True", "Completed")
    test.same("what may come next", back["validNextStages"], ["Idle"])
    unchanged(machine, before, "after the way back")
    test.same(PATH, machine.read(PATH), "version = 1\n")
    test.same("the data of the seed", machine.exists(DATA), False)
    stages.set("Idle")
    idle = stages.wait(*IDLE)
    test.same("what may come next", (idle["validNextStages"], len(idle["conditions"])), (["Prep"], 1))
    unchanged(machine, before, "idle again")
    test.same("what is in its /usr", usr(machine), contents)
    test.same("left of the new system", rhcos_paths(machine), "")
    test.same("boots", machine.boots, 3)
