"""One cell of the matrix of joins: a host that boots an installed image for the first time, and what is looked at when it has joined."""

import json
import shutil
import time
import traceback

from . import disk, noting
from .agent import Agent
from .cluster import CONFIGS, HOST, Cluster
from .joins_contacts import CONTACTS, NAME as REGISTRY, PORT, SERVER, LateServer, registry
from .joins_images import ARGUMENT, INSTALLED, PATH, desired, next_image, prepared
from .joins_ways import STARTED, WAYS
from .noting import AFTER, ONCE, PULL, VERSION, notes
from .nspawn import Machine
from .paths import CASES, HarnessError, run


# Each value at least once; the cheapest set that has them.
COVERING = ("plain/unit/secret", "same/upstream/ca", "other/daemonset/mirror", "clone/kubeadm/late", "seed/alone/policy",
            "plain/bootstrap/proxy")


def names():
    """Returns all cells, sensible or not."""
    return [f"{image}/{way}/{contact}" for image in INSTALLED for way in WAYS for contact in CONTACTS]


def pairs():
    """Returns cells that have each way with each contact, as far as that makes sense, and with each image."""
    images, found = list(INSTALLED), []
    for row, way in enumerate(WAYS):
        for column, contact in enumerate(CONTACTS):
            image = images[(row + column) % len(images)]
            name = f"{image}/{way}/{contact}"
            # The image is played with another contact then.
            found.append(f"{image}/{way}/secret" if senseless(name) else name)
    return found


def senseless(name):
    """Returns why a cell makes no sense, or nothing."""
    _, way, contact = name.split("/")
    return CONTACTS[contact].senseless.get(way)


class Join:
    """A cell that is played: the host, and the servers around it."""

    def __init__(self, name, images):
        image, way, contact = name.split("/")
        self.way, self.contact, self.closing = WAYS[way](), CONTACTS[contact](), []
        digest = next_image(images)
        self.reference = f"{REGISTRY}:{PORT}/os@{digest}"
        self.config = desired(self.reference)
        images = prepared(images, image, self.reference)
        self.machine = Machine(images.disk, case(name))
        self.closing.append(self.machine.close)
        self.agent, self.cluster = Agent(self.machine), None
        self.registry = registry(self.machine.directory)
        self.closing.append(self.registry.close)
        self.registry.push(images.layout.path, "v2", digest)

    def kubeconfig(self):
        """Returns what the kubelet has when it has joined. The certificate of the server names its address."""
        made = json.loads(self.cluster.kubeconfig(SERVER))
        made["clusters"][0]["cluster"]["tls-server-name"] = HOST
        return json.dumps(made)

    def put_program(self, path, data):
        """Puts a program into the /usr that boots next."""
        file = self.machine.deployment / path.lstrip("/")
        file.unlink(missing_ok=True)
        self.machine.put(path, data, 0o755)

    def provision(self):
        """Makes the cluster, and leaves on the disk what the installation and Ignition leave."""
        machine = self.machine
        machine.deployment, _ = disk.entry(machine.sysroot)
        machine.stateroot = machine.deployment.parents[1]
        if self.way.has_cluster:
            self.cluster = Cluster(machine.directory, "node")
            self.closing.append(self.cluster.close)
            self.cluster.timeout_factor = machine.TIMEOUT_FACTOR
            self.cluster.create_policies()
            self.cluster.create(CONFIGS, self.config)
        self.way.place(self)
        noting.place(machine, self.way.noted)
        self.contact.before(self)
        for path, text in self.contact.files(self).items():
            machine.write(path, text)
        enabled = ("kubelet.service",) if self.way.has_first_boot else ()
        run("systemctl", f"--root={machine.deployment}", "--quiet", "enable", *enabled, *self.way.units, *self.way.noted)

    def play(self):
        """Plays it: the cause is named where it is met, and once it is mended nobody does anything more."""
        self.provision()
        machine, is_late = self.machine, isinstance(self.contact, LateServer)
        machine.switch_on()
        if not is_late:
            self.refused()
        machine.next_boot()
        if is_late:
            self.refused()
        self.way.joined(self)
        self.way.done(self)
        self.look()
        machine.power_off()

    def refused(self):
        """Waits until the cause is named, and mends it."""
        self.machine.wait_console(self.contact.console)
        self.contact.named(self)
        same("OSes on which the kubelet has started", {version for _, version in self.kubelets()} - {"2"}, set())
        self.contact.mend(self)

    def kubelets(self):
        """Returns the boots and the OSes in which the kubelet was started."""
        found = self.machine.read(STARTED).splitlines() if self.machine.exists(STARTED) else []
        return [tuple(line.split()) for line in found]

    def look(self):
        """Looks at the host that has joined."""
        machine = self.machine
        machine.run("sh", "-c", "systemctl is-system-running --wait || true")
        boot = machine.boot_id()
        same("boots", machine.boots, 2)
        same("reboots that were asked for", len(self.agent.logged("REBOOT")), 1)
        same("the OS", machine.read(VERSION), "2\n")
        same("starts of the kubelet", self.kubelets(), [(boot, "2")])
        same("the argument", machine.read("/proc/cmdline").split().count(ARGUMENT), 1)
        same(PATH, machine.read(PATH), "version = 1\n")
        for unit in self.way.noted:
            ran = [each for each, _ in notes(machine, unit)]
            same(f"boots in which {unit} ran twice", {each for each in ran if ran.count(each) > 1}, set())
        same(f"runs of {ONCE} in this boot", [each for each, _ in notes(machine, ONCE)].count(boot), 1)
        if AFTER in self.way.noted:
            same(f"runs of {AFTER}", notes(machine, AFTER), [(boot, "2")])
        if PULL in self.way.noted and not self.way.pulls:
            same(f"runs of {PULL}", notes(machine, PULL), [])
        machine.run("machine-config-agent", "verify")

    def close(self):
        """Ends all of it."""
        for close in reversed(self.closing):
            close()


def same(what, observed, expected):
    """Fails unless both are equal."""
    if observed != expected:
        raise HarnessError(f"{what}: {observed!r}, expected {expected!r}")


def play(name, images):
    """Plays one cell; returns what went wrong, or nothing."""
    join = None
    try:
        join = Join(name, images)
        join.play()
        return None
    except HarnessError as error:
        return str(error)
    except Exception:  # a cell that is wrong itself fails, and the others go on
        return traceback.format_exc()
    finally:
        if join:
            join.close()


def case(name):
    """Returns where a cell is played."""
    return CASES / "joins" / name.replace("/", "-")


def play_tidily(name, images):
    """Plays one cell, and keeps of it what a failure needs; returns what went wrong, or nothing."""
    wrong = play(name, images)
    for large in ("registry", "cluster", *(() if wrong else ("disk.raw",))):
        path = case(name) / large
        if path.is_file():
            path.unlink()
        shutil.rmtree(path, ignore_errors=True)
    return wrong


def keep(name, images):
    """Plays a cell and prints its line; returns whether it went well."""
    began = time.monotonic()
    wrong = play_tidily(name, images)
    print(f"{'failed' if wrong else 'ok    '}  {name:<26} {time.monotonic() - began:6.1f} s", flush=True)
    if wrong:
        print(f"  {wrong[:2000]}\n  kept: {case(name)}", flush=True)
    return not wrong
