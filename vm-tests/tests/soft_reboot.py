"""Promise: where the node allows it, an image with the same kernel comes up by a soft reboot; one that fails its trial goes back
so, and one that leads into the old root is followed by a whole reboot. Its time is told beside that of a whole reboot.

Boots: 3, and 4 of user space alone
Minutes: 0.6; in a machine 6
"""

import json

from harness.agent import DIES_ONCE, ORDER, UNIT, config, no_action

NOT_IN = {"bookworm": "its systemd and its libostree have no soft reboots"}

PATH, VERSION = "/etc/lab/settings.conf", "/usr/share/lab/version"
SETTINGS = "/etc/machine-config-agent/settings.toml"
CHECK = "etc/machine-config-agent/health.d/10-app"
WORDS = "the same kernel and initramfs"
# The administrator's hand: whoever goes down takes the next root away, and systemd starts the old one again.
LOSES = ("[Unit]\nDefaultDependencies=no\nConflicts=soft-reboot.target shutdown.target\nBefore=soft-reboot.target\n"
         "After=ostree-finalize-staged.service\n[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n"
         "ExecStop=/bin/umount --recursive /run/nextroot\n")


def play(test):
    machine, agent, images, registry = test.machine, test.agent, test.images, test.registry()

    def image(number, more=None):
        tag = f"v{number}"
        digest = images.next(tag, {VERSION.lstrip("/"): f"{number}\n"}, {}, more)
        return registry.push(images.layout.path, tag, digest)

    def target(number, of):
        machine_config = config(f"rendered-worker-{number}", {PATH: f"version = {number}\n"})
        agent.set_target(machine_config, of)

    def done(number, of):
        agent.wait_done(f"rendered-worker-{number}", of)
        test.same(VERSION, machine.read(VERSION), f"{number}\n")
        return seconds()

    def seconds():
        ordered, committed = agent.logged("REBOOT")[-1], agent.logged("COMMITTED")[-1]
        return (int(committed["__REALTIME_TIMESTAMP"]) - int(ordered["__REALTIME_TIMESTAMP"])) / 1e6

    def soft_boots():
        return int(machine.run("systemctl", "show", "--value", "--property=SoftRebootsCount"))

    # The plan says it beforehand.
    machine.boot()
    kernel = machine.boot_id()
    machine.write(SETTINGS, 'soft-reboot = "where-capable"\n[health]\nwithin = "10s"\n')
    machine.write(f"/etc/systemd/system/{UNIT}.d/10-lab.conf", DIES_ONCE)
    machine.run("systemctl", "daemon-reload")
    agent.settle(config("rendered-worker-1", {PATH: "version = 1\n"}), no_action(PATH), registry)
    second = image(2)
    new = config("rendered-worker-2", {PATH: "version = 2\n"})
    soft = agent.plan(new, second)["after"]["softReboot"]
    test.same("the plan", (soft["possible"], soft["because"]), ("open", WORDS))
    new["spec"]["kernelArguments"] = ["lab.other=1"]
    soft = agent.plan(new, second)["after"]["softReboot"]
    test.same("the plan", soft, {"possible": "no", "because": "kernel arguments change"})

    # User space alone starts again.
    machine.run("touch", "/run/marker")
    target(2, second)
    machine.next_soft_boot()
    took = {"soft reboot": done(2, second)}
    test.same("the kernel stays", machine.boot_id(), kernel)
    test.same("soft reboots", soft_boots(), 1)
    test.same("/run stays", machine.exists("/run/marker"), True)
    test.same("nothing is prepared any more", machine.exists("/run/nextroot/usr"), False)

    # Somebody dies between the preparation and the reboot: the next request is one of the whole machine.
    machine.run("sh", "-c", f"echo MCA_FAIL_POINT=kill:soft-reboot-prepared >{ORDER}")
    machine.run("systemctl", "restart", UNIT)
    third = image(3)
    target(3, third)
    machine.next_boot()
    took["after a kill, full reboot"] = done(3, third)
    test.same("another kernel", machine.boot_id() != kernel, True)
    test.same("soft reboots", soft_boots(), 0)

    # A deployment that fails its trial: there and back without the kernel.
    old, kernel = machine.deployment, machine.boot_id()
    ill = image(4, {CHECK: b"#!/bin/sh\nexit 7\n"})
    target(4, ill)
    machine.next_soft_boot()
    test.same(VERSION, machine.read(VERSION), "4\n")
    machine.next_soft_boot()
    status = agent.wait_status("the hold", lambda status: status["state"] == "Degraded" and status["phase"] == "Idle")
    test.same("the fault", status["fault"]["reason"], "HealthCheckFailed")
    test.same("the deployment before", machine.deployment, old)
    test.same(VERSION, machine.read(VERSION), "3\n")
    test.same(PATH, machine.read(PATH), "version = 3\n")
    test.same("the kernel stays", (machine.boot_id(), soft_boots()), (kernel, 2))

    # The next root is lost on the way down: the old one starts again, and a whole reboot follows.
    machine.write("/etc/systemd/system/lab-loses.service", LOSES)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "start", "lab-loses.service")
    fifth = image(5)
    target(5, fifth)
    machine.next_boot()
    took["soft reboot in vain, then full reboot"] = done(5, fifth)
    test.same("soft reboots", soft_boots(), 0)

    # Side by side: the same by a full reboot.
    machine.write(SETTINGS, 'soft-reboot = "never"\n')
    machine.run("systemctl", "reload", UNIT)
    sixth = image(6)
    target(6, sixth)
    machine.next_boot()
    took["full reboot"] = done(6, sixth)
    test.same("faults", {line["MCA_FAULT"] for line in agent.logged("FAULT")}, {"HealthCheckFailed"})
    (machine.directory / "times.json").write_text(json.dumps(took))
    print("".join(f"  from the order to Done, {how}: {time:.1f} s\n" for how, time in took.items()), end="", flush=True)
