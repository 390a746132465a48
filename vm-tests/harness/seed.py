"""Seed images: a bootc seed is the first image with what its host had in /etc and /var, below /usr/lib/openshift/seed."""

import gzip
import json

from . import agent
from .oci import archive

FORMAT = "com.openshift.lifecycle-agent.seed_format_version"
CLUSTER = "com.openshift.lifecycle-agent.seed_cluster_info"
USE_BOOTC = "com.openshift.lifecycle-agent.seed_use_bootc"
DIRECTORY = "usr/lib/openshift/seed"
WANTS = "etc/systemd/system/multi-user.target.wants"
# What its /var says, and where.
DATA, TEXT = "/var/lib/seed/data", "data of the seed\n"


class Seed:
    """The seed of a host whose agent follows a directory and is Done with a config."""

    def __init__(self, version, config, policy, arguments=()):
        # The network of the guest goes by the kernel's name of its card.
        self.version, self.name, self.arguments = version, config["metadata"]["name"], ("net.ifnames=0", *arguments)
        control = agent.CONTROL.lstrip("/")
        # Path to mode and bytes, or to where a link points.
        self.etc = {
            f"{control}/machineconfigs/{self.name}.json": (0o644, json.dumps(config).encode()),
            f"{control}/target.yaml": (0o644, json.dumps({"config": self.name}).encode()),
            f"{control}/policy.yaml": (0o644, json.dumps(policy).encode()),
            f"{WANTS}/{agent.UNIT}": (0o777, f"/usr/lib/systemd/system/{agent.UNIT}"),
        }
        self.var = {DATA.lstrip("/"): (0o644, TEXT.encode())}

    def members(self):
        """Returns the files of the seed: name to bytes."""
        own = {"metadata": {"name": self.name}, "spec": {"kernelArguments": list(self.arguments)}}
        return {
            "etc.tgz": packed(self.etc),
            "var.tgz": packed(self.var),
            "etc.deletions": b"",
            "mco-currentconfig.json": json.dumps(own).encode(),
            "containers.list": b"",
            "manifest.json": b"{}",
        }

    def push(self, images, registry, tag=None, **changed):
        """Makes its image and puts it into the registry; `changed` members are others, or missing. Returns its name."""
        members = {**self.members(), **{name.replace("_", "."): data for name, data in changed.items()}}
        cluster = {"seed_cluster_ocp_version": self.version, "has_proxy": False, "has_fips": False}
        labels = {FORMAT: "4", CLUSTER: json.dumps(cluster), USE_BOOTC: "true"}
        tag = tag or f"seed-{self.version}"
        files = {f"{DIRECTORY}/{name}": data for name, data in members.items() if data is not None}
        return registry.push(images.layout.path, tag, images.next(tag, {}, labels, files))


def packed(files):
    """Returns an archive of files."""
    return gzip.compress(archive(files), 1, mtime=0)
