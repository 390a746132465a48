"""A host on a disk of its own: what is the same in every tier. A tier says how it is booted, entered and left without power.

Nothing is waited for by looking again and again: the kernel tells that a process has ended, and that the console has grown.
"""

import ctypes
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

from . import disk
from .paths import HarnessError, run

# How a boot ends that is to be followed by another one; what systemd-nspawn gives back then (systemd-nspawn(1)).
REBOOT = 133
# At native speed seconds are usual, the limits are for a machine that has other work.
BOOT_LIMIT = 60
END_LIMIT = 60
COMMAND_LIMIT = 60
# systemd says it when all that belongs to a boot is up, as it says READY=1 in the container; and when user space alone ends.
UP, UP_AGAIN = "Startup finished in", "Soft-reboot finished in"
# From the kernel's inotify.h: a file was written to; one was renamed into the directory, one was removed from it.
IN_MODIFY, IN_MOVED_TO, IN_DELETE = 0x2, 0x80, 0x200
# The kernel tells pidwait of the end; a process that has ended already is none.
ENDS = 'echo "$0" >/run/lab-waited && { pidwait --pidfile /run/lab-waited || true; }'
# Both are read-only in every tier: a machine's are mounted so, a container's are views of what is not.
WRITABLE = ('for place in /sysroot /boot; do mount -o remount,rw $place 2>/dev/null || mount -o remount,bind,rw none $place;'
            ' done; exec "$0" "$@"')

# A recent systemd-inhibit keeps the socket to itself.
BLOCKS = ('exec systemd-inhibit --what=shutdown --mode=block --who=backup "--why=nightly run"'
          ' env NOTIFY_SOCKET="$NOTIFY_SOCKET" sh -c "systemd-notify --ready; exec sleep infinity"')


def notify_of(directory, event, *more):
    """Returns an inotify that tells of an event of files or directories."""
    libc = ctypes.CDLL(None, use_errno=True)
    notify = libc.inotify_init1(os.O_CLOEXEC)
    for path in (directory, *more):
        if notify < 0 or libc.inotify_add_watch(notify, os.fsencode(path), event) < 0:
            raise HarnessError(f"{path} can't be watched: {os.strerror(ctypes.get_errno())}")
    return notify


