"""Promise: a SeedGenerator makes a seed of the node of a cluster, whose services run again and which is as before; an
ImageBasedUpgrade prepares that seed, boots it, and is completed in the new system, where it is made again; idle, the old one is gone.

Boots: 2
Minutes: 0.6
"""

import base64
import json

from harness.agent import UNIT, config
from harness.cluster import CONFIGS, LIFECYCLE_CRDS, NODES, SEED_GENERATORS, UPGRADES
from harness.stateroots import IDLE, booted, enable, has_condition, old_system, stateroot, unchanged

PATH, FIRST = "/etc/lab/settings.conf", "rendered-master-a"
VERSION, NEW = "4.17.2", "rhcos_4.17.2"
# A line of htpasswd: `node`, whose password is PASSWORD.
ACCOUNTS = "node:$2b$04$GHO1/zhrx5fBTOHmuC3ZzecX0WIEIRz6.y09WwJ.2Jn2HGESzMwLe\n"
PASSWORD = "open-sesame"
PULL_SECRET, DATA, NAMESPACE = "/var/lib/kubelet/config.json", "/var/lib/app/data", "openshift-lifecycle-agent"
SERVICES = ("crio", "kubelet")
SERVICE = """[Service]
ExecStart=/bin/sh -c 'echo started >>/run/lab-starts-{name}; exec sleep infinity'
[Install]
WantedBy=multi-user.target
"""
LIFECYCLE = "[Service]\nExecStart=\nExecStart=/usr/bin/machine-config-agent daemon --kubeconfig /var/lib/kubelet/kubeconfig --lifecycle\n"
SETTINGS = "/etc/machine-config-agent/settings.toml"
IDENTITY = f"sha256sum /etc/machine-id /etc/ssh/ssh_host_* {PULL_SECRET}"


def encoded(value):
    """Returns a value as the API has it in a Secret."""
    return base64.b64encode(json.dumps(value).encode()).decode()


def joined(test):
    """Makes the objects of a cluster of one node, and gives the guest what its node has."""
    machine, cluster, registry = test.machine, test.cluster(), test.registry()
    cluster.timeout_factor = machine.TIMEOUT_FACTOR
    cluster.define_file(LIFECYCLE_CRDS)
    cluster.create_policies()
    # A seed has the arguments that are declared: without this one the network card of a machine has another name.
    cluster.create(CONFIGS, config(FIRST, {PATH: "version = 1\n"}, kernelArguments=["net.ifnames=0"]))
    cluster.create_node(cluster.node, {"desiredConfig": FIRST, "controlPlaneTopology": "SingleReplica"})
    versions = "/apis/config.openshift.io/v1/clusterversions"
    cluster.create(versions, {"apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion", "metadata": {"name": "version"},
                              "spec": {"clusterID": "0f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f0"}})
    desired = {"version": VERSION, "image": "registry.invalid/release"}
    cluster.merge(f"{versions}/version/status", {"status": {"desired": desired, "history": [], "observedGeneration": 1,
                                                            "versionHash": "x", "availableUpdates": []}})
    account = base64.b64encode(f"node:{PASSWORD}".encode()).decode()
    auth = {"auths": {registry.host: {"auth": account}}}
    cluster.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    cluster.create(f"/api/v1/namespaces/{NAMESPACE}/secrets", {
        "metadata": {"name": "seedgen"}, "type": "Opaque", "data": {"seedAuth": encoded(auth)}})
    machine.write(PULL_SECRET, json.dumps(auth))
    test.agent.trust(registry)
    test.agent.join(cluster.kubeconfig(machine.HOST_ADDRESS))
    test.agent.drop_in("20-lifecycle.conf", LIFECYCLE)


def wait_condition(test, path, name, kind, status, reason):
    """Waits until an object has a condition, and returns its status."""
    return test.cluster().wait(f"{name}: {kind} {status} {reason}", path, name,
                               lambda seen: has_condition(seen.get("status", {}), kind, status, reason))["status"]


def desire(test, stage, **seed):
    """Sets the stage of the upgrade."""
    test.cluster().merge(f"{UPGRADES}/upgrade", {"spec": {"stage": stage, **({"seedImageRef": seed} if seed else {})}})


