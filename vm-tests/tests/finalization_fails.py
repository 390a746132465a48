"""Promise: a deployment that libostree can't finalize is staged once more, then told with libostree's own words; a mended
host takes the next target.

Boots: 4
Minutes: 0.2; in a machine 6
"""

import json

from harness import faults
from harness.agent import config, no_action

PATH, BROUGHT = "/etc/lab/settings.conf", "/etc/lab/app.conf"
FIRST, SECOND, THIRD = "rendered-worker-a", "rendered-worker-b", "rendered-worker-c"


def play(test):
    machine, agent, images, registry = test.machine, test.agent, test.images, test.registry()
    layer = {BROUGHT.lstrip("/"): "from = image\n"}
    digest = images.next("fails", layer, {"machineconfig": SECOND})
    image = registry.push(images.layout.path, "fails", digest)

    # Boot 1: nothing can be made in /boot, so no boot entries.
    machine.boot()
    old = machine.deployment
    machine.run_writable("chattr", "+i", "/boot")
    agent.settle(config(FIRST, {PATH: "version = 1\n"}), no_action(PATH), registry)
    agent.set_target(config(SECOND, {PATH: "version = 1\n", BROUGHT: "from = image\n"}), image)

    # Boot 2: the old one; it is staged again, and the machine goes down again. Boot 3: the old one, and an end.
    machine.next_boot()
    machine.next_boot()
    status = agent.wait_status("the fault", lambda status: (status["fault"] or {}).get("reason") == "DeploymentNotFinalized")
    test.same("libostree's own words", "Operation not permitted" in status["fault"]["message"], True)
    test.same("how often", "2 times" in status["fault"]["message"], True)
    test.same("the old deployment", machine.deployment, old)
    told = [json.dumps(line["MESSAGE"]) for line in agent.logged("FAULT", "RESTAGED")]
    test.same("told with its cause, both times", ["Operation not permitted" in line for line in told], [True, True])
    test.same("reboots that were asked for", len(agent.logged("REBOOT")), 2)
    faults.printed(test, "finalization_fails")
    agent.wait_status("the undo", lambda status: status["state"] == "Degraded" and status["phase"] == "Idle")
    hint = machine.run("cat", "/run/motd.d/90-machine-config-agent.motd")
    test.same("the hint at a login", hint.startswith("machine-config-agent: this node is Degraded. Deployment"), True)

    # Boot 4: the host is mended, and another target wanted.
    machine.run_writable("chattr", "-i", "/boot")
    agent.set_target(config(THIRD, {PATH: "version = 1\n", BROUGHT: "from = image\n"}), image)
    machine.next_boot()
    test.same("booted image", agent.wait_done(THIRD, image)["booted"]["digest"], digest)
    hint = machine.run("sh", "-c", "ls /run/motd.d || true")
    test.same("no hint any more", hint, "")
