"""Four more updates in which the power fails: the verbs that prepare, activate, leave and remove a stateroot. Each boot of the host
repeats the order; what a boot does by itself, as the trial of a new system, is not ordered."""

import hashlib
import os
import re
import shutil
import time
from collections import Counter
from pathlib import Path

from . import agent, disk, host, nspawn, seed
from .paths import HarnessError, run
from .power_first import ByRecord
from .power_host import ReportReader
from .power_update import OLD as CONFIG
from .power_update import RECORDS, Wrong, consistent, contents, document
from .stateroots import OLD, OWN, enable, switch, wait_settled

VERSION, NEW, OTHER = "4.17.2", "rhcos_4.17.2", "rendered-worker-seed"
VERBS = ("prepare", "activate", "roll-back", "remove")
STEPS = {"prepare": ("fetch-seed", "deploy-stateroot"), "activate": ("arm-trial", "set-default", "request-reboot"),
         "remove": ("remove-stateroot",)}
# The state of stages.
STATE = "stateroot-lifecycle.json"
DEPLOYMENT_REF = re.compile(r"ostree/[01]/[01]/[0-9]+")
ORDERS, UNIT = "/var/lib/lab-order", "etc/systemd/system/lab-order.service"
# It tells of each boot, and repeats the order. Nothing of it is synced: that would bring to the disk what the agent has forgotten.
UNIT_TEXT = f"""[Unit]
After=machine-config-agent.service machine-config-agent-stateroot.service
StartLimitIntervalSec=0
[Service]
Type=exec
ExecStart=/bin/sh -euc 'mark() {{ : >{ORDERS}/.$1; mv {ORDERS}/.$1 {ORDERS}/marks/$1-$(cat /proc/sys/kernel/random/boot_id); }}; \\
    mark up; if test -e {ORDERS}/order; then . {ORDERS}/order; mark done; fi'
Restart=on-failure
RestartSec=1
[Install]
WantedBy=multi-user.target
"""
TEXTS = {
    "activate": f"machine-config-agent stateroot activate {NEW} --yes\n",
    "roll-back": "machine-config-agent stateroot roll-back --yes\n",
    # A second removal of what is gone is refused.
    "remove": f"machine-config-agent stateroot remove {NEW} --yes || ! machine-config-agent stateroot list | grep '^{NEW}'\n",
}


def add(prepared):
    """Makes the disks, and adds the verbs to what a run can play."""
    made = Seeded(prepared)
    orders = {"prepare": f"machine-config-agent stateroot prepare {made.image} --version {VERSION}\n", **TEXTS}
    for verb in VERBS:
        prepared.updates[verb] = Verb(verb, orders[verb], made)
    prepared.groups["stateroot"] = VERBS


class Seeded:
    """The disks: a host that is Done with a config, with a stateroot prepared, and in that stateroot."""

    def __init__(self, prepared):
        self.directory = prepared.directory
        policy = agent.no_action(*contents(1))
        found = seed.Seed(VERSION, agent.config(OTHER, {}), policy)
        wants = f"{seed.WANTS}/{Path(UNIT).name}"
        found.etc |= {UNIT: (0o644, UNIT_TEXT.encode()), wants: (0o777, f"/{UNIT}")}
        found.var[f"{ORDERS.lstrip('/')}/marks/.keep"] = (0o644, b"")
        self.image = found.push(prepared.images, prepared.registry)

        def settle(first):
            first.boot()
            agent.Agent(first).settle(agent.config(CONFIG, contents(1)), policy, prepared.registry)
            first.write(f"/{UNIT}", UNIT_TEXT)
            first.run("mkdir", "-p", f"{ORDERS}/marks")
            first.run("systemctl", "daemon-reload")
            first.run("systemctl", "enable", Path(UNIT).name)
            enable(first)

        before = self._make("settled", prepared.images.disk, settle)
        with self._mounted(before) as root:
            self.old, self.refs = system(root, OLD), refs(root)
        prepared_disk = self._make("prepared-root", before, self.prepare)
        with self._mounted(prepared_disk) as root:
            self.new = system(root, NEW)
            same("the old system after a preparation", system(root, OLD), self.old)
            (root / "ostree/deploy" / NEW / RECORDS.lstrip("/")).mkdir(mode=0o700)
        active = self._make("active-root", prepared_disk, self.activate)
        with self._mounted(active) as root:
            same("the old system after an activation", system(root, OLD), self.old)
        self.disks = dict(zip(VERBS, (before, prepared_disk, active, prepared_disk), strict=True))

    def prepare(self, first):
        """Prepares the stateroot on a host that is off."""
        first.boot()
        first.run("machine-config-agent", "stateroot", "prepare", self.image, "--version", VERSION)

    def activate(self, first):
        """Activates it on a host that is off."""
        first.boot()
        switch(first, "activate", NEW, "--yes")
        agent.Agent(first).wait_log("the end of the trial", lambda lines: True, "STATEROOT_PASSED")
        wait_settled(first)

    def _make(self, name, golden, play):
        machine = nspawn.Machine(golden, self.directory / name)
        try:
            play(machine)
            machine.power_off()
        finally:
            machine.close()
        made = self.directory / f"{name}.raw"
        machine.disk.rename(made)
        shutil.rmtree(machine.directory)
        return made

    def _mounted(self, image):
        return disk.mounted(image, self.directory / "looked-at")


