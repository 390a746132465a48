"""Promise: kernel arguments of a seed with quotes, spaces, dollars and backticks reach the first process of the new system as they
are.

Boots: 2
Minutes: 0.2
"""

import json

from harness.agent import config, no_action
from harness.seed import Seed
from harness.stateroots import booted, enable, stateroot, switch

NOT_IN = {"machine": "the boot loader of the harness runs the lines of a boot entry as a script"}

PATH = "/etc/lab/settings.conf"
FIRST, OTHER = "rendered-worker-a", "rendered-worker-seed"
VERSION, NEW = "4.17.4", "rhcos_4.17.4"
ARGUMENTS = ('lab.quoted="a b"', "lab.dollar=$HOME", "lab.tick=`id`", "lab.last='x'")


def play(test):
    machine, agent = test.machine, test.agent
    policy = no_action(PATH)
    image = Seed(VERSION, config(OTHER, {}), policy, ARGUMENTS).push(test.images, test.registry())
    machine.boot()
    enable(machine)
    agent.settle(config(FIRST, {PATH: "version = 1\n"}), policy, test.registry())
    stateroot(machine, "prepare", image, "--version", VERSION)
    listed = json.loads(stateroot(machine, "list", "--output", "json"))["stateroots"]
    listed = next(each for each in listed if each["name"] == NEW)["deployments"][0]["kernelArguments"]
    test.same("the arguments", [each for each in listed if each.startswith("lab.")][-len(ARGUMENTS):], list(ARGUMENTS))
    switch(machine, "activate", NEW, "--yes")
    test.same("its stateroot", booted(machine), NEW)
    line = machine.run("sh", "-c", r"tr '\0' ' ' </proc/1/cmdline")
    test.same(f"{line} has them all", " ".join([*ARGUMENTS, f"ibu={VERSION}"]) in line, True)
