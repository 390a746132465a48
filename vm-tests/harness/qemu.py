"""The machine tier: the same disk in QEMU, with its own firmware, boot loader, kernel and initramfs.

Each boot is a QEMU of its own, which ends where a machine would reset or go off; it tells by QMP which of both it was. Programs
are run in the guest by ssh. What the guest has not given to its disk is lost with it; the rest survives in the page cache.

The first boot is the same for all: one machine is frozen when it has booted, and every other one goes on from there.
"""

import json
import os
import re
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from . import composefs, disk, grub, guest
from .host import BOOT_LIMIT, END_LIMIT, REBOOT, UP, Host
from .image import building, digest_of
from .paths import HarnessError, run

# A KVM that is not the processor's own (pvm) opens, too, but boots no kernel of Debian's.
KVM = os.access("/dev/kvm", os.R_OK | os.W_OK) and bool(re.search(r" (vmx|svm)\b", Path("/proc/cpuinfo").read_text()))
# Two processors are quicker than one with all of systemd, and a newer one has more to emulate.
HARDWARE = ("-machine", "pc,usb=off,vmport=off", "-accel", "kvm" if KVM else "tcg,thread=multi", "-cpu", "Nehalem", "-smp", "2",
            "-m", "1024", "-nodefaults", "-no-user-config", "-display", "none", "-boot", "strict=on",
            "-device", "virtio-rng-pci", "-no-reboot")
# Where a guest without another way out finds what is forwarded to it, and what QEMU runs for each such connection.
FORWARDED = "10.0.2.100"
RELAY = Path(__file__).with_name("relay.py")
# Replaced atomically, as an administrator would.
WRITE = 'mkdir -p "${1%/*}" && cat > "$1.new" && chmod 644 "$1.new" && mv "$1.new" "$1"'


