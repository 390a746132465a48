"""Promise: a config that can't be brought to the host is refused before anything is changed, told with its object, its cause
and the next step; a corrected one is reached by itself.

Boots: 1
Minutes: 0.1; in a machine 2
"""

import json

from harness import faults, host_snapshot
from harness.agent import CONTROL, config, no_action

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
              "Unreconcilable", "HostNotPrepared", (OTHER, "no user", "nobody-here")),
    "disks": (lambda spec: storage(spec).update(disks=[{"device": "/dev/vdb", "wipeTable": True}]),
              "Unreconcilable", "FailedToReconcile", ("storage.disks", "installed")),
    "kernel": (lambda spec: spec.update(kernelType="realtime"), "Unreconcilable", "HostNotPrepared", ("spec.kernelType", "libostree")),
    "directory": (lambda spec: storage(spec)["files"][1].update(path="/etc/default"),
                  "Unreconcilable", "HostNotPrepared", ("/etc/default", "directory")),
}
# Rows of the table of faults.
ROWS = {"remote": "remote_file", "disks": "disks_changed"}


def refused(test, what, before, state, words):
    """Waits until it is told, and looks that nothing else happened."""
    report = test.agent.wait_report(f"the refusal of {what}", lambda report: report["state"] == state and report["fault"])
    fault = report["fault"]
    told = f"{fault['reason']}: {fault['message']}"
    test.same(f"words that are missing of {told!r}", [word for word in words if word not in told], [])
    test.same(f"the next step of {told!r} is told", len(fault["next"]) > 10, True)
    test.same(f"changed by {what}", host_snapshot.differences(before, host_snapshot.state(test.machine)), [])
    test.same("the cause is the reason of the node", fault["message"] in report["reason"], True)
    shown = test.agent.wait_status("the same", lambda status: (status["state"], status["fault"]) == (state, fault))
    test.same("desired config", shown["desired"]["config"], report["desiredConfig"])


def good_again(test, name):
    """Waits until a config is reached, and nothing is told any more."""
    test.agent.wait_done(name)
    test.agent.wait_report("no fault", lambda report: (report["state"], report["fault"], report["reason"]) == ("Done", None, ""))
    test.agent.wait_status("no fault", lambda status: status["fault"] is None)


def play(test):
    machine, agent = test.machine, test.agent
    machine.boot()
    agent.set_policy(no_action(PATH, OTHER, "/etc/default"))
    agent.set_target(config(FIRST, {PATH: "of = a\n"}))
    agent.start()
    agent.wait_done(FIRST)

    # Boot 1: each is refused; after each a good one is reached without hands.
    for number, (name, (change, state, reason, words)) in enumerate(CASES.items()):
        before = host_snapshot.state(machine)
        agent.set_target(wrong(f"rendered-worker-{name}", change))
        refused(test, name, before, state, (reason, *words))
        if name in ROWS:
            faults.printed(test, ROWS[name])
        good = f"rendered-worker-{number}"
        agent.set_target(config(good, {PATH: f"of = {number}\n"}))
        good_again(test, good)
        test.same(PATH, machine.read(PATH), f"of = {number}\n")

    # A target that names nothing, then what it named comes; a target that is no document, then one that is.
    before = host_snapshot.state(machine)
    late = config("rendered-worker-late", {PATH: "of = late\n"})
    machine.write(f"{CONTROL}/target.yaml", json.dumps({"config": "rendered-worker-late"}))
    refused(test, "a missing config", before, "Degraded", ("ConfigNotFound", "rendered-worker-late"))
    agent.set_target(late)
    agent.wait_done("rendered-worker-late")
    before = host_snapshot.state(machine)
    machine.write(f"{CONTROL}/target.yaml", "config: [\n")
    refused(test, "a torn target", before, "Degraded", ("InvalidDocument", "target.yaml"))
    agent.set_target(late)
    good_again(test, "rendered-worker-late")

    told = {line["MCA_FAULT"] for line in agent.logged("FAULT")}
    expected = {reason for _, _, reason, _ in CASES.values()} | {"ConfigNotFound", "InvalidDocument"}
    test.same("faults in the journal", told, expected)
