"""Promise: an enabled unit is up and waits for what is not there yet: a target, the kubelet's kubeconfig; each is noticed without a hand.

Boots: 2
Minutes: 0.2; in a machine 3
"""

from harness import faults
from harness.agent import CONTROL, KUBECONFIG, UNIT, config, no_action
from harness.cluster import CONFIGS

PATH = "/etc/lab/settings.conf"
FIRST = "rendered-worker-a"


def play(test):
    machine, agent, cluster = test.machine, test.agent, test.cluster()
    # Boot 1: without a target the unit is up, says so, and touches nothing.
    machine.boot()
    agent.start()
    test.same("it is up", agent.unit("ActiveState"), "active")
    test.same("what it waits for", agent.unit("StatusText"), f"Waits for {CONTROL}/target.yaml")
    status = machine.run("machine-config-agent", "status")
    test.same("status says so", f"waiting for {CONTROL}/target.yaml, which does not exist" in status, True)
    faults.printed(test, "first_target")
    test.same("it has no state", machine.exists("/var/lib/machine-config-agent/lock"), False)
    # As after a power cut: the unit of the next boot waits as well.
    machine.run("systemctl", "--no-block", "reboot")
    machine.next_boot()
    test.same("it is up again", agent.unit("ActiveState"), "active")
    agent.set_policy(no_action(PATH))
    agent.set_target(config(FIRST, {PATH: "version = 1\n"}))
    agent.wait_done(FIRST)
    machine.run("systemctl", "disable", "--now", UNIT)

    # The node of a cluster, before its kubelet has joined.
    cluster.timeout_factor = machine.TIMEOUT_FACTOR
    cluster.create_policies()
    cluster.create(CONFIGS, config(FIRST, {PATH: "version = 1\n"}))
    cluster.create_node(cluster.node, {"desiredConfig": FIRST})
    agent.join(cluster.kubeconfig(machine.HOST_ADDRESS))
    machine.run("mv", KUBECONFIG, f"{KUBECONFIG}.new")
    agent.start()
    test.same("it is up without a kubeconfig", agent.unit("ActiveState"), "active")
    agent.wait_log("the missing kubeconfig", lambda lines: f"{KUBECONFIG} does not exist" in lines[-1]["MESSAGE"], "API_SERVER_LOST")
    machine.run("mv", f"{KUBECONFIG}.new", KUBECONFIG)
    cluster.wait_node(f"Done with {FIRST}", state="Done", currentConfig=FIRST)
    test.same(PATH, machine.read(PATH), "version = 1\n")
