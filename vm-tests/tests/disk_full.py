"""Promise: a disk without space for the next deployment is told with the bytes that are needed and free, before the pull or
before the staging; nothing is half made, and with space again the update goes on by itself.

Boots: 3
Minutes: 0.5; in a machine 8
"""

import base64
import json
import random
import re

from harness import faults, host_snapshot
from harness.agent import CONTROL, config, no_action
from harness.space import MIB, empty, fill, kept_free

PATH, BIG, BLOB = "/etc/lab/settings.conf", "/etc/lab/big.conf", "usr/share/lab/blob"
# Two file systems; of the root's this is what can be written to.
ROOT, BOOT = "/var", "/boot"
FIRST, SECOND, THIRD, FOURTH = (f"rendered-worker-{letter}" for letter in "abcd")
# A layer that nothing makes smaller, and what an initramfs is longer by. The numbers are always the same ones.
LAYER, INITRAMFS = 16 * MIB, 12 * MIB


def noise(size):
    """Returns bytes that can't be packed."""
    return random.Random(size).randbytes(size)


def fill_all(machine, directory):
    """Fills a file system to the last block."""
    # ext4 keeps a few MiB for its own lists, which count as free: up to there in one go, then until nothing goes in.
    fill(machine, directory, 64 * MIB)
    for size in (MIB, 65536, 4096):
        write = f"dd if=/dev/zero of={directory}/lab-fill-{size} bs={size} oflag=sync 2>/dev/null || true"
        machine.run("sh", "-c", write)


def wait_fault(test, reason, pattern):
    """Waits for a fault that is tried again, and returns the numbers in it."""
    report = test.agent.wait_report(reason, lambda report: (report["fault"] or {}).get("reason") == reason)
    fault = report["fault"]
    test.same(f"class of {fault['message']}", fault["class"], "retry")
    found = re.search(pattern, fault["message"])
    test.same(f"numbers in {fault['message']}", bool(found), True)
    return [float(number) for number in found.groups()]


def image(test, tag, config_of, blobs):
    """Makes an image and puts it into the registry."""
    digest = test.images.next(tag, {}, {"machineconfig": config_of}, blobs)
    return test.registry().push(test.images.layout.path, tag, digest)


def long_initramfs(machine):
    """Returns the host's own initramfs, which a kernel unpacks whatever zeros follow."""
    # The only kernel there; in a container another one runs.
    kernel = machine.run("ls", "/usr/lib/modules").strip()
    path = f"/usr/lib/modules/{kernel}/initramfs.img"
    return {path.lstrip("/"): base64.b64decode(machine.run("base64", path)) + bytes(INITRAMFS)}


def root_is_full(test, image):
    """The layer does not fit beside what libostree keeps free: told before it is pulled."""
    machine, agent = test.machine, test.agent
    before, objects = host_snapshot.state(machine), host_snapshot.objects(machine)
    fill(machine, ROOT, kept_free(machine, ROOT) + LAYER // 2)
    agent.set_target(config(SECOND, {PATH: "version = 2\n"}), image)
    needed, free = wait_fault(test, "SysrootFull", r"about ([0-9.]+) MiB are needed in /sysroot, ([0-9.]+) MiB are free")
    test.same(f"needed {needed} MiB", LAYER // MIB <= needed <= 3 * LAYER // MIB, True)
    test.same(f"free {free} MiB", LAYER // MIB // 4 <= free <= LAYER // MIB // 2 + 1, True)
    test.same("changed", host_snapshot.differences(before, host_snapshot.state(machine)), [])
    faults.printed(test, "sysroot_full")
    test.same("objects in the repository", host_snapshot.objects(machine), objects)
    empty(machine, ROOT)


def boot_is_full(test, image):
    """The kernel does not fit into /boot: told after the pull, before anything is staged."""
    machine, agent = test.machine, test.agent
    fill(machine, BOOT, INITRAMFS // 2)
    before = host_snapshot.state(machine)
    agent.set_target(config(THIRD, {PATH: "version = 3\n"}), image)
    pattern = r"([0-9.]+) MiB are needed in /boot for its kernel and initramfs, ([0-9.]+) MiB are free"
    needed, free = wait_fault(test, "BootFull", pattern)
    test.same(f"needed {needed} MiB", needed > INITRAMFS / MIB, True)
    test.same(f"free {free} MiB", INITRAMFS / MIB / 2 - 1 <= free <= INITRAMFS / MIB / 2, True)
    test.same("changed", host_snapshot.differences(before, host_snapshot.state(machine)), [])
    faults.printed(test, "boot_full")
    empty(machine, BOOT)


def no_byte_is_left(test, image_of):
    """Not even a file can be written, nor the report. What is told is told by the journal; Done comes with the space."""
    machine, agent = test.machine, test.agent
    fourth = config(FOURTH, {PATH: "version = 4\n", BIG: "x" * MIB})
    machine.write(f"{CONTROL}/machineconfigs/{FOURTH}.json", json.dumps(fourth))
    machine.write(f"{CONTROL}/target.yaml.new", json.dumps({"config": FOURTH, "image": image_of}))
    machine.run("sync")
    fill_all(machine, ROOT)
    machine.run("mv", f"{CONTROL}/target.yaml.new", f"{CONTROL}/target.yaml")
    agent.wait_log("no space", lambda lines: "No space left" in lines[-1]["MESSAGE"], "FAULT")
    test.same(PATH, machine.read(PATH), "version = 3\n")
    test.same(BIG, machine.exists(BIG), False)
    empty(machine, ROOT)


def play(test):
    machine, agent, registry = test.machine, test.agent, test.registry()
    second = image(test, "v2", SECOND, {BLOB: noise(LAYER)})

    # Boot 1
    machine.boot()
    third = image(test, "v3", THIRD, long_initramfs(machine))
    agent.settle(config(FIRST, {PATH: "version = 1\n"}), no_action(PATH, BIG), registry)
    root_is_full(test, second)

    # Boot 2: the image that did not fit.
    machine.next_boot()
    agent.wait_done(SECOND, second)
    test.same(PATH, machine.read(PATH), "version = 2\n")
    boot_is_full(test, third)

    # Boot 3: the kernel that did not fit.
    machine.next_boot()
    agent.wait_done(THIRD, third)
    test.same(PATH, machine.read(PATH), "version = 3\n")
    no_byte_is_left(test, third)
    agent.wait_done(FOURTH, third)
    test.same(BIG, machine.read(BIG), "x" * MIB)
    machine.run("ostree", "fsck", "--quiet")
