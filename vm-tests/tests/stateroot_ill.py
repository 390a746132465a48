"""Promise: an activated system that does not prove itself is left by itself within the set time; the old system boots as it was,
and tells why.

Boots: 3
Minutes: 0.3; in a machine 4
"""

from harness.agent import config, no_action
from harness.seed import Seed
from harness.stateroots import booted, enable, old_system, stateroot, switch, unchanged, wait_settled

PATH = "/etc/lab/settings.conf"
FIRST, OTHER = "rendered-worker-a", "rendered-worker-seed"
VERSION, NEW = "4.17.3", "rhcos_4.17.3"
CHECK = "etc/machine-config-agent/health.d/10-app"
FAILS = b"#!/bin/sh\necho 'the app does not answer' >&2\nexit 7\n"


def play(test):
    machine, agent = test.machine, test.agent
    first, policy = config(FIRST, {PATH: "version = 1\n"}), no_action(PATH)
    seed = Seed(VERSION, config(OTHER, {PATH: "of the seed\n"}), policy)
    seed.etc[CHECK] = (0o755, FAILS)
    image = seed.push(test.images, test.registry())

    # Boot 1
    machine.boot()
    old = machine.deployment
    agent.settle(first, policy, test.registry())
    enable(machine)
    before = old_system(machine)
    stateroot(machine, "prepare", image, "--version", VERSION)

    # Boot 2: it is not healthy. Boot 3: the old system.
    switch(machine, "activate", NEW, "--yes", "--within", str(10 * machine.TIMEOUT_FACTOR))
    test.same("its stateroot", booted(machine), NEW)
    machine.next_boot()
    test.same("the deployment", machine.deployment, old)
    agent.wait_done(FIRST)
    unchanged(machine, before, "after the way back")
    wait_settled(machine)
    told = stateroot(machine, "list")
    test.same(f"{told} tells why", "HealthCheckFailed" in told and "10-app" in told, True)
    test.same("boots", machine.boots, 3)
