"""Promise: real Ignition provisions a bare host from the machine-config-server, over HTTPS and with the pool's token; while the
registry is away or refuses, the kubelet waits; then the image is switched with one reboot, and the kubelet starts only in the
new boot. A host whose image is right is provisioned without a reboot.

Boots: 3
Minutes: 0.5
"""

import base64
import json

from harness import kubelet
from harness.agent import config
from harness.ignition import FIRST_CONTACT, TOKEN, Server
from harness.paths import HarnessError

NOT_IN = {"machine": "Ignition runs over the disk of a host that is off, and a machine begins frozen"}

FIRSTBOOT, KUBELET = "machine-config-agent-firstboot.service", "kubelet.service"
FILE, KUBECONFIG = "/etc/ignition-machine-config-encapsulated.json", "/etc/kubernetes/kubeconfig"
ANNOTATIONS = "/etc/machine-config-daemon/node-annotations.json"
VERSION = "/usr/share/lab/version"
AUTH = "/etc/ostree/auth.json"
# A line of htpasswd: `node`, whose password is PASSWORD.
ACCOUNTS = "node:$2b$04$GHO1/zhrx5fBTOHmuC3ZzecX0WIEIRz6.y09WwJ.2Jn2HGESzMwLe\n"
PASSWORD = "open-sesame"
GROUP = "machineconfiguration.openshift.io"


def objects(registry, image):
    """Returns the pool and its one MachineConfig."""
    own = config("50-worker", {"/etc/containers/registries.conf.d/lab.conf": registry.trusted()}, osImageURL=image,
                 kernelArguments=["lab.first=boot"])
    own["metadata"]["labels"] = {f"{GROUP}/role": "worker"}
    own["spec"]["config"]["systemd"] = {"units": [{"name": KUBELET, "enabled": True, "contents": kubelet.UNIT}]}
    pool = {"apiVersion": f"{GROUP}/v1", "kind": "MachineConfigPool", "metadata": {"name": "worker"},
            "spec": {"machineConfigSelector": {"matchLabels": {f"{GROUP}/role": "worker"}}}}
    return pool, own


def faults(reason):
    """Returns the condition that a fault was logged."""
    return lambda lines: reason in [line["MCA_FAULT"] for line in lines]


def play(test):
    machine, agent, images, registry = test.machine, test.agent, test.images, test.registry()
    digest = images.next("v2", {VERSION.lstrip("/"): "2\n"}, {})
    image = registry.push(images.layout.path, "v2", digest)
    registry.stop()
    server = Server(machine.directory / "mcs", objects(registry, image))
    try:
        switched(test, server, digest)
        registry.stop()
        machine.power_off()
        already_right(test, server)
    finally:
        server.close()
    test.same("secrets in the server's log", [word for word in (TOKEN, FIRST_CONTACT) if word in server.logged()], [])


def switched(test, server, digest):
    machine, agent, registry = test.machine, test.agent, test.registry()
    try:
        server.provision(machine, (KUBELET, FIRSTBOOT), token="another-token-than-that")
    except HarnessError as error:
        test.same(f"Ignition was refused: {error}", "Unauthorized" in str(error), True)
    else:
        raise HarnessError("a stranger was given a config")
    server.provision(machine, (KUBELET, FIRSTBOOT))

    # Boot 1: nobody is there, then somebody who wants a password.
    machine.switch_on()
    machine.wait_console(f"first boot to {server.config} is not complete, the kubelet waits")
    agent.wait_log("the registry is away", faults("ImagePullFailed"), "FAULT")
    registry.start(ACCOUNTS)
    agent.wait_log("the registry refuses", faults("ImagePullUnauthorized"), "FAULT")
    test.same("the kubelet's boots", kubelet.boots(machine), [])
    secret = base64.b64encode(f"node:{PASSWORD}".encode()).decode()
    machine.write(AUTH, json.dumps({"auths": {registry.host: {"auth": secret}}}))

    # Boot 2: the new image.
    machine.next_boot()
    test.same("the kubelet's boots", kubelet.boots(machine), [machine.boot_id()])
    test.same(VERSION, machine.read(VERSION), "2\n")
    test.same("the argument", machine.read("/proc/cmdline").split().count("lab.first=boot"), 1)
    test.same("the file", (machine.exists(FILE), machine.exists(f"{FILE}.bak")), (False, True))
    test.same("reboots that were asked for", len(agent.logged("REBOOT")), 1)
    history = json.loads(machine.run("machine-config-agent", "history", "--output", "json"))["updates"]
    test.same("updates", [(one["outcome"], one["reboots"], one["to"]["config"]) for one in history],
              [("committed", 1, server.config)])
    test.same("booted image", json.loads(machine.run("machine-config-agent", "status", "--output", "json"))["booted"]["digest"],
              digest)
    # What the node joins with.
    test.same("the first contact", FIRST_CONTACT in machine.read(KUBECONFIG), True)
    test.same("its mode", machine.run("stat", "-c", "%a %U", KUBECONFIG).split(), ["600", "root"])
    annotations = json.loads(machine.read(ANNOTATIONS))
    test.same("annotations", {annotations[f"{GROUP}/{name}"] for name in ("currentConfig", "desiredConfig")}, {server.config})
    journal = machine.run("journalctl", "--no-pager", "--output=json")
    test.same("secrets in the journal", [word for word in (FIRST_CONTACT, PASSWORD, secret) if word in journal], [])


def already_right(test, server):
    """Boot 3: provisioned once more, by the same config. The registry is away, and nobody asks it."""
    machine, agent = test.machine, test.agent
    server.provision(machine, (KUBELET, FIRSTBOOT))
    machine.boot()
    test.same("the kubelet's last boot", kubelet.boots(machine)[1:], [machine.boot_id()])
    test.same("the file", (machine.exists(FILE), machine.exists(f"{FILE}.bak")), (False, True))
    test.same("reboots that were asked for", len(agent.logged("REBOOT")), 1)
