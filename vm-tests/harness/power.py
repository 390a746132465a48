"""The command: `vm-tests/power --cuts N --seed S`."""

import argparse
import fcntl
import json
import shutil
import sys
import time
from pathlib import Path

from . import disk, image, nspawn, power_machine, power_stages, power_stateroot
from .paths import EMULATOR, RECORDER, WORK, HarnessError, need_packages, run
from .power_baseline import baseline_states
from .power_first import FirstBoot
from .power_machine import KilledMachines
from .power_random import Random, replay
from .power_recorded import Recorded
from .power_table import csv, is_apart, line, table
from .power_update import Prepared, wrong

HOME = WORK / "power"
# A disk is copied in every cycle: in memory that takes a third of a second.
MEMORY = "8g"
# Each is most of a gigabyte.
MOST_KEPT = 3


class Keep:
    """Keeps what a cut that went wrong needs to be played again."""

    def __init__(self, prepared, label):
        self.prepared, self.home, self.kept = prepared, HOME / "kept" / label, 0

    def __call__(self, result, disk, host):
        if self.kept == MOST_KEPT:
            return
        self.kept += 1
        directory = self.home / f"{result['method']}-{result['number']}"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        run("cp", "--sparse=always", disk, directory / "disk.raw")
        run("cp", "-r", self.prepared.directory / "registry", directory)
        if host:
            shutil.copy(host.directory / "console.log", directory)
            text = run("journalctl", "--directory", host.journal(), "--output=json", "--no-pager")
            (directory / "journal.json").write_text(text)
        result["kept"] = str(directory)
        (directory / "result.json").write_text(json.dumps(result, indent=1) + "\n")


def series(methods, file_system, cuts, keep, log):
    """Plays the cuts, a line for each; returns the results."""
    results = []
    for method in methods:
        for number in range(1, cuts + 1):
            began = time.monotonic()
            result = {"file system": file_system, **method.play(number, keep)}
            result["cycle"] = round(time.monotonic() - began, 2)
            results.append(result)
            log.write(json.dumps(result) + "\n")
            log.flush()
            print(line(result), flush=True)
    return results


def arguments():
    """Reads the command line."""
    parser = argparse.ArgumentParser(prog="vm-tests/power", description="Cuts the power of hosts that are updated.")
    parser.add_argument("--cuts", type=int, default=20, help="so many cuts with each method (default: 20)")
    parser.add_argument("--seed", default="1", help="what chance begins with (default: 1)")
    parser.add_argument("--method", choices=["random", "recorded", "machine"], nargs="+",
                        default=["random", "recorded", "machine"], help="which of the three ways (default: all)")
    parser.add_argument("--update", choices=["image", "files", "both", "first", "stateroot", "stages"], default="both",
                        help="which update: of another image with files, of files without a reboot, both, a first boot, the verbs "
                             "of stateroots in turn, or their stages")
    parser.add_argument("--file-system", choices=disk.FILE_SYSTEMS, default=disk.FILE_SYSTEMS[0],
                        help=f"of the root (default: {disk.FILE_SYSTEMS[0]})")
    parser.add_argument("--alone", action="store_true",
                        help="the same loss on a file system on which nothing of ours has run: so many states")
    parser.add_argument("--without-fsync", action="store_true",
                        help="the negative control: an agent without its fsyncs, with which the series has to fail")
    parser.add_argument("--table", metavar="LOG", type=Path, nargs="+", help="only the table, of the logs of earlier series")
    parser.add_argument("--csv", metavar="SERIES", type=int, help="with --table: as lines of docs/power-cuts.csv")
    parser.add_argument("--replay", metavar="DIR", type=Path, help="play again what was kept in a directory")
    return parser.parse_args()


def baseline(options):
    """Says how many states of a file system alone the kernel mounts."""
    need_packages(*RECORDER)
    refused = baseline_states(in_memory(), options.file_system, options.cuts, options.seed)
    print(f"{options.cuts - refused} of {options.cuts} can be mounted")
    return 0


