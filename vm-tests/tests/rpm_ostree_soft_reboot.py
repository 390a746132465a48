"""Promise: on a host of rpm-ostree an image that its daemon staged comes up by a soft reboot, also one that differs in /etc and in
units alone; one that fails its trial goes back so, in one order to the daemon; one with other arguments takes a whole reboot.

Boots: 2, and 4 of user space alone
Minutes: 0.6; in a machine 6
"""

from harness.agent import config, no_action
from harness.promise import load

NOT_IN = {"bookworm": "its systemd and its libostree have no soft reboots"}

rpm_ostree = load("rpm_ostree_switch")
PATH, VERSION = "/etc/lab/settings.conf", "/usr/share/lab/version"
SETTINGS, CHECK = "/etc/machine-config-agent/settings.toml", "etc/machine-config-agent/health.d/10-app"
BROUGHT, NOTE = "/etc/lab/brought.conf", "lab-note.service"
UNIT = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/usr/bin/touch /run/lab-note\n[Install]\nWantedBy=multi-user.target\n"


def play(test):
    machine, agent, images, registry = test.machine, test.agent, test.images, test.registry()
    double = images.program("rpm-ostreed")
    host = {path: text.replace("TIMEOUT_FACTOR", str(25000 * machine.TIMEOUT_FACTOR)) for path, text in rpm_ostree.HOST.items()}

    def image(number, files, programs=None, links=None):
        digest = images.next(f"v{number}", {**host, **files}, {}, {rpm_ostree.PROGRAM: double, **(programs or {})}, links=links)
        return registry.push(images.layout.path, f"v{number}", digest)

    def target(number, of, **rest):
        agent.set_target(config(f"rendered-worker-{number}", {PATH: f"version = {number}\n"}, **rest), of)

    def counted():
        return machine.boot_id(), int(machine.run("systemctl", "show", "--value", "--property=SoftRebootsCount"))

    # Boot 1: a host of rpm-ostree, which may reboot softly.
    machine.put(rpm_ostree.PROGRAM, double, 0o755)
    for path, text in host.items():
        machine.put(path, text.encode())
    machine.boot()
    kernel = machine.boot_id()
    machine.write(SETTINGS, 'soft-reboot = "where-capable"\n[health]\nwithin = "10s"\n')
    booted = agent.settle(config("rendered-worker-1", {PATH: "version = 1\n"}), no_action(PATH), registry)["booted"]
    test.same("backend", booted["backend"], "rpm-ostree")

    # Another image: what the daemon staged is what the soft reboot starts, and what the daemon then calls booted.
    second = image(2, {VERSION.lstrip("/"): "2\n"})
    target(2, second)
    machine.next_soft_boot()
    booted = agent.wait_done("rendered-worker-2", second)["booted"]
    test.same("booted image", (booted["backend"], booted["digest"]), ("rpm-ostree", second.rpartition("@")[2]))
    test.same(VERSION, machine.read(VERSION), "2\n")
    test.same("the kernel stays", counted(), (kernel, 1))

    # The same /usr, but for a file and a unit in its /etc: a soft reboot, as any image.
    units = "etc/systemd/system"
    third = image(3, {VERSION.lstrip("/"): "2\n", BROUGHT.lstrip("/"): "from = image\n", f"{units}/{NOTE}": UNIT},
                  links={f"{units}/multi-user.target.wants/{NOTE}": f"../{NOTE}"})
    target(3, third)
    machine.next_soft_boot()
    agent.wait_done("rendered-worker-3", third)
    test.same(BROUGHT, machine.read(BROUGHT), "from = image\n")
    test.same("its unit", machine.exists("/run/lab-note"), True)
    test.same("the kernel stays", counted(), (kernel, 2))

    # One that fails its trial: there and back without the kernel. The daemon made the older deployment the default.
    old = machine.deployment
    target(4, image(4, {VERSION.lstrip("/"): "4\n"}, {CHECK: b"#!/bin/sh\nexit 7\n"}))
    machine.next_soft_boot()
    test.same(VERSION, machine.read(VERSION), "4\n")
    machine.next_soft_boot()
    status = agent.wait_status("the hold", lambda status: status["state"] == "Degraded" and status["phase"] == "Idle")
    test.same("the fault", status["fault"]["reason"], "HealthCheckFailed")
    test.same("the deployment before", machine.deployment, old)
    test.same("the kernel stays", counted(), (kernel, 4))

    # Boot 2: kernel arguments are the kernel's.
    fifth = image(5, {VERSION.lstrip("/"): "5\n"})
    target(5, fifth, kernelArguments=["lab.fifth=1"])
    machine.next_boot()
    agent.wait_done("rendered-worker-5", fifth)
    test.same("its argument, once", machine.run("cat", "/proc/cmdline").split().count("lab.fifth=1"), 1)
    after, count = counted()
    test.same("another kernel", (after != kernel, count), (True, 0))
    work = [line.split() for line in machine.run("journalctl", "--no-pager", "--output=cat", f"--unit={rpm_ostree.UNIT}").splitlines()]
    done = [words[1] for words in work if words[:1] == ["done"]]
    # Each image is one transaction, and the way back is one.
    test.same("orders to the daemon", done, ["UpdateDeployment"] * 3 + ["Rollback"] + ["UpdateDeployment"])
    test.same("faults", {line["MCA_FAULT"] for line in agent.logged("FAULT")}, {"HealthCheckFailed"})
