"""What the guest is made of: Debian packages, the layout of a libostree host, and the few files of a host of its own."""

import os
import shutil
from pathlib import Path

from .paths import HarnessError, mirror, run

# The bases, by Debian's suite; the first one is the default. What cargo built on bookworm runs in both, with the C library and
# the libostree of the guest. sid has what soft reboots need: systemd 254 and libostree 2025.3, and a composefs as root.
BASES = ("bookworm", "sid")
COMPOSEFS = ("sid",)
PACKAGES = ("systemd", "systemd-sysv", "dbus", "udev", "kmod", "linux-image-cloud-amd64", "ostree", "ostree-boot",
            "skopeo", "ca-certificates", "iproute2", "e2fsprogs", "procps", "polkitd", "util-linux", "dracut",
            "openssh-server")
LEFT_OUT = ("doc", "man", "info", "locale", "i18n")

NOT_IN_INITRAMFS = ("hwdb", "nvdimm", "overlay-root", "lunmask", "kernel-modules-extra", "kernel-network-modules", "network",
                    "nfs", "i18n", "drm", "btrfs", "crypt", "dm", "dmraid", "lvm", "mdraid", "multipath", "qemu", "qemu-net",
                    "tpm2-tss", "resume", "memstrack", "terminfo", "rngd", "pollcdrom")
# Of a boot entry. A kernel that has given up resets the machine. The last line is for a machine without an accelerator.
ARGUMENTS = ("root=LABEL=root", "rw", "console=ttyS0,115200", "net.ifnames=0", "panic=1", "quiet",
             "systemd.show_status=0", "mitigations=off", "nokaslr", "audit=0", "8250.nr_uarts=1")
# What the machine tier's network (QEMU's own) gives its guest, and where its guest reaches the loopback around it.
ADDRESS, GATEWAY = "10.0.2.15", "10.0.2.2"

FILES = {
    "etc/hostname": "node\n",
    "etc/hosts": "127.0.0.1 localhost node\n",
    # Empty: the first boot makes one.
    "etc/machine-id": "",
    "etc/fstab": "LABEL=boot /boot ext4 ro,nosuid,nodev 0 2\n",
    "etc/containers/policy.json": '{"default": [{"type": "insecureAcceptAnything"}]}\n',
    # On the console, too: what happens is seen from outside, also when nothing in the guest answers any more.
    "etc/systemd/journald.conf.d/10-lab.conf": (
        "[Journal]\nStorage=persistent\nSystemMaxUse=64M\nRateLimitBurst=0\nForwardToConsole=yes\n"),
    # A boot entry's arguments are those of PID 1; in a container /proc/cmdline is the machine's around.
    "etc/systemd/system/lab-cmdline.service": (
        "[Unit]\nDescription=Show the boot entry's arguments\nConditionVirtualization=container\n"
        "DefaultDependencies=no\nBefore=sysinit.target\n"
        "[Service]\nType=oneshot\nRemainAfterExit=yes\n"
        "ExecStart=/bin/sh -c \"tr '\\\\0' ' ' < /proc/1/cmdline | sed 's/^[^ ]* //' > /run/cmdline;"
        " mount --bind /run/cmdline /proc/cmdline\"\n"
        "[Install]\nWantedBy=sysinit.target\n"),
    # A machine has a network card, and is entered by ssh as a container is by its namespaces: without a session. A soft reboot
    # leaves the kernel its address.
    "etc/systemd/system/lab-network.service": (
        "[Unit]\nDescription=The address of the only network card\nDefaultDependencies=no\nBefore=network.target\n"
        "BindsTo=sys-subsystem-net-devices-eth0.device\nAfter=sys-subsystem-net-devices-eth0.device\n"
        "[Service]\nType=oneshot\nRemainAfterExit=yes\n"
        f"ExecStart=/bin/ip address replace {ADDRESS}/24 dev eth0\nExecStart=/bin/ip link set eth0 up\n"
        f"ExecStart=/bin/ip route replace default via {GATEWAY}\n"
        "[Install]\nWantedBy=sys-subsystem-net-devices-eth0.device\n"),
    "etc/systemd/system/ssh.service.d/10-lab.conf": "[Unit]\nConditionVirtualization=!container\n",
    "etc/ssh/sshd_config.d/10-lab.conf": "AuthorizedKeysFile /etc/ssh/lab_key.pub\nStrictModes no\nUsePAM no\n",
    # The drivers of QEMU's disk and its file systems, and no more than it takes to find the root: emulated, each byte is paid for.
    "usr/lib/dracut/dracut.conf.d/90-lab.conf": (
        'hostonly=no\ncompress=zstd\nreproducible=yes\nadd_dracutmodules+=" ostree systemd "\n'
        'drivers=" virtio_pci virtio_blk ext4 xfs "\nfilesystems=" ext4 xfs "\n'
        f'omit_dracutmodules+=" {" ".join(NOT_IN_INITRAMFS)} "\n'),
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
       "systemd-firstboot.service", "systemd-hwdb-update.service", "systemd-update-done.service",
       "serial-getty@ttyS0.service", "systemd-pstore.service", "dev-hugepages.mount", "dev-mqueue.mount",
       "sys-kernel-debug.mount", "sys-kernel-tracing.mount", "sys-kernel-config.mount", "sys-fs-fuse-connections.mount",
       "systemd-network-generator.service", "systemd-repart.service", "systemd-binfmt.service",
       *(f"modprobe@{name}.service" for name in ("configfs", "dm_mod", "drm", "efi_pstore", "fuse", "loop")))