def main():
    """Builds what is missing, cuts, tells."""
    options = arguments()
    if options.update in ("first", "stateroot", "stages") and "machine" in options.method:
        options.method.remove("machine")  # its console is not read for those
    if options.csv:
        print(csv([json.loads(text) for log in options.table for text in log.read_text().splitlines()], options.csv))
        return 0
    if options.table:
        return closing([json.loads(text) for log in options.table for text in log.read_text().splitlines()])
    HOME.mkdir(parents=True, exist_ok=True)
    if options.alone:
        return baseline(options)
    began = time.monotonic()
    with open(WORK / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        prepared = prepare(options)
    # From here on nothing is shared with other runs: the disks are in memory, in a mount namespace of its own.
    try:
        if options.replay:
            return again(prepared, options.replay)
        print(f"prepared in {time.monotonic() - began:.1f} s", flush=True)
        return play(prepared, options)
    finally:
        prepared.close()


def prepare(options):
    """Builds what is missing, and makes what the run is played with."""
    need_packages(*RECORDER, *EMULATOR)
    nspawn.prepare()
    images = image.Images(image.build(*(["without-fsync"] if options.without_fsync else [])), options.file_system)
    if options.without_fsync:
        image.build()  # such an agent is not left behind where others are looked for
    nspawn.isolate()
    memory = in_memory()
    if options.replay:
        run("cp", "-r", options.replay / "registry", memory)
    prepared = Prepared(images, memory)
    if options.replay:
        options.update = json.loads((options.replay / "result.json").read_text())["update"]
    if options.update == "first":
        prepared.with_first(FirstBoot)
    elif options.update in ("stateroot", *power_stateroot.VERBS):
        power_stateroot.add(prepared)
    elif options.update in ("stages", *power_stages.STAGES):
        power_stages.add(prepared)
    elif not options.replay:
        prepared.make()
    return prepared


def in_memory():
    """Returns a directory in memory, which goes with this run's mount namespace."""
    directory = HOME / "memory"
    directory.mkdir(exist_ok=True)
    run("mount", "-t", "tmpfs", "-o", f"size={MEMORY}", "tmpfs", directory)
    return directory


def play(prepared, options):
    """Plays the series and prints its table; returns the exit code."""
    methods = []
    if "random" in options.method:
        methods.append(Random(prepared, options.seed, options.update))
    if "recorded" in options.method:
        methods.append(Recorded(prepared, options.seed, options.update, options.cuts))
    if "machine" in options.method:
        methods.append(KilledMachines(prepared, options.seed, options.update))
    label = f"seed-{options.file_system}-{options.seed}" + ("-without-fsync" if options.without_fsync else "")
    with open(HOME / f"{label}.jsonl", "w") as log:
        results = series(methods, options.file_system, options.cuts, Keep(prepared, label), log)
    return closing(results)


def closing(results):
    """Prints the table and the closing line; returns the exit code."""
    print(table(results))
    apart = sum(map(is_apart, results))
    failed = sum("wrong" in result for result in results) - apart
    print(f"{len(results) - failed - apart} passed, {failed} failed" + (f", {apart} skipped" if apart else ""))
    return 1 if failed else 0


def again(prepared, kept):
    """Plays one state again; returns the exit code."""
    result = json.loads((kept / "result.json").read_text())
    if result["update"] == "first":
        prepared.updates["first"].machine_config = None
    play_again = power_machine.replay if result["method"] == power_machine.KilledMachines.name else replay
    try:
        seen = play_again(prepared, result, kept / "disk.raw")
    except HarnessError as error:
        seen = wrong(error)
    print(json.dumps(seen, indent=1))
    print("0 passed, 1 failed" if "wrong" in seen else "1 passed, 0 failed")
    return 1 if "wrong" in seen else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except HarnessError as error:
        sys.exit(f"vm-tests: {error}")
