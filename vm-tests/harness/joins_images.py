"""Installed images: what a new host boots first. Each disk is made once for what goes into it, and copied."""

import contextlib
import copy
import fcntl
import inspect
import json
import shutil

from . import agent, disk, image, nspawn, seed
from .noting import VERSION
from .paths import WORK

NAME, OTHER, TEMPLATE = "rendered-worker-join", "rendered-worker-other", "rendered-worker-template"
PATH, ARGUMENT = "/etc/lab/settings.conf", "lab.first=boot"
# Where a builder leaves the config of an image.
EMBEDDED = "usr/etc/machine-config-daemon/currentconfig"
# It stands for the kubelet; what it does is the host's (`joins_ways`).
SCRIPT = "/etc/lab/kubelet"
KUBELET = (f"[Unit]\nDescription=The kubelet's stand-in\n[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh {SCRIPT}\n"
           "[Install]\nWantedBy=multi-user.target\n")
# The program of upstream's units, where they are kept.
LINK, PROGRAM = "usr/libexec/machine-config-daemon", "../bin/machine-config-agent"


def desired(reference):
    """Returns the config that a host joins with."""
    made = agent.config(NAME, {PATH: "version = 1\n"}, osImageURL=reference, kernelArguments=[ARGUMENT])
    made["spec"]["config"]["systemd"] = {"units": [{"name": "kubelet.service", "enabled": True, "contents": KUBELET}]}
    return made


def next_image(images):
    """Makes the image that the config names; returns its digest."""
    return images.next("v2", {VERSION.lstrip("/"): "2\n"}, {}, links={LINK: PROGRAM})


class Installed:
    """One of them: an image of v1 with what is added to it, on a new disk."""

    # v1 itself is on the disk of all tests.
    is_first = False

    def files(self, _config):
        """Returns what it has more than v1: path to text."""
        return {}

    def make(self, images, config, raw, work):
        """Makes the disk."""
        tag = f"v1-{type(self).__name__.lower()}"
        digest = images.next(tag, self.files(config), {}, self.programs())
        images.install(tag, digest, disk.FILE_SYSTEMS[0], raw, work)

    def programs(self):
        """Returns binary files that it has more: path to bytes."""
        return {}


class Plain(Installed):
    """An image without a config."""

    is_first = True


class SameConfig(Installed):
    """An image that was built for the config with which the host joins."""

    def files(self, config):
        return carried(config, {PATH: "version = 1\n"})


class OtherConfig(Installed):
    """An image that was built for another config, with files of that."""

    def files(self, _config):
        files = {PATH: "of another config\n", "/etc/lab/other.conf": "of another config\n"}
        return carried(agent.config(OTHER, files), files)


class SeedImage(Installed):
    """A bootc seed: the files of another host's /etc and /var are in the image."""

    def programs(self):
        policy = agent.no_action(PATH)
        members = seed.Seed("4.17.2", agent.config(OTHER, {PATH: "of a seed\n"}), policy).members()
        return {f"{seed.DIRECTORY}/{name}": data for name, data in members.items()}


class Clone(Installed):
    """A golden image: a host that its agent managed in a directory, with other files, and that is another machine now."""

    def make(self, images, config, raw, work):
        super().make(images, config, raw, work)
        first = nspawn.Machine(raw, work.with_name(f"{work.name}.first"))
        try:
            first.boot()
            of = agent.Agent(first)
            files = {PATH: "of the template\n", "/etc/lab/template.conf": "of the template\n"}
            of.settle(agent.config(TEMPLATE, files), agent.no_action(*files))
            first.run("systemctl", "disable", agent.UNIT)
            first.power_off()
            # As virt-sysprep(1) leaves it: another machine-id, no journal.
            (first.deployment / "etc/machine-id").write_text("")
            shutil.rmtree(first.stateroot / "var/log/journal")
        finally:
            first.close()
        first.disk.replace(raw)
        shutil.rmtree(first.directory)


INSTALLED = {"plain": Plain, "same": SameConfig, "other": OtherConfig, "clone": Clone, "seed": SeedImage}


def carried(config, files):
    """Returns the files of an image that carries a config."""
    return {EMBEDDED: json.dumps(config), **{f"usr{path}": text for path, text in files.items()}}


def prepared(images, name, reference):
    """Returns the images with the disk of an installed image, which is made if it is missing."""
    if INSTALLED[name].is_first:
        return images
    config = desired(reference)
    made_of = image.digest_of(images.first, json.dumps(config), inspect.getsource(disk), inspect.getsource(inspect.getmodule(desired)))
    directory = WORK / f"joins-{name}-{made_of}"
    with one_at_a_time(name):
        if not directory.exists():
            with image.building(directory) as (new, work):
                INSTALLED[name]().make(images, config, new / "disk.raw", work)
            image.forget(f"joins-{name}-{16 * '?'}", directory)
    found = copy.copy(images)
    found.disk = directory / "disk.raw"
    return found


@contextlib.contextmanager
def one_at_a_time(name):
    """Who comes second finds what the first has made."""
    with open(WORK / f"joins-{name}.lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
