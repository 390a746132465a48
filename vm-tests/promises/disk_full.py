"""Promise: a disk without space for the next deployment is told with the bytes that are needed and free, before the pull or
before the staging; nothing is half made, and with space again the update goes on by itself.

Boots: 3
"""

import contextlib
import json
import os
import random
import re

from lab import disk, unchanged
from lab.agent import CONTROL, config, no_action
from lab.place import run

PATH, BIG, BLOB = "/etc/lab/settings.conf", "/etc/lab/big.conf", "usr/share/lab/blob"
FIRST, SECOND, THIRD, FOURTH = (f"rendered-worker-{letter}" for letter in "abcd")
MIB = 1024 * 1024
# A layer that nothing makes smaller, and a kernel's companion of such a size. The numbers are always the same ones.
LAYER, INITRAMFS = 32 * MIB, 20 * MIB


def noise(size):
    """Returns bytes that can't be packed."""
    return random.Random(size).randbytes(size)


def fill(directory, left):
    """Fills a file system up to so many bytes, and returns the file that does it."""
    room, file = os.statvfs(directory), directory / "lab-fill"
    run("fallocate", f"--length={room.f_bfree * room.f_frsize - left}", file)
    return file


def fill_all(directory):
    """Fills a file system to the last block, and returns the files that do it."""
    # ext4 keeps a few MiB for its own lists, which count as free: up to there in one go, then until nothing goes in.
    files = [fill(directory, 64 * MIB)]
    for size in (MIB, 65536, 4096):
        files.append(directory / f"lab-fill-{size}")
        with open(files[-1], "wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * size)
                os.fsync(file.fileno())
    return files


def free_for_images(machine):
    """Returns how much libostree keeps free on the root: three percent, where nothing else is said."""
    room = os.statvfs(machine.sysroot)
    return room.f_blocks * room.f_frsize * 3 // 100


def told(lab, reason, pattern):
    """Waits for a fault that is tried again, and returns the numbers in it."""
    report = lab.agent.report(reason, lambda report: (report["fault"] or {}).get("reason") == reason)
    fault = report["fault"]
    lab.same(f"class of {fault['message']}", fault["class"], "retry")
    found = re.search(pattern, fault["message"])
    lab.same(f"numbers in {fault['message']}", bool(found), True)
    return [float(number) for number in found.groups()]


def image(lab, tag, config_of, blobs):
    """Makes an image and puts it into the registry."""
    digest = lab.images.next(tag, {}, {"machineconfig": config_of}, blobs)
    return lab.registry().push(lab.images.layout.path, tag, digest)


def root_is_full(lab, wanted):
    """The layer does not fit beside what libostree keeps free: told before it is pulled."""
    machine, agent = lab.machine, lab.agent
    before, objects = unchanged.state(machine), sum(1 for _ in (machine.sysroot / "ostree/repo/objects").rglob("*"))
    filled = fill(machine.sysroot, free_for_images(machine) + LAYER // 2)
    agent.want(config(SECOND, {PATH: "version = 2\n"}), wanted)
    needed, free = told(lab, "SysrootFull", r"about ([0-9.]+) MiB are needed in /sysroot, ([0-9.]+) MiB are free")
    lab.same(f"needed {needed} MiB", LAYER // MIB <= needed <= 3 * LAYER // MIB, True)
    lab.same(f"free {free} MiB", 8 <= free <= 17, True)
    lab.same("changed", unchanged.differences(before, unchanged.state(machine)), [])
    now = sum(1 for _ in (machine.sysroot / "ostree/repo/objects").rglob("*"))
    lab.same("objects in the repository", now, objects)
    filled.unlink()


def boot_is_full(lab, wanted):
    """The kernel does not fit into /boot: told after the pull, before anything is staged."""
    machine, agent = lab.machine, lab.agent
    filled = fill(machine.sysroot / "boot", INITRAMFS // 2)
    before = unchanged.state(machine)
    agent.want(config(THIRD, {PATH: "version = 3\n"}), wanted)
    pattern = r"([0-9.]+) MiB are needed in /boot for its kernel and initramfs, ([0-9.]+) MiB are free"
    needed, free = told(lab, "BootFull", pattern)
    lab.same(f"needed {needed} MiB", needed > INITRAMFS / MIB, True)
    lab.same(f"free {free} MiB", INITRAMFS / MIB / 2 - 1 <= free <= INITRAMFS / MIB / 2, True)
    lab.same("changed", unchanged.differences(before, unchanged.state(machine)), [])
    filled.unlink()


def no_byte_is_left(lab, image_of):
    """Not even a file can be written, nor the report. What is told is told by the journal; Done comes with the space."""
    machine, agent = lab.machine, lab.agent
    wanted = config(FOURTH, {PATH: "version = 4\n", BIG: "x" * MIB})
    machine.write(f"{CONTROL}/machineconfigs/{FOURTH}.json", json.dumps(wanted))
    machine.write(f"{CONTROL}/target.yaml.new", json.dumps({"config": FOURTH, "image": image_of}))
    machine.run("sync")
    filled = fill_all(machine.sysroot)
    machine.run("mv", f"{CONTROL}/target.yaml.new", f"{CONTROL}/target.yaml")
    agent.told("no space", lambda lines: "No space left" in lines[-1]["MESSAGE"], "FAULT")
    lab.same(PATH, machine.read(PATH), "version = 3\n")
    lab.same(BIG, (machine.deployment / BIG.lstrip("/")).exists(), False)
    for file in filled:
        file.unlink()


def play(lab):
    machine, agent, registry = lab.machine, lab.agent, lab.registry()
    second = image(lab, "v2", SECOND, {BLOB: noise(LAYER)})
    kernel = next((disk.entry(machine.sysroot)[0] / "usr/lib/modules").iterdir()).name
    third = image(lab, "v3", THIRD, {f"usr/lib/modules/{kernel}/initramfs.img": noise(INITRAMFS)})

    # Boot 1
    machine.boot()
    agent.settle(config(FIRST, {PATH: "version = 1\n"}), no_action(PATH, BIG), registry)
    root_is_full(lab, second)

    # Boot 2: the image that did not fit.
    machine.next_boot()
    agent.done(SECOND, second)
    lab.same(PATH, machine.read(PATH), "version = 2\n")
    boot_is_full(lab, third)

    # Boot 3: the kernel that did not fit.
    machine.next_boot()
    agent.done(THIRD, third)
    lab.same(PATH, machine.read(PATH), "version = 3\n")
    no_byte_is_left(lab, third)
    agent.done(FOURTH, third)
    lab.same(BIG, machine.read(BIG), "x" * MIB)
    machine.run("ostree", "fsck", "--quiet")
