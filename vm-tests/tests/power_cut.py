"""Promise: the power fails in every phase of an image switch; each time the host comes up in the old or the new deployment, goes
on by itself, and is Done with that image.

Boots: 17, or 16 when the cut in the finalization came late
Minutes: 0.6; in a machine 19
"""

from harness.agent import config, no_action

# The image can't bring the second one, so that there is something to apply, too.
PATH, VAR, BROUGHT, VERSION = ("/etc/lab/settings.conf", "/var/lib/lab/data.conf", "/etc/lab/app.conf",
                               "/usr/share/lab/version")
CHECK, HOLD = "etc/machine-config-agent/health.d/10-hold", "/var/lab-hold"
# The first one that finds the file does not end; the file is gone then, also after a power cut.
HOLDS = f"#!/bin/sh\n[ ! -e {HOLD} ] || {{ rm {HOLD}; sync /var; exec sleep infinity; }}\n".encode()
# What the journal says when a phase begins, up to the reboot.
PHASES = {"planned": "to {} is planned", "staging": "to {}: staging", "pulling": "stage-os", "applying": "to {}: applying",
          "rebooting": "Requesting a reboot from logind: Node will reboot into config {}", "shutdown": "Finalizing staged deployment"}


class Side:
    """One of the two targets."""

    def __init__(self, test, letter):
        self.name, self.version = f"rendered-worker-{letter}", f"{letter}\n"
        brought = {BROUGHT.lstrip("/"): f"from = {letter}\n", VERSION.lstrip("/"): self.version}
        self.digest = test.images.next(letter, brought, {"machineconfig": self.name}, {CHECK: HOLDS})
        self.image = test.registry().push(test.images.layout.path, letter, self.digest)
        self.files = {PATH: "version = 1\n", VAR: f"side = {letter}\n", BROUGHT: f"from = {letter}\n"}
        self.config = config(self.name, self.files)

    def set_target(self, test):
        """Sets the target. What an administrator wrote is on the disk; what the agent writes is its own business."""
        test.agent.set_target(self.config, self.image)
        test.machine.run("sync")

    def comes(self, test, phase):
        """Boots until it is there."""
        machine = test.machine
        machine.boot()
        if machine.read(VERSION) != self.version:
            machine.next_boot()
        test.same(f"booted image after a cut when {phase}", test.agent.wait_done(self.name, self.image)["booted"]["digest"], self.digest)
        for path, text in {**self.files, VERSION: self.version}.items():
            test.same(f"{path} after a cut when {phase}", machine.read(path), text)
        test.same(f"faults after a cut when {phase}", faults(test), [])


def faults(test):
    """Returns the faults in the journal, but for what a cut of the finalization is told as."""
    return [line["MESSAGE"] for line in test.agent.logged("FAULT", "RESTAGED") if "the machine went down without it" not in line["MESSAGE"]]


def play(test):
    machine, agent = test.machine, test.agent
    sides = [Side(test, "a"), Side(test, "b")]

    # Boot 1
    machine.boot()
    agent.settle(config("rendered-worker-first", {PATH: "version = 1\n"}), no_action(PATH), test.registry())

    # Boots 2 to 13: two for each phase up to the end of the shutdown.
    for number, (phase, words) in enumerate(PHASES.items()):
        side = sides[number % 2]
        side.set_target(test)
        machine.wait_console(words.format(side.name))
        machine.cut()
        side.comes(test, phase)

    # Boots 14 and 15: when the new deployment has come up and is on trial.
    machine.run("touch", HOLD)
    sides[0].set_target(test)
    machine.next_boot()
    agent.wait_status("the check", lambda status: "10-hold" in (status["waiting"] or ""))
    machine.cut()
    sides[0].comes(test, "verifying")

    # Boots 16 and 17: when Done has been told; nothing is left to do.
    sides[1].set_target(test)
    machine.next_boot()
    agent.wait_done(sides[1].name, sides[1].image)
    machine.cut()
    sides[1].comes(test, "done")
    machine.run("ostree", "fsck", "--quiet")
