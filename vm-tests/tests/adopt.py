"""Promise: when the desired image is the booted one it is recorded, without a reboot and without a drain, and of the config only
what differs is written, with the action of that file alone.

Boots: 1
Minutes: 0.1; in a machine 1
"""

import json

from harness.agent import config
from harness.image import FIRST as REGISTRY

NOTE, OTHER = "note.service", "other.service"
KEPT, CHANGED = "/etc/lab/kept.conf", "/etc/lab/changed.conf"
FIRST, SECOND, THIRD = "rendered-worker-a", "rendered-worker-b", "rendered-worker-c"


def policy():
    """Returns a policy by which each file restarts a service of its own."""
    def restarts(path, service):
        return {"path": path, "actions": [{"type": "Restart", "restart": {"serviceName": service}}]}

    files = [restarts(KEPT, OTHER), restarts(CHANGED, NOTE)]
    return {"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration", "metadata": {"name": "cluster"},
            "spec": {"nodeDisruptionPolicy": {"files": files}}}


def processes(test):
    """Returns the processes of both services."""
    return [test.machine.run("systemctl", "show", "--value", "--property=MainPID", name).strip() for name in (NOTE, OTHER)]


def play(test):
    machine, agent = test.machine, test.agent
    # Its registry is not there: nothing is asked of it, nothing is pulled.
    image = f"{REGISTRY}@{test.images.first}"
    files = {KEPT: "version = 1\n", CHANGED: "version = 1\n"}
    base = {"osImageURL": image}

    # Boot 1: a host that nobody managed, and that is as the target says already.
    for name in (NOTE, OTHER):
        machine.put(f"/usr/lib/systemd/system/{name}", b"[Service]\nExecStart=/usr/bin/sleep infinity\n")
    machine.boot()
    boot = machine.boot_id()
    machine.run("systemctl", "start", NOTE, OTHER)
    before = processes(test)
    for path, text in files.items():
        machine.write(path, text)
    agent.set_policy(policy())
    agent.set_target(config(FIRST, files, **base), image)
    agent.start()
    test.same("booted image", agent.wait_done(FIRST, image)["booted"]["digest"], test.images.first)
    test.same("services", processes(test), before)
    test.same("the take-over", len(agent.logged("ADOPTED")), 1)
    # An image that is booted already is left and taken again in directory, too.
    agent.set_target(config(SECOND, files, **base))
    agent.wait_done(SECOND)
    agent.set_target(config(FIRST, files, **base), image)
    agent.wait_done(FIRST, image)
    agent.set_target(config(SECOND, files, **base))
    agent.wait_done(SECOND)
    test.same("services after that", processes(test), before)

    # With the image comes a config of which one file differs.
    third = config(THIRD, {**files, CHANGED: "version = 2\n"}, **base)
    plan = agent.plan(third, image)
    test.same("the plan", (plan["mode"], plan["drain"], [step["op"] for step in plan["steps"]]),
             ("adopt", False, ["write-file", "restart-unit"]))
    agent.set_target(third, image)
    agent.wait_done(THIRD, image)
    test.same(CHANGED, machine.read(CHANGED), "version = 2\n")
    after = processes(test)
    test.same("its service restarted, the other not", (after[0] not in (before[0], "0"), after[1]), (True, before[1]))
    history = json.loads(machine.run("machine-config-agent", "history", "--output", "json"))["updates"]
    test.same("updates", len(history), 1)
    test.same("boot id", machine.boot_id(), boot)
    test.same("restarts of the agent", agent.unit("NRestarts"), "0")
    test.same("reboots that were asked for", agent.logged("REBOOT"), [])
    test.same("faults in the journal", agent.logged("FAULT"), [])
