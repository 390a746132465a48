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

from . import agent, disk, machine
from .host import END_LIMIT, IN_MOVED_TO, notify_of
from .place import LabError, run

# The longest wait for one report: staging a small layer takes seconds.
REPORT_LIMIT = 60
# A host that needs more boots than this does not get there by itself.
MOST_BOOTS = 6


class Fallen(LabError):
    """The power failed."""


class Followed:
    """A host of any tier that is followed over its reboots. How it is heard (`_hear`) and comes up again, its tier says."""

    def __init__(self, *where):
        self.marks, self.goal = [], None
        super().__init__(*where)

    def mark(self, label):
        """Notes what the host does from now on."""
        self.marks.append((time.monotonic(), label))

    def follow(self, *what):
        """Follows the host over its reboots until what is listened for was heard, and returns that."""
        first = self.boots
        while not (found := self._hear(*what)):
            self.mark("booting")
            self.reboots()
            if self.boots - first >= MOST_BOOTS:
                raise LabError(f"not there after {MOST_BOOTS} reboots")
            self.come_up()
        return found


class PowerHost(Followed, machine.Machine):
    """One host in a container, followed from outside: nothing of the lab goes down with it."""

    def __init__(self, golden, place):
        self.cutter, self.fell = None, None
        self.dark = os.eventfd(0, os.EFD_CLOEXEC)
        self.reports = None
        super().__init__(golden, place)

    def phase(self, instant):
        """Returns what the host did at an instant."""
        return next((label for when, label in reversed(self.marks) if when <= instant), "before")

    def boot(self, choose=max):
        """Boots; the agent's reports are heard from its first one on."""
        self._forget()
        deployment, _ = disk.entry(self.sysroot, choose)
        self.reports = Heard(deployment / agent.CONTROL.lstrip("/"))
        super().boot(choose)
        if self.fell:
            raise Fallen("while it booted")

    def come_up(self):
        """Boots again."""
        self.boot()
        self.mark("started")

    def _hear(self, wanted, heard=lambda report: None):
        """Hears reports until one is wanted, or until this boot has ended; `heard` is given each."""
        poll, ended = select.poll(), os.pidfd_open(self.process.pid)
        for source in (self.reports.notify, ended, self.dark):
            poll.register(source, select.POLLIN)
        last = None
        # A report that is on the disk already as it has to be is not written again: what is there counts, when who says it
        # is at work.
        present = self._is_at_work()
        try:
            while True:
                ready = dict(poll.poll(0 if present else REPORT_LIMIT * 1000))
                if self.dark in ready:
                    raise Fallen("while it was followed")
                if self.reports.notify in ready or (present and not ready):
                    present, last = False, self.reports.read()
                    self.mark(label(last, self.goal))
                    heard(last)
                    if wanted(last):
                        return last
                elif ended in ready:
                    return None
                else:
                    raise LabError(f"no other report within {REPORT_LIMIT} s; the last: {json.dumps(last)}")
        finally:
            os.close(ended)

    def _is_at_work(self):
        """Says whether the agent has said READY=1 in this boot, and has a report."""
        asked = subprocess.run(self.inside("systemctl", "is-active", agent.UNIT), stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, check=False, timeout=END_LIMIT)
        return asked.returncode == 0 and self.reports.file.exists()

    def flush(self):
        """Writes everything to the disk that is not there yet."""
        run("sync", "--file-system", self.sysroot, self.sysroot / "boot")

    def cut_at(self, instant):
        """Has the power fail at an instant, in the clock of time.monotonic()."""
        places = [os.open(place, os.O_RDONLY | os.O_DIRECTORY) for place in (self.sysroot / "boot", self.sysroot)]
        self.cutter = threading.Thread(target=self._fall, args=(instant, places), daemon=True)
        self.cutter.start()

    def _fall(self, instant, places):
        # Nothing happens at an instant drawn by chance: there is no event to wait for.
        threading.Event().wait(max(0, instant - time.monotonic()))
        self.fell = time.monotonic()
        for place in places:
            fcntl.ioctl(place, machine.SHUTDOWN, machine.NO_LOG_FLUSH.to_bytes(4, "little"))
            os.close(place)
        os.eventfd_write(self.dark, 1)
        end_guests()

    def fallen(self):
        """Waits for the cut, and lets go of the disk, which is then as the cut left it."""
        self.cutter.join()
        self._end()
        self.mounts.__exit__(None, None, None)
        self.mounts = None

    def on_again(self):
        """Mounts what the cut left; the file systems' own journals are replayed, and nothing else is done."""
        self.mounts = disk.mounted(self.disk, self.sysroot)
        self.mounts.__enter__()
        self.cutter, self.fell = None, None
        os.eventfd_read(self.dark)

    def close(self):
        """Ends whatever still runs and lets go of the disk; nothing is kept of it here."""
        if self.cutter:
            self.cutter.join()
        self._end()
        self.console.close()
        os.close(self.dark)
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


class Heard:
    """The agent's reports of one boot."""

    def __init__(self, place: Path):
        self.file = place / "report.json"
        self.notify = notify_of(place, IN_MOVED_TO)

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
                raise LabError(f"process {process.name} of a guest does not end")
        except ProcessLookupError:
            pass
        finally:
            os.close(number)
