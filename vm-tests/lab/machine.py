"""The container tier: a host that boots its disk with its own systemd as PID 1, at native speed.

Nothing is waited for by looking again and again: systemd tells that it is up, the kernel that it has ended.
"""

import ctypes
import fcntl
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from . import disk
from .place import LabError, run

# What a container's manager gives back when the guest wants to be booted again (systemd-nspawn(1)).
REBOOT = 133
# Native speed: seconds are usual, the limits are for a machine that has other work.
BOOT_LIMIT = 60
END_LIMIT = 60
COMMAND_LIMIT = 60
# From the kernel's inotify.h: a file was renamed into the directory.
IN_MOVED_TO = 0x80
# From sched.h.
CLONE_NEWNET = 0x40000000
# From ext4.h: EXT4_IOC_SHUTDOWN, with the flag that leaves the journal as it is on the disk.
SHUTDOWN, NO_LOG_FLUSH = 0x8004587D, 2


def prepare():
    """Gives the guests a cgroup tree that systemd can use; this process has its own mount namespace."""
    # systemd-nspawn keeps a directory for each machine here; these machines are nobody else's business.
    os.makedirs("/run/systemd/nspawn", exist_ok=True)
    run("mount", "-t", "tmpfs", "tmpfs", "/run/systemd/nspawn")
    if run("stat", "-f", "-c", "%T", "/sys/fs/cgroup").strip() != "cgroup2fs":
        run("umount", "-R", "/sys/fs/cgroup")
        run("mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup")


