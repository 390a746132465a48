"""The log of a disk's writes and flushes, as QEMU's blklogwrites keeps it, and the disks that a power cut can leave of it."""

import os
import random
import select
import signal
import struct
from pathlib import Path

from .paths import HarnessError, run

# From the kernel's dm-log-writes, whose format it is.
MAGIC, VERSION = 0x6A736677736872, 1
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8
# A disk loses or keeps its cache in units of a page.
UNIT = 4096
# The share of the unflushed units that is lost.
LOSS = 0.5


class Entry:
    """One write, flush or discard."""

    def __init__(self, sector, count, flags, data, size):
        self.offset, self.length, self.flags, self.data = sector * size, count * size, flags, data
        self.written = bool(count) and not flags & (DISCARD | MARK)
        self.end = data + (self.length if self.written else 0)


def entries(log: Path):
    """Returns the entries of a log."""
    found, total = [], log.stat().st_size
    with open(log, "rb") as file:
        magic, version, _, size = struct.unpack("<QQQI", file.read(28))
        if (magic, version) != (MAGIC, VERSION):
            raise HarnessError(f"{log} is no log of writes")
        at = size
        # Not as many as the head says: it is written late.
        while at + size <= total:
            file.seek(at)
            sector, count, flags, _ = struct.unpack("<QQQQ", file.read(32))
            if not count and not flags:
                break
            found.append(Entry(sector, count, flags, at + size, size))
            at = found[-1].end
    return found


def leave(log: Path, all_entries, count, loss, disk: Path):
    """Makes a disk what a cut after `count` entries leaves; with `loss`, a source of chance, what was not flushed is lost
    in parts. The disk is as it was before the first entry. Returns how many units were lost."""
    kept = all_entries[:count]
    durable = max((at for at, entry in enumerate(kept) if entry.flags & FLUSH), default=-1) if loss else count
    lost = 0
    with open(log, "rb") as source, open(disk, "r+b") as target:
        for at, entry in enumerate(kept):
            # A discarded range keeps its old bytes: it may, and that is harsher.
            if not entry.written:
                continue
            source.seek(entry.data)
            data = source.read(entry.length)
            if at <= durable or entry.flags & FUA:
                target.seek(entry.offset)
                target.write(data)
                continue
            for unit in range(0, len(data), UNIT):
                if loss.random() < LOSS:
                    lost += 1
                else:
                    target.seek(entry.offset + unit)
                    target.write(data[unit:unit + UNIT])
    return lost


def chance(seed, number):
    """Returns the source of chance of one cut."""
    return random.Random(f"{seed}/{number}")


class Recorder:
    """A disk image shown as a file by qemu-storage-daemon, which logs what is written to it."""

    def __init__(self, base: Path, shown: Path, log: Path):
        self.shown, self.pid = shown, log.with_suffix(".pid")
        shown.touch()
        log.touch()
        # It goes into the background when the file can be used.
        run("qemu-storage-daemon", "--daemonize", "--pidfile", self.pid,
            "--blockdev", f"driver=file,node-name=file,filename={base}",
            "--blockdev", f"driver=file,node-name=log,filename={log}",
            "--blockdev", "driver=blklogwrites,node-name=disk,file=file,log=log",
            "--export", f"type=fuse,id=export,node-name=disk,mountpoint={shown},writable=on")
        if not os.path.ismount(shown):
            raise HarnessError(f"qemu-storage-daemon does not show {shown}")

    def close(self):
        """Ends it; its log is whole then."""
        process = int(self.pid.read_text())
        ended = os.pidfd_open(process)
        signal.pidfd_send_signal(ended, signal.SIGTERM)
        select.select([ended], [], [], 60)
        os.close(ended)
        if os.path.ismount(self.shown):
            run("umount", self.shown)
