"""The same loss on a file system alone: what a cut leaves of a disk to which a plain program has written many files."""

from pathlib import Path

from . import disk
from .paths import run
from .power_log import FLUSH, Recorder, chance, entries, leave

# As many as an image of a host brings, each as small as most of them are.
WRITES = ('for each in $(seq 1 120); do mkdir -p "$0/$each"; for file in $(seq 1 150); do echo "$file" >"$0/$each/$file";'
          ' done; done; sync --file-system "$0"')


def recorded(directory: Path, file_system):
    """Records the writes; returns the disk before, and the log."""
    before, base, log = directory / "before.raw", directory / "base.raw", directory / "writes.log"
    disk.make(before, file_system)
    run("cp", "--sparse=always", before, base)
    recorder = Recorder(base, directory / "shown", log)
    try:
        with disk.mounted(directory / "shown", directory / "mounted") as mounted:
            run("sh", "-c", WRITES, mounted / "files")
    finally:
        recorder.close()
    return before, log


def baseline_states(directory: Path, file_system, count, seed):
    """Makes states and has the kernel mount them; a line for each that it refuses. Returns how many."""
    before, log = recorded(directory, file_system)
    found, state, refused = entries(log), directory / "state.raw", 0
    print(f"  {len(found)} entries, {sum(bool(each.flags & FLUSH) for each in found)} flushes", flush=True)
    for number in range(1, count + 1):
        source = chance(seed, number)
        at = source.randrange(1, len(found) + 1)
        run("cp", "--sparse=always", before, state)
        lost = leave(log, found, at, source, state)
        try:
            with disk.mounted(state, directory / "mounted"):
                pass
        except disk.Unmountable as error:
            refused += 1
            why = str(error).partition("\n")[2].partition("\n")[0]
            print(f"refused {number:>4} cut at {at}, {lost} pages lost: {why}", flush=True)
    return refused
