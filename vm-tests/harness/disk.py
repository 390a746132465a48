"""The disk: MBR, a /boot of its own, the root. What boots in the container is what the machine boots."""

import contextlib
import os
from pathlib import Path

from .paths import HarnessError, run

STATEROOT = "debian"
SECTOR = 512
BOOT = (2048 * SECTOR, 256 * 1024 * 1024)
ROOT_AT = BOOT[0] + BOOT[1]
SIZE = 6 * 1024 * 1024 * 1024
# Of the root; /boot is always ext4, which the boot loader reads.
FILE_SYSTEMS = ("ext4", "xfs")
# At the beginning of an XFS.
XFS = b"XFSB"


# What mount(8) says when the kernel finds a file system damaged (EUCLEAN).
DAMAGED = ("Structure needs cleaning", "probably corrupted filesystem")


class Unmountable(HarnessError):
    """The kernel finds a file system damaged. No program can bring that about by writing files."""

    kind = "file system"


def make(image: Path, file_system):
    """Makes an empty disk, sparse."""
    with open(image, "wb") as file:
        file.truncate(SIZE)
    table = (f"label: dos\nstart={BOOT[0] // SECTOR}, size={BOOT[1] // SECTOR}, type=83, bootable\n"
             f"start={ROOT_AT // SECTOR}, type=83\n")
    script = image.with_suffix(".sfdisk")
    script.write_text(table)
    run("sh", "-c", 'exec sfdisk --quiet "$0" < "$1"', image, script)
    script.unlink()
    for label, kind, start, size in (("boot", "ext4", *BOOT), ("root", file_system, ROOT_AT, SIZE - ROOT_AT)):
        device = run("losetup", "--find", "--show", f"--offset={start}", f"--sizelimit={size}", image).strip()
        try:
            run(f"mkfs.{kind}", "-q", "-L", label, device)
        finally:
            run("losetup", "--detach", device)


def file_system_of(image: Path):
    """Returns what the root's file system is."""
    with open(image, "rb") as file:
        file.seek(ROOT_AT)
        return "xfs" if file.read(len(XFS)) == XFS else "ext4"


@contextlib.contextmanager
def mounted(image: Path, directory: Path):
    """Mounts the disk as the kernel would have it, without partition scanning and udev."""
    directory.mkdir(parents=True, exist_ok=True)
    done = []
    try:
        # Copies of a disk have the same UUID, which XFS minds.
        more = ",nouuid" if file_system_of(image) == "xfs" else ""
        mount(f"loop,offset={ROOT_AT},sizelimit={SIZE - ROOT_AT}{more}", image, directory)
        done.append(directory)
        (directory / "boot").mkdir(exist_ok=True)
        mount(f"loop,offset={BOOT[0]},sizelimit={BOOT[1]}", image, directory / "boot")
        done.append(directory / "boot")
        yield directory
    finally:
        for at in reversed(done):
            run("umount", at)


def mount(options, image: Path, directory: Path):
    """Mounts one file system of a disk."""
    try:
        run("mount", "-o", options, image, directory)
    except HarnessError as error:
        if any(words in str(error) for words in DAMAGED):
            raise Unmountable(str(error)) from error
        raise


def entry(sysroot: Path, choose=max):
    """Does what the boot loader does, or with `min` who chooses the last entry of its menu: returns the deployment and the
    arguments of the entry to boot."""
    entries = []
    for file in (sysroot / "boot/loader/entries").glob("*.conf"):
        keys = dict(line.split(None, 1) for line in file.read_text().splitlines() if " " in line)
        entries.append((int(keys["version"]), keys["options"].split()))
    if not entries:
        raise HarnessError("no boot entry: the host would not boot")
    _, options = choose(entries)
    link = next(option.removeprefix("ostree=/") for option in options if option.startswith("ostree="))
    deployment = Path(os.path.realpath(sysroot / link))
    if not (deployment / "usr").is_dir():
        raise HarnessError(f"the boot entry names {link}, which is no deployment: the host would not boot")
    return deployment, options
