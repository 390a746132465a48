"""Power cuts of a machine: QEMU is killed at a random instant. What the guest has not given to its disk is lost."""

import copy
import os
import re
import select
import shutil
import time

from . import disk, guest, qemu
from .host import IN_MODIFY, notify_of
from .paths import HarnessError, run
from .power_host import Follower, PowerLost
from .power_log import chance
from .power_random import FILES_EACH, Measured
from .power_update import VERSION, Wrong, consistent, inspect, request, wrong

# An emulated boot takes half a minute on a quiet machine, staging its tens of seconds.
LIMIT = 600
AFTER = 2
# What the journal, which goes to the console too, says of an update.
SAID = re.compile(rb"machine-config-agent\[[0-9]+\]: (?:Update \S+ to \S+(?:: (staging|applying|verifying)| is (planned):)"
                  rb"|Node will (reboot) into|Config Drift Monitor started, watching against (\S+))")
LABELS = {b"staging": "Staging", b"applying": "Applying", b"verifying": "Verifying", b"planned": "Planned",
          b"reboot": "finalizing"}


class PowerMachine(Follower, qemu.Machine):
    """A machine that is followed by its console."""

    def flush(self):
        """Writes everything to the disk that is not there yet."""
        self.run("sync")

    def boot_again(self):
        """Boots again."""
        self.switch_on()

    def _wait_for(self, goal, instant=None):
        """Hears the console until the agent is Done with a config, and returns true; or until this boot has ended, or until an
        instant, at which the power fails."""
        log = self.directory / "console.log"
        limit, at = time.monotonic() + LIMIT, self.boot_log_start
        notify, ended = notify_of(log, IN_MODIFY), os.pidfd_open(self.process.pid)
        try:
            while True:
                # Whole lines: the rest of the last one comes yet.
                text = log.read_bytes()[at:].rpartition(b"\n")[0]
                at += len(text)
                for said in SAID.finditer(text):
                    word, done = next(filter(None, said.groups()[:3]), None), said[4]
                    if word:
                        self.mark(LABELS[word])
                    elif done == goal.encode():
                        self.mark("Done")
                        return True
                until = min(limit, instant or limit)
                ready = select.select([notify, ended], [], [], max(0, until - time.monotonic()))[0]
                if notify in ready:
                    os.read(notify, 65536)
                elif ended in ready:
                    return False
                elif until == instant:
                    raise PowerLost("the power failed")
                else:
                    raise HarnessError(f"nothing of {goal} within {LIMIT} s: {self.console_tail()}")
        finally:
            os.close(notify)
            os.close(ended)


class KilledMachines:
    """The series of killed machines."""

    name = "machine"

    def __init__(self, prepared, seed, selection):
        self.prepared, self.seed, self.selection = prepared, seed, selection
        self.updates = {update.name: named(update) for update in prepared.select(selection)}
        self.frozen = qemu.MachineSnapshot.load(prepared.disk, prepared.key)
        self.measured = {name: self._measure(update) for name, update in self.updates.items()}
        for name, measured in self.measured.items():
            print(f"  an uncut update, {name}, in QEMU: {measured.summary()}", flush=True)

    def _begin(self, update):
        """Has a machine go on from where it was Done with A, and asks for the update. Returns it and when."""
        host = PowerMachine(self.prepared.disk, self.prepared.directory / "host", self.prepared.key)
        host.resume_from(self.frozen)
        request(host, update)
        return host, time.monotonic()

    def _measure(self, update):
        host, began = self._begin(update)
        try:
            host.follow(update.config)
            return Measured(host.marks, began, AFTER)
        finally:
            host.close()
            shutil.rmtree(host.directory)

    def play(self, number, keep):
        """Plays one cut and returns its result; `keep` is given what it needs to be played again."""
        update = self.updates[self.prepared.turn(self.selection, number, FILES_EACH)[0].name]
        at = self.measured[update.name].draw(chance(self.seed, number))
        result = {"method": self.name, "number": number, "seed": self.seed, "update": update.name, "at": round(at, 3)}
        host, began = self._begin(update)
        try:
            reported = cut(host, update, began + at)
            result |= {"phase": host.marks[-1][1], "told": reported}
            before = host.directory / "before.raw"
            run("cp", "--sparse=always", host.disk, before)
            try:
                result |= recover(host, update, reported)
            except HarnessError as error:
                result |= wrong(error)
                host.cut()
                with disk.mounted(host.disk, host.sysroot):
                    keep(result, before, host)
        finally:
            host.close()
            shutil.rmtree(host.directory)
        return result


def replay(prepared, result, kept):
    """Plays again what was kept: the disk as the cut left it."""
    host = PowerMachine(kept, prepared.directory / "host", prepared.key)
    try:
        return recover(host, named(prepared.updates[result["update"]]), result["told"])
    finally:
        host.close()


def named(update):
    """Returns an update with its image as a guest in QEMU names it."""
    update = copy.copy(update)
    update.image = update.image and update.image.replace("127.0.0.1", guest.GATEWAY)
    return update


def cut(host, update, instant):
    """Lets an update go on until an instant, and cuts the power; returns whether Done was reported before."""
    reported = False
    try:
        host.follow(update.config, instant)
        reported = True
        # A cut after Done: nothing happens at an instant drawn by chance, there is no event to wait for.
        select.select([], [], [], max(0, instant - time.monotonic()))
    except PowerLost:
        pass
    host.cut()
    return reported


def recover(host, update, reported):
    """Boots what a cut left, and looks on until the update is Done without hands. Returns what it was."""
    with disk.mounted(host.disk, host.sysroot):
        came = inspect(host, update, reported)
        booted = (disk.entry(host.sysroot)[0] / VERSION.lstrip("/")).read_text().strip()
    began, first = time.monotonic(), host.boots
    try:
        host.switch_on(max)
        host.follow(update.config)
    except HarnessError as error:
        raise Wrong("hands", str(error)) from error
    seconds, boots = time.monotonic() - began, host.boots - first
    # Done was reported: from here on it has to be on the disk, whatever comes.
    host.cut()
    with disk.mounted(host.disk, host.sysroot):
        inspect(host, update, True)
        if update.image:
            consistent(host.sysroot / "ostree/repo")
    return {"files": came, "booted": booted, "boots": boots, "seconds": round(seconds, 2)}
