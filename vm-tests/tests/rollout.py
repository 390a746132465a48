"""Promise: a MachineConfig is rendered and rolled out by machine-config-controller to two hosts, one after the other: each is
drained, reboots, is Done and takes pods again before the other begins; a controller that is killed meanwhile is replaced.

Boots: 4
Minutes: 0.4
"""

import json

from harness.agent import KUBECONFIG, Agent, config
from harness.cluster import CONFIGS, NODES, PODS, POOLS, key
from harness.controller import Controller

NOT_IN = {"machine": "two machines at once are too much for most processors"}
PATH, ADDED = "/etc/lab/settings.conf", "/etc/lab/added.conf"
WORKER = {"node-role.kubernetes.io/worker": ""}


def pool_config(name, files):
    """Returns a MachineConfig of the pool."""
    made = config(name, files)
    made["metadata"]["labels"] = {key("role"): "worker"}
    return made


def render(cluster):
    """Makes a pool with one MachineConfig."""
    cluster.create_policies()
    cluster.create(POOLS, {"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
                           "metadata": {"name": "worker"},
                           "spec": {"machineConfigSelector": {"matchLabels": {key("role"): "worker"}},
                                    "nodeSelector": {"matchLabels": WORKER}, "maxUnavailable": 1}})
    cluster.create(CONFIGS, pool_config("50-first", {PATH: "version = 1\n"}))


def wait_pool(cluster, what, condition):
    """Waits for a state of the pool, and returns it."""
    return cluster.wait(what, POOLS, "worker", condition)


def rendered(pool):
    """Returns the config that the pool's nodes should have."""
    return pool["spec"].get("configuration", {}).get("name")


def app_pod(name):
    """Returns a pod that a drain of the node evicts."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"app-{name}"},
            "spec": {"nodeName": name, "containers": [{"name": "app", "image": "registry.invalid/app"}]}}


def join(machine, cluster, name, desired):
    """Makes the node of a host, with a pod on it, and starts the host's agent."""
    # What the config asks for is there: nothing has to follow.
    machine.write(PATH, "version = 1\n")
    cluster.create_node(name, {"desiredConfig": desired})
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    cluster.ask("PATCH", f"{NODES}/{name}/status", json.dumps(ready), "application/merge-patch+json")
    cluster.create(PODS, app_pod(name))
    agent = Agent(machine)
    agent.join(cluster.kubeconfig(machine.HOST_ADDRESS, name))
    # Both hosts are in one network.
    start = f"machine-config-agent daemon --kubeconfig {KUBECONFIG} --node-name {name} --metrics-listen off"
    agent.drop_in("20-lab.conf", f"[Service]\nExecStart=\nExecStart=/usr/bin/{start}\n")


def end_pod(cluster, name):
    """Ends the pod of a host as its kubelet does, when it has been evicted."""
    cluster.wait(f"the pod of {name} is evicted", PODS, f"app-{name}", lambda pod: pod["metadata"].get("deletionTimestamp"))
    cluster.ask("DELETE", f"{PODS}/app-{name}?gracePeriodSeconds=0")


def wait_done(cluster, name, desired):
    """Waits until a node is Done with a config and takes pods again."""
    def is_done(node):
        told = {each: node["metadata"]["annotations"].get(key(each)) for each in ("state", "currentConfig")}
        free = not node["spec"].get("unschedulable")
        return free and told == {"state": "Done", "currentConfig": desired}

    return cluster.wait(f"{name} is Done with {desired}", NODES, name, is_done)


def play(test):
    first, cluster = test.machine, test.cluster()
    second, second_agent = test.add_second()
    hosts = {cluster.node: (first, test.agent), second.name: (second, second_agent)}
    cluster.timeout_factor = first.TIMEOUT_FACTOR
    controller = Controller(cluster)
    try:
        # The controller's pool has a config before there is a node.
        render(cluster)
        old = rendered(wait_pool(cluster, "a rendered config", rendered))
        for name, (machine, agent) in hosts.items():
            machine.boot()
            join(machine, cluster, name, old)
            agent.start()
        for name in hosts:
            wait_done(cluster, name, old)
        wait_pool(cluster, "both nodes are counted", lambda pool: pool["status"].get("updatedMachineCount") == 2)

        # By default a file that nobody has named needs a drain and a reboot.
        cluster.create(CONFIGS, pool_config("60-second", {ADDED: "by = rollout\n"}))
        new = rendered(wait_pool(cluster, "another rendered config", lambda pool: rendered(pool) != old))
        end_pod(cluster, cluster.node)
        first.wait_reboot()
        other = cluster.ask("GET", f"{NODES}/{second.name}")
        test.same("what the other host is to have meanwhile", other["metadata"]["annotations"][key("desiredConfig")], old)
        test.same("the other host takes pods", other["spec"].get("unschedulable"), None)
        controller.close()
        controller = Controller(cluster)
        first.boot()
        end_pod(cluster, second.name)
        second.next_boot()

        for name, (machine, agent) in hosts.items():
            wait_done(cluster, name, new)
            test.same(f"{ADDED} of {name}", machine.read(ADDED), "by = rollout\n")
            test.same(f"reboots of {name}", len(agent.logged("REBOOT")), 1)
            test.same(f"faults in the journal of {name}", agent.logged("FAULT"), [])
        done = wait_pool(cluster, "the pool is updated", lambda pool: pool["status"].get("updatedMachineCount") == 2
                         and pool["status"].get("configuration", {}).get("name") == new)
        test.same("nodes that are not available", done["status"].get("unavailableMachineCount"), 0)
    finally:
        controller.close()
