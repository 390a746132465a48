"""Promise: a new unit is enabled and known to systemd, and a service is restarted for its file, without a reboot.

Boots: 1
Minutes: 0.1; in a machine 1
"""

from harness.agent import config

PATH, NOTE = "/etc/lab/settings.conf", "note.service"
FIRST, SECOND = "rendered-worker-a", "rendered-worker-b"
UNIT = "[Service]\nExecStart=/usr/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"


def policy():
    restart = {"type": "Restart", "restart": {"serviceName": NOTE}}
    files = [{"path": PATH, "actions": [restart]}]
    units = [{"name": NOTE, "actions": [{"type": "DaemonReload"}, restart]}]
    return {"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration", "metadata": {"name": "cluster"},
            "spec": {"nodeDisruptionPolicy": {"files": files, "units": units}}}


def with_unit(name, files):
    machine_config = config(name, files)
    machine_config["spec"]["config"]["systemd"] = {"units": [{"name": NOTE, "enabled": True, "contents": UNIT}]}
    return machine_config


def play(test):
    machine, agent = test.machine, test.agent
    # Boot 1: the unit comes, and is started by its policy; then its file changes, and it is restarted.
    machine.boot()
    boot = machine.boot_id()
    agent.set_policy(policy())
    agent.set_target(with_unit(FIRST, {PATH: "version = 1\n"}))
    agent.start()
    agent.wait_done(FIRST)
    test.same("enablement", machine.run("systemctl", "is-enabled", NOTE).strip(), "enabled")
    test.same("state", machine.run("systemctl", "is-active", NOTE).strip(), "active")
    before = machine.run("systemctl", "show", "--value", "--property=MainPID", NOTE)
    agent.set_target(with_unit(SECOND, {PATH: "version = 2\n"}))
    agent.wait_done(SECOND)
    after = machine.run("systemctl", "show", "--value", "--property=MainPID", NOTE)
    test.same("restarted", after not in (before, "0\n"), True)
    test.same("boot id", machine.boot_id(), boot)
    test.same("faults in the journal", agent.logged("FAULT"), [])
