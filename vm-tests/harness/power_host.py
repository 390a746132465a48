"""A host whose power fails at an instant that is set beforehand, whatever it does then: also while it goes down or boots."""

import fcntl
import json
import os
import select
import signal
import subprocess
import threading
import time
from pathlib import Path

from . import agent, disk, nspawn
from .host import END_LIMIT, IN_MOVED_TO, notify_of
from .paths import HarnessError, run

# The longest wait for one report: staging a small layer takes seconds.
REPORT_LIMIT = 60
# A host that needs more boots than this does not get there by itself.
MOST_BOOTS = 6


class PowerLost(HarnessError):
    """The power failed."""


class Follower:
    """A host of any tier that is followed over its reboots. How it reports (`_wait_for`) and boots again depends on its tier."""

    def __init__(self, *where):
        self.marks, self.goal = [], None
        super().__init__(*where)

    def mark(self, label):
        """Notes what the host does from now on."""
        self.marks.append((time.monotonic(), label))

    def follow(self, *what):
        """Follows the host over its reboots until `_wait_for` returns a result, and returns it."""
        first = self.boots
        while not (found := self._wait_for(*what)):
            self.mark("booting")
            self.wait_reboot()
            if self.boots - first >= MOST_BOOTS:
                raise HarnessError(f"not there after {MOST_BOOTS} reboots")
            self.boot_again()
        return found


class PowerHost(Follower, nspawn.Machine):
    """One host in a container, followed from outside: nothing of the harness goes down with it."""

    def __init__(self, golden, directory):
        self.cutter, self.cut_time = None, None
        self.power_lost = os.eventfd(0, os.EFD_CLOEXEC)
        self.reports = None
        super().__init__(golden, directory)

    def phase(self, instant):
        """Returns what the host did at an instant."""
        return next((label for when, label in reversed(self.marks) if when <= instant), "before")

    def boot(self, choose=max):
        """Boots; the agent's reports are read from its first one on."""
        self._forget()
        deployment, _ = disk.entry(self.sysroot, choose)
        self.reports = ReportReader(deployment / agent.CONTROL.lstrip("/"))
        super().boot(choose)
        if self.cut_time:
            raise PowerLost("while it booted")

    def boot_again(self):
        """Boots again."""
        self.boot()
        self.mark("started")

    def _wait_for(self, condition, on_report=lambda report: None):
        """Reads reports until one matches or this boot has ended; `on_report` is given each."""
        poll, ended = select.poll(), os.pidfd_open(self.process.pid)
        for source in (self.reports.notify, ended, self.power_lost):
            poll.register(source, select.POLLIN)
        last = None
        # A report that is on the disk already as it has to be is not written again: what is there counts, when who says it
        # is at work.
        present = self._is_at_work()
        try:
            while True:
                ready = dict(poll.poll(0 if present else REPORT_LIMIT * 1000))
                if self.power_lost in ready:
                    raise PowerLost("while it was followed")
                if self.reports.notify in ready or (present and not ready):
                    present, last = False, self.reports.read()
                    self.mark(label(last, self.goal))
                    on_report(last)
                    if condition(last):
                        return last
                elif ended in ready:
                    return None
                else:
                    raise HarnessError(f"no other report within {REPORT_LIMIT} s; the last: {json.dumps(last)}")
        finally:
            os.close(ended)

    def _is_at_work(self):
        """Says whether the agent has said READY=1 in this boot, and has a report."""
        query = subprocess.run(self.inside("systemctl", "is-active", agent.UNIT), stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, check=False, timeout=END_LIMIT)
        return query.returncode == 0 and self.reports.file.exists()

    def flush(self):
        """Writes everything to the disk that is not there yet."""
        run("sync", "--file-system", self.sysroot, self.sysroot / "boot")

    def cut_at(self, instant):
        """Has the power fail at an instant, in the clock of time.monotonic()."""
        mounts = [os.open(path, os.O_RDONLY | os.O_DIRECTORY) for path in (self.sysroot / "boot", self.sysroot)]
        self.cutter = threading.Thread(target=self._cut_power, args=(instant, mounts), daemon=True)
        self.cutter.start()

    def _cut_power(self, instant, mounts):
        # Nothing happens at an instant drawn by chance: there is no event to wait for.
        threading.Event().wait(max(0, instant - time.monotonic()))
        self.cut_time = time.monotonic()
        for mount in mounts:
            fcntl.ioctl(mount, nspawn.SHUTDOWN, nspawn.NO_LOG_FLUSH.to_bytes(4, "little"))
            os.close(mount)
        os.eventfd_write(self.power_lost, 1)
        end_guests()

    def wait_power_loss(self):
        """Waits for the cut, and lets go of the disk, which is then as the cut left it."""
        self.cutter.join()
        self._end()
        self.mounts.__exit__(None, None, None)
        self.mounts = None

    def mount_after_cut(self):
        """Mounts what the cut left; the file systems' own journals are replayed, and nothing else is done."""
        self.mounts = disk.mounted(self.disk, self.sysroot)
        self.mounts.__enter__()
        self.cutter, self.cut_time = None, None
        os.eventfd_read(self.power_lost)

    def close(self):
        """Ends whatever still runs and lets go of the disk; nothing is kept of it here."""
        if self.cutter:
            self.cutter.join()
        self._end()
        self.console.close()
        os.close(self.power_lost)
        if self.mounts:
            self.mounts.__exit__(None, None, None)

    def _end(self):
        """Ends all of the guest, in whatever state it is: its PID 1 is known only once it has booted."""
        end_guests()
        self.leader = None
        if self.process:
            self._kill()
        end_guests()
        self._forget()

    def _forget(self):
        if self.reports:
            self.reports.close()
        self.reports = None


def label(report, goal):
    """Returns the word for what an agent does: its phase, or that it is Done; the shutdown finalizes what was staged."""
    if report["phase"] == "Rebooting":
        return "finalizing"
    if report["state"] != "Done":
        return report["phase"]
    if goal is None:
        return "before"
    # Done with what was before: nothing has begun.
    return "Done" if report["currentConfig"] == goal else "asked"


class ReportReader:
    """The agent's reports of one boot."""

    def __init__(self, directory: Path):
        self.file = directory / "report.json"
        self.notify = notify_of(directory, IN_MOVED_TO)

    def read(self):
        """Returns the newest report; what told of it and of older ones is done with."""
        while select.select([self.notify], [], [], 0)[0]:
            os.read(self.notify, 65536)
        return self.last()

    def last(self):
        """Returns the newest report."""
        return json.loads(self.file.read_text())

    def close(self):
        """Ends it."""
        os.close(self.notify)


def end_guests():
    """Ends every process that is in another mount namespace than this one: all that the guests have left."""
    own = os.readlink("/proc/self/ns/mnt")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "ns/mnt") == own:
                continue
            number = os.pidfd_open(int(process.name))
        except OSError:
            continue  # it has ended
        try:
            signal.pidfd_send_signal(number, signal.SIGKILL)
            if not select.select([number], [], [], END_LIMIT)[0]:
                raise HarnessError(f"process {process.name} of a guest does not end")
        except ProcessLookupError:
            pass
        finally:
            os.close(number)
