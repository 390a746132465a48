"""Promise: a host that Ignition has provisioned completes its first boot: the image is switched with one reboot, and the kubelet starts
only in the new boot; where the image is right already, it starts in the same boot, without a reboot.

Boots: 4
Minutes: 0.3; in a machine 4
"""

import json

from harness.agent import config

FIRSTBOOT, KUBELET = "machine-config-agent-firstboot.service", "/etc/systemd/system/kubelet.service"
FILE = "/etc/ignition-machine-config-encapsulated.json"
STARTED, VERSION, NAME = "/var/lab-kubelet", "/usr/share/lab/version", "rendered-worker-a"
# It stands for the kubelet: it says in which boot it was started.
STAND_IN = (f"[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -c 'cat /proc/sys/kernel/random/boot_id >>{STARTED}'\n"
            "[Install]\nWantedBy=multi-user.target\n")


def play(test):
    machine, agent, images, registry = test.machine, test.agent, test.images, test.registry()
    digest = images.next("v2", {VERSION.lstrip("/"): "2\n"}, {})
    image = registry.push(images.layout.path, "v2", digest)
    encapsulated = json.dumps(config(NAME, {}, osImageURL=image, kernelArguments=["lab.first=boot"]))

    def started():
        """Returns the boots in which the kubelet was started."""
        return machine.read(STARTED).split() if machine.exists(STARTED) else []

    # Boot 1: what the installation and Ignition leave.
    machine.boot()
    agent.trust(registry)
    machine.write(KUBELET, STAND_IN)
    machine.write(FILE, encapsulated)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "enable", "kubelet.service", FIRSTBOOT)
    machine.run("systemctl", "--no-block", "reboot")

    # Boot 2: the first one of the node. It ends before the kubelet starts.
    machine.next_boot(until=f"Node will reboot into config {NAME}")

    # Boot 3: the new image.
    machine.next_boot()
    test.same("the kubelet's boots", started(), [machine.boot_id()])
    test.same(VERSION, machine.read(VERSION), "2\n")
    test.same("the argument", machine.read("/proc/cmdline").split().count("lab.first=boot"), 1)
    test.same("the file", (machine.exists(FILE), machine.exists(f"{FILE}.bak")), (False, True))
    test.same("reboots that were asked for", len(agent.logged("REBOOT")), 1)
    history = json.loads(machine.run("machine-config-agent", "history", "--output", "json"))
    test.same("updates", [(one["outcome"], one["reboots"]) for one in history], [("committed", 1)])

    # Boot 4: a host whose image is right.
    machine.write(FILE, encapsulated)
    machine.run("systemctl", "--no-block", "reboot")
    machine.next_boot()
    test.same("the kubelet's last boot", started()[1:], [machine.boot_id()])
    test.same("the file", (machine.exists(FILE), machine.exists(f"{FILE}.bak")), (False, True))
    test.same("reboots that were asked for", len(agent.logged("REBOOT")), 1)
    test.same("faults in the journal", agent.logged("FAULT"), [])
