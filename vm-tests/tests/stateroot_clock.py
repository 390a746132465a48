"""Promise: a clock that is set by years during the trial of a stateroot neither ends the trial nor prolongs it: the system that is
not well is left when its time is over.

Boots: 3
Minutes: 5
"""

import json
import time

from harness.agent import config, no_action
from harness.seed import Seed
from harness.stateroots import booted, enable, stateroot, switch, wait_settled

NOT_IN = {"container": "its clock is the build machine's"}

PATH = "/etc/lab/settings.conf"
FIRST, OTHER = "rendered-worker-a", "rendered-worker-seed"
VERSION, NEW = "4.17.7", "rhcos_4.17.7"
CHECK = "etc/machine-config-agent/health.d/10-app"
FAILS = b"#!/bin/sh\necho 'the app does not answer' >&2\nexit 7\n"
# By the clock of the guest's kernel.
SECONDS = 100


def play(test):
    machine, agent = test.machine, test.agent
    first, policy = config(FIRST, {PATH: "version = 1\n"}), no_action(PATH)
    seed = Seed(VERSION, config(OTHER, {PATH: "of the seed\n"}), policy)
    seed.etc[CHECK] = (0o755, FAILS)
    image = seed.push(test.images, test.registry())
    machine.boot()
    old = machine.deployment
    agent.settle(first, policy, test.registry())
    enable(machine)
    stateroot(machine, "prepare", image, "--version", VERSION)

    # Boot 2: the clock is set ahead, and then far back.
    switch(machine, "activate", NEW, "--yes", "--within", str(SECONDS))
    test.same("its stateroot", booted(machine), NEW)
    began = time.monotonic()
    machine.run("date", "--set=+20 years")
    state = json.loads(stateroot(machine, "activate", NEW, "--output", "json"))["state"]
    test.same("the trial after 20 years", state, "on-trial")
    machine.run("date", "--set=-40 years")
    machine.wait_reboot()
    took = time.monotonic() - began
    # It began some seconds before the clock was set.
    test.same(f"it was left after {took:.0f} s, not at once", took >= SECONDS / 2, True)

    # Boot 3: the old system.
    machine.boot()
    test.same("the deployment", machine.deployment, old)
    wait_settled(machine)
    told = stateroot(machine, "list")
    test.same(f"{told} tells why", f"within {SECONDS} s" in told and "10-app" in told, True)
