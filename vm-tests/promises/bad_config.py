"""Promise: a config that can't be brought to the host is refused before anything is changed, told with its object, its cause
and the next step; a corrected one is reached by itself.

Boots: 1
Minutes: 0.1; in a machine 2
"""

import json

from lab import unchanged
from lab.agent import CONTROL, config, no_action

PATH, OTHER = "/etc/lab/settings.conf", "/etc/lab/other.conf"
FIRST = "rendered-worker-a"


def wrong(name, change):
    """A config that also changes a file that could be changed."""
    made = config(name, {PATH: f"of = {name}\n", OTHER: "new = 1\n"})
    change(made["spec"])
    return made


def storage(spec):
    """The section of files and disks."""
    return spec["config"]["storage"]


# What is wrong; the state and the reason that are told; the field and the cause that have to be named.
CASES = {
    "remote": (lambda spec: storage(spec)["files"][1]["contents"].update(source="https://files.invalid/one"),
               "Degraded", "InvalidConfig", (OTHER, "https")),
    "unit": (lambda spec: spec["config"].update(systemd={"units": [{"name": "lab", "contents": "[Service]\n"}]}),
             "Degraded", "InvalidConfig", ("systemd.units", "lab", "suffix")),
    "owner": (lambda spec: storage(spec)["files"][1].update(user={"name": "nobody-here"}),
              "Unreconcilable", "FailedToReconcile", (OTHER, "no user", "nobody-here")),
    "disks": (lambda spec: storage(spec).update(disks=[{"device": "/dev/vdb", "wipeTable": True}]),
              "Unreconcilable", "FailedToReconcile", ("storage.disks", "installed")),
    "kernel": (lambda spec: spec.update(kernelType="realtime"), "Degraded", "UnsupportedByBackend", ("kernel",)),
    "directory": (lambda spec: storage(spec)["files"][1].update(path="/etc/systemd"),
                  "Degraded", "UnexpectedKind", ("/etc/systemd", "directory")),
}


def refused(lab, what, before, state, words):
    """Waits until it is told, and looks that nothing else happened."""
    report = lab.agent.report(f"the refusal of {what}", lambda report: report["state"] == state and report["fault"])
    fault = report["fault"]
    told = f"{fault['reason']}: {fault['message']}"
    lab.same(f"words that are missing of {told!r}", [word for word in words if word not in told], [])
    lab.same(f"the next step of {told!r} is told", len(fault["next"]) > 10, True)
    lab.same(f"changed by {what}", unchanged.differences(before, unchanged.state(lab.machine)), [])
    lab.same("the cause is the reason of the node", fault["message"] in report["reason"], True)
    shown = lab.agent.status("the same", lambda status: (status["state"], status["fault"]) == (state, fault))
    lab.same("what is wanted", shown["desired"]["config"], report["desiredConfig"])


def good_again(lab, name):
    """Waits until a config is reached, and nothing is told any more."""
    lab.agent.done(name)
    lab.agent.report("no fault", lambda report: (report["state"], report["fault"], report["reason"]) == ("Done", None, ""))
    lab.agent.status("no fault", lambda status: status["fault"] is None)


def play(lab):
    machine, agent = lab.machine, lab.agent
    machine.boot()
    agent.policy(no_action(PATH, OTHER, "/etc/systemd"))
    agent.want(config(FIRST, {PATH: "of = a\n"}))
    agent.start()
    agent.done(FIRST)

    # Boot 1: each is refused; after each a good one is reached without hands.
    for number, (name, (change, state, reason, words)) in enumerate(CASES.items()):
        before = unchanged.state(machine)
        agent.want(wrong(f"rendered-worker-{name}", change))
        refused(lab, name, before, state, (reason, *words))
        good = f"rendered-worker-{number}"
        agent.want(config(good, {PATH: f"of = {number}\n"}))
        good_again(lab, good)
        lab.same(PATH, machine.read(PATH), f"of = {number}\n")

    # A target that names nothing, then what it named comes; a target that is no document, then one that is.
    before = unchanged.state(machine)
    late = config("rendered-worker-late", {PATH: "of = late\n"})
    machine.write(f"{CONTROL}/target.yaml", json.dumps({"config": "rendered-worker-late"}))
    refused(lab, "a missing config", before, "Degraded", ("ConfigNotFound", "rendered-worker-late"))
    agent.want(late)
    agent.done("rendered-worker-late")
    before = unchanged.state(machine)
    machine.write(f"{CONTROL}/target.yaml", "config: [\n")
    refused(lab, "a torn target", before, "Degraded", ("InvalidDocument", "target.yaml"))
    agent.want(late)
    good_again(lab, "rendered-worker-late")

    told = {line["MCA_FAULT"] for line in agent.logged("FAULT")}
    wanted = {reason for _, _, reason, _ in CASES.values()} | {"ConfigNotFound", "InvalidDocument"}
    lab.same("faults in the journal", told, wanted)