def isolate():
    """Gives this run, its guests and its registry a network of their own: runs beside it don't fight for a port."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        raise LabError(f"no network namespace: {os.strerror(ctypes.get_errno())}")
    run("ip", "link", "set", "lo", "up")


def _space(process):
    try:
        return os.readlink(process / "ns/pid")
    except OSError:
        return None


class Machine:
    """One host, on a disk of its own."""

    def __init__(self, golden: Path, place: Path):
        self.place, self.sysroot, self.disk = place, place / "sysroot", place / "disk.raw"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        run("cp", "--sparse=always", "--reflink=auto", golden, self.disk)
        (place / "ostree-booted").touch()
        self.console = open(place / "console.log", "ab")
        self.mounts = disk.mounted(self.disk, self.sysroot)
        self.mounts.__enter__()
        self.process, self.leader, self.deployment, self.boots = None, None, None, 0

    def boot(self, choose=max):
        """Boots what the boot entries name and waits until systemd says that it is up."""
        self.deployment, options = disk.entry(self.sysroot, choose)
        told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        told.bind("")
        name = "@" + told.getsockname()[1:].decode()
        self.boots += 1
        self.process = subprocess.Popen(self._nspawn(options), stdin=subprocess.DEVNULL, stdout=self.console,
                                        stderr=self.console, env={**os.environ, "NOTIFY_SOCKET": name})
        self.leader = None
        try:
            self._await_ready(told)
        finally:
            told.close()

    def _nspawn(self, options):
        root, var = str(self.sysroot), f"{self.sysroot}/ostree/deploy/{disk.STATEROOT}/var"
        binds = [f"--bind-ro={self.deployment}/usr:/usr:norbind", f"--bind-ro={root}:/sysroot:norbind",
                 f"--bind-ro={root}/boot:/boot:norbind", f"--bind={var}:/var:norbind",
                 f"--bind={var}:/sysroot/ostree/deploy/{disk.STATEROOT}/var:norbind",
                 f"--bind-ro={self.place}/ostree-booted:/run/ostree-booted"]
        # As ostree-prepare-root lays it out. The entry's arguments are PID 1's: in a container systemd reads them there.
        return ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--machine=node", "--notify-ready=yes",
                f"--directory={self.deployment}", *binds, "--capability=all", "--console=pipe", "--boot", *options]

    def _await_ready(self, told):
        poll, ended = select.poll(), os.pidfd_open(self.process.pid)
        poll.register(told, select.POLLIN)
        poll.register(ended, select.POLLIN)
        limit = time.monotonic() + BOOT_LIMIT
        try:
            while True:
                events = dict(poll.poll(max(0, limit - time.monotonic()) * 1000))
                if told.fileno() in events:
                    words = told.recv(4096).decode().splitlines()
                    for word in words:
                        if word.startswith("X_NSPAWN_LEADER_PID="):
                            self.leader = int(word.partition("=")[2])
                    if "READY=1" in words and self.leader:
                        return
                elif ended in events:
                    raise LabError(f"boot {self.boots} ended with {self.process.wait()}: {self.last_words()}")
                elif not events:
                    raise LabError(f"boot {self.boots} is not up after {BOOT_LIMIT} s: {self.last_words()}")
        finally:
            os.close(ended)

    def inside(self, *command):
        """Returns the command line that runs a program in the guest."""
        spaces = ("--mount", "--pid", "--uts", "--ipc", "--cgroup", "--root", "--wd")
        return ["nsenter", f"--target={self.leader}", *spaces, "--", *map(str, command)]

    def run(self, *command):
        """Runs a program in the guest and returns its output."""
        try:
            return run(*self.inside(*command), timeout=COMMAND_LIMIT)
        except subprocess.TimeoutExpired as late:
            raise LabError(f"in the guest: {' '.join(map(str, command))}: no end after {late.timeout:.0f} s") from late

    def block_shutdown(self):
        """Starts a unit that blocks a shutdown, as a backup does; the block is there then."""
        # A unit, and no program of this side: its end would wait for nsenter, which is stopped as the guest goes down.
        # It stays until the last, so that nobody sees the block end as the guest goes down.
        self.run("systemd-run", "--quiet", "--unit=backup", "--property=Type=notify", "--property=NotifyAccess=all",
                 "--property=DefaultDependencies=no",
                 "systemd-inhibit", "--what=shutdown", "--mode=block", "--who=backup", "--why=nightly run",
                 "sh", "-c", "systemd-notify --ready; exec sleep infinity")

    def unblock_shutdown(self):
        """Ends the block. Who waited for it goes on at once."""
        self.run("systemctl", "--no-block", "stop", "backup")

    def stop(self, entered):
        """Ends a program that was started in the guest: the program itself, then nsenter, which waits for it."""
        try:
            for child in Path(f"/proc/{entered.pid}/task/{entered.pid}/children").read_text().split():
                os.kill(int(child), signal.SIGKILL)
            entered.wait(END_LIMIT)
        except (OSError, subprocess.TimeoutExpired):
            # The guest is going down and has stopped both.
            entered.kill()
            entered.wait()

    def write(self, path, text):
        """Puts a file into the running guest's /etc, atomically, as an administrator would."""
        place = self.deployment / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        new = place.with_name(f".{place.name}.new")
        new.write_text(text)
        new.chmod(0o644)
        new.rename(place)

    def put(self, path, data, mode=0o644):
        """Puts a file into the /usr of what boots next, as if its image had brought it."""
        place = disk.entry(self.sysroot)[0] / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        place.chmod(mode)

    def traced(self, log, *command):
        """Starts a program under strace, from outside of the guest, which needs none of its own."""
        return subprocess.Popen(["strace", "-f", "-e", "trace=execve", "-s", "200", "-o", str(log), *map(str, command)],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def outside(self, process):
        """Returns the number that a process of the guest has outside of it."""
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                numbers = re.search(r"^NSpid:\t(.*)$", status.read_text(), re.MULTILINE)[1].split()
            except (OSError, TypeError):
                continue  # it has ended, or is the kernel's
            spaces = os.readlink(f"/proc/{self.leader}/ns/pid"), _space(status.parent)
            if len(numbers) > 1 and numbers[-1] == str(process) and spaces[0] == spaces[1]:
                return int(status.parent.name)
        raise LabError(f"process {process} of the guest is not found")

    def read(self, path):
        """Reads a file of the running guest's /etc or /usr."""
        return (self.deployment / path.lstrip("/")).read_text()

    def changes(self, place, limit):
        """Yields the text of a file that is replaced at each change, now and after each, until the limit."""
        libc = ctypes.CDLL(None, use_errno=True)
        notify = libc.inotify_init1(os.O_CLOEXEC)
        try:
            if notify < 0 or libc.inotify_add_watch(notify, os.fsencode(place.parent), IN_MOVED_TO) < 0:
                raise LabError(f"{place.parent} can't be watched: {os.strerror(ctypes.get_errno())}")
            yield place.read_text() if place.exists() else ""
            while select.select([notify], [], [], max(0, limit - time.monotonic()))[0]:
                os.read(notify, 65536)
                yield place.read_text() if place.exists() else ""
        finally:
            os.close(notify)

    def boot_id(self):
        """Returns the id of this boot."""
        return self.run("cat", "/proc/sys/kernel/random/boot_id").strip()

    def next_boot(self, choose=max):
        """Waits until the guest reboots by itself, and boots it again; `min` chooses the last entry of the boot menu."""
        code = self.end()
        if code != REBOOT:
            raise LabError(f"boot {self.boots} ended with {code} and not with a reboot: {self.last_words()}")
        self.boot(choose)

    def end(self):
        """Waits for the end of this boot and returns how it ended."""
        # Not wait(timeout), which looks again and again.
        ended = os.pidfd_open(self.process.pid)
        try:
            ready, _, _ = select.select([ended], [], [], END_LIMIT)
        finally:
            os.close(ended)
        if not ready:
            raise LabError(f"boot {self.boots} has not ended after {END_LIMIT} s: {self.last_words()}")
        self.leader = None
        return self.process.wait()

    def power_off(self):
        """Shuts the guest down."""
        # The bus goes away with the guest; whether the command got an answer does not matter.
        subprocess.run(self.inside("systemctl", "--no-block", "poweroff"), capture_output=True, check=False,
                       timeout=COMMAND_LIMIT)
        if (code := self.end()) != 0:
            raise LabError(f"the power off of boot {self.boots} ended with {code}")

    def cut(self):
        """Cuts the power: what was not written back to the disk is lost, the journals of its file systems included."""
        for place in (self.sysroot / "boot", self.sysroot):
            directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.ioctl(directory, SHUTDOWN, NO_LOG_FLUSH.to_bytes(4, "little"))
            finally:
                os.close(directory)
        self._kill()
        self.leader = None
        self.mounts.__exit__(None, None, None)
        self.mounts = disk.mounted(self.disk, self.sysroot)
        self.mounts.__enter__()

    def close(self):
        """Ends whatever still runs, keeps the journal, lets go of the disk."""
        if self.process and self.process.poll() is None:
            self._kill()
        with open(self.place / "journal.json", "wb") as kept:
            subprocess.run(["journalctl", "--directory", self.journal(), "--output=json", "--no-pager"], stdout=kept,
                           stderr=self.console, check=False)
        self.console.close()
        self.mounts.__exit__(None, None, None)

    def _kill(self):
        # The guest's PID 1 first: all of the guest goes with it, and nsenter's other ends too.
        leader = os.pidfd_open(self.leader) if self.leader else None
        if leader is not None:
            signal.pidfd_send_signal(leader, signal.SIGKILL)
            select.select([leader], [], [], END_LIMIT)
            os.close(leader)
        self.process.kill()
        self.process.wait()

    def journal(self):
        """Returns where the guest's journal is kept."""
        return self.sysroot / "ostree/deploy" / disk.STATEROOT / "var/log/journal"

    def last_words(self):
        """Returns the end of what the guest wrote to its console."""
        return (self.place / "console.log").read_text(errors="replace").strip()[-600:] or "the console is empty"
