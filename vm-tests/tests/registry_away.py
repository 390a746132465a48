"""Promise: a registry that is away, or gives a damaged layer, is told and tried again; when it is well again the switch goes
on by itself.

Boots: 2
Minutes: 0.4; in a machine 3
"""

from harness import faults, host_snapshot
from harness.agent import config, no_action

PATH, BROUGHT, VERSION = "/etc/lab/settings.conf", "/etc/lab/app.conf", "/usr/share/lab/version"
FIRST, SECOND = "rendered-worker-a", "rendered-worker-b"


def wait_fault(test, reason):
    """Waits for a fault that is tried again."""
    fault = test.agent.wait_report(reason, lambda report: (report["fault"] or {}).get("reason") == reason)["fault"]
    test.same(f"class of {fault['message']}", fault["class"], "retry")
    test.agent.wait_status(f"{reason} in the status", lambda status: (status["fault"] or {}).get("reason") == reason)
    return fault


def play(test):
    machine, agent, images, registry = test.machine, test.agent, test.images, test.registry()
    brought = {BROUGHT.lstrip("/"): "from = image\n", VERSION.lstrip("/"): "2\n"}
    digest = images.next("v2", brought, {"machineconfig": SECOND})
    image = registry.push(images.layout.path, "v2", digest)

    # Boot 1: nobody is there, and the agent asks again and again.
    machine.boot()
    agent.settle(config(FIRST, {PATH: "version = 1\n"}), no_action(PATH), registry)
    before = host_snapshot.state(machine)
    registry.stop()
    agent.set_target(config(SECOND, {PATH: "version = 2\n", BROUGHT: "from = image\n"}), image)
    fault = wait_fault(test, "ImagePullFailed")
    faults.printed(test, "registry_away")
    test.same(f"the registry is named in {fault['message']}", registry.host in fault["message"], True)
    agent.wait_log("the second try", lambda lines: [line["MCA_FAULT"] for line in lines] == ["ImagePullFailed"] * 2, "FAULT")
    test.same("changed", host_snapshot.differences(before, host_snapshot.state(machine)), [])

    # It is back, with a layer of which a byte is another one. It is noticed before anything of it is used.
    layer = registry.blob(images.layout.layers("v2")[-1])
    whole = layer.read_bytes()
    layer.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    registry.start()
    wait_fault(test, "ImageCorrupted")
    faults.printed(test, "layer_damaged")
    test.same("changed", host_snapshot.differences(before, host_snapshot.state(machine)), [])
    layer.write_bytes(whole)

    # Boot 2: without hands.
    machine.next_boot()
    status = agent.wait_done(SECOND, image)
    test.same("booted image", status["booted"]["digest"], digest)
    test.same(VERSION, machine.read(VERSION), "2\n")
    test.same(PATH, machine.read(PATH), "version = 2\n")
    test.same("reboots that were asked for", len(agent.logged("REBOOT")), 1)
    machine.run("ostree", "fsck", "--quiet")
    # Later causes, and Done, leave the first one where it can be read.
    first = agent.logged("FAULT")[0]
    test.same(f"the first cause: {first['MESSAGE']}", (first["MCA_FAULT"], registry.host in first["MESSAGE"]), ("ImagePullFailed", True))
