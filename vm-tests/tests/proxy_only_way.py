"""Promise: a node whose only way out of its network is a forward proxy waits for it, joins once /etc/mco/proxy.env names it,
without a restart, and switches its image; a registry that NO_PROXY excepts is away until that is corrected, and the proxy's
password is in no line of the journal.

Boots: 2
Minutes: 0.3; in a machine 4
"""

import json

from harness.agent import config
from harness.cluster import API, CONFIGS, HOST
from harness.proxy import PASSWORD, PORT, Proxy

PATH, BROUGHT, PROXIES = "/etc/lab/settings.conf", "/etc/lab/app.conf", "/etc/mco/proxy.env"
FIRST, SECOND = "rendered-worker-a", "rendered-worker-b"
# Names that no resolver knows, of servers that are not in the guest's network: the proxy alone leads there.
SERVER, REGISTRY = "api.lab.test", "registry.lab.test"


def joined(test):
    """Makes the objects of the node, and gives the guest what a node of a cluster has."""
    machine, cluster = test.machine, test.cluster()
    cluster.timeout_factor = machine.TIMEOUT_FACTOR
    cluster.create_policies()
    cluster.create(CONFIGS, config(FIRST, {PATH: "version = 1\n"}))
    cluster.create(CONFIGS, config(SECOND, {PATH: "version = 1\n", BROUGHT: "from = image\n"}))
    # A single node is not drained.
    cluster.create_node(cluster.node, {"desiredConfig": FIRST, "controlPlaneTopology": "SingleReplica"})
    kubeconfig = json.loads(cluster.kubeconfig(SERVER))
    # The certificate of the server names its address.
    kubeconfig["clusters"][0]["cluster"]["tls-server-name"] = HOST
    machine.write("/etc/containers/registries.conf.d/lab.conf",
                  test.registry().trusted().replace(test.registry().host, named(test)))
    test.agent.join(json.dumps(kubeconfig))


def named(test):
    """Returns the registry's name and port."""
    return f"{REGISTRY}:{test.registry().host.rpartition(':')[2]}"


def no_way_out(test, proxy):
    """Makes sure that the guest reaches neither server by an address."""
    reached = 'for each; do (exec 3<>"/dev/tcp/${each%:*}/${each#*:}") 2>/dev/null && echo "$each"; done; true'
    registry = test.registry().address.rpartition(":")[2]
    addresses = (test.machine.HOST_ADDRESS, proxy.address)
    servers = [f"{address}:{port}" for address in addresses for port in (API, registry)]
    own = f"{proxy.address}:{PORT}"
    test.same("ways out", test.machine.run("timeout", "60", "bash", "-c", reached, "bash", *servers, own).split(), [own])


def play(test):
    machine, agent, images, registry, cluster = test.machine, test.agent, test.images, test.registry(), test.cluster()
    digest = images.next("v2", {BROUGHT.lstrip("/"): "from = image\n"}, {"machineconfig": SECOND})
    image = registry.push(images.layout.path, "v2", digest).replace(registry.host, named(test))
    proxy = Proxy(machine, (SERVER, REGISTRY))
    try:
        # Boot 1: without the proxy there is no way, and none is found by itself.
        machine.boot()
        no_way_out(test, proxy)
        machine.write(PATH, "version = 1\n")
        joined(test)
        agent.start()
        machine.wait_console(f"https://{SERVER}:{API} can't be reached")
        url = proxy.url()
        settings = f"HTTP_PROXY={url}\nHTTPS_PROXY={url}\nNO_PROXY=.svc,10.96.0.0/12"
        machine.write(PROXIES, f"{settings},{REGISTRY}\n")
        cluster.wait_node(f"Done with {FIRST}", state="Done", currentConfig=FIRST)
        test.same("starts of the agent", len(agent.logged("STARTED")), 1)
        cluster.patch(desiredConfig=SECOND, desiredImage=image)
        agent.wait_log("the registry is away", lambda lines: lines[-1]["MCA_FAULT"] == "ImagePullFailed", "FAULT")
        test.same("requests for the registry", [line for line in proxy.asked() if REGISTRY in line], [])
        machine.write(PROXIES, f"{settings}\n")

        # Boot 2: the image came through the proxy.
        machine.next_boot()
        cluster.wait_node("Done", state="Done", currentConfig=SECOND, currentImage=image, reason="")
        test.same("booted image", agent.wait_done(SECOND, image)["booted"]["digest"], digest)
        test.same(BROUGHT, machine.read(BROUGHT), "from = image\n")
        test.same("reboots that were asked for", len(agent.logged("REBOOT")), 1)
        asked = proxy.asked()
        for name in (f"CONNECT {SERVER}:{API} ", named(test)):
            test.same(f"requests for {name} of {asked}", any(name in line for line in asked), True)
        journal = machine.run("journalctl", "--no-pager", "--output=json")
        test.same("the password in the journal", PASSWORD in journal, False)
    finally:
        proxy.close()
