"""Promise: a registry that wants other credentials is told, and no secret with it; with the right ones in directory the switch
goes on by itself.

Boots: 2
Minutes: 0.2; in a machine 2
"""

import base64
import json

from harness import faults, host_snapshot
from harness.agent import config, no_action

PATH, BROUGHT, VERSION = "/etc/lab/settings.conf", "/etc/lab/app.conf", "/usr/share/lab/version"
FIRST, SECOND = "rendered-worker-a", "rendered-worker-b"
AUTH = "/etc/ostree/auth.json"
# A line of htpasswd: `node`, whose password is RIGHT.
ACCOUNTS = "node:$2b$04$GHO1/zhrx5fBTOHmuC3ZzecX0WIEIRz6.y09WwJ.2Jn2HGESzMwLe\n"
RIGHT, WRONG = "open-sesame", "open-barley"


def secret(host, password):
    """Returns a pull secret."""
    return json.dumps({"auths": {host: {"auth": base64.b64encode(f"node:{password}".encode()).decode()}}})


def refused(test, before, tries):
    """Waits until so many tries were refused, and looks that nothing was done."""
    def is_so(lines):
        return len([line for line in lines if line["MCA_FAULT"] == "ImagePullUnauthorized"]) == tries

    test.agent.wait_log(f"refusal {tries}", is_so, "FAULT")
    report = test.agent.wait_report("its fault", lambda report: (report["fault"] or {}).get("reason") == "ImagePullUnauthorized")
    fault = report["fault"]
    test.same("its class", fault["class"], "retry")
    test.same(f"the registry and where credentials belong are in {fault}",
             test.registry().host in fault["message"] and AUTH in fault["next"], True)
    test.same("changed", host_snapshot.differences(before, host_snapshot.state(test.machine)), [])


def play(test):
    machine, agent, images, registry = test.machine, test.agent, test.images, test.registry()
    brought = {BROUGHT.lstrip("/"): "from = image\n", VERSION.lstrip("/"): "2\n"}
    digest = images.next("v2", brought, {"machineconfig": SECOND})
    image = registry.push(images.layout.path, "v2", digest)
    registry.stop()
    registry.start(ACCOUNTS)

    # Boot 1: without credentials, then with wrong ones, then with the right ones.
    machine.boot()
    agent.settle(config(FIRST, {PATH: "version = 1\n"}), no_action(PATH), registry)
    before = host_snapshot.state(machine)
    agent.set_target(config(SECOND, {PATH: "version = 2\n", BROUGHT: "from = image\n"}), image)
    refused(test, before, 1)
    machine.write(AUTH, secret(registry.host, WRONG))
    before = host_snapshot.state(machine)
    refused(test, before, 2)
    faults.printed(test, "credentials_wrong")
    machine.write(AUTH, secret(registry.host, RIGHT))

    # Boot 2: without hands.
    machine.next_boot()
    status = agent.wait_done(SECOND, image)
    test.same("booted image", status["booted"]["digest"], digest)
    test.same(BROUGHT, machine.read(BROUGHT), "from = image\n")
    journal = machine.run("journalctl", "--no-pager", "--output=json")
    encoded = [base64.b64encode(f"node:{password}".encode()).decode() for password in (RIGHT, WRONG)]
    test.same("secrets in the journal", [word for word in (RIGHT, WRONG, *encoded) if word in journal], [])
