"""The updates in which the power fails, what is on the disk before and after each, and what has to hold after a cut."""

import json
import os
import shutil
import time
from pathlib import Path

from . import agent, disk, guest, nspawn, registry
from .paths import HarnessError, run

SETTINGS, MORE, STATE = "/etc/lab/settings.conf", "/etc/lab/more.conf", "/var/lib/lab/state.conf"
BROUGHT, VERSION = "/etc/lab/app.conf", "/usr/share/lab/version"
OLD = "rendered-worker-a"
RECORDS = "/var/lib/machine-config-agent"
# Of the registry in the run's own network: what is on a kept disk names it, also when it is played again.
PORT = 5000
# More than a page, and more than a block: half a file would be seen.
LINES = {SETTINGS: 1500, MORE: 1, STATE: 1500}


class Wrong(HarnessError):
    """Something that must not be after a cut; `kind` is its word in the table."""

    def __init__(self, kind, what):
        super().__init__(f"{kind}: {what}")
        self.kind = kind


def wrong(error):
    """Returns what the table and the log say of an error."""
    return {"wrong": getattr(error, "kind", "no boot"), "why": str(error)}


def contents(version):
    """Returns the files of one version: path to text."""
    return {path: f"version = {version}\n" * lines for path, lines in LINES.items()}


class Update:
    """One kind of update: from config A to another one, with or without another image."""

    def __init__(self, name, config, image=None, brought=None):
        self.name, self.image = name, image
        self.machine_config = agent.config(config, {**contents(2), **({BROUGHT: brought} if brought else {})})
        self.config = config
        self.disk = None
        self.old = {**contents(1), BROUGHT: None, VERSION: "1\n"}
        self.new = {**contents(2), BROUGHT: brought, VERSION: "2\n" if image else "1\n"}

    def content(self, config):
        """Returns what is on the disk when the agent is Done with a config."""
        return {OLD: self.old, self.config: self.new}[config]

    def host(self, kind):
        """Returns the class of the host that it is played on."""
        return kind

    def begin(self, host):
        """Boots, and requests the update when the agent has reported Done with the config before. Returns when."""
        host.boot()
        host.follow(lambda report: report["state"] == "Done")
        request(host, self)
        return time.monotonic()

    def is_done(self, report):
        """Says whether a report is that of a host that is Done with it."""
        return is_done(report, self.config)

    def recover(self, host, reported):
        """Boots what a cut left, and follows the host until the update is Done without hands. Returns the result."""
        return recover(host, self, reported)


class Prepared:
    """What a run is played with: a disk on which A is Done, the other image in a registry, the kinds of update."""

    def __init__(self, images, directory):
        self.directory, self.disk = directory, directory / "prepared.raw"
        # A build beside this run may remove the disk that came with it.
        self.key = Path(shutil.copy(images.disk.with_name("key"), directory))
        self.registry = registry.Registry(directory, port=PORT)
        config = "rendered-worker-b"
        files = {**contents(2), BROUGHT: "from = image 2\n", VERSION: "2\n"}
        brought = {path.lstrip("/"): text for path, text in files.items() if not path.startswith("/var/")}
        digest = images.next("v2", brought, {"machineconfig": config})
        self.updates = {
            "image": Update("image", config, f"{self.registry.host}/os@{digest}", files[BROUGHT]),
            "files": Update("files", "rendered-worker-c"),
        }
        for update in self.updates.values():
            update.disk = self.disk
        self.images, self.digest = images, digest
        # Updates that are played in turn.
        self.groups = {}

    def with_first(self, kind):
        """Adds a first boot, from a disk of its own."""
        digest = self.images.next("first", {VERSION.lstrip("/"): "2\n"}, {})
        self.registry.push(self.images.layout.path, "first", digest)
        first = self.updates["first"] = kind(f"{self.registry.host}/os@{digest}")
        first.disk = self.directory / "provisioned.raw"
        first.provision(self.images, self.directory, self.registry, first.disk)

    def make(self):
        """Makes the disk: config A is Done, and the host was shut down."""
        self.registry.push(self.images.layout.path, "v2", self.digest)
        host = nspawn.Machine(self.images.disk, self.directory / "first")
        try:
            host.boot()
            for update in self.updates.values():
                host.write(f"{agent.CONTROL}/machineconfigs/{update.config}.json", json.dumps(update.machine_config))
            # A guest in QEMU has another address for it.
            host.write("/etc/containers/registries.conf.d/machine.conf",
                       self.registry.trusted().replace("127.0.0.1", guest.GATEWAY))
            agent.Agent(host).settle(agent.config(OLD, contents(1)), agent.no_action(*LINES), self.registry)
            host.power_off()
        finally:
            host.close()
        host.disk.rename(self.disk)

    def select(self, name):
        """Returns the selected updates: one, both, or a group."""
        return [self.updates[one] for one in (("image", "files") if name == "both" else self.groups.get(name, (name,)))]

    def turn(self, name, number, files_each):
        """Returns the update of one cut, and its number among those of the update: with both selected one in so many is that of
        files, a group takes turns."""
        if name == "both":
            return self.updates["image" if number % files_each else "files"], number
        group = self.groups.get(name, (name,))
        return self.updates[group[number % len(group)]], number // len(group)

    def close(self):
        """Ends the registry."""
        self.registry.close()


