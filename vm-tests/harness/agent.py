"""The agent in a guest: its control directory, status, reports and journal lines."""

import json
import re
import select
import subprocess
import time
import urllib.parse

from .host import ENDS
from .paths import CHECKOUT, HarnessError

CONTROL = "/etc/machine-config-agent"
UNIT = "machine-config-agent.service"
KUBECONFIG = "/var/lib/kubelet/kubeconfig"
LIMIT = 60
# What the agent tells, and what it remembers of an update; each is replaced as a whole, and tail hears of that.
REPORT, RECORD = f"{CONTROL}/report.json", "/var/lib/machine-config-agent/record.json"
FOLLOW = ("--quiet", "--lines=+1", "--follow=name", "--retry")
# A drop-in of the unit: the first start that finds the order dies where it says; the order is gone then.
ORDER = "/var/lab-order"
DIES_ONCE = (f"[Service]\nEnvironmentFile=-/run/lab-order\n"
             f"ExecStartPre=/bin/sh -c 'if test -e {ORDER}; then mv {ORDER} /run/lab-order; else rm -f /run/lab-order; fi'\n")
# Follows the record and kills the agent in a phase, all in the guest: told from outside, it would come too late. The agent is
# stopped first, so the record that is printed last can't change any more.
KILLS = r"""
my ($agent, $phase, $ends, $record, @follow) = @ARGV;
$| = 1;
open my $tail, '-|', 'tail', @follow or die;
for (my $text = ''; sysread $tail, my $more, 65536; ) {
    print $more;
    $text .= $more;
    next if index($text, qq("phase":{"name":"$phase")) < 0;
    kill STOP => $agent or die "process $agent has ended already";
    open my $left, '<', $record or die;
    my $found = join '', <$left>;
    kill KILL => $agent;
    system 'sh', '-c', $ends, $agent;
    print qq({"left":$found});
    last;
}
"""


def messages():
    """Returns the fixed ids of the agent's journal lines, by name."""
    source = (CHECKOUT / "core/src/model/message.rs").read_text()
    return dict(re.findall(r'pub const ([A-Z_]+): &str = "([0-9a-f]{32})"', source))


def config(name, files, **rest):
    """Returns a MachineConfig with files: path to text."""
    def file(path, text):
        return {"path": path, "mode": 0o644, "contents": {"source": "data:," + urllib.parse.quote(text)}}

    ignition = {"ignition": {"version": "3.5.0"}, "storage": {"files": [file(*each) for each in files.items()]}}
    return {"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "metadata": {"name": name},
            "spec": {"config": ignition, **rest}}


def no_action(*paths):
    """Returns a disruption policy by which nothing follows a change of these files."""
    files = [{"path": path, "actions": [{"type": "None"}]} for path in paths]
    return {"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration", "metadata": {"name": "cluster"},
            "spec": {"nodeDisruptionPolicy": {"files": files}}}


