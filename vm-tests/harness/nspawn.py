"""The container tier: a host that boots its disk with its own systemd as PID 1, at native speed."""

import contextlib
import ctypes
import fcntl
import os
import select
import signal
import socket
import subprocess
import time
from pathlib import Path

from . import composefs, disk
from .host import BOOT_LIMIT, END_LIMIT, Host
from .paths import HarnessError, run

# From sched.h.
CLONE_NEWNET = 0x40000000
# From ext4.h: EXT4_IOC_SHUTDOWN, with the flag that leaves the journal as it is on the disk; from xfs_fs.h, too:
# XFS_IOC_GOINGDOWN is the same.
SHUTDOWN, NO_LOG_FLUSH = 0x8004587D, 2
# What systemd-nspawn tells first of all: the guest's PID 1.
LEADER = "X_NSPAWN_LEADER_PID="
# As an initramfs does it: arguments are where the initramfs is to be, the disk, its deployment and its /var, and where to leave
# what ostree-prepare-root says of the root.
PREPARE_ROOT = """set -e
root=$0 disk=$1 deployment=$2 var=$3 directory=$4; shift 4
mount -t tmpfs tmpfs $root
for place in usr run proc sys dev sysroot; do mkdir $root/$place; done
for link in bin lib lib64 sbin; do ln -s usr/$link $root/$link; done
mount --bind $deployment/usr $root/usr
mount -t tmpfs tmpfs $root/run
mount -t proc proc $root/proc
mount -t sysfs sysfs $root/sys
mount --rbind /dev $root/dev
mount --bind $directory/cmdline $root/proc/cmdline
mount --rbind $disk $root/sysroot
chroot $root env -i PATH=/usr/sbin:/usr/bin /usr/lib/ostree/ostree-prepare-root /sysroot
mount --bind $disk/boot $root/sysroot/boot
mount --bind $var $root/sysroot/var
cat $root/run/ostree-booted >$directory/ostree-booted
exec "$@" """


def prepare():
    """Gives the guests a cgroup tree that systemd can use; this process has its own mount namespace."""
    # systemd-nspawn keeps a directory for each machine here; these machines are nobody else's business.
    os.makedirs("/run/systemd/nspawn", exist_ok=True)
    run("mount", "-t", "tmpfs", "tmpfs", "/run/systemd/nspawn")
    if run("stat", "-f", "-c", "%T", "/sys/fs/cgroup").strip() != "cgroup2fs":
        run("umount", "-R", "/sys/fs/cgroup")
        run("mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup")
    own_cgroup(Path("/sys/fs/cgroup"))


def own_cgroup(tree):
    """Moves this run into a cgroup of its own: guests of runs beside it would share one, and end each other's services."""
    for old in tree.glob("vm-tests-*"):
        with contextlib.suppress(OSError):  # another run clears up, too
            # That of a further guest is empty between its boots, while its run goes on.
            owner = tree / "-".join(old.name.split("-")[:3])
            if not any("populated 1" in (each / "cgroup.events").read_text() for each in {old, owner} if each.exists()):
                for directory in sorted(old.glob("**/"), reverse=True):
                    directory.rmdir()
    own = tree / f"vm-tests-{os.stat('/proc/self/ns/mnt').st_ino}"
    own.mkdir()
    (own / "cgroup.procs").write_text("0")


def another_cgroup(name):
    """Makes a cgroup beside this run's: systemd-nspawn keeps one guest in each."""
    own = Path("/proc/self/cgroup").read_text().strip().rpartition("/")[2]
    made = Path("/sys/fs/cgroup") / f"{own}-{name}"
    made.mkdir(exist_ok=True)
    return made


# The ends of the only wire of a guest with a network of its own: this run's, and the guest's.
OUTSIDE, INSIDE = "10.99.0.1", "10.99.0.2"
NETWORKS = Path("/run/netns")


