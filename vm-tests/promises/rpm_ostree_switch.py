"""Promise: on a host of rpm-ostree, whose daemon the bus starts, an image is switched in one transaction, which goes on when
the agent is killed and is joined by the next one; arguments go with it; an idle agent leaves the daemon asleep.

Boots: 2
Minutes: 0.4; in a machine 3
"""

from lab.agent import UNIT as SERVICE
from lab.agent import config, no_action
from lab.host import COMMAND_LIMIT

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
        # Of the bus's own 25 s nothing would be learned but patience.
        '<limit name="service_start_timeout">PATIENCE</limit></busconfig>\n',
    f"usr/lib/systemd/system/{UNIT}":
        "[Unit]\nDescription=rpm-ostree System Management Daemon\nConditionPathExists=/ostree\nRequiresMountsFor=/boot\n"
        f"[Service]\nType=dbus\nBusName={NAME}\nMountFlags=slave\nProtectHome=true\nTimeoutStartSec=5m\n"
        # A start that takes long: until somebody writes there.
        f"ExecStartPre=/bin/sh -c '[ ! -p {SLOW} ] || {{ read go <{SLOW}; rm {SLOW}; }}'\n"
        f"ExecStart=+/{PROGRAM} --bus unix:path=/run/dbus/system_bus_socket --sysroot --idle-exit 2 --tell\n",
}


def control(lab, method, *arguments):
    """Asks the stand-in."""
    limit = COMMAND_LIMIT * lab.machine.PATIENCE
    lab.machine.run("busctl", "call", f"--timeout={limit}", NAME, "/double", "double.Control", method, *arguments)


def journal(lab, boot):
    """Returns what the unit and systemd say of it."""
    lab.machine.run("journalctl", "--sync")
    lines = lab.machine.run("journalctl", "--no-pager", "--output=cat", f"--boot={boot}", f"--unit={UNIT}")
    return lines.splitlines()


def starts(lab):
    return sum("Started" in line for line in journal(lab, 0))


def asleep(lab, times):
    """Waits until systemd has said so often that the daemon has ended."""
    def is_over(line):
        seen.append(line)
        return len(seen) == times

    seen = []
    lab.agent.until("the end of the daemon", ["journalctl", "--follow", "--boot", "--lines=all", "--output=json",
                                              f"UNIT={UNIT}", "MESSAGE_ID=7ad2d189f7e94e70a38c781354912448"], is_over)
    state = lab.machine.run("systemctl", "show", "--value", "--property=ActiveState", UNIT).strip()
    lab.same("the daemon sleeps", state, "inactive")


def tired(lab):
    """Waits until the bus has given up the start of the daemon, more than once."""
    def is_over(line):
        seen.append(f"Failed to activate service '{NAME}': timed out" in line["MESSAGE"])
        return sum(seen) == 2

    seen = []
    lab.agent.until("the bus's patience to end", ["journalctl", "--follow", "--boot", "--lines=all", "--output=json",
                                                  "--identifier=dbus-daemon"], is_over)


def play(lab):
    machine, agent, images, registry = lab.machine, lab.agent, lab.images, lab.registry()
    double = images.program("rpm-ostreed")
    host = {path: text.replace("PATIENCE", str(2000 * machine.PATIENCE)) for path, text in HOST.items()}
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
    agent.policy(no_action(PATH))
    agent.want(config(FIRST, {PATH: "version = 1\n"}))
    machine.run("systemctl", "--no-block", "enable", "--now", SERVICE)
    tired(lab)
    machine.run("sh", "-c", f"echo go >{SLOW}")
    booted = agent.done(FIRST)["booted"]
    lab.same("backend", (booted["backend"], booted["digest"]), ("rpm-ostree", images.first))
    lab.same("why", booted["backendBecause"].startswith("rpm-ostree is installed"), True)

    # The daemon ends, for nobody holds it; the idle agent and `status` are content with what is known.
    asleep(lab, 1)
    for _ in range(2):
        shown = machine.run("machine-config-agent", "status")
        lab.same("the reason is shown", "  backend  rpm-ostree: rpm-ostree is installed" in shown, True)
    lab.same("starts of the daemon by now", starts(lab), 1)

    # The work is held in its middle, where the agent is killed: it goes on, and the next agent joins it.
    control(lab, "Set", "s", '{"hold": true}')
    agent.want(second, image)
    control(lab, "Held")
    agent.kill()
    control(lab, "Joined")
    lab.same("it is another process", agent.unit("NRestarts"), "1")
    control(lab, "Set", "s", "{}")
    control(lab, "Release")

    # Boot 2
    machine.next_boot()
    status = agent.done(SECOND, image)
    booted = status["booted"]
    lab.same("booted image", (booted["backend"], booted["digest"]), ("rpm-ostree", digest))
    lab.same(VERSION, machine.read(VERSION), "2\n")
    line = machine.run("cat", "/proc/cmdline").split()
    lab.same("its argument, once", line.count("lab.second=1"), 1)
    work = [line for line in journal(lab, -1) if line.split()[0] in ("begun", "joined", "done", "failed")]
    # One deployment: its arguments are changed in what the daemon has staged.
    lab.same("transactions", work, ["begun UpdateDeployment", "joined UpdateDeployment", "done UpdateDeployment"])
    lab.same("reboots that were asked for", len(agent.logged("REBOOT")), 1)
    lab.same("faults in the journal", agent.logged("FAULT"), [])
    asleep(lab, 1)
