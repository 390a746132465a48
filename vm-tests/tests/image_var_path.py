"""Promise: what an image can't bring to an existing host, files below /var, /opt and /usr/local, is named by `plan` and written
by the agent; all else of the config comes with the image.

Boots: 2
Minutes: 0.2; in a machine 2
"""

from harness.agent import config, no_action

PATH, BROUGHT = "/etc/lab/settings.conf", "/etc/lab/app.conf"
# The last two are links to below /var on a libostree host.
STATE = ("/var/lib/lab/data.conf", "/opt/lab/tool.conf", "/usr/local/etc/lab.conf")
FIRST, SECOND = "rendered-worker-a", "rendered-worker-b"


def play(test):
    machine, agent, images, registry = test.machine, test.agent, test.images, test.registry()
    # /var comes with an image too, as a build of the whole config makes it; libostree does not bring it.
    layer = {BROUGHT.lstrip("/"): "from = image\n", STATE[0].lstrip("/"): "from = image\n"}
    digest = images.next("v2", layer, {"machineconfig": SECOND})
    image = registry.push(images.layout.path, "v2", digest)
    second = config(SECOND, {PATH: "version = 1\n", BROUGHT: "from = image\n",
                             **{path: "from = image\n" for path in STATE}})

    # Boot 1: what has to be written is named before anything is done.
    machine.boot()
    agent.settle(config(FIRST, {PATH: "version = 1\n"}), no_action(PATH), registry)
    written = {step["target"]: step["because"] for step in agent.plan(second, image)["steps"] if step["op"] == "write-file"}
    test.same("files to write, and why", written, dict.fromkeys(STATE, "under-var"))
    there = machine.run("sh", "-c", f"ls {' '.join(STATE)} 2>/dev/null || true")
    test.same("written by the plan", there, "")
    agent.set_target(second, image)

    # Boot 2
    machine.next_boot()
    test.same("booted image", agent.wait_done(SECOND, image)["booted"]["digest"], digest)
    for path in (BROUGHT, *STATE):
        test.same(path, machine.run("cat", path), "from = image\n")
    test.same("reboots that were asked for", len(agent.logged("REBOOT")), 1)
    test.same("faults in the journal", agent.logged("FAULT"), [])