class Host:
    """One host."""

    # How much longer than in the container everything may take.
    TIMEOUT_FACTOR = 1
    # Where the guest finds what listens on the loopback of this run.
    HOST_ADDRESS = "127.0.0.1"

    def __init__(self, golden: Path, directory: Path):
        self.directory, self.sysroot, self.disk = directory, directory / "sysroot", directory / "disk.raw"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        self.create_disk(golden)
        self.console = open(directory / "console.log", "ab")
        self.process, self.boots, self.boot_log_start = None, 0, 0

    def create_disk(self, golden):
        """Makes the disk: a copy."""
        run("cp", "--sparse=always", "--reflink=auto", golden, self.disk)

    def run(self, *command):
        """Runs a program in the guest and returns its output."""
        try:
            return run(*self.inside(*command), timeout=COMMAND_LIMIT * self.TIMEOUT_FACTOR)
        except subprocess.TimeoutExpired as late:
            raise HarnessError(f"in the guest: {' '.join(map(str, command))}: no end after {late.timeout:.0f} s") from late

    def read(self, path):
        """Reads a file of the running guest."""
        return self.run("cat", path)

    def exists(self, path):
        """Says whether something is there in the running guest."""
        return self.run("sh", "-c", '[ ! -e "$0" ] || echo yes', path) != ""

    def run_writable(self, *command):
        """Runs a program in the guest for which /sysroot and /boot are writable, and for nobody else."""
        return self.run("unshare", "--mount", "sh", "-c", WRITABLE, *command)

    def wait_process_end(self, process):
        """Waits until a process of the guest has ended."""
        self.run("sh", "-c", ENDS, process)

    def kill(self, process):
        """Ends a process of the guest as nothing else does, and waits for its end."""
        self.run("sh", "-c", f'kill -KILL "$0" && {ENDS}', process)

    def block_shutdown(self):
        """Starts a unit that blocks a shutdown, as a backup does; the block is there then."""
        # A unit, and no program of this side: its end would wait for what entered the guest, which is stopped as the guest
        # goes down. It stays until the last, so that nobody sees the block end as the guest goes down.
        self.run("systemd-run", "--quiet", "--unit=backup", "--property=Type=notify", "--property=NotifyAccess=all",
                 "--property=DefaultDependencies=no", "sh", "-c", BLOCKS)

    def unblock_shutdown(self):
        """Ends the block. Who waited for it goes on at once."""
        self.run("systemctl", "--no-block", "stop", "backup")

    def boot_id(self):
        """Returns the id of this boot."""
        return self.run("cat", "/proc/sys/kernel/random/boot_id").strip()

    def next_boot(self, choose=max, until=None):
        """Waits until the guest reboots by itself, and boots it again; `min` chooses the last entry of the boot menu. With
        `until` that boot is left alone when it says these words, wherever it is by then."""
        self.wait_reboot()
        if until:
            self.switch_on(choose)
            self.wait_console(until, BOOT_LIMIT)
        else:
            self.boot(choose)

    def wait_reboot(self):
        """Waits until the guest reboots by itself; it is off then."""
        if (code := self.end()) != REBOOT:
            raise HarnessError(f"boot {self.boots} ended with {code} and not with a reboot: {self.console_tail()}")

    def end(self):
        """Waits for the end of this boot and returns how it ended."""
        # Not wait(timeout), which looks again and again.
        ended, limit = os.pidfd_open(self.process.pid), END_LIMIT * self.TIMEOUT_FACTOR
        try:
            ready, _, _ = select.select([ended], [], [], limit)
        finally:
            os.close(ended)
        if not ready:
            raise HarnessError(f"boot {self.boots} has not ended after {limit} s: {self.console_tail()}")
        return self.ended()

    def power_off(self):
        """Shuts the guest down."""
        # The bus goes away with the guest; whether the command got an answer does not matter.
        subprocess.run(self.inside("systemctl", "--no-block", "poweroff"), capture_output=True, check=False,
                       timeout=COMMAND_LIMIT * self.TIMEOUT_FACTOR)
        if (code := self.end()) != 0:
            raise HarnessError(f"the power off of boot {self.boots} ended with {code}")

    def wait_console(self, words, limit=END_LIMIT):
        """Waits until the console, to which the journal goes too, says these words in this boot; it may end with them."""
        limit, log = limit * self.TIMEOUT_FACTOR, self.directory / "console.log"
        until = time.monotonic() + limit
        notify, ended = notify_of(log, IN_MODIFY), os.pidfd_open(self.process.pid)
        try:
            ready = []
            while words.encode() not in log.read_bytes()[self.boot_log_start:]:
                if ended in ready:
                    raise HarnessError(f"boot {self.boots} ended before it said {words!r}: {self.console_tail()}")
                ready = select.select([notify, ended], [], [], max(0, until - time.monotonic()))[0]
                if not ready:
                    raise HarnessError(f"boot {self.boots} has not said {words!r} after {limit} s: {self.console_tail()}")
                if notify in ready:
                    os.read(notify, 65536)
        finally:
            os.close(notify)
            os.close(ended)

    def next_soft_boot(self):
        """Waits until the guest has started its user space again by itself; its kernel stays."""
        self.wait_console(UP_AGAIN, BOOT_LIMIT)
        self.begin_boot_log()
        self.entered_again()

    def entered_again(self):
        """A tier that remembers what runs looks again."""

    def begin_boot_log(self):
        """What the console says from here on is said by the next boot."""
        self.boots += 1
        self.boot_log_start = (self.directory / "console.log").stat().st_size

    def keep_journal(self):
        """Writes the journal of all boots beside the console's log; the disk is mounted."""
        with open(self.directory / "journal.json", "wb") as kept:
            subprocess.run(["journalctl", "--directory", self.journal(), "--output=json", "--no-pager"], stdout=kept,
                           stderr=self.console, check=False)

    def journal(self):
        """Returns where the guest's journal is on the mounted disk."""
        return self.sysroot / "ostree/deploy" / disk.STATEROOT / "var/log/journal"

    def console_tail(self):
        """Returns the end of what the guest wrote to its console."""
        return (self.directory / "console.log").read_text(errors="replace").strip()[-600:] or "the console is empty"
