"""Promise: a first boot that is given what it can't use says so on the console, in the journal and by `status`, with the cause and the
next step, and the kubelet waits: a file that is no JSON, a version of Ignition that is unknown, an image by tag, an unknown kernel
type, a proxy file with a damaged line; each correction is noticed without a restart, and the last one completes the first boot.

Boots: 3
Minutes: 0.3; in a machine 4
"""

import json

from harness import kubelet
from harness.agent import config

FIRSTBOOT, KUBELET = "machine-config-agent-firstboot.service", "/etc/systemd/system/kubelet.service"
FILE, PROXIES = "/etc/ignition-machine-config-encapsulated.json", "/etc/mco/proxy.env"
VERSION, NAME = "/usr/share/lab/version", "rendered-worker-a"
SECRET = "geheim"
DAMAGED = f"NO_PROXY=.svc\nHTTPS_PROXY=http://user:{SECRET}\x07@proxy.test:3128\n"


def unusable(image):
    """Returns what is written in this order: the file, what it holds, and the reported cause."""
    foreign = config(NAME, {})
    foreign["spec"]["config"]["ignition"]["version"] = "9.0.0"
    tagged = config(NAME, {}, osImageURL=f"{image.partition('@')[0]}:latest")
    return ((FILE, '{"kind": "MachineConfig", ', "it ends where a value is needed"),
            (FILE, json.dumps(foreign), "9.0.0"),
            (FILE, json.dumps(tagged), ":latest"),
            (FILE, json.dumps(config(NAME, {}, kernelType="turbo")), "turbo"),
            (FILE, json.dumps(config(NAME, {}, osImageURL=image)), "line 2: "))


def reported(test, cause):
    """Waits until the cause is reported wherever an administrator may look, and makes sure that the kubelet waits."""
    machine, agent = test.machine, test.agent
    status = agent.wait_status(f"the cause: {cause}", lambda status: cause in (status["fault"] or {}).get("message", ""))
    text = f"{status['fault']['reason']}: {status['fault']['message']}. Next: {status['fault']['next']}"
    # The console cuts long lines.
    machine.wait_console(f"is not complete, the kubelet waits: {text}"[:500])
    agent.wait_log(f"the cause: {cause}", lambda lines: text in lines[-1]["MESSAGE"], "FAULT")
    jobs = {line.split()[1]: line.split()[3] for line in machine.run("systemctl", "list-jobs", "--no-legend").splitlines()}
    test.same("the kubelet's job", jobs.get("kubelet.service"), "waiting")
    test.same("the kubelet has started", machine.exists(kubelet.STARTED), False)


def play(test):
    machine, agent, images, registry = test.machine, test.agent, test.images, test.registry()
    digest = images.next("v2", {VERSION.lstrip("/"): "2\n"}, {})
    (first, text, cause), *others = unusable(registry.push(images.layout.path, "v2", digest))

    # Boot 1: what the installation leaves, and a file that was cut off.
    machine.boot()
    agent.trust(registry)
    machine.write(KUBELET, kubelet.UNIT)
    machine.write(PROXIES, DAMAGED)
    machine.write(first, text)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "enable", "kubelet.service", FIRSTBOOT)
    machine.run("systemctl", "--no-block", "reboot")

    # Boot 2: one after the other, by the same process.
    machine.next_boot(until="the kubelet waits")
    process = machine.run("systemctl", "show", "--value", "--property=MainPID", FIRSTBOOT)
    reported(test, cause)
    for path, text, cause in others:
        machine.write(path, text)
        reported(test, cause)
    test.same("the process", machine.run("systemctl", "show", "--value", "--property=MainPID", FIRSTBOOT), process)
    machine.write(PROXIES, "NO_PROXY=.svc\n")

    # Boot 3: the new image.
    machine.next_boot()
    test.same("the kubelet's boots", kubelet.boots(machine), [machine.boot_id()])
    test.same(VERSION, machine.read(VERSION), "2\n")
    test.same("the file", (machine.exists(FILE), machine.exists(f"{FILE}.bak")), (False, True))
    test.same("reboots that were asked for", len(agent.logged("REBOOT")), 1)
    journal = machine.run("journalctl", "--no-pager", "--output=json")
    test.same("the password in the journal", SECRET in journal, False)
