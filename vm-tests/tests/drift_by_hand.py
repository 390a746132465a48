"""Promise: what is changed by hand on an idle host is named by the agent and by `status --watch` at once, and forgotten when it
is undone: files, units, drop-ins, links of systemctl, a key, what the next boot would run.

Boots: 1
Minutes: 0.2; in a machine 9
"""

from harness.agent import config, no_action

PATH, NAME = "/etc/lab/settings.conf", "rendered-worker-a"
OURS, DROPIN = "note.service", "/etc/systemd/system/note.service.d/10-lab.conf"
UNIT = "[Service]\nExecStart=/usr/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
SECTION = "[Service]\nNice=1\n"
KEY = "ssh-ed25519 AAAA core@lab"


def config_and_policy():
    """Returns the config, and the policy by which nothing of it needs a reboot."""
    made = config(NAME, {PATH: "version = 1\n"})
    dropins = [{"name": "10-lab.conf", "contents": SECTION}]
    units = [{"name": OURS, "enabled": True, "contents": UNIT, "dropins": dropins},
             {"name": "lab-on.service", "enabled": True}, {"name": "lab-off.service", "enabled": False}]
    made["spec"]["config"]["systemd"] = {"units": units}
    made["spec"]["config"]["passwd"] = {"users": [{"name": "core", "sshAuthorizedKeys": [KEY]}]}
    policy = no_action(PATH)
    none = [{"type": "None"}]
    policy["spec"]["nodeDisruptionPolicy"] |= {"units": [{"name": unit["name"], "actions": none} for unit in units],
                                               "sshkey": {"actions": none}}
    return made, policy


def changes(commit, keys):
    """Lists what is done by hand in a shell, how it is undone, and the words of the status."""
    def unit(name):
        return f"unit {name} is enabled otherwise"

    file, dropin = f'content mismatch for file "{PATH}"', f'content mismatch for file "{DROPIN}"'
    keep = f"cp -a {keys} /run/keys"
    return [
        (f"echo changed >{PATH}", f"echo version = 1 >{PATH}", [file]),
        (f"chmod 0600 {PATH}", f"chmod 0644 {PATH}", [f'mode mismatch for file: "{PATH}"', "0600"]),
        (f"chown core {PATH}", f"chown root {PATH}", [f"file {PATH} has another owner"]),
        (f"mv {PATH} /etc/lab/away", f"mv /etc/lab/away {PATH}", [f"file {PATH} is missing"]),
        (f"sed -i s/infinity/1/ /etc/systemd/system/{OURS}", f"sed -i s/1/infinity/ /etc/systemd/system/{OURS}",
         [f'content mismatch for file "/etc/systemd/system/{OURS}"']),
        (f"echo Nice=2 >>{DROPIN}", f"sed -i /Nice=2/d {DROPIN}", [dropin]),
        (f"rm {DROPIN}", f"printf '[Service]\\nNice=1\\n' >{DROPIN}", [f"drop-in {DROPIN} is missing"]),
        (f"systemctl disable {OURS}", f"systemctl enable {OURS}", [unit(OURS), "found disabled"]),
        ("systemctl disable lab-on.service", "systemctl enable lab-on.service",
         [unit("lab-on.service"), "found disabled"]),
        ("systemctl enable lab-off.service", "systemctl disable lab-off.service",
         [unit("lab-off.service"), "found enabled"]),
        ("systemctl mask lab-on.service", "systemctl unmask lab-on.service", [unit("lab-on.service"), "found masked"]),
        (f"{keep}; echo ssh-ed25519 BBBB another >>{keys}", f"cp -a /run/keys {keys}", ["user core", keys]),
        (f"rm {keys}", f"cp -a /run/keys {keys}", ["user core", keys]),
        # What the next boot would run: the commands of libostree, as `rpm-ostree rollback` and `bootc rollback` leave it.
        (f"ostree admin deploy {commit}", "ostree admin undeploy 0", ["image of the next boot", f"{commit}.1"]),
        (f"ostree admin deploy --stage {commit}", "ostree admin undeploy 0",
         ["image of the next boot", "the staged deployment"]),
    ]


def play(test):
    machine, agent = test.machine, test.agent
    for name in ("lab-on.service", "lab-off.service"):
        machine.put(f"/usr/lib/systemd/system/{name}", UNIT.encode())
    machine.boot()
    machine.run("useradd", "--create-home", "core")
    made, policy = config_and_policy()
    agent.set_policy(policy)
    agent.set_target(made)
    agent.start()
    commit = agent.wait_done(NAME)["booted"]["deployment"].removeprefix("debian-").rpartition(".")[0]
    keys = machine.run("sh", "-c", "ls /home/core/.ssh/authorized_keys.d/ignition /home/core/.ssh/authorized_keys"
                       " 2>/dev/null || true").split()
    test.same("a file of keys", len(keys), 1)

    done = changes(commit, keys[0])
    for count, (change, undo, words) in enumerate(done, 1):
        def named(text):
            return all(word in text for word in words)

        def drifted(status):
            fault = status["fault"] or {}
            return (status["state"], fault.get("reason")) == ("Degraded", "ConfigDrift") and named(fault["message"])

        before = len(agent.logged("DRIFT"))
        agent.wait_status(f"status after {change!r}", drifted, lambda: machine.run("sh", "-c", change))
        # The status looks for itself, and so does the agent.
        agent.wait_log(f"the agent's word after {change!r}",
                   lambda lines: any(named(line["MESSAGE"]) for line in lines[before:]), "DRIFT")
        agent.wait_status(f"status after {undo!r}", lambda status: status["state"] == "Done",
                     lambda: machine.run("sh", "-c", undo))
        agent.wait_log(f"the agent's word after {undo!r}", lambda lines: len(lines) == count, "DRIFT_GONE")
    test.same("boots", machine.boots, 1)
    test.same("restarts of the agent", agent.unit("NRestarts"), "0")
    test.same("faults in the journal", agent.logged("FAULT"), [])
