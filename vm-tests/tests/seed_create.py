"""Promise: a seed of one host, classic and as a bootc image, brings up another one with its own machine-id, host keys, certificates
and pull secret; services of the first one run again, and its /etc, /var and deployments are as before.

Boots: 5
Minutes: 1.4
"""

import base64
import json

from harness.agent import config, no_action
from harness.stateroots import booted, enable, mirror_disk, old_system, stateroot, switch, unchanged, wait_settled

NOT_IN = {"machine": "two machines at once are too much for most processors"}
LONG = True

PATH = "/etc/lab/settings.conf"
OF_A, OF_B = "rendered-worker-a", "rendered-worker-b"
# A line of htpasswd: `node`, whose password is PASSWORD.
ACCOUNTS = "node:$2b$04$GHO1/zhrx5fBTOHmuC3ZzecX0WIEIRz6.y09WwJ.2Jn2HGESzMwLe\n"
PASSWORD = "open-sesame"
PULL_SECRET, CERTIFICATE, KEY = "/var/lib/kubelet/config.json", "/var/lib/kubelet/pki/kubelet.pem", "/etc/pki/tls/private/host.key"
# Data, secrets of the cluster, and what is good for now only.
DATA, OF_CLUSTER, FOR_NOW = "/var/lib/app/data", "/var/lib/etcd/db", "/var/log/app.log"
DELETED, SERVICES = "/etc/issue.net", ("crio", "kubelet")
UNIT = """[Service]
ExecStart=/bin/sh -c 'echo started >>/run/lab-starts-{name}; exec sleep infinity'
[Install]
WantedBy=multi-user.target
"""
IDENTITY = f"sha256sum /etc/machine-id /etc/hostname /etc/ssh/ssh_host_* {KEY} {CERTIFICATE} {PULL_SECRET}"
# What is the first host's alone, wherever it may have come along.
TRACES = "grep -rlF -e of-host-a -e \"$0\" /etc /var/lib 2>/dev/null || true"


def own(machine, name, registry):
    """Gives a host an identity of its own: real keys, and files that name it."""
    machine.run("sh", "-ec", "rm -f /etc/ssh/ssh_host_*; ssh-keygen -A")
    account = base64.b64encode(f"node:{PASSWORD}".encode()).decode()
    others = {f"of-{name}.invalid": {"auth": base64.b64encode(f"node:of-{name}".encode()).decode()}}
    machine.write(PULL_SECRET, json.dumps({"auths": {registry.host: {"auth": account}, **others}}))
    for path in (CERTIFICATE, KEY, "/etc/hostname"):
        machine.write(path, f"of-{name}\n")
    return machine.run("sh", "-c", IDENTITY)


def make_first(machine):
    """Gives the first host services, data, and what no seed may have."""
    for service in SERVICES:
        machine.write(f"/etc/systemd/system/{service}.service", UNIT.format(name=service))
        machine.run("systemctl", "enable", "--now", f"{service}.service")
    machine.write(DATA, "data of the first host\n")
    machine.write("/etc/app.conf", "from = first host\n")
    for path in (OF_CLUSTER, FOR_NOW):
        machine.write(path, "of-host-a\n")
    machine.run("rm", DELETED)


# What is portable beside packages and the config: data, a file of its own, services, and what the agent of a directory follows.
PORTABLE = ("/var/lib/app", "/etc/app.conf", "/etc/systemd/system", "/etc/machine-config-agent")


def create(test, form, version):
    """Makes a seed and pushes it; returns its name."""
    portable = [word for path in PORTABLE for word in ("--include", path)]
    name = f"{test.registry().host}/seeds/{form}"
    made = json.loads(test.machine.run("machine-config-agent", "seed", "create", "--image", f"{name}:{version}", "--version",
                                       version, "--form", form, "--push", "--yes", "--output", "json", *portable))
    test.same("its form", made["form"], form)
    return f"{name}@{made['digest']}"


def bring_up(test, machine, agent, image, version, identity):
    """Brings a host up from a seed, and looks whose it is."""
    new = f"rhcos_{version}"
    before = old_system(machine)
    stateroot(machine, "prepare", image, "--version", version)
    unchanged(machine, before, f"after {image} was prepared")
    switch(machine, "activate", new, "--yes")
    test.same("the stateroot", booted(machine), new)
    agent.wait_done(OF_A)
    agent.wait_log("the end of the trial", lambda lines: True, "STATEROOT_PASSED")
    test.same("its identity", machine.run("sh", "-c", IDENTITY), identity)
    test.same("its name", machine.run("cat", "/proc/sys/kernel/hostname"), "of-host-b\n")
    test.same("traces of the first host", machine.run("sh", "-c", TRACES, test.machine.run("cat", "/etc/machine-id").strip()), "")
    read = {path: machine.read(path) for path in (PATH, DATA, "/etc/app.conf")}
    test.same("what the seed brought", read, {PATH: "of the seed\n", DATA: "data of the first host\n",
                                              "/etc/app.conf": "from = first host\n"})
    there = {path: machine.exists(path) for path in (DELETED, OF_CLUSTER, FOR_NOW)}
    test.same("what it did not bring", there, dict.fromkeys(there, False))
    test.same("its services", [machine.read(f"/run/lab-starts-{name}") for name in SERVICES], ["started\n"] * 2)
    unchanged(machine, before, "seen from the new system")
    return before


def play(test):
    first, (second, second_agent), registry = test.machine, test.add_second(), test.registry()
    policy = no_action(PATH)

    # The first host makes both.
    first.boot()
    mirror_disk(test)
    registry.stop()
    registry.start(ACCOUNTS)
    test.agent.settle(config(OF_A, {PATH: "of the seed\n"}), policy, registry)
    enable(first)
    own(first, "host-a", registry)
    make_first(first)
    before = old_system(first)
    seeds = {form: create(test, form, version) for form, version in (("classic", "4.17.2"), ("bootc", "4.17.3"))}
    unchanged(first, before, "after its seeds")
    for service in SERVICES:
        test.same(f"{service} runs", first.run("systemctl", "is-active", service), "active\n")
        test.same(f"starts of {service}", first.read(f"/run/lab-starts-{service}"), "started\n" * 3)
    left = first.run("find", "/var/lib/machine-config-agent", "-name", "*seed*", "-not", "-name", "seed.lock")
    test.same("left of them", left, "")
    layers = [layer["digest"] for layer in json.loads(registry.blob(seeds["bootc"].partition("@")[2]).read_text())["layers"]]
    test.same("layers of the bootc seed", layers[:-1], test.images.layout.layers("v1"))

    # The second host comes up from one, goes back, and comes up from the other.
    second.boot()
    second_agent.settle(config(OF_B, {PATH: "of host b\n"}), policy, registry)
    enable(second)
    identity = own(second, "host-b", registry)
    before = bring_up(test, second, second_agent, seeds["classic"], "4.17.2", identity)
    switch(second, "roll-back", "--yes")
    second_agent.wait_done(OF_B)
    unchanged(second, before, "after the way back")
    test.same(PATH, second.read(PATH), "of host b\n")
    wait_settled(second)
    stateroot(second, "remove", "rhcos_4.17.2", "--yes")
    bring_up(test, second, second_agent, seeds["bootc"], "4.17.3", identity)
