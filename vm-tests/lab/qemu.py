"""The machine tier: the same disk in QEMU, with its own firmware, boot loader, kernel and initramfs.

Each boot is a QEMU of its own, which ends where a machine would reset or go off; it tells by QMP which of both it was. Programs
are run in the guest by ssh. What the guest has not given to its disk is lost with it; the rest survives in the page cache.
"""

import json
import shlex
import subprocess
import tempfile
from pathlib import Path

from . import disk, guest, loader
from .host import BOOT_LIMIT, END_LIMIT, REBOOT, Host
from .place import LabError, run

# Two processors are quicker than one with all of systemd, and a newer one has more to emulate.
HARDWARE = ("-machine", "pc,usb=off,vmport=off", "-accel", "tcg,thread=multi", "-cpu", "Nehalem", "-smp", "2",
            "-m", "1024", "-nodefaults", "-no-user-config", "-display", "none", "-boot", "strict=on",
            "-device", "virtio-rng-pci", "-no-reboot")
# systemd says it when all that belongs to a boot is up, as it says READY=1 in the container.
UP = "Startup finished in"
# Replaced atomically, as an administrator would.
WRITE = 'mkdir -p "${1%/*}" && cat > "$1.new" && chmod 644 "$1.new" && mv "$1.new" "$1"'


class Machine(Host):
    """One host in a machine."""

    # Emulated, what takes seconds in a container takes its tens of seconds: 3 to 4 times as long on a quiet machine.
    PATIENCE = 5
    OUTSIDE = guest.GATEWAY

    def __init__(self, golden: Path, place: Path):
        super().__init__(golden, place)
        self.key = golden.with_name("key")
        # The path of a socket is short.
        self.channel = tempfile.TemporaryDirectory(prefix="lab-")

    def boot(self, choose=max):
        """Switches the machine on and waits until systemd says that it is up."""
        self._switch_on(choose)
        self.says(UP, BOOT_LIMIT)
        # One connection for all: an emulated handshake takes a second.
        run(*self._ssh("-M", "-N", "-f"), timeout=END_LIMIT * self.PATIENCE)

    def boot_in_vain(self):
        """Switches the machine on, and waits until its kernel has given up and reset it."""
        self._switch_on(max)
        if (code := self.end()) != REBOOT:
            raise LabError(f"boot {self.boots} ended with {code}, and not with a reset: {self.last_words()}")

    def _switch_on(self, choose):
        self.turn_page()
        asked = loader.LAST if choose is min else "first"
        self.process = subprocess.Popen(self._qemu(asked), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.console)
        # Events are told to who has said this.
        self.process.stdin.write(b'{"execute": "qmp_capabilities"}\n')
        self.process.stdin.flush()

    def _qemu(self, asked):
        return ["qemu-system-x86_64", *HARDWARE, "-qmp", "stdio", "-smbios", f"type=1,version={asked}",
                "-drive", f"file={self.disk},format=raw,if=none,id=disk,discard=unmap", "-device", "virtio-blk-pci,drive=disk",
                "-netdev", "user,id=net,ipv6=off,hostfwd=tcp:127.0.0.1:22-:22", "-device", "virtio-net-pci,netdev=net,romfile=",
                "-chardev", f"file,id=serial,path={self.place}/console.log,append=on", "-serial", "chardev:serial"]

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
        return "/sysroot" + self.run("findmnt", "--noheadings", "--output", "FSROOT", "/").strip()

    def write(self, path, text):
        """Puts a file into the running guest, atomically, as an administrator would."""
        written = subprocess.run(self.inside("sh", "-c", WRITE, "sh", path), input=text, text=True, capture_output=True,
                                 check=False, timeout=END_LIMIT)
        if written.returncode != 0:
            raise LabError(f"{path} is not written: {written.stderr}")

    def read(self, path):
        """Reads a file of the running guest."""
        return self.run("cat", path)

    def put(self, path, data, mode=0o644):
        """Puts a file into the /usr of what boots next, as if its image had brought it. The machine is off."""
        with disk.mounted(self.disk, self.sysroot):
            place = disk.entry(self.sysroot)[0] / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
            place.chmod(mode)

    def kill(self, process):
        """Ends a process of the guest as nothing else does."""
        self.run("kill", "-KILL", process)

    def ended(self):
        """Returns how the boot ended, which has."""
        events = [json.loads(line) for line in self.process.communicate()[0].splitlines()]
        reasons = [event["data"]["reason"] for event in events if event.get("event") == "SHUTDOWN"]
        return REBOOT if reasons == ["guest-reset"] else self.process.returncode

    def cut(self):
        """Cuts the power: what the guest holds in its memory is lost."""
        self.process.kill()
        self.process.communicate()

    def close(self):
        """Ends what still runs, keeps the journal."""
        if self.process and self.process.poll() is None:
            self.cut()
        self.channel.cleanup()
        with disk.mounted(self.disk, self.sysroot):
            self.keep_journal()
        self.console.close()
        self.sysroot.rmdir()
