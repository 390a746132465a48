"""One promise: how it is read, and how it is played on a host of its own."""

import importlib.util
import re
import shutil
import time
import traceback

from . import nspawn, qemu
from .agent import Agent
from .cluster import Cluster
from .paths import CASES, TESTS, HarnessError
from .registry import Registry

# The same disk and the same promises: with a kernel of its own, or without.
TIERS = {"container": nspawn.Machine, "machine": qemu.Machine}
SECOND = "second"
# How each promise begins: what is promised, how often the host boots, how long that takes.
HEAD = re.compile(r"Promise: (.*)\n\nBoots: \d+.*\nMinutes: (\d+(?:\.\d+)?)", re.DOTALL)


class Harness:
    """The argument of `play`: a host that has not booted yet, its agent, images and a registry."""

    def __init__(self, name, images, options):
        self.images, self.reboots, self._registry, self._cluster = images, options.reboots, None, None
        self.machine = TIERS[options.tier](images.disk, CASES / name)
        self.agent, self.second = Agent(self.machine), None

    def add_second(self):
        """Returns a second host beside the first, in the same network, and its agent."""
        self.second = nspawn.Machine(self.images.disk, self.machine.directory / SECOND, SECOND)
        self.second.cgroup = nspawn.another_cgroup(SECOND)
        return self.second, Agent(self.second)

    def registry(self):
        """Returns the registry; it is started when it is first asked for."""
        self._registry = self._registry or Registry(self.machine.directory, host_address=self.machine.HOST_ADDRESS)
        return self._registry

    def cluster(self):
        """Returns the cluster of which the host is the node; it is started when it is first asked for."""
        self._cluster = self._cluster or Cluster(self.machine.directory, "node")
        return self._cluster

    def same(self, what, observed, expected):
        """Fails unless both are equal."""
        if observed != expected:
            raise HarnessError(f"{what}: {observed!r}, expected {expected!r}")

    def close(self):
        """Ends all of it."""
        if self._cluster:
            self._cluster.close()
        if self._registry:
            self._registry.close()
        if self.second:
            self.second.close()
        self.machine.close()


def load(name):
    """Returns a promise. What it says of a tier in `NOT_IN` is why it is not played there."""
    spec = importlib.util.spec_from_file_location(name, TESTS / f"{name}.py")
    promise = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(promise)
    if not HEAD.match(promise.__doc__ or ""):
        raise HarnessError(f"the head of tests/{name}.py has to say the promise, its boots and its minutes")
    return promise


def play(name, promise, images, options):
    """Plays one promise; returns what went wrong, or nothing."""
    test = Harness(name, images, options)
    try:
        promise.play(test)
        for machine in filter(None, (test.machine, test.second)):
            if machine.process:
                machine.power_off()
        return None
    except HarnessError as error:
        return str(error)
    except Exception:  # a promise that is wrong itself fails, and the others go on
        return traceback.format_exc()
    finally:
        test.close()


def minutes(promise):
    """Returns how long a promise says that it takes in a container."""
    return float(HEAD.match(promise.__doc__)[2])


def text(promise):
    """Returns what a promise says, in one line."""
    return " ".join(HEAD.match(promise.__doc__)[1].split())


def keep(name, promise, images, options):
    """Plays a promise, when it fails as often as it may; prints a line for each try. Returns whether it was kept."""
    for _ in range(options.tries):
        began = time.monotonic()
        wrong = play(name, promise, images, options)
        seconds = time.monotonic() - began
        print(f"{'failed' if wrong else 'ok    '}  {name:<20} {seconds:6.1f} s", flush=True)
        if not wrong:
            (CASES / name / "disk.raw").unlink()
            for large in ("registry", "cluster", SECOND):
                shutil.rmtree(CASES / name / large, ignore_errors=True)
            return True
        print(f"  {wrong[:2000]}\n  kept: {CASES / name}", flush=True)
    return False
