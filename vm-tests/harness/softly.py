"""What a soft reboot needs in a container, which is given by an initramfs and a disk elsewhere. A layer of the image."""

UNITS = "etc/systemd/system"
# Of /run a soft reboot keeps the files, but no mounts; of /dev it keeps both.
BOOT = "/dev/lab-boot"
FILES = {
    # After a soft reboot PID 1 has no arguments of the boot entry any more, which are the kernel's in a container.
    f"{UNITS}/ostree-boot-complete.service.d/10-lab.conf": (
        "[Unit]\nConditionKernelCommandLine=\nConditionPathExists=|/boot/ostree/finalize-failure.stamp\n"
        "ConditionPathExists=|/run/ostree/nextroot-booted\n"),
    # What is mounted over a file can't be replaced by it.
    f"{UNITS}/lab-cmdline.service.d/20-softly.conf": (
        "[Unit]\nConditionPathExists=!/run/cmdline\n[Service]\n"
        "ExecStart=/bin/sh -c \"cp /run/ostree-booted /run/booted; umount /run/ostree-booted;"
        f" mv /run/booted /run/ostree-booted; mkdir -p /run/ostree/.private {BOOT}; mount --bind /boot {BOOT}\"\n"),
    f"{UNITS}/lab-boot.service": (
        "[Unit]\nDescription=Mount /boot again\nConditionVirtualization=container\nDefaultDependencies=no\n"
        "Before=sysinit.target ostree-boot-complete.service\nAfter=lab-cmdline.service local-fs.target\n"
        "[Service]\nType=oneshot\n"
        f"ExecStart=/bin/sh -c 'mountpoint -q /boot || mount --bind {BOOT} /boot'\n"),
}
LINKS = {f"{UNITS}/sysinit.target.wants/lab-boot.service": "../lab-boot.service"}
