"""Promise: a seed is prepared beside the running system, which stays bit-identical; activated it is up and Done in its own /etc
and /var; roll-back boots the old system, bit-identical. A bad seed is refused before there is a stateroot.

Boots: 3
Minutes: 0.4; in a machine 6
"""

from harness.agent import config, no_action
from harness.seed import DATA, TEXT, Seed
from harness.stateroots import booted, enable, old_system, refused, rhcos_paths, stateroot, switch, unchanged, usr, wait_settled

PATH = "/etc/lab/settings.conf"
FIRST, OTHER = "rendered-worker-a", "rendered-worker-seed"
VERSION, NEW = "4.17.2", "rhcos_4.17.2"


def refusals(test, seed, good):
    """A bad seed is refused, and nothing of it is there."""
    machine, images, registry = test.machine, test.images, test.registry()
    half = seed.members()["etc.tgz"]
    bad = {
        "damaged": (seed.push(images, registry, "damaged", etc_tgz=half[:len(half) // 2]), VERSION, "etc.tgz"),
        "incomplete": (seed.push(images, registry, "incomplete", var_tgz=None), VERSION, "var.tgz missing"),
        "of another version": (good, "4.17.9", "the seed is of version 4.17.2, not 4.17.9"),
    }
    for what, (image, version, words) in bad.items():
        said = refused(machine, "prepare", image, "--version", version)
        test.same(f"{what}: {said}", words in said and "Next: " in said, True)
        test.same(f"left of a seed that is {what}", rhcos_paths(machine), "")


def play(test):
    machine, agent = test.machine, test.agent
    first, policy = config(FIRST, {PATH: "version = 1\n"}), no_action(PATH)
    seed = Seed(VERSION, config(OTHER, {PATH: "of the seed\n"}), policy)
    image = seed.push(test.images, test.registry())

    # Boot 1: the seed is prepared.
    machine.boot()
    old = machine.deployment
    agent.settle(first, policy, test.registry())
    enable(machine)
    before, contents = old_system(machine), usr(machine)
    refusals(test, seed, image)
    unchanged(machine, before, "after refusals")
    stateroot(machine, "prepare", image, "--version", VERSION)
    unchanged(machine, before, "after its preparation")
    test.same("the new stateroot is listed", NEW in stateroot(machine, "list"), True)

    # Boot 2: the new system.
    switch(machine, "activate", NEW, "--yes")
    test.same("its stateroot", booted(machine), NEW)
    agent.wait_done(OTHER)
    agent.wait_log("the end of the trial", lambda lines: True, "STATEROOT_PASSED")
    test.same(PATH, machine.read(PATH), "of the seed\n")
    test.same(DATA, machine.read(DATA), TEXT)
    unchanged(machine, before, "seen from the new one")

    # Boot 3: the old system.
    switch(machine, "roll-back", "--yes")
    test.same("the deployment", machine.deployment, old)
    agent.wait_done(FIRST)
    unchanged(machine, before, "after the way back")
    test.same(PATH, machine.read(PATH), "version = 1\n")
    test.same("the data of the seed", machine.exists(DATA), False)
    wait_settled(machine)
    stateroot(machine, "remove", NEW, "--yes")
    unchanged(machine, before, "after a removal")
    test.same("what is in its /usr", usr(machine), contents)
    test.same("it is listed", NEW in stateroot(machine, "list"), False)
