"""Promise: systemd makes the links of units when it is asked over D-Bus, the same as without it; what systemd says of them is
what the agent reads; and no program is run for files, units, users and status.

Boots: 1
Minutes: 0.2; in a machine 3
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

from harness.agent import UNIT, config, no_action
from harness.paths import HarnessError, run

PATH = "/etc/lab/settings.conf"
FIRST, SECOND, THIRD = "rendered-worker-a", "rendered-worker-b", "rendered-worker-c"
VENDOR = {
    "lab-on.service": "WantedBy=multi-user.target\nAlias=lab-alias.service\nAlso=lab-on.socket\n",
    "lab-on.socket": "WantedBy=sockets.target\n",
    "lab-off.service": "WantedBy=multi-user.target\nRequiredBy=lab.target\n",
    "lab-preset-on.service": "WantedBy=multi-user.target\n",
    "lab-preset-off.service": "WantedBy=multi-user.target\n",
    "lab-mask.service": "WantedBy=multi-user.target\n",
    "lab-many@.service": "WantedBy=multi-user.target\nDefaultInstance=one\n",
    "lab-static.service": "",
}
PRESET = "enable lab-preset-on.service\ndisable lab-preset-off.service\ndisable lab-off.service\n"
OURS = "[Service]\nType=oneshot\nExecStart=/usr/bin/true\n[Install]\nWantedBy={}\nAlias=lab-{}.service\n"
LINKS = "cd {}/etc/systemd/system; find . -type l -name '*lab-*' -printf '%P %l\n' | sed 's,/lib/,/usr/lib/,;s,/usr/usr/,/usr/,' | sort"
LOG, TRACE = "/run/lab-execve.log", "lab-trace.service"
STRACE = ("strace", "-f", "-e", "trace=execve", "-s", "200", "-o", LOG)
# Runs for the OS may be traced too: the worker of libostree is one program, and bootc and skopeo are others.
OF_THE_OS = re.compile(r"machine-config-agent-ostree|/bootc\"|/skopeo\"|/proc/self/fd/|/dev/fd/")


def units(*entries):
    return {"units": [{"name": name, **rest} for name, rest in entries]}


def target(name, version, systemd):
    made = config(name, {PATH: f"version = {version}\n"})
    made["spec"]["config"]["systemd"] = systemd
    keys = [f"ssh-ed25519 AAAA{version} core@lab"]
    made["spec"]["config"]["passwd"] = {"users": [{"name": "core", "sshAuthorizedKeys": keys}]}
    return made


# What is there at first is taken over as it is; changes begin with the next.
BASE = config("rendered-worker-0", {PATH: "version = 0\n"})
STEPS = [
    target(FIRST, 1, units(
        ("lab-on.service", {"enabled": True}), ("lab-off.service", {"enabled": False}),
        ("lab-preset-on.service", {}), ("lab-preset-off.service", {}), ("lab-mask.service", {"mask": True}),
        ("lab-many@.service", {"enabled": True}), ("lab-many@two.service", {"enabled": True}),
        ("lab-static.service", {"enabled": True}), ("lab-nowhere.service", {"enabled": True}),
        ("lab-ours.service", {"enabled": True, "contents": OURS.format("multi-user.target", "first")}))),
    # Another [Install] section, a mask that goes, a unit that is no longer managed, an instance that is disabled.
    target(SECOND, 2, units(
        ("lab-on.service", {"enabled": False}), ("lab-off.service", {"enabled": True}),
        ("lab-mask.service", {"mask": False, "enabled": True}), ("lab-many@two.service", {"enabled": False}),
        ("lab-ours.service", {"enabled": True, "contents": OURS.format("default.target", "second")}))),
    target(THIRD, 3, units(("lab-mask.service", {"enabled": False}))),
]
NAMES = (*VENDOR, "lab-many@two.service", "lab-ours.service", "lab-nowhere.service", "lab-alias.service")


def offline(machine, step):
    """Applies the same config to a copy, where no systemd runs."""
    name = step["metadata"]["name"]
    machine.write(f"/etc/lab-offline/{name}.json", json.dumps(step))
    return machine.run("machine-config-agent", "apply", "--yes", "--no-reboot", "--root", "/var/lab-root",
                       "--policy", "/etc/machine-config-agent/policy.yaml", "--to", f"/etc/lab-offline/{name}.json")


def bring_strace(machine):
    """Puts strace into the guest: its release is this machine's."""
    program = shutil.which("strace")
    machine.put("/usr/bin/strace", Path(program).read_bytes(), 0o755)
    for library in re.findall(r"/\S*/libunwind\S*", run("ldd", program)):
        machine.put(f"/usr/lib/{library.partition('/lib/')[2]}", Path(library).read_bytes(), 0o755)


def trace_of(agent):
    """Traces the agent from here on."""
    machine = agent.machine
    machine.run("systemd-run", "--quiet", f"--unit={TRACE}", *STRACE, "-p", agent.unit("MainPID"))
    agent.wait("strace", ["journalctl", "--follow", "--lines=all", "--output=json", f"--unit={TRACE}"],
                lambda line: "attached" in line["MESSAGE"])


