"""Promise: on a host of rpm-ostree, whose daemon the bus starts, an image is switched in one transaction, which goes on when
the agent is killed and is joined by the next one; arguments go with it; an idle agent leaves the daemon asleep.

Boots: 2
Minutes: 0.4; in a machine 3
"""

from harness.agent import UNIT as SERVICE
from harness.agent import config, no_action
from harness.host import COMMAND_LIMIT

PATH, VERSION = "/etc/lab/settings.conf", "/usr/share/lab/version"
FIRST, SECOND = "rendered-worker-a", "rendered-worker-b"
NAME, UNIT = "org.projectatomic.rpmostree1", "rpm-ostreed.service"
PROGRAM, SLOW = "usr/bin/rpm-ostreed", "/run/lab-slow-start"
# As the package of rpm-ostree brings them, but for the program: a stand-in with the names, signatures and sockets of the
# daemon, on the real bus and the real sysroot. The real one leaves after a minute.
HOST = {
    f"usr/share/dbus-1/system-services/{NAME}.service":
        f"[D-BUS Service]\nName={NAME}\nSystemdService={UNIT}\nUser=root\nExec=/{PROGRAM}\n",
    f"usr/share/dbus-1/system.d/{NAME}.conf":
        f'<busconfig><policy user="root"><allow own="{NAME}"/></policy>'
        f'<policy context="default"><allow send_destination="{NAME}"/></policy>'
        # Of the bus's own 25 s nothing would be learned but timeout.
        '<limit name="service_start_timeout">TIMEOUT_FACTOR</limit></busconfig>\n',
    f"usr/lib/systemd/system/{UNIT}":
        "[Unit]\nDescription=rpm-ostree System Management Daemon\nConditionPathExists=/ostree\nRequiresMountsFor=/boot\n"
        f"[Service]\nType=dbus\nBusName={NAME}\nMountFlags=slave\nProtectHome=true\nTimeoutStartSec=5m\n"
        # A start that takes long: until somebody writes there.
        f"ExecStartPre=/bin/sh -c '[ ! -p {SLOW} ] || {{ read go <{SLOW}; rm {SLOW}; }}'\n"
        f"ExecStart=+/{PROGRAM} --bus unix:path=/run/dbus/system_bus_socket --sysroot --idle-exit 2 --tell\n",
}


def control(test, method, *arguments):
    """Asks the stand-in."""
    limit = COMMAND_LIMIT * test.machine.TIMEOUT_FACTOR
    test.machine.run("busctl", "call", f"--timeout={limit}", NAME, "/double", "double.Control", method, *arguments)


def journal(test, boot):
    """Returns what the unit and systemd say of it."""
    test.machine.run("journalctl", "--sync")
    lines = test.machine.run("journalctl", "--no-pager", "--output=cat", f"--boot={boot}", f"--unit={UNIT}")
    return lines.splitlines()


def starts(test):
    return sum("Started" in line for line in journal(test, 0))


def asleep(test, times):
    """Waits until systemd has said so often that the daemon has ended."""
    def is_over(line):
        seen.append(line)
        return len(seen) == times

    seen = []
    test.agent.wait("the end of the daemon", ["journalctl", "--follow", "--boot", "--lines=all", "--output=json",
                                              f"UNIT={UNIT}", "MESSAGE_ID=7ad2d189f7e94e70a38c781354912448"], is_over)
    state = test.machine.run("systemctl", "show", "--value", "--property=ActiveState", UNIT).strip()
    test.same("the daemon sleeps", state, "inactive")


def tired(test):
    """Waits until the bus has given up the start of the daemon, more than once."""
    def is_over(line):
        seen.append(f"Failed to activate service '{NAME}': timed out" in line["MESSAGE"])
        return sum(seen) == 2

    seen = []
    test.agent.wait("the bus's timeout to end", ["journalctl", "--follow", "--boot", "--lines=all", "--output=json",
                                                  "--identifier=dbus-daemon"], is_over)


def play(test):
    machine, agent, images, registry = test.machine, test.agent, test.images, test.registry()
    double = images.program("rpm-ostreed")
    host = {path: text.replace("TIMEOUT_FACTOR", str(2000 * machine.TIMEOUT_FACTOR)) for path, text in HOST.items()}
    second = config(SECOND, {PATH: "version = 1\n"}, kernelArguments=["lab.second=1"])
    digest = images.next("v2", {VERSION.lstrip("/"): "2\n", **host}, {"machineconfig": SECOND}, {PROGRAM: double})
    image = registry.push(images.layout.path, "v2", digest)

    # Boot 1: rpm-ostree is found, and asked once; its daemon starts later than the bus waits.
    machine.put(PROGRAM, double, 0o755)
    for path, text in host.items():
        machine.put(path, text.encode())
    machine.boot()
    machine.run("mkfifo", SLOW)
    agent.trust(registry)
    agent.set_policy(no_action(PATH))
    agent.set_target(config(FIRST, {PATH: "version = 1\n"}))
    machine.run("systemctl", "--no-block", "enable", "--now", SERVICE)
    tired(test)
    machine.run("sh", "-c", f"echo go >{SLOW}")
    booted = agent.wait_done(FIRST)["booted"]
    test.same("backend", (booted["backend"], booted["digest"]), ("rpm-ostree", images.first))
    test.same("why", booted["backendBecause"].startswith("rpm-ostree is installed"), True)

    # The daemon ends, for nobody holds it; the idle agent and `status` are content with what is known.
    asleep(test, 1)
    for _ in range(2):
        shown = machine.run("machine-config-agent", "status")
        test.same("the reason is shown", "  backend  rpm-ostree: rpm-ostree is installed" in shown, True)
    test.same("starts of the daemon by now", starts(test), 1)

    # The work is held in its middle, where the agent is killed: it goes on, and the next agent joins it.
    control(test, "Set", "s", '{"hold": true}')
    agent.set_target(second, image)
    control(test, "Held")
    agent.kill()
    control(test, "Joined")
    test.same("it is another process", agent.unit("NRestarts"), "1")
    control(test, "Set", "s", "{}")
    control(test, "Release")

    # Boot 2
    machine.next_boot()
    status = agent.wait_done(SECOND, image)
    booted = status["booted"]
    test.same("booted image", (booted["backend"], booted["digest"]), ("rpm-ostree", digest))
    test.same(VERSION, machine.read(VERSION), "2\n")
    line = machine.run("cat", "/proc/cmdline").split()
    test.same("its argument, once", line.count("lab.second=1"), 1)
    work = [line for line in journal(test, -1) if line.split()[0] in ("begun", "joined", "done", "failed")]
    # One deployment: its arguments are changed in what the daemon has staged.
    test.same("transactions", work, ["begun UpdateDeployment", "joined UpdateDeployment", "done UpdateDeployment"])
    test.same("reboots that were asked for", len(agent.logged("REBOOT")), 1)
    test.same("faults in the journal", agent.logged("FAULT"), [])
    asleep(test, 1)
