"""A cluster of one node, with a real scheduler, controller-manager and kubelet: the controller of the manifests as a pod of that node, and a
draining update beside a budget that allows no eviction."""

import contextlib
import json
import os
import subprocess

from .cluster import API, CONFIGS, HOST, NODES, POLICIES, POOLS, key
from .paths import CHECKOUT, HarnessError, run

NODE, POOL, DRAINED, APP = "node1", "master", "/etc/mca-drained", "app"
DEPLOYMENTS, BUDGETS = "/apis/apps/v1/namespaces/default/deployments", "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
PODS = "/api/v1/namespaces/default/pods"
# Those of the manifests.
CONTROLLER, NAMESPACE = "machine-config-controller", "machine-config-agent"
CONTROLLERS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
CONTROLLER_BUDGETS = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"
CONTROLLER_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
# This cluster has no DNS and no proxy for services, and the host is the machine of the tests: no agent in a pod.
PATCHES = [
    {"target": {"kind": "DaemonSet"}, "patch": json.dumps({"$patch": "delete", "kind": "DaemonSet", "metadata": {"name": "x"}})},
    {"target": {"kind": "Deployment"}, "patch": json.dumps([
        {"op": "add", "path": "/spec/template/spec/hostNetwork", "value": True},
        {"op": "add", "path": "/spec/template/spec/containers/0/imagePullPolicy", "value": "Never"},
        # It waits for a Lease that was deleted: pools have rendered configs.
        {"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--lease-duration=6"},
        *({"op": "add", "path": "/spec/template/spec/containers/0/env/-", "value": {"name": f"KUBERNETES_SERVICE_{name}", "value": str(value)}}
          for name, value in (("HOST", HOST), ("PORT", API)))])},
]


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
    return pods(cluster, PODS, f"app%3D{APP}")[0]


def pods(cluster, path, selector):
    """Returns the pods of a Deployment."""
    return cluster.ask("GET", f"{path}?labelSelector={selector}")["items"]


def may_evict(cluster, pod):
    """Asks, as `kubectl drain --dry-run=server` does, whether a pod would be evicted."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace},
                "deleteOptions": {"dryRun": ["All"]}}
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
    return cluster.ask("POST", path, json.dumps(eviction), allow=(429,)) is not None


def install(cluster, kubectl, image):
    """Applies the manifests of a cluster of one node, as docs/install.md says; returns the controller's pod once it is ready."""
    overlay = cluster.directory.parent / "overlay"
    overlay.mkdir()
    manifests = os.path.relpath(CHECKOUT / "dist/manifests", overlay.resolve())
    (overlay / "kustomization.yaml").write_text(json.dumps({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": [f"{manifests}/overlays/kubernetes"],
        "components": [f"{manifests}/components/single-node"], "patches": PATCHES,
        "images": [{"name": "machine-config-agent", "newName": image, "newTag": "v1"}]}))
    run(kubectl, f"--kubeconfig={cluster.admin_kubeconfig()}", "apply", "-k", overlay)

    def is_ready(one):
        return one.get("status", {}).get("readyReplicas") == 1

    def allows_one(one):
        return (one.get("status") or {}).get("disruptionsAllowed") == 1

    try:
        deployment = cluster.wait("the controller's pod is ready", CONTROLLERS, CONTROLLER, is_ready)
        cluster.wait("its budget lets the one replica go", CONTROLLER_BUDGETS, CONTROLLER, allows_one)
    except HarnessError:
        print(json.dumps([each["status"] for each in controllers(cluster)], indent=1)[:6000])
        raise
    (pod,) = controllers(cluster)
    if deployment["spec"]["replicas"] != 1 or not may_evict(cluster, pod):
        raise HarnessError(f"{deployment['spec']['replicas']} replicas, and its budget keeps the controller on its node")
    return pod


def controllers(cluster):
    """Returns the pods of the controller."""
    return pods(cluster, CONTROLLER_PODS, f"app.kubernetes.io%2Fname%3D{CONTROLLER}")


def is_done_with(rendered):
    """Returns a condition of the node: Done with this config."""
    def is_so(node):
        found = node["metadata"].get("annotations", {})
        return (found.get(key("state")), found.get(key("currentConfig"))) == ("Done", rendered)

    return is_so


def play(cluster, program, image):
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
    if may_evict(cluster, before):
        raise HarnessError("the budget lets its pod go: a drain would not hang")
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
        [str(program), "daemon", "--kubeconfig", str(cluster.admin_kubeconfig()), "--node-name", NODE, "--root", str(root),
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
    after = pods(cluster, PODS, f"app%3D{APP}")
    if topology != "SingleReplica" or node["spec"].get("unschedulable"):
        raise HarnessError(f"topology {topology}, spec {node['spec']}")
    if [each["metadata"]["uid"] for each in after] != [before["metadata"]["uid"]]:
        raise HarnessError(f"the pod was evicted: {after}")
    if (root / f"{DRAINED[1:]}/a.conf").read_text() != "two":
        raise HarnessError("the file is not written")
    print(f"one node: {second} is Done, its pod with a budget stayed", flush=True)


def with_controller(cluster, kubectl, controller_image, program, image):
    """Plays it beside the controller of the manifests, in its pod on the node itself."""
    pod = install(cluster, kubectl, controller_image)
    try:
        play(cluster, program, image)
    except HarnessError:
        # A drain that is not to be takes the pod with it.
        with contextlib.suppress(HarnessError):
            log = f"{CONTROLLER_PODS}/{pod['metadata']['name']}/log"
            print(run(kubectl, f"--kubeconfig={cluster.admin_kubeconfig()}", "get", "--raw", log)[-3000:])
        raise
    (after,) = controllers(cluster)
    restarts = sum(each["restartCount"] for each in after["status"]["containerStatuses"])
    if after["metadata"]["uid"] != pod["metadata"]["uid"] or restarts:
        raise HarnessError(f"the controller's pod was replaced or started again: {after['status']}")
