"""A cluster of one node, with a real scheduler, controller-manager and kubelet: a draining update beside a budget that allows no eviction."""

import subprocess

from .cluster import CONFIGS, NODES, POLICIES, POOLS, key
from .controller import Controller
from .paths import HarnessError

NODE, POOL, DRAINED, APP = "node1", "master", "/etc/mca-drained", "app"
DEPLOYMENTS, BUDGETS = "/apis/apps/v1/namespaces/default/deployments", "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
PODS = "/api/v1/namespaces/default/pods"


def config(cluster, name, text):
    """Creates a MachineConfig of the pool, whose file asks for a drain."""
    files = [{"path": f"{DRAINED}/a.conf", "mode": 420, "overwrite": True, "contents": {"source": f"data:,{text}"}}]
    cluster.create(CONFIGS, {
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {key("role"): POOL}},
        "spec": {"config": {"ignition": {"version": "3.2.0"}, "storage": {"files": files}}}})


def budgeted_pod(cluster, image):
    """Creates a pod that its budget keeps, and returns it once the kubelet runs it."""
    labels = {"app": APP}
    cluster.create(BUDGETS, {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": APP},
                             "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}}})
    container = {"name": APP, "image": image, "imagePullPolicy": "Never"}
    made = cluster.create(DEPLOYMENTS, {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": APP},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"automountServiceAccountToken": False, "containers": [container]}}}})

    def is_ready(one):
        return one.get("status", {}).get("readyReplicas") == 1

    cluster.wait("the pod with a budget runs", DEPLOYMENTS, made["metadata"]["name"], is_ready)
    # The budget's controller has seen it: an eviction would be refused.
    cluster.wait("the budget allows nothing", BUDGETS, APP, lambda one: (one.get("status") or {}).get("currentHealthy") == 1)
    return pods(cluster)[0]


def pods(cluster):
    """Returns the pods of the Deployment."""
    return cluster.ask("GET", f"{PODS}?labelSelector=app%3D{APP}")["items"]


def is_done_with(rendered):
    """Returns a condition of the node: Done with this config."""
    def is_so(node):
        found = node["metadata"].get("annotations", {})
        return (found.get(key("state")), found.get(key("currentConfig"))) == ("Done", rendered)

    return is_so


def play(cluster, bins, image):
    """Plays the update, and raises where it drains, hangs or touches the pod."""
    root = cluster.directory.parent / "host"
    for directory in ("etc", "run", "proc/sys/kernel/random", f"{DRAINED[1:]}"):
        (root / directory).mkdir(parents=True, exist_ok=True)
    (root / "proc/sys/kernel/random/boot_id").write_text("00000000-0000-0000-0000-000000000001\n")
    for path, text in (("proc/cmdline", "quiet\n"), ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"), ("etc/group", "root:x:0:\n")):
        (root / path).write_text(text)
    policy = {"files": [{"path": DRAINED, "actions": [{"type": "Drain"}]}]}
    cluster.create(POLICIES, {"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration", "metadata": {"name": "cluster"},
                              "spec": {"managementState": "Managed", "nodeDisruptionPolicy": policy}})
    before = budgeted_pod(cluster, image)
    cluster.merge(f"{NODES}/{NODE}", {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}})
    config(cluster, "50-drained", "one")
    cluster.create(POOLS, {"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "metadata": {"name": POOL},
                           "spec": {"machineConfigSelector": {"matchLabels": {key("role"): POOL}},
                                    "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/control-plane": ""}}}})
    rendered = cluster.wait("a rendered config", POOLS, POOL, lambda one: one["spec"].get("configuration", {}).get("name"))
    first = rendered["spec"]["configuration"]["name"]
    (root / f"{DRAINED[1:]}/a.conf").write_text("one")
    cluster.merge(f"{NODES}/{NODE}", {"metadata": {"annotations": {key("desiredConfig"): first}}})
    log = open(cluster.directory / "agent.log", "ab")
    agent = subprocess.Popen(
        [str(bins / "machine-config-agent"), "daemon", "--kubeconfig", str(cluster.admin_kubeconfig()), "--node-name", NODE, "--root", str(root),
         "--os-backend", "none", "--reboot-by", "supervisor", "--metrics-listen", "127.0.0.1:0"],
        stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        cluster.wait("the first config is Done", NODES, NODE, is_done_with(first))
        config(cluster, "60-drained", "two")
        second = cluster.wait("another rendered config", POOLS, POOL,
                              lambda one: one["spec"]["configuration"]["name"] != first)["spec"]["configuration"]["name"]
        node = cluster.wait("the second config is Done", NODES, NODE, is_done_with(second))
    except HarnessError:
        print((cluster.directory / "agent.log").read_text()[-3000:])
        raise
    finally:
        agent.kill()
        agent.wait()
        log.close()
    topology = node["metadata"]["annotations"].get(key("controlPlaneTopology"))
    after = pods(cluster)
    if topology != "SingleReplica" or node["spec"].get("unschedulable"):
        raise HarnessError(f"topology {topology}, spec {node['spec']}")
    if [each["metadata"]["uid"] for each in after] != [before["metadata"]["uid"]]:
        raise HarnessError(f"the pod was evicted: {after}")
    if (root / f"{DRAINED[1:]}/a.conf").read_text() != "two":
        raise HarnessError("the file is not written")
    print(f"one node: {second} is Done, its pod with a budget stayed", flush=True)


def with_controller(cluster, bins, image):
    """Plays it beside a controller of its own."""
    controller = Controller(cluster)
    try:
        play(cluster, bins, image)
    except HarnessError:
        print(controller.log.read_text()[-3000:])
        raise
    finally:
        controller.close()