def programs(machine):
    """Returns the lines about programs in what was traced, without those that are run for the OS."""
    return [line for line in machine.read(LOG).splitlines() if "execve(" in line and not OF_THE_OS.search(line)]


def asked_of_systemd(machine, name):
    """Returns what the running systemd says, in the words of `verify`; a static unit and none at all are the same there."""
    try:
        state = machine.run("busctl", "call", "--json=short", "org.freedesktop.systemd1", "/org/freedesktop/systemd1",
                            "org.freedesktop.systemd1.Manager", "GetUnitFileState", "s", name)
    except HarnessError as error:
        if "No such file" not in str(error):
            raise
        return "nothing to enable"
    # An alias is there because its unit is enabled; `systemctl is-enabled` says yes to both.
    words = {"static": "nothing to enable", "alias": "enabled"}
    said = json.loads(state)["data"][0]
    return words.get(said, said)


def read_by_agent(machine, name):
    """Returns what the agent reads, from what it says against a config that wants the opposite."""
    found = []
    for enabled in (True, False):
        opposite = config("opposite", {})
        opposite["spec"]["config"]["systemd"] = {"units": [{"name": name, "enabled": enabled}]}
        machine.write("/etc/lab-offline/opposite.json", json.dumps(opposite))
        command = ["machine-config-agent", "verify", "--output", "json", "--config", "/etc/lab-offline/opposite.json"]
        told = subprocess.run(machine.inside(*command), stdin=subprocess.DEVNULL, capture_output=True, check=False)
        # 1: it differs. 3: the plan would refuse it on this host, and the differences are told all the same.
        if told.returncode not in (0, 1, 3):
            raise HarnessError(f"verify: {told.stderr.decode()}")
        found += [one["found"] for one in json.loads(told.stdout)["differences"] if one["what"] == "enablement"]
    return found[0] if found else "nothing to enable"


def play(test):
    machine, agent = test.machine, test.agent
    for name, install in VENDOR.items():
        service = "[Socket]\nListenStream=/run/lab.sock\n" if name.endswith("socket") else "[Service]\nExecStart=/usr/bin/true\n"
        text = service + (f"[Install]\n{install}" if install else "")
        machine.put(f"/usr/lib/systemd/system/{name}", text.encode())
    machine.put("/usr/lib/systemd/system-preset/10-lab.preset", PRESET.encode())
    bring_strace(machine)
    machine.boot()
    machine.run("useradd", "--create-home", "core")
    # Two that the host has already: one is disabled by the config, one by its preset.
    machine.run("systemctl", "--quiet", "enable", "lab-off.service", "lab-preset-off.service")
    machine.run("sh", "-c", "mkdir -p /var/lab-root/usr/lib/systemd /var/lab-root/var/lib /var/lab-root/proc/sys/kernel/random;"
                " cp -a /etc /var/lab-root/; cp -a /usr/lib/systemd/system /usr/lib/systemd/system-preset"
                " /var/lab-root/usr/lib/systemd/; ln -s usr/lib /var/lab-root/lib; cp -a /home/core /var/lab-root/var/core;"
                " rm -rf /var/lab-root/etc/machine-config-agent;"
                " cp /proc/sys/kernel/random/boot_id /var/lab-root/proc/sys/kernel/random/; cp /proc/cmdline /var/lab-root/proc/")
    nothing = [{"name": name, "actions": [{"type": "None"}]} for name in
               (*VENDOR, "lab-many@two.service", "lab-ours.service", "lab-nowhere.service")]
    policy = no_action(PATH)
    policy["spec"]["nodeDisruptionPolicy"] |= {"units": nothing, "sshkey": {"actions": [{"type": "None"}]}}
    agent.set_policy(policy)
    agent.set_target(BASE)
    agent.start()
    agent.wait_done("rendered-worker-0")
    offline(machine, BASE)

    trace_of(agent)
    for step in STEPS:
        agent.set_target(step)
        agent.wait_done(step["metadata"]["name"])
        offline(machine, step)
        with_systemd, without = (machine.run("sh", "-c", LINKS.format(root)) for root in ("", "/var/lab-root"))
        test.same(f"links after {step['metadata']['name']}", with_systemd, without)
        test.same("there are some", "lab-" in with_systemd, True)
        states = [{name: ask(machine, name) for name in NAMES} for ask in (asked_of_systemd, read_by_agent)]
        test.same(f"GetUnitFileState after {step['metadata']['name']}", *states)
    machine.run("systemctl", "stop", TRACE)
    test.same("programs that are not of the OS", programs(machine), [])
    status = machine.run(*STRACE, "machine-config-agent", "status", "--output", "json")
    test.same("status", "rendered-worker-c" in status, True)
    test.same("status, and nothing else", len(programs(machine)), 1)
    lines = machine.run("journalctl", "--no-pager", "--output=cat", f"--unit={UNIT}")
    test.same("no unit failed", "not done" in lines, False)
    test.same("faults in the journal", agent.logged("FAULT"), [])