def request(host, update):
    """Sets the target, and has it on the disk: it is the administrator's, and what the agent writes is its own business."""
    agent.Agent(host).set_target_name(update.config, update.image)
    host.flush()
    host.goal = update.config
    host.mark("asked")


def is_done(report, config):
    """Says whether a report is that of a host that is Done with a config."""
    return report["state"] == "Done" and report["currentConfig"] == config


def state(host):
    """Returns where the stateroot's /var is."""
    return host.sysroot / "ostree/deploy" / disk.STATEROOT


def read_files(host, deployment, update):
    """Returns what is on the disk of an update's files."""
    found = {}
    for path in update.old:
        file = (state(host) if path.startswith("/var/") else deployment) / path.lstrip("/")
        found[path] = file.read_text() if file.exists() else None
    return found


def document(path: Path):
    """Reads one of the agent's records; none is one, half of one is wrong."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise Wrong("unreadable", f"{path.name}: {error}") from error


def same(what, found, expected):
    """Fails when the files are not those of one version."""
    wrong = [path for path, text in found.items() if text != expected[path]]
    if wrong:
        mismatches = {path: (found[path] or "absent")[:12].strip() for path in wrong}
        raise Wrong("mixed", f"{what}: {mismatches}")


def inspect(host, update, reported):
    """Looks at the disk after the cut, before anything has run on it. Returns which version it is: old, new, or between."""
    deployment, _ = disk.entry(host.sysroot)
    found = read_files(host, deployment, update)
    half = {path: text for path, text in found.items() if text not in (update.old[path], update.new[path])}
    if half:
        raise Wrong("mixed", f"neither old nor new: {', '.join(half)}")
    records = state(host) / RECORDS.lstrip("/")
    committed, record = document(records / "current.json"), document(records / "record.json")
    name = committed and committed["machineConfig"]["metadata"]["name"]
    if name not in (OLD, update.config):
        raise Wrong("unreadable", f"the committed config is {name}")
    if name == update.config:
        same(f"{name} is committed", found, update.new)
    elif reported:
        # A report that was read is on the disk: Done is told after the commit.
        raise Wrong("mixed", f"Done with {update.config} was told, and {name} is committed")
    elif record is None:
        same(f"{name} is committed, and nothing was begun", found, update.old)
    return "old" if found == update.old else "new" if found == update.new else "between"


def recover(host, update, reported):
    """Boots what a cut left, and looks on until the update is Done without hands. Returns what it was."""
    came = inspect(host, update, reported)
    began, first = time.monotonic(), host.boots
    deployments = []

    def on_report(report):
        deployments.append(host.deployment)
        if report["state"] == "Done":
            expected = update.content(report["currentConfig"])
            found = read_files(host, host.deployment, update)
            # What was read belongs to the report only when that still holds.
            if host.reports.last() == report:
                same(f"Done with {report['currentConfig']} is told", found, expected)

    try:
        host.boot()
        host.follow(lambda report: is_done(report, update.config), on_report)
    except HarnessError as error:
        raise error if isinstance(error, Wrong) else Wrong("hands", str(error)) from error
    seconds = time.monotonic() - began
    booted = (deployments[0] / VERSION.lstrip("/")).read_text().strip() if deployments else None
    # Without an image nothing is written there.
    if update.image:
        consistent(host.sysroot / "ostree/repo")
    return {"files": came, "booted": booted, "boots": host.boots - first, "seconds": round(seconds, 2)}


def consistent(repo):
    """Has libostree check all of its repository."""
    # Read ahead side by side: one by one its thousands of small files take longer than all the rest of a cycle.
    for directory in os.scandir(repo / "objects"):
        for entry in os.scandir(directory):
            if entry.is_file(follow_symlinks=False):
                file = os.open(entry, os.O_RDONLY)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_WILLNEED)
                os.close(file)
    try:
        run("ostree", f"--repo={repo}", "fsck", "--quiet")
    except HarnessError as error:
        raise Wrong("repository", str(error)) from error
