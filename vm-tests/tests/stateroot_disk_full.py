"""Promise: a seed for which the disk has no space is refused before it is pulled, with the bytes that are needed and free; a disk
that fills up in the middle leaves nothing of it. The host stays as it was, and with space again the same command ends well.

Boots: 1
Minutes: 0.4; in a machine 3
"""

import random

from harness import host_snapshot
from harness.agent import config, no_action
from harness.seed import Seed
from harness.space import MIB, empty, fill, kept_free, kept_from_users
from harness.stateroots import old_system, refused, stateroot, unchanged

PATH = "/etc/lab/settings.conf"
ROOT = "/var"
FIRST, OTHER = "rendered-worker-a", "rendered-worker-seed"
VERSION, NEW = "4.17.5", "rhcos_4.17.5"
# What nothing makes smaller, so that it is refused; and what is packed a thousandfold, so that nobody sees it come.
NOISE, ZEROS = 24 * MIB, 192 * MIB


def seed(test, tag, data):
    """Makes a seed with a large file in its /var."""
    made = Seed(VERSION, config(OTHER, {}), no_action(PATH))
    made.var["var/lib/seed/large"] = (0o644, data)
    return made.push(test.images, test.registry(), tag)


def full(test, image, words):
    """Prepares it on a full disk: it is refused with these words, and nothing of it is left."""
    machine = test.machine
    said = refused(machine, "prepare", image, "--version", VERSION)
    test.same(f"{said} has {words}", all(word in said for word in words) and "Next: " in said, True)
    left = machine.run("find", "/sysroot/ostree", "/boot/ostree", "-maxdepth", 2, "-name", "*rhcos*")
    test.same("left of it", left, "")


def play(test):
    machine, agent = test.machine, test.agent
    large = seed(test, "noise", random.Random(NOISE).randbytes(NOISE))
    hidden = seed(test, "zeros", bytes(ZEROS))
    machine.boot()
    agent.settle(config(FIRST, {PATH: "version = 1\n"}), no_action(PATH), test.registry())
    before, objects = old_system(machine), host_snapshot.objects(machine)

    # Before: the size of its layers says that it does not fit.
    fill(machine, ROOT, kept_free(machine, ROOT) + NOISE // 2)
    full(test, large, ("MiB are needed in /sysroot", "are free"))
    test.same("objects in the repository", host_snapshot.objects(machine), objects)
    empty(machine, ROOT)
    unchanged(machine, before, "after a refusal")

    # In the middle: it fits until it is unpacked.
    fill(machine, ROOT, kept_from_users(machine, ROOT) + 4 * MIB)
    full(test, hidden, ("var.tgz", "No space left on device"))
    empty(machine, ROOT)
    unchanged(machine, before, "after a disk that filled up")

    # The same once more, with space; then nothing stays.
    stateroot(machine, "prepare", hidden, "--version", VERSION)
    size = machine.run("stat", "--format=%s", f"/sysroot/ostree/deploy/{NEW}/var/lib/seed/large")
    test.same("the large file", int(size), ZEROS)
    unchanged(machine, before, "after its preparation")
    stateroot(machine, "remove", NEW, "--yes")
    unchanged(machine, before, "after a removal")
    test.same("objects in the repository", host_snapshot.objects(machine), objects)
