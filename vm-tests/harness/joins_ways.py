"""Ways by which the agent comes to a new host: its units, where its target is, and what the kubelet's stand-in leaves for it."""

import json
import urllib.parse

from . import agent, daemonset, noting
from .cluster import NODES, key
from .joins_images import LINK, NAME, PROGRAM, SCRIPT
from .noting import AFTER, FILE, ONCE, PULL
from .paths import CHECKOUT

FIRSTBOOT, DROP_IN = "machine-config-agent-firstboot.service", "10-cluster.conf"
UNITS = "/etc/systemd/system"
CREDENTIALS, KUBEADM = "/etc/lab/kubeconfig", "/etc/kubernetes/kubelet.conf"
STARTED = "/var/lab-kubelet"
NOTES = f'echo "$(cat /proc/sys/kernel/random/boot_id) $(cat {noting.VERSION})" >>{STARTED}\n'
# Upstream's, as the machine-config-operator renders them; pulled is by its own name of the agent.
UPSTREAM_FIRSTBOOT, UPSTREAM_PULL = "machine-config-daemon-firstboot.service", PULL
UPSTREAM = f"""[Unit]
Description=Machine Config Daemon Firstboot
ConditionPathExists=/run/ostree-booted
ConditionPathExists={FILE}
After={UPSTREAM_PULL}
Before=crio.service crio-wipe.service
Before=kubelet.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/{LINK} firstboot-complete-machineconfig --persist-nics
ExecStart=/{LINK} firstboot-complete-machineconfig
[Install]
RequiredBy=kubelet.service
"""
ANNOTATIONS = "/etc/machine-config-daemon/node-annotations.json"


class Way:
    """One of them: a node of a cluster, whose first boot is completed before its kubelet starts."""

    has_cluster = has_first_boot = True
    # Units that are enabled, and what noted runs are looked at.
    units, noted = (FIRSTBOOT, agent.UNIT), (ONCE, AFTER, PULL)
    credentials = agent.KUBECONFIG
    # Upstream's unit that pulls has to find nothing to do, but where the first boot is upstream's.
    pulls = False

    def place(self, join):
        """Leaves what the installation and Ignition leave; the host is off."""
        write = join.machine.write
        write(FILE, json.dumps(join.config))
        for path, text in agent_files(join.config).items():
            write(path, text)
        write(ANNOTATIONS, json.dumps({key("currentConfig"): NAME, key("desiredConfig"): NAME, key("state"): "Done"}))
        write(f"{UNITS}/{agent.UNIT}.d/{DROP_IN}", (CHECKOUT / f"systemd/{agent.UNIT}.d/{DROP_IN}").read_text())
        write(CREDENTIALS, join.kubeconfig())
        write(SCRIPT, NOTES + self.kubelet())

    def kubelet(self):
        """Returns what the kubelet's stand-in does when it has been started: it joins, and has credentials then."""
        return f"install -m 0600 -D {CREDENTIALS} {self.credentials}\n"

    def joined(self, join):
        """Does what the kubelet does at the API server: the Node is there. Waits until it is Done."""
        # A single node is not drained.
        join.cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {
            "name": join.cluster.node, "labels": {"node-role.kubernetes.io/worker": ""},
            "annotations": {key("controlPlaneTopology"): "SingleReplica"}}})

    def done(self, join):
        """Waits until the node is Done."""
        join.cluster.wait_node("Done", state="Done", currentConfig=NAME, desiredConfig=NAME, reason="")
        join.agent.wait_done(NAME)


class OwnUnit(Way):
    """The agent's units, with the drop-in of a cluster."""


class Upstream(Way):
    """Upstream's unit completes the first boot, by upstream's name of the program; then the agent's own unit."""

    units, noted, pulls = (UPSTREAM_FIRSTBOOT, agent.UNIT), (ONCE, PULL), True

    def place(self, join):
        super().place(join)
        join.machine.write(f"{UNITS}/{UPSTREAM_FIRSTBOOT}", UPSTREAM)
        (join.machine.deployment / LINK).symlink_to(PROGRAM)


class DaemonSet(Way):
    """The agent's unit completes the first boot; the pod of MCD's DaemonSet, with its image replaced, carries the node."""

    units = (FIRSTBOOT,)

    def place(self, join):
        super().place(join)
        daemonset.grant(join.cluster)
        daemonset.place(join.machine, join.cluster)

    def kubelet(self):
        # It pulls the pod's image, and starts the pod.
        image, (program, more) = daemonset.IMAGE, daemonset.PROGRAMS
        return (f"{super().kubelet()}test -e {image} || sh -ec '{daemonset.KEEP}' {image} {program} {more}\n"
                f"systemctl --no-block start {daemonset.POD}\n")


class Kubeadm(Way):
    """A host that kubeadm joins: the kubelet's kubeconfig is kubeadm's."""

    credentials = KUBEADM


class Alone(Way):
    """A host without a cluster: its target is a directory."""

    has_cluster = has_first_boot = False
    units, noted = (FIRSTBOOT, agent.UNIT), (ONCE,)

    def place(self, join):
        write = join.machine.write
        write(f"{agent.CONTROL}/machineconfigs/{NAME}.json", json.dumps(join.config))
        write(f"{agent.CONTROL}/target.yaml", json.dumps({"config": NAME}))
        write(SCRIPT, NOTES)

    def joined(self, join):
        """There is nobody to join."""

    def done(self, join):
        join.agent.wait_done(NAME)


class Bootstrap(Alone):
    """A bootstrap host: its target is what a bootstrap has rendered."""

    def place(self, join):
        write, at = join.machine.write, "/etc/mcs/bootstrap"
        pool = {"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "metadata": {"name": "master"},
                "spec": {"configuration": {"name": NAME}}}
        write(f"{at}/machine-configs/{NAME}.yaml", json.dumps(join.config))
        write(f"{at}/machine-pools/master.yaml", json.dumps(pool))
        text = (CHECKOUT / "docs/install.md").read_text()
        drop_in = text.partition("10-bootstrap.conf`:\n\n")[2].partition("\n\n")[0]
        write(f"{UNITS}/{agent.UNIT}.d/10-bootstrap.conf", "\n".join(line.strip() for line in drop_in.splitlines()) + "\n")
        write(SCRIPT, NOTES)


WAYS = {"unit": OwnUnit, "upstream": Upstream, "daemonset": DaemonSet, "kubeadm": Kubeadm, "alone": Alone, "bootstrap": Bootstrap}


def agent_files(config):
    """Returns what Ignition writes of the config: path to text."""
    storage, units = (config["spec"]["config"][part] for part in ("storage", "systemd"))
    files = {each["path"]: urllib.parse.unquote(each["contents"]["source"].removeprefix("data:,")) for each in storage["files"]}
    return files | {f"{UNITS}/{unit['name']}": unit["contents"] for unit in units["units"]}
