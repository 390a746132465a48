"""The command: `vm-tests/run [--tier TIER] [PROMISE...]`."""

import argparse
import fcntl
import os
import sys
import time

from . import cluster, containerd, disk, guest, image, joins_contacts, nspawn, packages, worker
from .paths import EMULATOR, TESTS, WORK, HarnessError, need_packages
from .promise import TIERS, load, minutes, text


def main():
    """Builds what is missing, plays, tells."""
    known = sorted(path.stem for path in TESTS.glob("*.py"))
    options = arguments(known)
    if options.list:
        for name in options.promise or known:
            print(f"{name:<20} {text(load(name))}")
        return 0
    promises = {name: load(name) for name in options.promise or known}
    if not options.promise and not options.long:
        promises = {name: promise for name, promise in promises.items() if not getattr(promise, "LONG", False)}
    WORK.mkdir(parents=True, exist_ok=True)
    with open(WORK / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        began = time.monotonic()
        need_packages(*(EMULATOR if options.tier == "machine" else ()))
        nspawn.prepare()
        images = image.Images(image.build(), options.file_system, options.base)
        needed = (("test.cluster()", cluster.build), ("harness import containerd", containerd.build),
                  ("harness.packages", packages.build), ("joins_cell", cluster.build), ("joins_cell", joins_contacts.build))
        for words, builds in needed:
            if any(words in (TESTS / f"{name}.py").read_text() for name in promises):
                builds()
        print(f"prepared in {time.monotonic() - began:.1f} s", flush=True)
        return play_all(promises, images, options)


def arguments(known):
    """Reads the command line."""
    parser = argparse.ArgumentParser(prog="vm-tests/run", description="Plays promises on hosts that really boot.")
    parser.add_argument("promise", nargs="*", help=f"of: {', '.join(known)} (default: all)")
    parser.add_argument("--list", action="store_true", help="print what each promise says, and end")
    parser.add_argument("--tier", choices=TIERS, default="container", help="with a kernel of its own: machine")
    parser.add_argument("--file-system", choices=disk.FILE_SYSTEMS, default=disk.FILE_SYSTEMS[0],
                        help=f"of the root (default: {disk.FILE_SYSTEMS[0]})")
    parser.add_argument("--base", choices=guest.BASES, default=guest.BASES[0],
                        help=f"Debian's suite in the guest (default: {guest.BASES[0]})")
    parser.add_argument("--tries", type=int, default=1, metavar="N", help="of a promise that fails; each is told (default: 1)")
    parser.add_argument("--reboots", type=int, default=64, metavar="N", help="of `a_b_a` (default: 64)")
    parser.add_argument("--long", action="store_true", help="also those that take minutes")
    parser.add_argument("--hosts", type=int, metavar="N",
                        help="that boot side by side (default: one more than there are processors; one machine)")
    options = parser.parse_args()
    if unknown := set(options.promise) - set(known):
        parser.error(f"no such promise: {', '.join(sorted(unknown))}")
    # An emulated machine has two processors of its own, and its boot a limit.
    options.hosts = options.hosts or (1 if options.tier == "machine" else len(os.sched_getaffinity(0)) + 1)
    if options.hosts > 1 and options.tier == "machine":
        parser.error("machines are played one after the other")
    return options


def play_all(promises, images, options):
    """Plays each promise; returns the exit code."""
    skipped = 0
    # The longest first: none of them is left over at the end, alone.
    names = sorted(promises, key=lambda name: -minutes(promises[name]))
    for name in tuple(names):
        not_in = getattr(promises[name], "NOT_IN", {})
        if why := not_in.get(options.tier) or not_in.get(options.base):
            print(f"skipped {name:<20} {why}", flush=True)
            names.remove(name)
            skipped += 1
    failed = len(worker.play_all(names, images, options))
    print(f"{len(names) - failed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except HarnessError as error:
        sys.exit(f"vm-tests: {error}")