def isolate():
    """Gives this run, its guests and its registry a network of their own: runs beside it don't fight for a port."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        raise HarnessError(f"no network namespace: {os.strerror(ctypes.get_errno())}")
    run("ip", "link", "set", "lo", "up")


class Machine(Host):
    """One host in a container."""

    def __init__(self, golden: Path, directory: Path, name="node"):
        super().__init__(golden, directory)
        self.name, self.cgroup, self.network = name, None, None
        (directory / "ostree-booted").touch()
        self.mounts = disk.mounted(self.disk, self.sysroot)
        self.mounts.__enter__()
        self.leader, self.deployment = None, None
        self.stateroot = self.sysroot / "ostree/deploy" / disk.STATEROOT

    def confine(self, _port):
        """Gives the guest a network of its own, before it boots: what listens on this run's loopback is not in it. Returns
        the address on which something has to listen that the guest is to reach, and that under which it finds it."""
        NETWORKS.mkdir(exist_ok=True)
        run("mount", "-t", "tmpfs", "tmpfs", NETWORKS)
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", "lab-outside", "type", "veth", "peer", "name", "lab-inside")
        run("ip", "link", "set", "lab-inside", "netns", self.name)
        run("ip", "address", "add", f"{OUTSIDE}/24", "dev", "lab-outside")
        run("ip", "link", "set", "lab-outside", "up")
        run("ip", "-netns", self.name, "address", "add", f"{INSIDE}/24", "dev", "lab-inside")
        for link in ("lo", "lab-inside"):
            run("ip", "-netns", self.name, "link", "set", link, "up")
        self.network = NETWORKS / self.name
        return OUTSIDE, OUTSIDE

    def boot(self, choose=max):
        """Boots what the boot entries name and waits until systemd says that it is up."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            self._start(notify, choose)
            self._wait_notify(notify, "READY=1")

    def switch_on(self, choose=max):
        """Begins to boot what the boot entries name."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            self._start(notify, choose)

    def _start(self, notify, choose):
        self.deployment, options = disk.entry(self.sysroot, choose)
        # Each stateroot has a /var of its own.
        self.stateroot = self.deployment.parents[1]
        notify.bind("")
        name = "@" + notify.getsockname()[1:].decode()
        self.begin_boot_log()
        self.leader = None
        command = self._nspawn(options)
        if self.cgroup:
            command = ["sh", "-c", 'echo 0 >"$0/cgroup.procs" && exec "$@"', str(self.cgroup), *command]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.console,
                                        stderr=self.console, env={**os.environ, "NOTIFY_SOCKET": name})
        self.leader = int(self._wait_notify(notify, LEADER).removeprefix(LEADER))

    def _nspawn(self, options):
        if (self.deployment / ".ostree.cfs").exists():
            return self._nspawn_composefs(options)
        root, var = str(self.sysroot), f"{self.stateroot}/var"
        binds = [f"--bind-ro={self.deployment}/usr:/usr:norbind", f"--bind-ro={root}:/sysroot:norbind",
                 f"--bind-ro={root}/boot:/boot:norbind", f"--bind={var}:/var:norbind",
                 f"--bind={var}:/sysroot/ostree/deploy/{self.stateroot.name}/var:norbind",
                 f"--bind-ro={self.directory}/ostree-booted:/run/ostree-booted"]
        # As ostree-prepare-root lays it out. The entry's arguments are PID 1's: in a container systemd reads them there.
        return [*self._nspawn_command(), f"--directory={self.deployment}", *binds, "--capability=all", "--console=read-only",
                "--boot", *options]

    def _nspawn_command(self):
        network = [f"--network-namespace-path={self.network}"] if self.network else []
        return ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", f"--machine={self.name}", "--notify-ready=yes", *network]

    def _nspawn_composefs(self, options):
        """A composefs root is laid out by the guest's own ostree-prepare-root, in mounts that end with the container."""
        cmdline, root = self.directory / "cmdline", self.directory / "root"
        cmdline.write_text(" ".join(options) + "\n")
        root.mkdir(exist_ok=True)
        return ["unshare", "--mount", "--propagation=private", "sh", "-c", PREPARE_ROOT, str(root), str(self.sysroot),
                str(self.deployment), f"{self.stateroot}/var", str(self.directory),
                *self._nspawn_command(), f"--directory={root}/sysroot", f"--bind-ro={self.directory}/ostree-booted:/run/ostree-booted",
                "--capability=all", "--console=read-only", "--boot", *options]

    def entered_again(self):
        """After a soft reboot the first entry runs: the one that a whole reboot would take."""
        self.deployment = disk.entry(self.sysroot)[0]

    def _wait_notify(self, notify, prefix):
        """Waits until systemd-nspawn, or the guest's systemd, sends a line with this prefix, and returns it."""
        poll, ended = select.poll(), os.pidfd_open(self.process.pid)
        poll.register(notify, select.POLLIN)
        poll.register(ended, select.POLLIN)
        limit = time.monotonic() + BOOT_LIMIT * self.TIMEOUT_FACTOR
        try:
            while True:
                events = dict(poll.poll(max(0, limit - time.monotonic()) * 1000))
                if notify.fileno() in events:
                    words = notify.recv(4096).decode().splitlines()
                    if found := next((word for word in words if word.startswith(prefix)), None):
                        return found
                elif ended in events:
                    raise HarnessError(f"boot {self.boots} ended with {self.process.wait()}: {self.console_tail()}")
                elif not events:
                    raise HarnessError(f"boot {self.boots} is not up after {BOOT_LIMIT * self.TIMEOUT_FACTOR} s: {self.console_tail()}")
        finally:
            os.close(ended)

    def inside(self, *command):
        """Returns the command line that runs a program in the guest."""
        spaces = ("--mount", "--pid", "--uts", "--ipc", "--cgroup", "--root", "--wd")
        network = ("--net",) if self.network else ()
        return ["nsenter", f"--target={self.leader}", *spaces, *network, "--", *map(str, command)]

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
        """Puts a file into the running guest's /etc or /var, atomically, as an administrator would."""
        # From outside: nothing of this side is in a guest that is about to go down.
        file = (self.stateroot if path.startswith("/var/") else self.deployment) / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_name(f".{file.name}.new")
        new.write_text(text)
        new.chmod(0o644)
        new.rename(file)

    def put(self, path, data, mode=0o644):
        """Puts a file into the /usr of what boots next, as if its image had brought it."""
        deployment = disk.entry(self.sysroot)[0]
        file = deployment / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        file.chmod(mode)
        composefs.put(self.sysroot, deployment, path, data, mode)

    def ended(self):
        """Returns how the boot ended, which has."""
        self.leader = None
        return self.process.wait()

    def cut(self):
        """Cuts the power: what was not written back to the disk is lost, the journals of its file systems included."""
        for path in (self.sysroot / "boot", self.sysroot):
            directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
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
        self.keep_journal()
        self.console.close()
        self.mounts.__exit__(None, None, None)
        if self.network:
            run("ip", "link", "delete", "lab-outside")
            run("ip", "netns", "delete", self.name)
            run("umount", NETWORKS)

    def _kill(self):
        # The guest's PID 1 first: all of the guest goes with it, and nsenter's other ends too.
        leader = os.pidfd_open(self.leader) if self.leader else None
        if leader is not None:
            signal.pidfd_send_signal(leader, signal.SIGKILL)
            select.select([leader], [], [], END_LIMIT)
            os.close(leader)
        self.process.kill()
        self.process.wait()
