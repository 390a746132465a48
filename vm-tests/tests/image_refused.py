"""Promise: an image that can't be taken is refused before anything is changed, and told with its cause and the next step; the
next good one is switched to without hands.

Boots: 2
Minutes: 0.3; in a machine 3
"""

import json
from itertools import groupby

from harness import faults, host_snapshot
from harness.agent import config, no_action

PATH, BROUGHT, VERSION = "/etc/lab/settings.conf", "/etc/lab/app.conf", "/usr/share/lab/version"
FIRST, SECOND = "rendered-worker-a", "rendered-worker-b"
WANTED = config(SECOND, {PATH: "version = 2\n", BROUGHT: "from = image\n"})
BOOTABLE = {"ostree.bootable": "true", "containers.bootc": "1"}
# Rows of the table of faults.
ROWS = {
    "ImageWrongArchitecture": "image_of_other_architecture",
    "ImageNotBootable": "image_not_bootable",
    "ImageDigestMismatch": "manifest_changed",
}


def pushed(test, tag, digest):
    """Puts an image into the registry."""
    return test.registry().push(test.images.layout.path, tag, digest)


def bad_images(test):
    """Makes one image for each reason: what is told, the words that have to be in it, the image."""
    images, registry = test.images, test.registry()
    brought = {BROUGHT.lstrip("/"): "from = image\n"}
    plain = {"app/run": (0o755, b"#!/bin/sh\n")}
    app, marks = images.layout.plain("app", plain, {}), images.layout.plain("marks", plain, BOOTABLE)
    arm = images.next("arm", brought, {}, architecture="arm64")
    changed = images.next("changed", {**brought, "usr/share/lab/changed": "1\n"}, {})
    found = [
        ("ImageNotFound", ("manifest unknown", "Push the image"), f"{registry.host}/os@sha256:{'0' * 64}"),
        ("ImageWrongArchitecture", ("arm64", "amd64"), pushed(test, "arm", arm)),
        ("ImageNotBootable", ("ostree.bootable", "base"), pushed(test, "app", app)),
        # It has the marks, and nothing of what they stand for.
        ("ImageNotBootable", ("ostree.final-diffid", "base"), pushed(test, "marks", marks)),
        ("ImageDigestMismatch", ("digest", "Push"), pushed(test, "changed", changed)),
    ]
    # What the registry gives under this name is another manifest.
    blob = registry.blob(changed)
    blob.write_bytes(blob.read_bytes().replace(b'"layers"', b' "layers"'))
    return found


def refused(test, number, before, image, reason, words):
    """Wants a bad image, waits until it is told, and looks that nothing else happened."""
    machine, name = test.machine, f"rendered-worker-bad-{number}"
    test.agent.set_target(config(name, {PATH: "version = 2\n", BROUGHT: "from = image\n"}), image)
    report = test.agent.wait_report(f"the refusal by {reason}", lambda report: report["fault"] and report["phase"] == "Idle"
                              and report["desiredConfig"] == name)
    fault = report["fault"]
    test.same("state and reason", (report["state"], fault["reason"]), ("Degraded", reason))
    told = json.dumps(fault)
    test.same(f"words that are missing of {told}", [word for word in (image, *words) if word not in told], [])
    test.same(f"changed by {reason}", host_snapshot.differences(before, host_snapshot.state(machine)), [])
    test.same("what is committed", report["currentConfig"], FIRST)


def play(test):
    machine, agent, images = test.machine, test.agent, test.images
    bad = bad_images(test)
    digest = images.next("v2", {BROUGHT.lstrip("/"): "from = image\n", VERSION.lstrip("/"): "2\n"}, {"machineconfig": SECOND})
    good = pushed(test, "v2", digest)

    # Boot 1: one after the other is refused.
    machine.boot()
    agent.settle(config(FIRST, {PATH: "version = 1\n"}), no_action(PATH, BROUGHT), test.registry())
    before = host_snapshot.state(machine)
    for number, (reason, words, image) in enumerate(bad):
        refused(test, number, before, image, reason, words)
        if reason in ROWS:
            faults.printed(test, ROWS[reason])
    test.same("reboots that were asked for", agent.logged("REBOOT"), [])
    # A slow host has time for another try of the same.
    found, expected = (line["MCA_FAULT"] for line in agent.logged("FAULT")), (reason for reason, _, _ in bad)
    test.same("told in turn", *([reason for reason, _ in groupby(reasons)] for reasons in (found, expected)))
    agent.set_target(WANTED, good)

    # Boot 2
    machine.next_boot()
    status = agent.wait_done(SECOND, good)
    test.same("booted image", status["booted"]["digest"], digest)
    test.same(VERSION, machine.read(VERSION), "2\n")
    test.same(PATH, machine.read(PATH), "version = 2\n")
    machine.run("ostree", "fsck", "--quiet")
