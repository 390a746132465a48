"""Promise: an image that carries the new config is staged, finalized at the shutdown, booted, verified, and Done.

Boots: 2
Minutes: 0.2; in a machine 2
"""

from harness.agent import config, no_action

PATH, BROUGHT, VERSION = "/etc/lab/settings.conf", "/etc/lab/app.conf", "/usr/share/lab/version"
FIRST, SECOND = "rendered-worker-a", "rendered-worker-b"


def play(test):
    machine, agent, images, registry = test.machine, test.agent, test.images, test.registry()
    second = config(SECOND, {PATH: "version = 1\n", BROUGHT: "from = image\n"})
    brought = {BROUGHT.lstrip("/"): "from = image\n", VERSION.lstrip("/"): "2\n"}
    digest = images.next("v2", brought, {"machineconfig": SECOND})
    image = registry.push(images.layout.path, "v2", digest)

    # Boot 1: version 1, which was deployed from an image too. The image is asked for by digest.
    machine.boot()
    old = machine.deployment
    booted = agent.settle(config(FIRST, {PATH: "version = 1\n"}), no_action(PATH), registry)["booted"]
    test.same("booted image", booted["digest"], images.first)
    test.same(VERSION, machine.read(VERSION), "1\n")
    agent.set_target(second, image)

    # Boot 2: libostree finalized what was staged; the file came with the image, the other one was kept.
    machine.next_boot()
    status = agent.wait_done(SECOND, image)
    test.same("booted image", status["booted"]["digest"], digest)
    test.same("another deployment", machine.deployment != old, True)
    test.same(VERSION, machine.read(VERSION), "2\n")
    test.same(BROUGHT, machine.read(BROUGHT), "from = image\n")
    test.same(PATH, machine.read(PATH), "version = 1\n")
    test.same("faults in the journal", agent.logged("FAULT"), [])
    finalized = machine.run("journalctl", "--no-pager", "--output=cat", "--boot=-1", "--unit=ostree-finalize-staged")
    test.same("libostree finalized at the shutdown", "Finalizing staged deployment" in finalized, True)