class Verb:
    """It has the same methods as the other updates; one of another name does what a verb does."""

    def __init__(self, name, order, made, does=None):
        self.name = self.config = name
        self.does = does or name
        self.order, self.made, self.disk = order, made, made.disks[self.does]
        # Where the order is given.
        self.stateroot = NEW if self.does == "roll-back" else OLD

    def host(self, kind):
        """Returns the class of a host that is followed by its records."""
        return type(f"Rooted{kind.__name__}", (ByRecord, kind), {"reader": self.reader})

    def reader(self, node):
        """Returns what follows a boot of a host."""
        return Progress(node, self)

    def begin(self, node):
        """Gives the order, which is on the disk then, and boots. Returns when."""
        self.give(node)
        node.flush()
        node.goal = self.name
        node.mark("asked")
        node.boot()
        return time.monotonic()

    def give(self, node):
        """Gives the order to a host that is off."""
        orders = node.sysroot / "ostree/deploy" / self.stateroot / ORDERS.lstrip("/")
        (orders / "order").write_text(self.order)

    def is_done(self, report):
        """Says whether the order is carried out."""
        return report["state"] == "Done"

    def inspect(self, root, reported):
        """Looks at a disk. Returns where the stateroot is: old, between or new."""
        booted, _ = disk.entry(root)
        booted = booted.parents[1].name
        came = self._came(root, booted)
        if booted == NEW and self.does in ("prepare", "remove"):
            raise Wrong("mixed", "the new stateroot boots, which nobody has activated")
        same("the old system", system(root, OLD), self.made.old)
        if self.does == "prepare" and came == "new":
            same("the new system", system(root, NEW), self.made.new)
        if reported and came != "new":
            raise Wrong("mixed", f"the end of {self.name} was told, and the disk is {came}")
        for stateroot in (OLD, NEW):
            records = root / "ostree/deploy" / stateroot / RECORDS.lstrip("/")
            for name in ("stateroot.json", "stateroot-trial.json", STATE, "current.json"):
                document(records / name)
        return came

    def _came(self, root, booted):
        entries = [file.read_text() for file in (root / "boot/loader/entries").glob("*.conf")]
        is_listed = any(f"/{NEW}/" in text for text in entries)
        left = [*root.glob(f"ostree/*{NEW}"), *root.glob(f"ostree/deploy/{NEW}"), *root.glob(f"boot/ostree/{NEW}-*")]
        is_fetched = any("seed" in path.name for path in left)
        if self.does == "prepare":
            return "new" if is_listed and not is_fetched else "between" if left else "old"
        if self.does == "remove":
            return "old" if is_listed else "between" if left else "new"
        if self.does == "roll-back":
            records = root / "ostree/deploy" / NEW / RECORDS.lstrip("/")
            return "new" if booted == OLD else "between" if (records / "stateroot.json").exists() else "old"
        records = root / "ostree/deploy" / NEW / RECORDS.lstrip("/")
        return "new" if booted == NEW else "between" if (records / "stateroot-trial.json").exists() else "old"

    def recover(self, node, reported):
        """Boots what a cut left, and looks on until the order is carried out. Returns what it was."""
        came = self.inspect(node.sysroot, reported)
        began, first = time.monotonic(), node.boots
        booted = disk.entry(node.sysroot)[0].parents[1].name
        try:
            node.boot()
            node.follow(self.is_done)
        except HarnessError as error:
            raise error if isinstance(error, Wrong) else Wrong("hands", str(error)) from error
        seconds, boots = time.monotonic() - began, node.boots - first
        self.inspect(node.sysroot, True)
        if self.does == "remove":
            same("the refs", refs(node.sysroot), self.made.refs)
        consistent(node.sysroot / "ostree/repo")
        needed = 2 if self.does in ("activate", "roll-back") and came != "new" else 1
        if boots != needed:
            raise Wrong("hands", f"{boots} boots, {needed} are needed for {self.name} of a disk that is {came}")
        return {"files": came, "booted": booted, "boots": boots, "seconds": round(seconds, 2)}


