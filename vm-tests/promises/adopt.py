"""Promise: when the desired image is the booted one it is recorded, without a reboot and without a drain, and of the config only
what differs is written, with the action of that file alone.

Boots: 1
Minutes: 0.1; in a machine 1
"""

import json

from lab.agent import config
from lab.image import FIRST as REGISTRY

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


def processes(lab):
    """Returns the processes of both services."""
    return [lab.machine.run("systemctl", "show", "--value", "--property=MainPID", name).strip() for name in (NOTE, OTHER)]


def play(lab):
    machine, agent = lab.machine, lab.agent
    # Its registry is not there: nothing is asked of it, nothing is pulled.
    image = f"{REGISTRY}@{lab.images.first}"
    files = {KEPT: "version = 1\n", CHANGED: "version = 1\n"}
    base = {"osImageURL": image}

    # Boot 1: a host that nobody managed, and that is as the target says already.
    for name in (NOTE, OTHER):
        machine.put(f"/usr/lib/systemd/system/{name}", b"[Service]\nExecStart=/usr/bin/sleep infinity\n")
    machine.boot()
    boot = machine.boot_id()
    machine.run("systemctl", "start", NOTE, OTHER)
    before = processes(lab)
    for path, text in files.items():
        machine.write(path, text)
    agent.policy(policy())
    agent.want(config(FIRST, files, **base), image)
    agent.start()
    lab.same("booted image", agent.done(FIRST, image)["booted"]["digest"], lab.images.first)
    lab.same("services", processes(lab), before)
    lab.same("the take-over", len(agent.logged("ADOPTED")), 1)
    # An image that is booted already is left and taken again in place, too.
    agent.want(config(SECOND, files, **base))
    agent.done(SECOND)
    agent.want(config(FIRST, files, **base), image)
    agent.done(FIRST, image)
    agent.want(config(SECOND, files, **base))
    agent.done(SECOND)
    lab.same("services after that", processes(lab), before)

    # With the image comes a config of which one file differs.
    third = config(THIRD, {**files, CHANGED: "version = 2\n"}, **base)
    plan = agent.plan(third, image)
    lab.same("the plan", (plan["mode"], plan["drain"], [step["op"] for step in plan["steps"]]),
             ("adopt", False, ["write-file", "restart-unit"]))
    agent.want(third, image)
    agent.done(THIRD, image)
    lab.same(CHANGED, machine.read(CHANGED), "version = 2\n")
    after = processes(lab)
    lab.same("its service restarted, the other not", (after[0] not in (before[0], "0"), after[1]), (True, before[1]))
    history = json.loads(machine.run("machine-config-agent", "history", "--output", "json"))
    lab.same("updates", len(history), 1)
    lab.same("boot id", machine.boot_id(), boot)
    lab.same("restarts of the agent", agent.unit("NRestarts"), "0")
    lab.same("reboots that were asked for", agent.logged("REBOOT"), [])
    lab.same("faults in the journal", agent.logged("FAULT"), [])
