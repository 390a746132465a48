"""What a promise about stateroots looks at, and how it runs the verbs and sets stages."""

import json

from . import agent, host_snapshot
from .paths import HarnessError

OLD = "debian"
UNIT = "machine-config-agent-stateroot.service"
VERBS = ("machine-config-agent", "stateroot")
# What a running system writes by itself: the agent's reports and records, journals, caches, seeds and clocks; and the
# lock of systemd-nspawn.
OWN = ("etc/machine-config-agent/report.json", "etc/machine-config-agent/.report.json.mca-new",
       "etc/machine-config-agent/health.json", "etc/machine-config-agent/stateroot.yaml", "etc/machine-config-agent/stateroot-report.json",
       "etc/machine-config-agent/.stateroot-report.json.mca-new", "etc/machine-id", "etc/resolv.conf",
       "var/lib/machine-config-agent", "var/lib/containers", "var/lib/dbus", "var/lib/private", "var/lib/systemd", "var/log",
       "var/cache", "var/tmp", "tmp/systemd-private-*", "var/.updated", "etc/.updated", f"{OLD}/deploy/.#*.lck")
# The condition of a host on which nothing is under way.
IDLE = ("Idle", "True", "Idle")
# Of a boot entry: not what libostree numbers and titles anew with each deployment.
ENTRY = "sed -e '/^version /d' -e '/^title /d' -e 's, ostree=[^ ]*,,' -e 's,^options ostree=[^ ]*,options,'"


def old_system(machine):
    """Returns what the old system is made of, wherever it is looked at from: its deployments with /etc, its /var, its kernels and
    its boot entry. Path to words."""
    found = {}
    skipped = [word for path in OWN for word in ("-path", f"*/{path}", "-prune", "-o")]
    tops = ([f"/sysroot/ostree/deploy/{OLD}", *skipped], ["/boot/ostree", "-not", "-path", f"/boot/ostree*/{OLD}-*", "-o"])
    for top in tops:
        found |= host_snapshot.found(machine, *top, "-printf", r"%p\t%M %U %G %l\0")
        # `usr` reads what is in /usr: that takes long.
        files = [*top[:1], "-path", "*/deploy/*/usr", "-prune", "-o", *top[1:], "-type", "f", "-print0"]
        sums = machine.run("sh", "-ec", 'find "$@" | xargs -0 sha256sum --zero', "sh", *files).split("\0")
        found |= {path: f"{found[path]} {digest}" for digest, path in (line.split("  ", 1) for line in sums if line)}
    found["boot entry"] = machine.run("sh", "-ec", f"grep -lr /{OLD}/ /boot/loader/entries/ | xargs {ENTRY}")
    return found


def usr(machine):
    """Returns the sum of all that is in the /usr of the old system."""
    summed = "cd /sysroot/ostree/deploy/$0/deploy; find . -type f -path '*/usr/*' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum"
    return machine.run("sh", "-ec", f"({summed}) | sha256sum", OLD)


def unchanged(machine, before, when):
    """Fails unless the old system is as it was."""
    now = old_system(machine)
    paths = sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))
    if paths:
        told = "; ".join(f"{path}: {before.get(path)} -> {now.get(path)}" for path in paths[:10])
        raise HarnessError(f"the old system has changed {when}, {len(paths)} paths: {told}")


def enable(machine):
    """Enables in the old system what the preset enables on a new host: it ends an activation when that system boots again."""
    machine.run("systemctl", "enable", UNIT)


def mirror_disk(test):
    """Puts the image of the disk into the registry, and tells a host that it is there: a bootc seed is made of it."""
    test.registry().push(test.images.layout.path, "v1", test.images.first)
    text = f'[[registry]]\nprefix = "registry.invalid"\nlocation = "{test.registry().host}"\ninsecure = true\n'
    test.machine.write("/etc/containers/registries.conf.d/disk.conf", text)


def stateroot(machine, *words):
    """Runs a verb."""
    return machine.run(*VERBS, *words)


def refused(machine, *words):
    """Runs a verb that has to be refused; returns what it says."""
    command = '"$@" 2>&1 && echo "it was not refused" || true'
    return machine.run("sh", "-c", command, "sh", *VERBS, *words)


def switch(machine, *words):
    """Runs a verb that reboots, as a unit: what came from outside would go down with the guest."""
    machine.run("systemd-run", "--quiet", "--no-block", "--unit=lab-switch", "--collect", *VERBS, *words)
    machine.next_boot()


def wait_settled(machine):
    """Waits until this boot has done what it has to do with stateroots; its unit was started with the boot."""
    process = machine.run("systemctl", "show", "--value", "--property=MainPID", UNIT).strip()
    if process != "0":
        machine.wait_process_end(process)


def booted(machine):
    """Returns the stateroot that runs, by its deployment."""
    return str(machine.deployment).split("/")[-3]


def rhcos_paths(machine):
    """Returns what there is of stateroots that seeds have made."""
    return machine.run("find", "/sysroot/ostree", "/boot/ostree", "-maxdepth", 2, "-name", "*rhcos*")


def has_condition(report, kind, status, reason):
    """Says whether a report of stages, or the status of an object, has a condition."""
    return (kind, status, reason) in ((each["type"], each["status"], each["reason"]) for each in report.get("conditions", []))


class Stages:
    """The stages of one seed, set by the file of a host's agent."""

    FILE, REPORT = f"{agent.CONTROL}/stateroot.yaml", f"{agent.CONTROL}/stateroot-report.json"

    def __init__(self, of, image, version):
        self.agent, self.desired = of, {"image": image, "version": version}

    def set(self, stage):
        """Sets the desired stage."""
        self.agent.machine.write(self.FILE, json.dumps({"stage": stage, **self.desired}))

    def wait(self, kind, status, reason):
        """Waits until the report has a condition, and returns it."""
        # The agent's own report is there, and is told first.
        follow = ["tail", *agent.FOLLOW, agent.REPORT, self.REPORT]
        return self.agent.wait(f"the condition {kind} {status} {reason}", follow,
                               lambda seen: "validNextStages" in seen and has_condition(seen, kind, status, reason))
