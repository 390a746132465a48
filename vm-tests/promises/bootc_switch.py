"""Promise: on a host of bootc an image is switched by bootc as a unit of systemd, with arguments, booted, and Done.

Boots: 2
"""

from lab.agent import config, no_action

PATH, VERSION = "/etc/lab/settings.conf", "/usr/share/lab/version"
FIRST, SECOND = "rendered-worker-a", "rendered-worker-b"
BOOTC, UNIT = "usr/bin/bootc", "machine-config-agent-bootc"
FAULT = "/run/bootc-double/fault"


def play(lab):
    machine, agent, images, registry = lab.machine, lab.agent, lab.images, lab.registry()
    # A stand-in: it has the command line, the documents and the lock of bootc, and works on the real sysroot.
    bootc = images.program("bootc")
    second = config(SECOND, {PATH: "version = 1\n"}, kernelArguments=["lab.second=1"])
    digest = images.next("v2", {VERSION.lstrip("/"): "2\n"}, {"machineconfig": SECOND}, {BOOTC: bootc})
    image = registry.push(images.layout.path, "v2", digest)

    # Boot 1: bootc is found. It fails first, and the fault has its words; then it is run again.
    machine.put(BOOTC, bootc, 0o755)
    machine.boot()
    machine.write("/etc/containers/registries.conf.d/lab.conf", registry.trusted())
    agent.policy(no_action(PATH))
    agent.want(config(FIRST, {PATH: "version = 1\n"}))
    agent.start()
    lab.same("backend", agent.done(FIRST)["booted"]["backend"], "bootc")
    machine.run("sh", "-c", f"mkdir -p {FAULT.rpartition('/')[0]}; echo 'fail it is a drill' >{FAULT}")
    agent.want(second, image)

    def failed(status):
        return "error: it is a drill" in str(status)

    agent.status("the words of bootc", failed)
    machine.run("rm", FAULT)

    # Boot 2
    machine.next_boot()
    status = agent.done(SECOND, image)
    lab.same("booted image", status["booted"]["digest"], digest)
    lab.same(VERSION, machine.read(VERSION), "2\n")
    line = machine.run("cat", "/proc/cmdline").split()
    lab.same("its argument, once", line.count("lab.second=1"), 1)
    lines = machine.run("journalctl", "--no-pager", "--output=cat", "--boot=-1", f"--identifier={UNIT}")
    lab.same("its output is in the journal", f"Queued for next boot: {image}" in lines, True)
    lines = machine.run("journalctl", "--no-pager", "--output=cat", "--boot=-1", "--unit=machine-config-agent")
    lab.same("its standard error too", "bootc: error: it is a drill" in lines, True)
    lab.same("no unit is left", machine.run("systemctl", "list-units", "--all", "--no-legend", f"{UNIT}*"), "")
