"""Promise: on a host of bootc an image is switched by bootc as a unit of systemd, with arguments, booted, and Done; the words
of one that fails are in the fault and the journal, and the unit goes on when the agent is killed, waited for by the next.

Boots: 2
Minutes: 0.2; in a machine 3
"""

from harness.agent import config, no_action

PATH, VERSION = "/etc/lab/settings.conf", "/usr/share/lab/version"
FIRST, SECOND = "rendered-worker-a", "rendered-worker-b"
BOOTC, UNIT = "usr/bin/bootc", "machine-config-agent-bootc"
KNOBS = "/run/bootc-double"


def process(test):
    """Returns the process of the unit of bootc."""
    return test.machine.run("systemctl", "show", "--value", "--property=MainPID", f"{UNIT}.service").strip()


def play(test):
    machine, agent, images, registry = test.machine, test.agent, test.images, test.registry()
    # A stand-in: it has the command line, the documents and the lock of bootc, and works on the real sysroot.
    bootc = images.program("bootc")
    second = config(SECOND, {PATH: "version = 1\n"}, kernelArguments=["lab.second=1"])
    digest = images.next("v2", {VERSION.lstrip("/"): "2\n"}, {"machineconfig": SECOND}, {BOOTC: bootc})
    image = registry.push(images.layout.path, "v2", digest)

    # Boot 1: bootc is found. It fails first, and the fault has its words; then it is run again.
    machine.put(BOOTC, bootc, 0o755)
    machine.boot()
    booted = agent.settle(config(FIRST, {PATH: "version = 1\n"}), no_action(PATH), registry)["booted"]
    test.same("backend", booted["backend"], "bootc")
    machine.run("sh", "-c", f"mkdir -p {KNOBS}; mkfifo {KNOBS}/begun {KNOBS}/go; echo 'fail it is a drill' >{KNOBS}/fault")
    agent.set_target(second, image)

    def failed(status):
        words = (status["fault"] or {}).get("message", "")
        return "ended with exit code 1" in words and "warning: about to fail; error: it is a drill" in words

    agent.wait_status("the words of bootc", failed)
    told = agent.logged("FAULT")
    test.same("the same in the journal", failed({"fault": {"message": told[0]["MESSAGE"]}}), True)

    # It is run again, and held after its first words. What ends the agent does not end it.
    machine.run("sh", "-c", f"echo hold >{KNOBS}/fault")
    machine.run("cat", f"{KNOBS}/begun")
    running = process(test)
    test.same("it runs", running != "0", True)
    agent.kill()
    agent.wait_report("the next agent", lambda report: "waiting for the bootc that was started before" in str(report["progress"]))
    test.same("it is another agent", agent.unit("NRestarts"), "1")
    test.same("it is the same bootc", process(test), running)
    machine.run("sh", "-c", f"rm {KNOBS}/fault; echo >{KNOBS}/go")

    # Boot 2
    machine.next_boot()
    status = agent.wait_done(SECOND, image)
    test.same("booted image", status["booted"]["digest"], digest)
    test.same(VERSION, machine.read(VERSION), "2\n")
    line = machine.run("cat", "/proc/cmdline").split()
    test.same("its argument, once", line.count("lab.second=1"), 1)
    lines = machine.run("journalctl", "--no-pager", "--output=cat", "--boot=-1", f"--identifier={UNIT}")
    test.same("its output is in the journal, once", lines.count(f"Queued for next boot: {image}"), 1)
    lines = machine.run("journalctl", "--no-pager", "--output=cat", "--boot=-1", "--unit=machine-config-agent")
    test.same("its standard error too", "bootc: error: it is a drill" in lines, True)
    test.same("no unit is left", machine.run("systemctl", "list-units", "--all", "--no-legend", f"{UNIT}*"), "")
