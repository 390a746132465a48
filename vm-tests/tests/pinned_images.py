"""Promise: a real containerd pulls the images of a pool's PinnedImageSet ahead and keeps them, with the node's pull secret; one
that the registry does not have is named in the MachineConfigNode, and the node goes on; a switch of the OS image keeps them without
another pull; with the last set they are let go, and stay until somebody removes them.

Boots: 2
Minutes: 0.5; in a machine 6
"""

import base64
import json

from harness import containerd
from harness.agent import config
from harness.cluster import CONFIGS, GROUP, MCNS, NODES, PIN_CRDS, PIN_SETS, POOLS

# containerd of Debian 13 is fetched first.
LONG = True

PATH, BROUGHT = "/etc/lab/settings.conf", "/etc/lab/app.conf"
FIRST, SECOND, SET = "rendered-worker-a", "rendered-worker-b", "apps"
WORKER = "node-role.kubernetes.io/worker"
# A line of htpasswd: `node`, whose password is PASSWORD.
ACCOUNTS = "node:$2b$04$GHO1/zhrx5fBTOHmuC3ZzecX0WIEIRz6.y09WwJ.2Jn2HGESzMwLe\n"
PASSWORD = "open-sesame"
SECRET = "/var/lib/kubelet/config.json"


def joined(test):
    """Makes the objects of the node and its pool, and gives the guest what a node of a cluster has."""
    machine, cluster = test.machine, test.cluster()
    cluster.timeout_factor = machine.TIMEOUT_FACTOR
    cluster.define(PIN_CRDS)
    cluster.create_policies()
    cluster.create(CONFIGS, config(FIRST, {PATH: "version = 1\n"}))
    cluster.create(CONFIGS, config(SECOND, {PATH: "version = 1\n", BROUGHT: "from = image\n"}))
    cluster.create(POOLS, {"apiVersion": f"{GROUP}/v1", "kind": "MachineConfigPool", "metadata": {"name": "worker"},
                           "spec": {"nodeSelector": {"matchLabels": {WORKER: ""}}, "pinnedImageSets": [{"name": SET}]}})
    # A single node is not drained; the annotation asks for sets, as in a cluster without a ControllerConfig.
    cluster.create_node(cluster.node, {"desiredConfig": FIRST, "controlPlaneTopology": "SingleReplica"})
    cluster.merge(f"{NODES}/{cluster.node}", {"metadata": {"annotations": {"machine-config-agent.io/pinned-image-sets": "1"}}})
    test.agent.trust(test.registry())
    test.agent.join(cluster.kubeconfig(machine.HOST_ADDRESS))


def application(test, name):
    """Gives the registry an application's image, and returns its name by digest."""
    layout = test.images.layout
    return test.registry().push(layout.path, name, layout.plain(name, {f"srv/{name}": (0o644, name.encode())}, {}))


def conditions_of(mcn):
    """Returns the conditions of a MachineConfigNode: type to status."""
    return {each["type"]: each["status"] for each in mcn.get("status", {}).get("conditions", [])}


def wait_sets(test, what, **expected):
    """Waits until the MachineConfigNode has these conditions, and returns the status of its sets."""
    def is_so(mcn):
        conditions = conditions_of(mcn)
        return all(conditions.get(f"PinnedImageSets{name}") == status for name, status in expected.items())

    return test.cluster().wait(what, MCNS, test.cluster().node, is_so)["status"].get("pinnedImageSets", [])


def wait_pinned(test, generation):
    """Waits until all sets are pinned; the one set has this generation, or there is none."""
    def is_so(mcn):
        conditions = conditions_of(mcn)
        sets = {each["name"]: each.get("currentGeneration") for each in mcn.get("status", {}).get("pinnedImageSets", [])}
        ended = [conditions.get(f"PinnedImageSets{name}") for name in ("Progressing", "Degraded")] == ["False", "False"]
        return ended and sets == ({SET: generation} if generation else {})

    test.cluster().wait(f"generation {generation} is pinned", MCNS, test.cluster().node, is_so)


def pin(images):
    """Returns the spec of a PinnedImageSet."""
    return {"spec": {"pinnedImages": [{"name": image} for image in images]}}


def play(test):
    machine, agent, images, registry, cluster = test.machine, test.agent, test.images, test.registry(), test.cluster()
    runtime = containerd.Containerd(machine)
    files = {BROUGHT.lstrip("/"): "from = image\n", **containerd.unit()}
    digest = images.next("v2", files, {"machineconfig": SECOND}, programs=containerd.programs())
    image = registry.push(images.layout.path, "v2", digest)
    app, other = application(test, "app"), application(test, "other")
    registry.stop()
    registry.start(ACCOUNTS)

    # Boot 1: the set is there before the node joins.
    machine.boot()
    machine.write(PATH, "version = 1\n")
    secret = base64.b64encode(f"node:{PASSWORD}".encode()).decode()
    machine.write(SECRET, json.dumps({"auths": {registry.host: {"auth": secret}}}))
    runtime.start(registry)
    joined(test)
    cluster.create(PIN_SETS, {"apiVersion": f"{GROUP}/v1", "kind": "PinnedImageSet", "metadata": {"name": SET}, **pin([app])})
    agent.start()
    cluster.wait_node(f"Done with {FIRST}", state="Done", currentConfig=FIRST)
    wait_pinned(test, 1)
    test.same("its images", runtime.images()[app], True)

    # An image that nobody has: it is named, the rest stays, and the node is as it was.
    missing = f"{app.partition('@')[0]}@sha256:{'0' * 64}"
    cluster.merge(f"{PIN_SETS}/{SET}", pin([app, missing]))
    [told] = wait_sets(test, "an image is missing", Degraded="True")
    test.same(f"what failed of {told}", (told["lastFailedGeneration"], missing in told["lastFailedGenerationError"]), (2, True))
    test.same("the first image", runtime.images()[app], True)
    test.same("the node", cluster.wait_node("it is Done", state="Done")["metadata"]["annotations"][f"{GROUP}/reason"], "")
    cluster.merge(f"{PIN_SETS}/{SET}", pin([app, other]))
    wait_pinned(test, 3)
    test.same("its images", [runtime.images()[name] for name in (app, other)], [True, True])

    # Boot 2: another OS image. From here on nobody could pull anything.
    cluster.patch(desiredConfig=SECOND, desiredImage=image)
    machine.wait_reboot()
    registry.stop()
    machine.boot()
    cluster.wait_node("Done", state="Done", currentConfig=SECOND, currentImage=image, reason="")
    agent.wait_log("they are still pinned", lambda lines: "2 pinned images are on the node, 0 of them new" in lines[-1]["MESSAGE"],
                   "PINNED")
    wait_pinned(test, 3)
    test.same("its images", [runtime.images()[name] for name in (app, other)], [True, True])

    # The last set goes.
    cluster.merge(f"{POOLS}/worker", {"spec": {"pinnedImageSets": []}})
    wait_pinned(test, None)
    test.same("its images", [runtime.images()[name] for name in (app, other)], [False, False])
    journal = machine.run("journalctl", "--no-pager", "--output=json")
    test.same("secrets in the journal", [word for word in (PASSWORD, secret) if word in journal], [])
