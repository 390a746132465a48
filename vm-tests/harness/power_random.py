"""Power cuts at random instants: the file systems are shut down as they are on the disk, then all is killed."""

import shutil
import time

from .paths import HarnessError, run
from .power_host import PowerLost, PowerHost
from .power_log import chance
from .power_update import wrong

# Cuts also shortly after Done: what was reported has to be there.
AFTER = 0.3
# The steps of the verbs that write to a stateroot.
STATEROOT_STEPS = ("fetch-seed", "deploy-stateroot", "arm-trial", "set-default", "remove-stateroot")
# Where libostree and the agent write most; so large a share of the cuts is drawn from these phases alone.
BUSY, SHARE = ("Staging", "finalizing", *STATEROOT_STEPS), 0.45
# One cut in so many is of an update without a reboot, which is short.
FILES_EACH = 4


class Measured:
    """One update without a cut: how long, and what the host did when. A cut may come a little after its end."""

    def __init__(self, marks, began, after):
        ended = time.monotonic()
        self.length, self.after = ended - began, after
        at = [(max(0.0, when - began), label) for when, label in marks]
        ends = [when for when, _ in at[1:]] + [self.length]
        self.spans = [(when, end, label) for (when, label), end in zip(at, ends, strict=True) if end > when]

    def draw(self, source):
        """Draws an instant: over the whole update and a little more, or over its busy phases alone."""
        busy = [(start, end) for start, end, label in self.spans if label in BUSY]
        if not busy or source.random() >= SHARE:
            return source.random() * (self.length + self.after)
        at = source.random() * sum(end - start for start, end in busy)
        for start, end in busy:
            if at <= end - start:
                return start + at
            at -= end - start
        return busy[-1][1]

    def summary(self):
        """Returns a one-line summary."""
        return f"{self.length:.2f} s: " + ", ".join(f"{label} {end - start:.2f}" for start, end, label in self.spans)


def measure(prepared, update):
    """Measures one update without a cut."""
    host = update.host(PowerHost)(update.disk, prepared.directory / "host")
    try:
        began = update.begin(host)
        host.follow(update.is_done)
        return Measured(host.marks, began, AFTER)
    finally:
        host.close()


class Random:
    """The series of random instants."""

    name = "random"

    def __init__(self, prepared, seed, selection):
        self.prepared, self.seed, self.selection = prepared, seed, selection
        self.measured = {update.name: measure(prepared, update) for update in prepared.select(selection)}
        for name, measured in self.measured.items():
            print(f"  an uncut update, {name}: {measured.summary()}", flush=True)

    def play(self, number, keep):
        """Plays one cut and returns its result; `keep` is given what it needs to be played again."""
        update, _ = self.prepared.turn(self.selection, number, FILES_EACH)
        at = self.measured[update.name].draw(chance(self.seed, number))
        result = {"method": self.name, "number": number, "seed": self.seed, "update": update.name, "at": round(at, 3)}
        host = update.host(PowerHost)(update.disk, self.prepared.directory / "host")
        try:
            reported = cut(host, update, at)
            result |= {"phase": host.phase(host.cut_time), "told": reported}
            before = host.directory / "before.raw"
            run("cp", "--sparse=always", host.disk, before)
            try:
                host.mount_after_cut()
                result |= update.recover(host, reported)
            except HarnessError as error:
                result |= wrong(error)
                keep(result, before, host)
        finally:
            host.close()
            shutil.rmtree(host.directory)
        return result


def cut(host, update, at):
    """Begins the update and cuts the power; returns whether Done was reported before."""
    reported = []

    def done(report):
        # What is heard after the cut was written before it: a report that can be read was renamed to its place.
        if update.is_done(report):
            reported.append(report)
        return False

    began = update.begin(host)
    host.cut_at(began + at)
    try:
        host.follow(done)
    except Exception as error:  # a disk that is gone shows itself in many ways
        if not host.cut_time and not isinstance(error, PowerLost):
            raise
    host.wait_power_loss()
    return bool(reported)


def replay(prepared, result, disk):
    """Plays again what was kept: the disk as the cut left it."""
    update = prepared.updates[result["update"]]
    host = update.host(PowerHost)(disk, prepared.directory / "host")
    try:
        return update.recover(host, result["told"])
    finally:
        host.close()
