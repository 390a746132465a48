"""Promise: the power fails while libostree finalizes what was staged, also in two finalizations of one update; the agent stages
it again by itself, and is Done.

Boots: 5 or 6
Minutes: 0.4; in a machine 5
"""

from harness.agent import config, no_action

PATH, BROUGHT, VERSION = "/etc/lab/settings.conf", "/etc/lab/app.conf", "/usr/share/lab/version"
FIRST, SECOND, THIRD = "rendered-worker-a", "rendered-worker-b", "rendered-worker-c"
# What libostree says of its finalization, at its beginning and once /etc is merged.
BEGINS, MERGED = "Finalizing staged deployment", "Copying /etc changes"


def play(test):
    machine, agent, images, registry = test.machine, test.agent, test.images, test.registry()

    def set_target(name, version):
        brought = {BROUGHT.lstrip("/"): f"from = {name}\n", VERSION.lstrip("/"): f"{version}\n"}
        digest = images.next(f"v{version}", brought, {"machineconfig": name})
        image = registry.push(images.layout.path, f"v{version}", digest)
        agent.set_target(config(name, {PATH: "version = 1\n", BROUGHT: f"from = {name}\n"}), image)
        return image, digest

    def done(name, image, digest, version):
        test.same("booted image", agent.wait_done(name, image)["booted"]["digest"], digest)
        test.same(VERSION, machine.read(VERSION), f"{version}\n")
        test.same(BROUGHT, machine.read(BROUGHT), f"from = {name}\n")
        test.same(PATH, machine.read(PATH), "version = 1\n")
        machine.run("ostree", "fsck", "--quiet")

    # Boot 1: the power fails when the finalization has just begun.
    machine.boot()
    old = machine.deployment
    agent.settle(config(FIRST, {PATH: "version = 1\n"}), no_action(PATH), registry)
    second = set_target(SECOND, 2)
    machine.wait_console(BEGINS)
    machine.cut()

    # Boot 2: the old deployment; it is staged again, and the power fails in that finalization, too.
    machine.boot()
    test.same("the deployment after the first cut", machine.deployment, old)
    machine.wait_console(BEGINS)
    machine.cut()

    # Boot 3: the old one, and once more. Boot 4: Done, by nobody's hand. The power fails in the next update's finalization.
    machine.boot()
    test.same("the deployment after the second cut", machine.deployment, old)
    machine.next_boot()
    done(SECOND, *second, 2)
    told = [line["MESSAGE"] for line in agent.logged("FAULT", "RESTAGED")]
    test.same("told as cuts", ["the machine went down without it" in line for line in told], [True, True])
    old = machine.deployment
    third = set_target(THIRD, 3)
    machine.wait_console(MERGED)
    machine.cut()

    # Boot 5: the old one or the new one, whole in either case; and boot 6 after the old one.
    machine.boot()
    if machine.deployment == old:
        machine.next_boot()
    done(THIRD, *third, 3)
