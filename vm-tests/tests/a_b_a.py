"""Promise: from one image and its files to another and back, again and again: each boot ends in Done with the desired config, and
nothing grows: no deployments, no state, no boot entries, no memory.

Boots: 65, or one more than `--reboots` says
Minutes: 2.5; in a machine 1.5 for each reboot
"""

import time

from harness import host_snapshot
from harness.agent import config, no_action

PATH, ONLY_A, BROUGHT, VERSION = "/etc/lab/settings.conf", "/etc/lab/a.conf", "/etc/lab/app.conf", "/usr/share/lab/version"
STATE, HISTORY, KEPT = "/var/lib/machine-config-agent", 64, 2
# One line of progress for so many reboots.
EVERY = 64
# What is compared at the end is as it was after so many: both images have been there, and gone once.
SETTLED = 4


class Side:
    """One of the two targets."""

    def __init__(self, test, letter):
        self.letter, self.name = letter, f"rendered-worker-{letter}"
        self.files = {PATH: f"side = {letter}\n", BROUGHT: f"from = {letter}\n"}
        if letter == "a":
            self.files[ONLY_A] = "only = a\n"
        # The image carries its config, but for one file: that one was changed before, so the agent writes it each time.
        brought = {path.lstrip("/"): text for path, text in {**self.files, VERSION: f"{letter}\n"}.items() if path != PATH}
        self.digest = test.images.next(letter, brought, {"machineconfig": self.name})
        self.image = test.registry().push(test.images.layout.path, letter, self.digest)
        self.config = config(self.name, self.files)

    def holds(self, test):
        """Waits until the host is at it, and looks at all of it."""
        machine = test.machine
        status = test.agent.wait_done(self.name, self.image)
        test.same("booted image", status["booted"]["digest"], self.digest)
        test.same("staged image", status["staged"], None)
        # One program for all: they are read after each of many reboots.
        expected = [*self.files.values(), f"{self.letter}\n"]
        test.same("files", machine.run("cat", *self.files, VERSION), "".join(expected))
        test.same("the file of the other side", machine.exists(ONLY_A), self.letter == "a")
        found = host_snapshot.deployments(machine)
        test.same(f"no more than {KEPT} deployments: {found}", len(found) <= KEPT, True)


def sizes(test):
    """Returns what must not grow, in files and in bytes."""
    machine = test.machine
    files = host_snapshot.found(machine, STATE, "-type", "f", "-printf", r"%P\t%s\0")
    rest = [int(size) for path, size in files.items() if "history" not in path.split("/")]
    test.same("updates that are remembered", len(files) - len(rest) <= HISTORY, True)
    boot = host_snapshot.boot(machine)
    return {"files of the state": len(rest), "bytes of the state": sum(rest),
            "files of /boot": len(boot), "bytes of /boot": sum(boot.values()), "objects": host_snapshot.objects(machine)}


def memory(test):
    """Returns the agent's resident memory, in KiB."""
    return int(test.machine.run("ps", "--no-headers", "--format=rss", test.agent.unit("MainPID")))


def play(test):
    machine, agent, registry = test.machine, test.agent, test.registry()
    sides = [Side(test, "a"), Side(test, "b")]

    # Boot 1: version 1, taken over. From here to `a`, to `b`, to `a` ...
    machine.boot()
    agent.settle(config("rendered-worker-first", {PATH: "version = 1\n"}), no_action(PATH), registry)

    # Boots 2 to the last: one side each.
    settled, used, began = None, [], time.monotonic()
    for number in range(1, test.reboots + 1):
        side = sides[(number - 1) % 2]
        agent.set_target(side.config, side.image)
        machine.next_boot()
        side.holds(test)
        used.append(memory(test))
        if number == SETTLED:
            settled = sizes(test)
        if number % EVERY == 0:
            each = (time.monotonic() - began) / number
            print(f"        {number} of {test.reboots} reboots, {each:.2f} s each; agent {used[-1]} KiB; {sizes(test)}", flush=True)
            test.same("faults in the journal", agent.logged("FAULT"), [])

    # The last boot: what grew.
    now = sizes(test)
    if settled:
        # Names and times in it have not always the same length.
        grown = {key: (settled[key], now[key]) for key in now if now[key] > settled[key] * 1.02}
        test.same("what grew", grown, {})
        part = max(1, len(used) // 4)
        first, last = sorted(used[:part])[part // 2], sorted(used[-part:])[part // 2]
        test.same(f"memory grew from {first} to {last} KiB", last <= first * 1.1, True)
    test.same("faults in the journal", agent.logged("FAULT"), [])
    machine.run("ostree", "fsck", "--quiet")
