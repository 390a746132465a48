"""The third update in which the power fails: a first boot. Ignition has left the file, the boot itself begins the switch, and the
kubelet's stand-in starts when it is complete."""

import json
import time

from . import agent, disk, host, nspawn
from .paths import HarnessError
from .power_host import PowerLost, ReportReader
from .power_update import RECORDS, VERSION, Wrong, consistent, document

NAME, ARGUMENT = "rendered-worker-first", "lab.first=boot"
FILE = "etc/ignition-machine-config-encapsulated.json"
KUBELET, STARTS = "etc/systemd/system/kubelet.service", "/var/lib/lab-kubelet"
FIRSTBOOT = "machine-config-agent-firstboot.service"
# It stands for the kubelet: it says which image ran when it started.
STAND_IN = ("[Service]\nType=oneshot\nRemainAfterExit=yes\n"
            f"ExecStart=/bin/sh -c 'cp {VERSION} {STARTS}/.new && mv {STARTS}/.new {STARTS}/$(cat /proc/sys/kernel/random/uuid)'\n"
            "[Install]\nWantedBy=multi-user.target\n")
# The phase of the record, as the other series say it.
SAID = {"rebooting": "Rebooting", "planned": "Planned", "staging": "Staging", "applying": "Applying", "verifying": "Verifying"}


class FirstBoot:
    """It has the same verbs as the other updates."""

    name, config = "first", NAME

    def __init__(self, image):
        self.image = image
        # None takes that of the disk: one that is played again names an image that was made with another digest.
        self.machine_config = json.dumps(agent.config(NAME, {}, osImageURL=image, kernelArguments=[ARGUMENT]))

    def provision(self, images, directory, registry, golden):
        """Makes the disk: what the installation and Ignition leave."""
        first = nspawn.Machine(images.disk, directory / "first")
        try:
            first.boot()
            agent.Agent(first).trust(registry)
            first.write(f"/{KUBELET}", STAND_IN)
            first.run("mkdir", "-p", "-m", "0700", RECORDS, STARTS)
            first.run("systemctl", "daemon-reload")
            first.run("systemctl", "enable", "kubelet.service", FIRSTBOOT)
            # Last, and it begins nothing in a host that runs.
            first.write(f"/{FILE}", self.machine_config)
            first.power_off()
        finally:
            first.close()
        first.disk.rename(golden)

    def host(self, kind):
        """Returns the class of a host that is followed by the record and the kubelet's starts."""
        return type(f"First{kind.__name__}", (ByRecord, kind), {"reader": Starts})

    def begin(self, node):
        """Boots: that is the order. Returns when."""
        node.goal = NAME
        node.boot()
        node.mark("asked")
        return time.monotonic()

    def is_done(self, report):
        """Says whether the kubelet has started."""
        return report["state"] == "Done"

    def inspect(self, node, reported):
        """Looks at the disk after the cut, before anything has run on it. Returns which version it is: old or new."""
        deployment, options = disk.entry(node.sysroot)
        version = (deployment / VERSION.lstrip("/")).read_text().strip()
        if options.count(ARGUMENT) != {"1": 0, "2": 1}[version]:
            raise Wrong("mixed", f"image {version} with the arguments {options}")
        left = [text(deployment / name) for name in (FILE, f"{FILE}.bak")]
        if self.machine_config is None:
            self.machine_config = next((found for found in left if found and json.loads(found)), None)
        if any(found not in (None, self.machine_config) for found in left) or left == [None, None]:
            raise Wrong("mixed", f"the file of the first boot: {[found and found[:20] for found in left]}")
        records = node.stateroot / RECORDS.lstrip("/")
        document(records / "record.json")
        if document(records / "current.json"):
            raise Wrong("mixed", "a first boot commits no config")
        if left[0] is None and version != "2":
            raise Wrong("mixed", f"the first boot is complete with image {version}")
        if reported and left[0] is not None:
            raise Wrong("mixed", "the kubelet has started, and the first boot is not complete")
        self.started(node)
        return "old" if version == "1" else "new"

    def started(self, node):
        """Returns how often the kubelet has started: never before the new image ran."""
        versions = [text(start) for start in (node.stateroot / STARTS.lstrip("/")).glob("[!.]*")]
        # What a cut has left of a start that was not on the disk is empty, or as long as it was and without its bytes: the
        # stand-in does not sync, since that would bring to the disk what the agent has forgotten.
        if any(version != "2\n" and version.strip("\0") for version in versions):
            raise Wrong("mixed", f"the kubelet has started with the images {versions}")
        return len(versions)

    def recover(self, node, reported):
        """Boots what a cut left, and looks on until the kubelet starts. Returns what it was."""
        came = self.inspect(node, reported)
        began, first = time.monotonic(), node.boots
        try:
            node.boot()
            node.follow(self.is_done)
        except HarnessError as error:
            raise error if isinstance(error, Wrong) else Wrong("hands", str(error)) from error
        seconds = time.monotonic() - began
        if self.inspect(node, True) != "new":
            raise Wrong("mixed", "the kubelet has started in the old image")
        consistent(node.sysroot / "ostree/repo")
        booted, boots = {"old": ("1", 2), "new": ("2", 1)}[came]
        if node.boots - first != boots:
            raise Wrong("hands", f"{node.boots - first} boots, {boots} are needed from the {came} image")
        return {"files": came, "booted": booted, "boots": boots, "seconds": round(seconds, 2)}


class ByRecord:
    """A host that is followed by what `reader` reads of its disk: a first boot reports to the console alone."""

    def boot(self, choose=max):
        """Begins to boot; what is on the disk is followed from before the first process on."""
        self._forget()
        self.reports = self.reader(self)
        self.switch_on(choose)
        if self.cut_time:
            raise PowerLost("while it booted")

    def _is_at_work(self):
        return False


class Starts(ReportReader):
    """What a first boot writes down, as reports."""

    def __init__(self, node):
        records = node.stateroot / RECORDS.lstrip("/")
        self.file, self.starts = records / "record.json", node.stateroot / STARTS.lstrip("/")
        self.before = self._count()
        self.notify = host.notify_of(records, host.IN_MOVED_TO, self.starts)

    def _count(self):
        return len(list(self.starts.glob("[!.]*")))

    def last(self):
        """Returns where the first boot is."""
        if self._count() > self.before:
            return {"state": "Done", "phase": "Idle", "currentConfig": NAME}
        found = document(self.file)
        ended = next((self.file.parent / "history").glob("*"), None)
        phase = found["phase"]["name"] if found else "verifying" if ended else "asked"
        return {"state": "Working", "phase": SAID.get(phase, phase), "currentConfig": None}


def text(path):
    """Returns a file's text; none is one."""
    return path.read_text() if path.exists() else None
