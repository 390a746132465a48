"""Promise: a host that Ignition has provisioned completes its first boot: the image is switched with one reboot, an argument of the
boot entry is there once, and the kubelet starts only in the new boot; where the image is right already, it starts in the same
boot, without a reboot. One-shot services run once per boot, those after the OS update see the new OS, and upstream's own
first-boot units find nothing to do. A first boot that is killed asks for the kubelet again. A config that contradicts the kernel's FIPS mode is refused, and the kubelet waits for the correction; a
container of the agent that is started at the same time waits for the unit.

Boots: 4
Minutes: 0.3; in a machine 4
"""

import json

from harness import kubelet
from harness.agent import config, messages
from harness.noting import AFTER, FILE, ONCE, PULL, UNITS, VERSION, notes, place

FIRSTBOOT, KUBELET = "machine-config-agent-firstboot.service", "/etc/systemd/system/kubelet.service"
NAME = "rendered-worker-a"
FIPS = "/proc/sys/crypto/fips_enabled"
# A kernel without such a mode is given one: its /proc/sys, and that file beside the rest.
NO_FIPS, NO_FIPS_UNIT = "lab-no-fips.service", (
    "[Unit]\nDefaultDependencies=no\nBefore=sysinit.target\n"
    f"ConditionPathExists=!{FIPS}\n"
    "[Service]\nType=oneshot\nRemainAfterExit=yes\n"
    "ExecStart=/bin/sh -ec 'mkdir /run/lab-sys; mount -t tmpfs lab /run/lab-sys; cd /proc/sys; for each in *; do"
    " mkdir /run/lab-sys/$$each; mount --rbind $$each /run/lab-sys/$$each; done; mkdir /run/lab-sys/crypto;"
    " echo 0 >/run/lab-sys/crypto/fips_enabled; mount --rbind /run/lab-sys /proc/sys'\n"
    "[Install]\nWantedBy=sysinit.target\n")
# `quiet` is in the boot entry already.
ARGUMENTS = ["lab.first=boot", "quiet"]
# The pod of the DaemonSet, in a mount namespace with the host's root; systemd starts it again, as the kubelet does.
CONTAINER, ROOTFS = "lab-container.service", "/run/lab-rootfs"
IN_CONTAINER = ('mkdir -p "$0" && mount --rbind / "$0" && exec machine-config-agent daemon --root-mount "$0"'
                " --kubeconfig /var/lib/kubelet/kubeconfig --metrics-listen 127.0.0.1:0")


