"""What the guest is made of: Debian packages, the layout of a libostree host, and the few files of a host of its own."""

import os
import shutil
from pathlib import Path

from .place import LabError, mirror, run

# Of the build machine's own release: what cargo built has to run in the guest, with its C library and libostree.
SUITE = "bookworm"
PACKAGES = ("systemd", "systemd-sysv", "dbus", "udev", "kmod", "linux-image-cloud-amd64", "ostree", "ostree-boot",
            "skopeo", "ca-certificates", "iproute2", "e2fsprogs", "procps", "polkitd", "util-linux")
LEFT_OUT = ("doc", "man", "info", "locale", "i18n")

FILES = {
    "etc/hostname": "node\n",
    "etc/hosts": "127.0.0.1 localhost node\n",
    # Empty: the first boot makes one.
    "etc/machine-id": "",
    "etc/fstab": "LABEL=boot /boot ext4 ro,nosuid,nodev 0 2\n",
    "etc/containers/policy.json": '{"default": [{"type": "insecureAcceptAnything"}]}\n',
    "etc/systemd/journald.conf.d/10-lab.conf": "[Journal]\nStorage=persistent\nSystemMaxUse=64M\nRateLimitBurst=0\n",
    # A boot entry's arguments are those of PID 1; in a container /proc/cmdline is the machine's around.
    "etc/systemd/system/lab-cmdline.service": (
        "[Unit]\nDescription=Show the boot entry's arguments\nConditionVirtualization=container\n"
        "DefaultDependencies=no\nBefore=sysinit.target\n"
        "[Service]\nType=oneshot\nRemainAfterExit=yes\n"
        "ExecStart=/bin/sh -c \"tr '\\\\0' ' ' < /proc/1/cmdline | sed 's/^[^ ]* //' > /run/cmdline;"
        " mount --bind /run/cmdline /proc/cmdline\"\n"
        "[Install]\nWantedBy=sysinit.target\n"),
    "usr/lib/ostree/prepare-root.conf": "[sysroot]\nreadonly=true\n",
    "usr/lib/tmpfiles.d/lab-var.conf": (
        "d /var/roothome 0700 root root -\nd /var/home 0755 root root -\nd /var/opt 0755 root root -\n"
        "d /var/srv 0755 root root -\nd /var/mnt 0755 root root -\nd /var/usrlocal 0755 root root -\n"
        "d /var/lib 0755 root root -\nL /var/lib/dpkg - - - - ../../usr/lib/sysimage/dpkg\n"
        "d /var/log/journal 2755 root systemd-journal -\n"),
}

# State belongs to /var, which no image brings.
LINKS = {"home": "var/home", "root": "var/roothome", "opt": "var/opt", "srv": "var/srv", "mnt": "var/mnt",
         "media": "run/media", "usr/local": "../var/usrlocal", "ostree": "sysroot/ostree"}

OFF = ("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer",
       "e2scrub_reap.service", "getty@tty1.service", "console-getty.service", "ldconfig.service",
       "systemd-firstboot.service", "systemd-hwdb-update.service", "systemd-update-done.service")


def unpack(archive):
    """Makes the archive of the Debian tree."""
    command = ["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", f"--include={','.join(PACKAGES)}",
               "--aptopt=APT::Install-Recommends \"false\"", "--aptopt=Acquire::Languages \"none\""]
    command += [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in LEFT_OUT]
    # The kernel's package makes no initramfs: the container tier has no use for one.
    run(*command, SUITE, archive, mirror(), env={**os.environ, "INITRD": "No"})


def lay_out(root: Path):
    """Turns a Debian tree into that of a libostree host."""
    kernels = list((root / "usr/lib/modules").iterdir())
    if len(kernels) != 1:
        raise LabError(f"one kernel is expected, there are {len(kernels)}")
    (root / f"boot/vmlinuz-{kernels[0].name}").rename(kernels[0] / "vmlinuz")
    # Without one libostree would add init= to the boot entries, which no host in use has.
    (kernels[0] / "initramfs.img").write_text("not an initramfs: this image boots in a container only\n")
    (root / "usr/lib/sysimage").mkdir()
    (root / "var/lib/dpkg").rename(root / "usr/lib/sysimage/dpkg")
    for name in ("boot", "dev", "var", "tmp", "run", "sysroot"):
        shutil.rmtree(root / name, ignore_errors=True)
        (root / name).mkdir(mode=0o755)
    os.chmod(root / "tmp", 0o1777)
    for name in ("vmlinuz", "vmlinuz.old", "initrd.img", "initrd.img.old"):
        (root / name).unlink(missing_ok=True)
    for path, text in FILES.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    for path, target in LINKS.items():
        place = root / path
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        place.symlink_to(target)
    units = root / "etc/systemd/system"
    for unit in OFF:
        (units / unit).unlink(missing_ok=True)
        (units / unit).symlink_to("/dev/null")
    (units / "default.target").symlink_to("/usr/lib/systemd/system/multi-user.target")
    run("systemctl", f"--root={root}", "--quiet", "enable", "lab-cmdline.service", "ostree-remount.service")
    (root / "etc").rename(root / "usr/etc")