class Progress(ReportReader):
    """What a boot writes down about an order, as reports."""

    def __init__(self, node, verb):
        self.verb, self.booted = verb, disk.entry(node.sysroot)[0].parents[1].name
        roots = {name: node.sysroot / "ostree/deploy" / name for name in (OLD, NEW)}
        self.records = {name: root / RECORDS.lstrip("/") for name, root in roots.items()}
        self.marks = roots[self.booted] / ORDERS.lstrip("/") / "marks"
        self.before = self._done()
        more = [self.records[NEW]] if verb.does in ("activate", "roll-back") else []
        self.notify = host.notify_of(self.records[OLD], host.IN_MOVED_TO | host.IN_DELETE, self.marks, *more)

    def _done(self):
        return len(list(self.marks.glob("done-*")))

    def last(self):
        """Returns how far it is."""
        phase = self._phase()
        return {"state": "Done" if phase == "Done" else "Working", "phase": phase, "currentConfig": self.verb.name}

    def _phase(self):
        return "Done" if self.is_done() else self._step()

    def is_done(self):
        """Says whether the order is carried out, as this boot has it."""
        if self.verb.does == "activate":
            trial = document(self.records[NEW] / "stateroot-trial.json")
            return self.booted == NEW and bool(trial) and trial["phase"]["name"] == "passed"
        if self.verb.does == "roll-back":
            return self.booted == OLD and not document(self.records[OLD] / "stateroot.json")
        return self._done() > self.before

    def _step(self):
        if self.verb.does == "activate" and self.booted == NEW:
            return "on trial"
        if self.verb.does == "roll-back" and self.booted == OLD:
            return "closing"
        record = document(self.records[self.booted] / "stateroot.json")
        if not record:
            return "asked"
        phase = record["phase"]
        steps = STEPS[record["job"]["do"]]
        number = phase.get("next", len(steps))
        return steps[number] if number < len(steps) else "closing"


def same(what, found, expected):
    """Fails when two systems differ."""
    if found != expected:
        paths = sorted(path for path in found.keys() | expected.keys() if found.get(path) != expected.get(path))
        raise Wrong("mixed", f"{what}: {len(paths)} paths differ: {', '.join(paths[:10])}")


def system(root, name):
    """Returns what a stateroot's system is made of, without what it writes by itself: path to words."""
    home = root / "ostree/deploy" / name
    [deployment] = (path for path in (home / "deploy").iterdir() if path.is_dir())
    # Commits have other names in another build, and where an image is made again.
    found = tree(deployment / "etc", deployment) | tree(home / "var", home)
    for kernels in root.glob(f"boot/ostree/{name}-*"):
        found |= tree(kernels, root / "boot")
    return found


def tree(top, home):
    """Returns every path below a directory: kind, mode, owner, attributes, contents."""
    found = {}
    for directory, below, files in os.walk(top):
        below[:] = [name for name in below if not own(os.path.join(directory, name))]
        for name in (*below, *files):
            path = os.path.join(directory, name)
            if not own(path):
                found[os.path.relpath(path, home)] = words(path)
    return found


def own(path):
    """Says whether a running system, or who gives the orders, writes a path by itself."""
    return path.endswith(tuple(f"/{name}" for name in (*OWN, ORDERS.lstrip("/"))))


def words(path):
    """Returns what a path is."""
    stat = os.lstat(path)
    link = os.readlink(path) if os.path.islink(path) else ""
    data = hashlib.sha256(Path(path).read_bytes()).hexdigest() if os.path.isfile(path) and not link else ""
    attributes = [(name, os.getxattr(path, name, follow_symlinks=False)) for name in os.listxattr(path, follow_symlinks=False)]
    return f"{stat.st_mode:o} {stat.st_uid} {stat.st_gid} {sorted(attributes)} {link}{data}"


def refs(root):
    """Returns how many refs of each kind the repository has, but for those of deployments, which libostree makes anew with each
    list of them."""
    listed = run("ostree", f"--repo={root}/ostree/repo", "refs").splitlines()
    return Counter("/".join(ref.split("/")[:3]) for ref in listed if not DEPLOYMENT_REF.fullmatch(ref))