def play(test):
    machine, agent, images, registry = test.machine, test.agent, test.images, test.registry()
    digest = images.next("v2", {VERSION.lstrip("/"): "2\n"}, {})
    image = registry.push(images.layout.path, "v2", digest)
    encapsulated = json.dumps(config(NAME, {}, osImageURL=image, kernelArguments=ARGUMENTS))

    # Boot 1: what the installation and Ignition leave.
    machine.boot()
    agent.trust(registry)
    machine.write(KUBELET, kubelet.UNIT)
    machine.write(FILE, encapsulated)
    place(machine)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "enable", "kubelet.service", FIRSTBOOT, *UNITS)
    machine.run("systemctl", "--no-block", "reboot")

    # Boot 2: the first one of the node. It ends before the kubelet starts.
    machine.next_boot(until=f"Node will reboot into config {NAME}")

    # Boot 3: the new image.
    machine.next_boot()
    test.same("the kubelet's boots", kubelet.boots(machine), [machine.boot_id()])
    test.same(VERSION, machine.read(VERSION), "2\n")
    arguments = machine.read("/proc/cmdline").split()
    test.same("the arguments", [arguments.count(argument) for argument in ARGUMENTS], [1, 1])
    test.same("the file", (machine.exists(FILE), machine.exists(f"{FILE}.bak")), (False, True))
    test.same("reboots that were asked for", len(agent.logged("REBOOT")), 1)
    machine.run("sh", "-c", "systemctl is-system-running --wait || true")
    ran = [boot for boot, _ in notes(machine, ONCE)]
    test.same("runs in one boot", [boot for boot in set(ran) if ran.count(boot) > 1], [])
    test.same("runs in this boot", ran.count(machine.boot_id()), 1)
    test.same("after the update of the OS", notes(machine, AFTER), [(machine.boot_id(), "2")])
    test.same("upstream's pulls", notes(machine, PULL), [])
    history = json.loads(machine.run("machine-config-agent", "history", "--output", "json"))["updates"]
    test.same("updates", [(one["outcome"], one["reboots"]) for one in history], [("committed", 1)])

    # Boot 4: a host whose image is right, and a config that it has to refuse.
    wrong = config(NAME, {}, osImageURL=image, kernelArguments=ARGUMENTS, fips=True)
    machine.write(FILE, json.dumps(wrong))
    machine.write(f"/etc/systemd/system/{NO_FIPS}", NO_FIPS_UNIT)
    machine.run("systemctl", "enable", NO_FIPS)
    machine.run("systemctl", "--no-block", "reboot")
    machine.next_boot(until="refusing to modify FIPS")
    test.same("the kernel's FIPS mode", machine.read(FIPS), "0\n")
    test.same("the kubelet's boots", len(kubelet.boots(machine)), 1)
    # Its end takes the kubelet's job of the boot along, which it asks for again in the end.
    machine.run("systemctl", "kill", "--kill-who=main", "--signal=KILL", FIRSTBOOT)
    wait_next_try(agent)
    at_the_same_time(test)
    machine.write(FILE, encapsulated)
    machine.run("systemctl", "start", FIRSTBOOT)
    asked = "systemctl list-jobs --no-legend kubelet.service; systemctl is-active kubelet.service || true"
    test.same("the kubelet is asked for", machine.run("sh", "-c", asked).strip() == "inactive", False)
    machine.run("systemctl", "start", "kubelet.service")
    test.same("the kubelet's last boot", kubelet.boots(machine)[1:], [machine.boot_id()])
    test.same("runs in one boot", [boot for boot, _ in notes(machine, ONCE)].count(machine.boot_id()), 1)
    test.same("the file", (machine.exists(FILE), machine.exists(f"{FILE}.bak")), (False, True))
    agent.wait("the container goes on", [
        "journalctl", "--follow", "--boot", "--lines=all", "--output=json", f"--unit={CONTAINER}",
        f"MESSAGE_ID={messages()['STARTED']}"], lambda line: True)
    machine.run("systemctl", "stop", CONTAINER)
    test.same("reboots that were asked for", len(agent.logged("REBOOT")), 1)
    faults = {line["MCA_FAULT"] for line in agent.logged("FAULT") if line["_SYSTEMD_UNIT"] == FIRSTBOOT}
    test.same("faults in the journal", faults, {"FailedToReconcile"})


def wait_next_try(agent):
    """Waits until a second process has refused the config."""
    tries = set()

    def is_next(line):
        if "refusing to modify FIPS" in str(line.get("MESSAGE")):
            tries.add(line["_PID"])
        return len(tries) > 1

    command = ["journalctl", "--follow", "--boot", "--lines=all", "--output=json", f"_SYSTEMD_UNIT={FIRSTBOOT}"]
    agent.wait("the next try", command, is_next)


def at_the_same_time(test):
    """Starts the container while the unit waits: it says why it can't work, and touches nothing."""
    test.machine.run("systemd-run", "--quiet", f"--unit={CONTAINER}", "--property=Restart=always", "--property=RestartSec=1",
                     "--property=StartLimitIntervalSec=0", "unshare", "--mount", "--propagation=slave", "sh", "-c", IN_CONTAINER, ROOTFS)
    test.machine.wait_console("another machine-config-agent works on this host")
    test.same("the file", test.machine.exists(FILE), True)