class Agent:
    """The agent of one machine."""

    def __init__(self, machine):
        self.machine = machine

    def set_policy(self, policy):
        """Sets the disruption policy."""
        self.machine.write(f"{CONTROL}/policy.yaml", json.dumps(policy))

    def set_target(self, machine_config, image=None):
        """Sets the target: the MachineConfig first, then what names it."""
        name = machine_config["metadata"]["name"]
        self.machine.write(f"{CONTROL}/machineconfigs/{name}.json", json.dumps(machine_config))
        self.set_target_name(name, image)

    def set_target_name(self, name, image=None):
        """Sets the target by the name of a MachineConfig that is there, and perhaps an image."""
        target = {"config": name, **({"image": image} if image else {})}
        self.machine.write(f"{CONTROL}/target.yaml", json.dumps(target))

    def start(self):
        """Enables and starts the unit. systemctl returns when the agent has said READY=1."""
        self.machine.run("systemctl", "enable", "--now", UNIT)

    def trust(self, registry):
        """Lets the host reach a registry without TLS."""
        self.machine.write("/etc/containers/registries.conf.d/lab.conf", registry.trusted())

    def join(self, kubeconfig):
        """Makes it the agent of a cluster's node, once it starts."""
        self.machine.write(KUBECONFIG, kubeconfig)
        self.machine.run("chmod", "600", KUBECONFIG)
        self.drop_in("10-cluster.conf", (CHECKOUT / f"systemd/{UNIT}.d/10-cluster.conf").read_text())

    def drop_in(self, name, text):
        """Writes a drop-in of the unit."""
        self.machine.write(f"/etc/systemd/system/{UNIT}.d/{name}", text)
        self.machine.run("systemctl", "daemon-reload")

    def settle(self, machine_config, policy, registry=None):
        """Has the agent of a running host take its first target, and returns the status when it is Done."""
        if registry:
            self.trust(registry)
        self.set_policy(policy)
        self.set_target(machine_config)
        self.start()
        return self.wait_done(machine_config["metadata"]["name"])

    def plan(self, machine_config, image):
        """Returns the plan to a config and an image, by `plan`, which touches nothing."""
        path = f"{CONTROL}/plan-to.json"
        self.machine.write(path, json.dumps(machine_config))
        return json.loads(self.machine.run("machine-config-agent", "plan", "--to", path, "--to-image", image,
                                           "--policy", f"{CONTROL}/policy.yaml", "--output", "json"))

    def unit(self, key):
        """Returns a property of the unit."""
        return self.machine.run("systemctl", "show", "--value", f"--property={key}", UNIT).strip()

    def wait_done(self, name, image=None):
        """Waits until the agent is Done with a config, and returns its status."""
        def is_done(status):
            current = status.get("current") or {}
            return status["state"] == "Done" and current.get("config") == name and current.get("image") == image

        return self.wait_status(f"Done with {name}", is_done)

    def wait_status(self, what, condition, then=None):
        """Waits for a status, of which every change is told. With `then`, that is done when the first has been told, and
        what is waited for comes after it."""
        return self.wait(what, ["machine-config-agent", "status", "--watch", "--output", "json"], condition, then)

    def wait_log(self, what, condition, name):
        """Waits for a line with this message id in the journal of this boot; `condition` is given all so far."""
        lines = []

        def is_logged(line):
            lines.append(line)
            return condition(lines)

        command = ["journalctl", "--follow", "--boot", "--lines=all", "--output=json", f"MESSAGE_ID={messages()[name]}"]
        return self.wait(what, command, is_logged)

    def wait(self, what, command, condition, then=None):
        """Waits until a program in the guest prints a JSON object that matches."""
        watch = subprocess.Popen(self.machine.inside(*command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=self.machine.console)
        timeout = LIMIT * self.machine.TIMEOUT_FACTOR
        limit, text, last = time.monotonic() + timeout, b"", None
        try:
            while True:
                ready, _, _ = select.select([watch.stdout], [], [], max(0, limit - time.monotonic()))
                more = watch.stdout.read1(65536) if ready else b""
                if not more:
                    why = "the host went away" if ready else f"not within {timeout} s"
                    raise HarnessError(f"waited for {what}: {why}; last: {json.dumps(last)}")
                seen, text = objects(text + more)
                for last in seen:
                    if "state" not in last and last.get("refused"):
                        raise HarnessError(f"waited for {what}: the program refuses: {json.dumps(last)}")
                    if then:
                        then()
                        then = None
                    elif condition(last):
                        return last
        finally:
            self.machine.stop(watch)

    def wait_report(self, what, condition):
        """Waits for a report of the agent's own, which has the progress of what it does now. Each replaces the last one."""
        return self.wait(what, ["tail", *FOLLOW, REPORT], condition)

    def kill(self):
        """Ends the agent's process as nothing else does: it can't clean up. systemd starts the next one."""
        self.machine.kill(self.unit("MainPID"))

    def wait_phase(self, phase, begin):
        """Waits until the record on the disk says that what `begin` has the agent do is in this phase: earlier than a status."""
        # The report, which is there, is told first.
        self.wait(f"the phase {phase}", ["tail", *FOLLOW, REPORT, RECORD],
                   lambda seen: isinstance(seen["phase"], dict) and seen["phase"]["name"] == phase, begin)

    def kill_in(self, phase, begin):
        """Kills the agent in a phase of what `begin` has it do, and returns the phase of the record that it leaves."""
        command = ["perl", "-e", KILLS, self.unit("MainPID"), phase, ENDS, RECORD, *FOLLOW, REPORT, RECORD]
        return self.wait(f"the phase {phase}", command, lambda seen: "left" in seen, begin)["left"]["phase"]["name"]

    def logged(self, *names):
        """Returns the lines of the journal with these message ids, of all boots."""
        ids = messages()
        words = [f"MESSAGE_ID={ids[name]}" for name in names]
        self.machine.run("journalctl", "--sync")
        lines = self.machine.run("journalctl", "--output=json", "--no-pager", *words).splitlines()
        return [json.loads(line) for line in lines]


def objects(data):
    """Splits a stream of JSON objects into those that are complete and the rest."""
    decoder, found = json.JSONDecoder(), []
    text = data.decode(errors="strict").lstrip()
    while text:
        try:
            value, end = decoder.raw_decode(text)
        except json.JSONDecodeError:
            break
        found.append(value)
        text = text[end:].lstrip()
    return found, text.encode()
