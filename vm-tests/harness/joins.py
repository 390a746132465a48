"""The command: `vm-tests/joins [--cells IMAGE/WAY/CONTACT,...]`."""

import argparse
import fcntl
import fnmatch
import json
import sys
import time
from types import SimpleNamespace

from . import cluster, disk, image, joins_cell, joins_contacts, joins_images, nspawn, worker
from .joins_contacts import CONTACTS
from .joins_images import INSTALLED
from .joins_ways import WAYS
from .paths import WORK, HarnessError, need_packages

RESULTS = WORK / "joins.json"


def arguments():
    """Reads the command line."""
    parser = argparse.ArgumentParser(prog="vm-tests/joins", description="Plays joins of new hosts.")
    parser.add_argument("--cells", metavar="IMAGE/WAY/CONTACT,...", default="*/*/*",
                        help="only these; each part may be a pattern (default: all)")
    parser.add_argument("--covering", action="store_true", help="only a small set that has each value once")
    parser.add_argument("--pairs", action="store_true", help="only a set that has each way with each contact and each image")
    parser.add_argument("--left", action="store_true", help="only cells that have not passed yet")
    parser.add_argument("--hosts", type=int, default=2, metavar="N", help="that boot side by side (default: 2)")
    parser.add_argument("--list", action="store_true", help="print what each value says, and end")
    parser.add_argument("--table", action="store_true", help="only the table of the last results")
    return parser.parse_args()


def chosen(options):
    """Returns the cells to play."""
    patterns = joins_cell.COVERING if options.covering else joins_cell.pairs() if options.pairs else options.cells.split(",")
    found = [name for name in joins_cell.names() if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    if not found:
        raise HarnessError(f"no cell is {', '.join(patterns)}: see --list")
    passed = results() if options.left else {}
    return [name for name in found if not joins_cell.senseless(name) and not passed.get(name)]


def main():
    """Builds what is missing, plays, tells."""
    options = arguments()
    if options.list:
        for title, rows in (("installed image", INSTALLED), ("way", WAYS), ("first contact", CONTACTS)):
            print(f"{title}:", *(f"  {name:<10} {' '.join(row.__doc__.split())}" for name, row in rows.items()), sep="\n")
        return 0
    if options.table:
        print(table(results()))
        return 0
    cells = chosen(options)
    WORK.mkdir(parents=True, exist_ok=True)
    with open(WORK / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        began = time.monotonic()
        images = prepare(cells)
        print(f"prepared in {time.monotonic() - began:.1f} s", flush=True)
        failed = worker.play_all(cells, images, SimpleNamespace(hosts=options.hosts, tier="container", tries=1, reboots=0),
                                 lambda name, kept: RESULTS.write_text(json.dumps(results() | {name: kept}, indent=1)))
    print(table({name: name not in failed for name in cells}))
    print(f"{len(cells) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


def prepare(cells):
    """Builds what is missing, and makes the disks."""
    need_packages()
    nspawn.prepare()
    images = image.Images(image.build(), disk.FILE_SYSTEMS[0])
    cluster.build()
    if any(name.endswith("/policy") for name in cells):
        joins_contacts.build()
    reference = f"{joins_contacts.NAME}:{joins_contacts.PORT}/os@{joins_images.next_image(images)}"
    for name in dict.fromkeys(cell.partition("/")[0] for cell in cells):
        joins_images.prepared(images, name, reference)
    return images


def results():
    """Returns the last result of each cell that was played."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def table(played):
    """Returns the table, as Markdown: of each way and contact the installed images with which it went well, and those with which not."""
    lines = [["way", *CONTACTS], ["---"] * (len(CONTACTS) + 1)]
    lines += [[way, *(cell(played, way, contact) for contact in CONTACTS)] for way in WAYS]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cell(played, way, contact):
    """Returns the text of one way and contact."""
    names = {image: f"{image}/{way}/{contact}" for image in INSTALLED}
    if why := joins_cell.senseless(names["plain"]):
        return f"({why})"
    known = {image: played[name] for image, name in names.items() if name in played}
    failed = [image for image, good in known.items() if not good]
    if not known:
        return ""
    return f"{len(known) - len(failed)} of {len(known)}" + (f"; failed: {', '.join(failed)}" if failed else "")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except HarnessError as error:
        sys.exit(f"vm-tests: {error}")
