"""Promise: a host of machine-config-daemon is taken over as it is, without a write and without a reboot; with each update MCD's
own files are kept up to date, so that MCD could take the node back.

Boots: 3
Minutes: 0.2; in a machine 4
"""

import json

from harness.agent import UNIT, config, no_action

KEPT, GONE, BROUGHT = "/etc/lab/settings.conf", "/etc/lab/replaced.conf", "/etc/lab/app.conf"
FIRST, SECOND, THIRD = "rendered-worker-a", "rendered-worker-b", "rendered-worker-c"
MCD = "/etc/machine-config-daemon"
CONFIG, IMAGE = f"{MCD}/currentconfig", f"{MCD}/currentimage"
# What MCD itself has written: its state, the config's files, what it has put aside, its record of the installation.
FILES = {KEPT: "version = 1\n", GONE: "from = config\n"}
PUT_ASIDE = f"{MCD}/orig{GONE}.mcdorig"
ANNOTATIONS = f"{MCD}/node-annotations.json.bak"


def as_mcd(machine_config):
    """Returns a config as MCD writes it: of a typed object, without kind and version, without an end of line."""
    return json.dumps({"metadata": machine_config["metadata"], "spec": machine_config["spec"]}, separators=(",", ":"))


def left_by_mcd(first):
    """Returns the files of a host that MCD manages: path to text."""
    prefix = "machineconfiguration.openshift.io/"
    names = {f"{prefix}{key}": FIRST for key in ("currentConfig", "desiredConfig")}
    annotations = json.dumps({**names, f"{prefix}state": "Done"})
    return {**FILES, CONFIG: as_mcd(first), IMAGE: "", PUT_ASIDE: "from = distribution\n", ANNOTATIONS: annotations}


def marks(machine, paths):
    """Returns what tells that a file was written: which file it is, and when it was changed."""
    return machine.run("stat", "--format=%n: %i, %y, %z", *paths).splitlines()


def handed_back(test, machine_config, image):
    """What MCD looks at when it starts: what is committed, and that the host is so."""
    machine = test.machine
    current = json.loads(machine.read(CONFIG))
    test.same("MCD's config", (current["metadata"], current["spec"]), (machine_config["metadata"], machine_config["spec"]))
    test.same("MCD's image", machine.read(IMAGE), image)
    test.same("their modes", machine.run("stat", "--format=%a", CONFIG, IMAGE).split(), ["600", "644"])
    machine.run("machine-config-agent", "verify", "--config", CONFIG, *(["--image", image] if image else []))


def play(test):
    machine, agent, images, registry = test.machine, test.agent, test.images, test.registry()
    first = config(FIRST, FILES, osImageURL=f"registry.invalid/os@{images.first}")
    second = config(SECOND, {KEPT: "version = 2\n"}, osImageURL=f"registry.invalid/os@{images.first}")
    third = config(THIRD, {KEPT: "version = 2\n", BROUGHT: "from = image\n"})
    digest = images.next("v2", {BROUGHT.lstrip("/"): "from = image\n"}, {"machineconfig": THIRD})
    image = registry.push(images.layout.path, "v2", digest)
    left = left_by_mcd(first)

    # Boot 1: MCD's host. The agent is installed and enabled; the target is what is there.
    machine.boot()
    for path, text in left.items():
        machine.write(path, text)
    agent.trust(registry)
    agent.set_policy(no_action(KEPT, GONE))
    agent.set_target(first)
    machine.run("systemctl", "enable", UNIT)
    before = marks(machine, left)
    machine.run("systemctl", "--no-block", "reboot")

    # Boot 2: the agent's first. Nothing is written, nothing is rebooted.
    machine.next_boot()
    boot = machine.boot_id()
    agent.wait_done(FIRST)
    told = [line["MESSAGE"] for line in agent.logged("IMPORTED")]
    test.same("the take-over", told, [f"Imported the state of machine-config-daemon: {FIRST} is committed"])
    test.same("files that were written", marks(machine, left), before)
    history = json.loads(machine.run("machine-config-agent", "history", "--output", "json"))
    test.same("updates", history["updates"], [])

    # An update without a reboot. The file that goes is put back as MCD had found it.
    agent.set_target(second)
    agent.wait_done(SECOND)
    test.same(GONE, machine.read(GONE), "from = distribution\n")
    handed_back(test, second, "")
    test.same("the same boot", machine.boot_id(), boot)
    test.same("reboots that were asked for", agent.logged("REBOOT"), [])

    # Somebody removes MCD's file, without which MCD can't start: it is not what the agent goes by, and the next update writes it.
    machine.run("rm", CONFIG)
    agent.kill()
    agent.wait_log("the next agent", lambda lines: len(lines) == 2, "STARTED")
    agent.wait_done(SECOND)
    test.same("reboots that were asked for", agent.logged("REBOOT"), [])

    # Boot 3: an image.
    agent.set_target(third, image)
    machine.next_boot()
    test.same("booted image", agent.wait_done(THIRD, image)["booted"]["digest"], digest)
    handed_back(test, third, image)
    test.same("what is none of the agent's", [machine.read(path) for path in (PUT_ASIDE, ANNOTATIONS)],
             [left[path] for path in (PUT_ASIDE, ANNOTATIONS)])
    test.same("faults in the journal", agent.logged("FAULT"), [])
