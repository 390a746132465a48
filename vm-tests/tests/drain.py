"""Promise: the node of a cluster asks for its drain, waits for the answer (also when the agent is killed meanwhile), switches and
reboots, tells Done only when the end of the drain is answered; events and the MachineConfigNode say the same.

Boots: 2
Minutes: 0.3; in a machine 8
"""

import json

from harness.agent import config
from harness.cluster import CONFIGS, MCNS, key

PATH, BROUGHT, VERSION = "/etc/lab/settings.conf", "/etc/lab/app.conf", "/usr/share/lab/version"
FIRST, SECOND = "rendered-worker-a", "rendered-worker-b"


def joined(test):
    """Makes the objects of the node, and gives the guest what a node of a cluster has."""
    machine, cluster = test.machine, test.cluster()
    cluster.timeout_factor = machine.TIMEOUT_FACTOR
    cluster.create_policies()
    cluster.create(CONFIGS, config(FIRST, {PATH: "version = 1\n"}))
    cluster.create(CONFIGS, config(SECOND, {PATH: "version = 1\n", BROUGHT: "from = image\n"}))
    cluster.create_node(cluster.node, {"desiredConfig": FIRST})
    test.agent.trust(test.registry())
    test.agent.join(cluster.kubeconfig(machine.HOST_ADDRESS))


def annotation(node, name):
    """Returns an annotation of the contract."""
    return node["metadata"]["annotations"].get(key(name))


def wait_events(test, count):
    """Waits until the agent has started so often in this boot."""
    test.agent.wait_log(f"start {count}", lambda lines: len(lines) == count, "STARTED")


def play(test):
    machine, agent, images, registry, cluster = test.machine, test.agent, test.images, test.registry(), test.cluster()
    brought = {BROUGHT.lstrip("/"): "from = image\n", VERSION.lstrip("/"): "2\n"}
    digest = images.next("v2", brought, {"machineconfig": SECOND})
    image = registry.push(images.layout.path, "v2", digest)

    # Boot 1: the node joins; what is there is brought to its config. It asks nobody for that.
    machine.boot()
    # A file of the first config that is there already: nothing has to follow it.
    machine.write(PATH, "version = 1\n")
    joined(test)
    agent.start()
    node = cluster.wait_node(f"Done with {FIRST}", state="Done", currentConfig=FIRST)
    test.same("no drain was asked for", annotation(node, "desiredDrain"), None)
    boot = machine.boot_id()

    # The controllers want an image: it is staged, the drain is asked for, and the agent waits.
    cluster.patch(desiredConfig=SECOND, desiredImage=image)
    node = cluster.wait_node("the drain is asked for", desiredDrain=f"drain-{SECOND}", state="Working")
    test.same("what is current", annotation(node, "currentConfig"), FIRST)
    status = agent.wait_status("it waits", lambda status: status["phase"] == "Draining")
    test.same("staged image", status["staged"], image)
    # With its pods the registry's name may go, or the registry itself: all that the reboot needs is here.
    registry.stop()
    # Neither a killed agent nor the answer to another request ends the wait.
    agent.kill()
    wait_events(test, 2)
    cluster.patch(unschedulable=True, lastAppliedDrain="drain-rendered-worker-of-another-time")
    agent.kill()
    wait_events(test, 3)
    agent.wait_status("it waits", lambda status: status["phase"] == "Draining")
    test.same("the same boot", machine.boot_id(), boot)
    test.same("no reboot was asked for", agent.logged("REBOOT"), [])
    cluster.patch(lastAppliedDrain=f"drain-{SECOND}")

    # Boot 2: verified and committed; the end of the drain is asked for, and Done comes with the answer.
    machine.next_boot()
    node = cluster.wait_node("the end of the drain is asked for", desiredDrain=f"uncordon-{SECOND}")
    test.same("not Done before the answer", annotation(node, "state"), "Working")
    test.same("it is still cordoned", node["spec"].get("unschedulable"), True)
    test.same("no reboot is announced any more", annotation(node, "post-config-action"), "")
    cluster.patch(unschedulable=None, lastAppliedDrain=f"uncordon-{SECOND}")
    node = cluster.wait_node("Done", state="Done", currentConfig=SECOND, currentImage=image, reason="")
    test.same("booted image", agent.wait_done(SECOND, image)["booted"]["digest"], digest)
    test.same(BROUGHT, machine.read(BROUGHT), "from = image\n")
    test.same(VERSION, machine.read(VERSION), "2\n")
    test.same("reboots that were asked for", len(agent.logged("REBOOT")), 1)
    test.same("faults in the journal", agent.logged("FAULT"), [])

    # The MachineConfigNode is the last that is told; all events came before.
    def updated(mcn):
        conditions = {each["type"]: each["status"] for each in mcn.get("status", {}).get("conditions", [])}
        return conditions.get("Updated") == "True" and mcn["status"]["configVersion"]["current"] == SECOND

    cluster.wait("the MachineConfigNode is updated", MCNS, cluster.node, updated)
    events = cluster.ask("GET", "/api/v1/namespaces/openshift-machine-config-operator/events")["items"]
    reasons = {event["reason"] for event in events}
    expected = {"OSUpdateStarted", "OSUpdateStaged", "Drain", "Reboot", "Uncordon", "NodeDone"}
    test.same(f"events that are missing of {json.dumps(sorted(reasons))}", expected - reasons, set())