COMPOSEFS_FILES = {
    "usr/lib/ostree/prepare-root.conf": "[sysroot]\nreadonly=true\n[composefs]\nenabled=yes\n",
    "usr/lib/dracut/dracut.conf.d/91-lab-composefs.conf": (
        'drivers=" virtio_pci virtio_blk ext4 xfs erofs overlay loop "\nfilesystems=" ext4 xfs erofs overlay "\n'),
}


def unpack(archive, base):
    """Makes the archive of the Debian tree."""
    command = ["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", f"--include={','.join(PACKAGES)}",
               "--aptopt=APT::Install-Recommends \"false\"", "--aptopt=Acquire::Languages \"none\""]
    command += [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in LEFT_OUT]
    # A mirror that is frozen has an old list of it.
    command += ["--aptopt=Acquire::Check-Valid-Until \"false\""] if base == "sid" else []
    # The kernel's package makes no initramfs: it is made once the tree is laid out.
    run(*command, base, archive, mirror(), env={**os.environ, "INITRD": "No"})


def lay_out(root: Path, key: Path, base):
    """Turns a Debian tree into that of a libostree host, which lets the key in."""
    kernels = list((root / "usr/lib/modules").iterdir())
    if len(kernels) != 1:
        raise HarnessError(f"one kernel is expected, there are {len(kernels)}")
    for path, text in (FILES | (COMPOSEFS_FILES if base in COMPOSEFS else {})).items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    shutil.copy(key, root / "etc/ssh/lab_key.pub")
    initramfs(root, kernels[0].name)
    (root / f"boot/vmlinuz-{kernels[0].name}").rename(kernels[0] / "vmlinuz")
    (root / "usr/lib/sysimage").mkdir()
    (root / "var/lib/dpkg").rename(root / "usr/lib/sysimage/dpkg")
    for name in ("boot", "dev", "var", "tmp", "run", "sysroot"):
        shutil.rmtree(root / name, ignore_errors=True)
        (root / name).mkdir(mode=0o755)
    os.chmod(root / "tmp", 0o1777)
    for name in ("vmlinuz", "vmlinuz.old", "initrd.img", "initrd.img.old"):
        (root / name).unlink(missing_ok=True)
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
    run("systemctl", f"--root={root}", "--quiet", "enable", "lab-cmdline.service", "lab-network.service", "ssh.service",
        "ostree-remount.service")
    (root / "etc").rename(root / "usr/etc")


def initramfs(root: Path, kernel: str):
    """Makes the initramfs as hosts in use have one: dracut's, with systemd and ostree-prepare-root."""
    run("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--pipe", "--resolv-conf=off", "--timezone=off",
        f"--directory={root}", "dracut", "--quiet", "--force", "--kver", kernel, f"/usr/lib/modules/{kernel}/initramfs.img")