class Monitor:
    """QEMU's monitor (QMP): its messages and our commands."""

    def __init__(self, process):
        self.process, self.text, self.messages = process, b"", []
        # QEMU sends events only after this.
        self.send("qmp_capabilities")

    def send(self, command, **arguments):
        """Gives a command."""
        self.process.stdin.write(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        self.process.stdin.flush()

    def until(self, condition, limit):
        """Returns the first message that matches; none if QEMU has ended."""
        limit += time.monotonic()
        while True:
            if found := next(filter(condition, self.messages), None):
                return found
            if not select.select([self.process.stdout], [], [], max(0, limit - time.monotonic()))[0]:
                raise HarnessError(f"QEMU has not said what was waited for; it said {self.messages}")
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                return None
            *lines, self.text = (self.text + more).split(b"\n")
            self.messages += map(json.loads, lines)


class MachineSnapshot:
    """A machine that has booted and stands still: its disk and its memory."""

    def __init__(self, directory):
        self.disk, self.memory = directory / "disk.raw", directory / "memory"

    @classmethod
    def load(cls, golden, key):
        """Returns the one of a disk; it is booted and frozen when it is first asked for."""
        directory = golden.with_name(f"{golden.stem}-frozen-{digest_of(*HARDWARE)}")
        if not directory.exists():
            with building(directory) as (new, work):
                template = Machine(golden, work / "template", key)
                try:
                    template.boot_cold()
                    template.freeze(new / "memory")
                finally:
                    template.close()
                template.disk.rename(new / "disk.raw")
                shutil.rmtree(template.directory)
        return cls(directory)


class Machine(Host):
    """One host in a machine."""

    # Emulated, what takes seconds in a container takes its tens of seconds: 3 to 4 times as long on a quiet machine.
    TIMEOUT_FACTOR = 2 if KVM else 5
    HOST_ADDRESS = guest.GATEWAY

    def __init__(self, golden: Path, directory: Path, key=None):
        super().__init__(golden, directory)
        self.golden, self.key, self.fresh, self.network = golden, key or golden.with_name("key"), True, ""
        # The path of a socket is short.
        self.channel = tempfile.TemporaryDirectory(prefix="lab-")

    def confine(self, port):
        """Takes the guest's ways out, before it boots, but for one to this port. Returns the address on which something has
        to listen there, and that under which the guest finds it."""
        forward = f"guestfwd=tcp:{FORWARDED}:{port}-cmd:{sys.executable} -B {RELAY} 127.0.0.1 {port}"
        self.network = f",restrict=on,{forward}"
        return "127.0.0.1", FORWARDED

    def boot(self, choose=max):
        """Switches the machine on and waits until systemd says that it is up. A fresh disk has been booted already."""
        if self.fresh and choose is max:
            self.resume_from(MachineSnapshot.load(self.golden, self.key))
        else:
            self.boot_cold(choose)

    def boot_cold(self, choose=max):
        """Switches the machine on and waits until systemd says that it is up."""
        self.switch_on(choose)
        self.wait_console(UP, BOOT_LIMIT)
        self._enter()

    def resume_from(self, frozen):
        """Goes on from where a machine was frozen."""
        self.disk.unlink()
        self.create_disk(frozen.disk)
        self.switch_on(max, "-incoming", f"exec:cat {shlex.quote(str(frozen.memory))}")
        if not self.monitor.until(lambda message: message.get("event") == "RESUME", BOOT_LIMIT):
            raise HarnessError(f"{frozen.memory} does not go on: {self.console_tail()}")
        self._enter()
        # Its clock stood still, too.
        self.run("date", f"--set=@{time.time():.3f}")

    def freeze(self, memory):
        """Writes its memory to a file; it ends, and its disk is what the memory knows of."""
        self.run("sync")
        run(*self._ssh("-O", "exit"))
        self.monitor.send("migrate-set-capabilities", capabilities=[{"capability": "events", "state": True}])
        self.monitor.send("migrate", uri=f"exec:cat > {shlex.quote(str(memory))}")
        ended = self.monitor.until(lambda message: message.get("event") == "MIGRATION" and
                                   message["data"]["status"] in ("completed", "failed"), BOOT_LIMIT)
        if not ended or ended["data"]["status"] == "failed":
            raise HarnessError(f"its memory is not written: {self.monitor.messages}")
        self.monitor.send("quit")
        self.process.wait(END_LIMIT)

    def _enter(self):
        # One connection for all: an emulated handshake takes a second.
        run(*self._ssh("-M", "-N", "-f"), timeout=END_LIMIT * self.TIMEOUT_FACTOR)

    def entered_again(self):
        """After a soft reboot its sshd is another one."""
        subprocess.run(self._ssh("-O", "exit"), capture_output=True, check=False, timeout=END_LIMIT * self.TIMEOUT_FACTOR)
        self._enter()

    def boot_until_reset(self):
        """Switches the machine on, and waits until its kernel has given up and reset it."""
        self.switch_on()
        self.wait_reboot()

    def switch_on(self, choose=max, *more):
        """Switches the machine on, and does not wait for anything."""
        self.begin_boot_log()
        self.fresh = False
        choice = grub.LAST if choose is min else "first"
        self.process = subprocess.Popen([*self._qemu(choice), *more], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.console)
        self.monitor = Monitor(self.process)

    def _qemu(self, choice):
        return ["qemu-system-x86_64", *HARDWARE, "-qmp", "stdio", "-smbios", f"type=1,version={choice}",
                "-drive", f"file={self.disk},format=raw,if=none,id=disk,discard=unmap", "-device", "virtio-blk-pci,drive=disk",
                "-netdev", f"user,id=net,ipv6=off,hostfwd=tcp:127.0.0.1:22-:22{self.network}", "-device", "virtio-net-pci,netdev=net,romfile=",
                "-chardev", f"file,id=serial,path={self.directory}/console.log,append=on", "-serial", "chardev:serial"]

    def _ssh(self, *options):
        # Nobody else is in this network, and every build has keys of its own.
        return ["ssh", "-F", "none", "-i", str(self.key), "-S", f"{self.channel.name}/ssh", "-o", "BatchMode=yes",
                "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
                *options, "root@127.0.0.1"]

    def inside(self, *command):
        """Returns the command line that runs a program in the guest."""
        return [*self._ssh(), shlex.join(map(str, command))]

    def stop(self, entered):
        """Ends a program that was started in the guest: sshd hangs up on it."""
        entered.kill()
        entered.wait()

    @property
    def deployment(self):
        """Returns the booted deployment, as the guest names it; from outside it is not there."""
        # Not the link on the kernel's command line: it is another one as soon as the boot entries are written anew.
        # Of a composefs, /etc alone is a directory of the disk.
        return "/sysroot" + self.run("findmnt", "--noheadings", "--output", "FSROOT", "/etc").strip().removesuffix("/etc")

    def write(self, path, text):
        """Puts a file into the running guest, atomically, as an administrator would."""
        written = subprocess.run(self.inside("sh", "-c", WRITE, "sh", path), input=text, text=True, capture_output=True,
                                 check=False, timeout=END_LIMIT * self.TIMEOUT_FACTOR)
        if written.returncode != 0:
            raise HarnessError(f"{path} is not written: {written.stderr}")

    def put(self, path, data, mode=0o644):
        """Puts a file into the /usr of what boots next, as if its image had brought it. The machine is off."""
        self.fresh = False
        with disk.mounted(self.disk, self.sysroot):
            deployment = disk.entry(self.sysroot)[0]
            file = deployment / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            file.chmod(mode)
            composefs.put(self.sysroot, deployment, path, data, mode)

    def ended(self):
        """Returns how the boot ended, which has."""
        reset = self.monitor.until(lambda message: message.get("event") == "SHUTDOWN" and message["data"]["reason"] == "guest-reset",
                                   END_LIMIT)
        self.process.wait()
        return REBOOT if reset else self.process.returncode

    def cut(self):
        """Cuts the power: what the guest holds in its memory is lost."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def close(self):
        """Ends what still runs, keeps the journal."""
        self.cut()
        self.channel.cleanup()
        with disk.mounted(self.disk, self.sysroot):
            self.keep_journal()
        self.console.close()
        self.sysroot.rmdir()
