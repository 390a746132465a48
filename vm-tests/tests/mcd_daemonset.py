"""Promise: the pod of MCD's DaemonSet with only its image replaced carries a node: by MCD's command and arguments, with MCD's account,
which may write no Node, and without the agent on the host; a file and an image are applied with one reboot that the pod asks
for, and the pod that the kubelet starts in the next boot reports Done; a pod that is killed is replaced.

Boots: 2
Minutes: 0.4; in a machine 5
"""

from harness.agent import KUBECONFIG, config
from harness.cluster import CONFIGS
from harness.daemonset import HIDE, HIDDEN, POD, PROGRAMS, TOKEN, grant, keep, place

PATH, BROUGHT, VERSION = "/etc/lab/settings.conf", "/etc/lab/app.conf", "/usr/share/lab/version"
FIRST, SECOND = "rendered-worker-a", "rendered-worker-b"


def play(test):
    machine, agent, images, registry, cluster = test.machine, test.agent, test.images, test.registry(), test.cluster()
    digest = images.next("v2", {BROUGHT.lstrip("/"): "from = image\n", VERSION.lstrip("/"): "2\n"}, {"machineconfig": SECOND})
    image = registry.push(images.layout.path, "v2", digest)
    cluster.timeout_factor = machine.TIMEOUT_FACTOR
    cluster.create_policies()
    cluster.create(CONFIGS, config(FIRST, {PATH: "version = 1\n"}))
    cluster.create(CONFIGS, config(SECOND, {PATH: "version = 1\n", BROUGHT: "from = image\n"}))
    # A single node is not drained.
    cluster.create_node(cluster.node, {"desiredConfig": FIRST, "controlPlaneTopology": "SingleReplica"})

    # Boot 1: the kubelet's credentials are the host's, as are those of the registry.
    machine.boot()
    machine.write(PATH, "version = 1\n")
    agent.trust(registry)
    machine.write(KUBECONFIG, cluster.kubeconfig(machine.HOST_ADDRESS))
    machine.run("chmod", "600", KUBECONFIG)
    keep(machine)
    grant(cluster)
    place(machine, cluster)
    machine.write(f"/etc/systemd/system/{HIDDEN}", HIDE)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "enable", "--now", HIDDEN, POD)
    cluster.wait_node(f"Done with {FIRST}", state="Done", currentConfig=FIRST)
    test.same("the host's agent", machine.run("stat", "-c", "%F", PROGRAMS[0]).strip(), "character special file")
    machine.kill(machine.run("systemctl", "show", "--value", "--property=MainPID", POD).strip())

    # Boot 2: another pod stages and reboots; the one of the new boot says that it is done.
    cluster.patch(desiredConfig=SECOND, desiredImage=image)
    machine.next_boot()
    cluster.wait_node("Done", state="Done", currentConfig=SECOND, currentImage=image, reason="")
    test.same(BROUGHT, machine.read(BROUGHT), "from = image\n")
    test.same(VERSION, machine.read(VERSION), "2\n")
    test.same("the host's agent", machine.run("stat", "-c", "%F", PROGRAMS[0]).strip(), "character special file")
    test.same("boots", machine.boots, 2)
    journal = machine.run("journalctl", "--no-pager", "--output=json")
    test.same("the token in the journal", TOKEN in journal, False)
