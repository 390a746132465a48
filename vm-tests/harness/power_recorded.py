"""Power cuts at any point of one update, of which all writes and flushes of the disk were recorded."""

import shutil

from .paths import HarnessError, run
from .power_host import PowerHost
from .power_log import Recorder, chance, entries, leave
from .power_random import BUSY
from .power_update import wrong

# One state in so many is of the update without a reboot, which writes little.
FILES_EACH = 5


class RecordedHost(PowerHost):
    """A host whose disk's writes are logged."""

    def __init__(self, golden, directory):
        self.log, self.sizes = directory / "writes.log", []
        super().__init__(golden, directory)

    def create_disk(self, golden):
        """Makes the disk: a copy, behind the recorder."""
        base = self.directory / "base.raw"
        run("cp", "--sparse=always", golden, base)
        self.recorder = Recorder(base, self.disk, self.log)

    def mark(self, label):
        """Notes what the host does, and how long the log is by now."""
        super().mark(label)
        self.sizes.append((self.log.stat().st_size, label))

    def close(self):
        """Ends all of it; the log is whole then."""
        super().close()
        self.recorder.close()


class StateHost(PowerHost):
    """A host on a disk that a cut left; the disk becomes its own."""

    def create_disk(self, golden):
        """Makes the disk: takes it."""
        golden.rename(self.disk)


class Recording:
    """One recorded update."""

    def __init__(self, prepared, update):
        host = update.host(RecordedHost)(update.disk, prepared.directory / "recorded")
        try:
            update.begin(host)
            host.follow(update.is_done)
            host.flush()
            host.mark("after Done")
        finally:
            host.close()
        self.log = prepared.directory / f"writes-{update.name}.log"
        host.log.rename(self.log)
        shutil.rmtree(host.directory)
        self.entries, self.update = entries(self.log), update
        requested = next(at for at, (_, label) in enumerate(host.sizes) if label == "asked")
        self.marks = [(self._count(size), label) for size, label in host.sizes[requested:]]
        self.first, self.last = self.marks[0][0], self.marks[-1][0]
        # The last report but the mark after it: the one that says Done.
        self.done = self.marks[-2][0]

    def _count(self, size):
        """Returns how many entries are in so much of the log."""
        return sum(entry.end <= size for entry in self.entries)

    def phase(self, count):
        """Returns what the host did after so many entries."""
        return next(label for begun, label in reversed(self.marks) if begun <= count)

    def pick(self, number, cuts, turn):
        """Returns after how many entries the power fails in one of so many cuts."""
        counts = range(self.first, self.last + 1)
        busy = [count for count in counts if self.phase(count) in BUSY]
        chosen = busy if busy and turn % 2 else counts
        return chosen[(len(chosen) - 1) * number // cuts]

    def summary(self):
        """Returns a one-line summary."""
        flushes = sum(bool(entry.flags & 1) for entry in self.entries[self.first:self.last])
        written = sum(entry.length for entry in self.entries[self.first:self.last] if entry.written)
        return f"{self.last - self.first} entries, {flushes} flushes, {written // 1024} KiB"


class Recorded:
    """The series of recorded states: in turn evenly over the update and evenly over its busy phases; of each, in turn, with
    nothing lost and with what chance loses."""

    name = "recorded"

    def __init__(self, prepared, seed, selection, cuts):
        self.prepared, self.seed, self.selection, self.cuts = prepared, seed, selection, cuts
        self.recordings = {update.name: Recording(prepared, update) for update in prepared.select(selection)}
        for name, recording in self.recordings.items():
            print(f"  a recorded update, {name}: {recording.summary()}", flush=True)

    def play(self, number, keep):
        """Plays one state and returns its result; `keep` is given what it needs to be played again."""
        update, turn = self.prepared.turn(self.selection, number, FILES_EACH)
        recording = self.recordings[update.name]
        count = recording.pick(number, self.cuts, turn)
        reported = count >= recording.done
        result = {"method": self.name, "number": number, "seed": self.seed, "update": update.name,
                  "at": count - recording.first, "phase": recording.phase(count), "told": reported}
        lost, state = self.state(recording, count, number, turn)
        result |= {"lost": lost}
        host = None
        try:
            host = update.host(StateHost)(state, self.prepared.directory / "host")
            result |= update.recover(host, reported)
        except HarnessError as error:
            result |= wrong(error)
            keep(result, self.state(recording, count, number, turn)[1], host)
        finally:
            if host:
                host.close()
            shutil.rmtree(self.prepared.directory / "host", ignore_errors=True)
        return result

    def state(self, recording, count, number, turn):
        """Makes the disk of one cut; returns how many units were lost, and it."""
        disk = self.prepared.directory / "state.raw"
        run("cp", "--sparse=always", recording.update.disk, disk)
        # Neighbours of both kinds, for both updates: twice the one, twice the other.
        loss = chance(self.seed, number) if turn // 2 % 2 else None
        return leave(recording.log, recording.entries, count, loss, disk), disk