def make_seed(test):
    """Has a seed made; returns its name."""
    machine, image = test.machine, f"{test.registry().host}/seeds/sno"
    test.cluster().create(SEED_GENERATORS, {"apiVersion": "lca.openshift.io/v1", "kind": "SeedGenerator",
                                            "metadata": {"name": "seedimage"}, "spec": {"seedImage": f"{image}:{VERSION}"}})
    wait_condition(test, SEED_GENERATORS, "seedimage", "SeedGenCompleted", "True", "Completed")
    for service in SERVICES:
        test.same(f"{service} runs", machine.run("systemctl", "is-active", service), "active\n")
        test.same(f"starts of {service}", machine.read(f"/run/lab-starts-{service}"), "started\n" * 2)
    [pushed] = (word for line in test.agent.logged("STAGE") for word in line["MESSAGE"].split() if word.startswith(f"{image}@"))
    return pushed


def play(test):
    machine, agent, cluster, registry = test.machine, test.agent, test.cluster(), test.registry()
    registry.stop()
    registry.start(ACCOUNTS)

    # Boot 1: the node joins, and becomes a seed.
    machine.boot()
    machine.write(PATH, "version = 1\n")
    joined(test)
    for service in SERVICES:
        machine.write(f"/etc/systemd/system/{service}.service", SERVICE.format(name=service))
        machine.run("systemctl", "enable", "--now", f"{service}.service")
    machine.write(DATA, "data of the node\n")
    machine.write(SETTINGS, "[seed]\ninclude = ['/var/lib/app', '/etc/systemd/system']\n")
    enable(machine)
    agent.start()
    cluster.wait_node(f"Done with {FIRST}", state="Done", currentConfig=FIRST)
    wait_condition(test, UPGRADES, "upgrade", *IDLE)
    before, identity = old_system(machine), machine.run("sh", "-c", IDENTITY)
    seed = make_seed(test)
    unchanged(machine, before, "after its seed")

    # What is written from here on is not in it.
    machine.write(DATA, "later data\n")
    before = old_system(machine)
    desire(test, "Prep", image=seed, version=VERSION)
    prepared = wait_condition(test, UPGRADES, "upgrade", "PrepCompleted", "True", "Completed")
    test.same("what may come next", prepared["validNextStages"], ["Idle", "Upgrade"])
    unchanged(machine, before, "after its preparation")

    # Boot 2: the new system. Its own etcd does not have the object.
    desire(test, "Upgrade")
    machine.wait_reboot()
    cluster.ask("DELETE", f"{UPGRADES}/upgrade")
    machine.boot()
    test.same("its stateroot", booted(machine), NEW)
    upgraded = wait_condition(test, UPGRADES, "upgrade", "UpgradeCompleted", "True", "Completed")
    test.same("what may come next", upgraded["validNextStages"], ["Idle", "Rollback"])
    agent.wait_done(FIRST)
    cluster.wait_node(f"Done with {FIRST}", state="Done", currentConfig=FIRST)
    test.same("its identity", machine.run("sh", "-c", IDENTITY), identity)
    test.same("its data", (machine.read(PATH), machine.read(DATA)), ("version = 1\n", "data of the node\n"))
    test.same("its services", [machine.read(f"/run/lab-starts-{name}") for name in SERVICES], ["started\n"] * 2)
    unchanged(machine, before, "seen from the new one")
    desire(test, "Idle")
    idle = wait_condition(test, UPGRADES, "upgrade", *IDLE)
    test.same("what may come next", idle["validNextStages"], ["Prep"])
    left = json.loads(stateroot(machine, "list", "--output", "json"))["stateroots"]
    test.same("stateroots", [each["name"] for each in left], [NEW])
    journal = machine.run("journalctl", "--no-pager", "--output=json")
    test.same("secrets in the journal", [word for word in (PASSWORD, json.loads(machine.read(PULL_SECRET))["auths"][registry.host]["auth"])
                                         if word in journal], [])
    test.same("boots", machine.boots, 2)
