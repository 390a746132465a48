"""Promise: each fault that an administrator meets by night is named by one command, with its cause and a next step that works
as it is written; after it nothing is told any more. The table of faults is also that of the page for administrators.

Boots: 2
Minutes: 1; in a machine 15
"""

import base64
import json

from harness import faults
from harness.agent import CONTROL, UNIT, config, no_action
from harness.front import Front
from harness.paths import HarnessError

PATH, NEW, SERVED = "/etc/lab/settings.conf", "/etc/lab/new.conf", "/etc/lab/served.conf"
PLACED, BELOW, FULL = "/etc/lab/placed.conf", "/etc/lab/below/app.conf", "/etc/lab/full/app.conf"
TARGET, SETTINGS = f"{CONTROL}/target.yaml", f"{CONTROL}/settings.toml"
SERVICE, OURS = "lab-restarted.service", "lab-ours.service"
STATE = "/var/lib/machine-config-agent"
AUTH, PROXY = "/run/ostree/auth.json", "/etc/mco/proxy.env"
ACCOUNT = "node:open-sesame"
NONE = [{"type": "None"}]
UNITTEXT = "[Service]\nExecStart=/usr/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
# A unit that can be started and not started again.
ONCE = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/usr/bin/test ! -e /run/lab-broken\n"


def policy():
    """Returns the policy: nothing but a restart of a unit follows any change."""
    made = no_action(PATH, NEW, PLACED, BELOW, FULL)
    rules = made["spec"]["nodeDisruptionPolicy"]
    rules["files"].append({"path": SERVED, "actions": [{"type": "Restart", "restart": {"serviceName": SERVICE}}]})
    rules["units"] = [{"name": OURS, "actions": NONE}]
    rules["sshkey"] = {"actions": NONE}
    return made


class Night:
    """The host in its night: what is wanted of it, and how."""

    def __init__(self, test):
        self.test, self.machine, self.agent, self.number = test, test.machine, test.agent, 0
        self.wanted, self.front, self.good_image = None, None, None

    def sh(self, command):
        """Runs a command as an administrator does."""
        return self.machine.run("sh", "-c", command)

    def prepare(self, files=None, **ignition):
        """Puts a new config into the directory, and returns it."""
        self.number += 1
        made = config(f"rendered-worker-{self.number}", {PATH: f"version = {self.number}\n", **(files or {})})
        made["spec"]["config"].update(ignition)
        self.machine.write(f"{CONTROL}/machineconfigs/{made['metadata']['name']}.json", json.dumps(made))
        return made

    def want(self, files=None, image=None, **ignition):
        """Sets the target to a new config."""
        made = self.prepare(files, **ignition)
        self.wanted = made["metadata"]["name"]
        self.agent.set_target_name(self.wanted, image)

    def absent(self):
        """Returns an image that the registry does not have."""
        return f"{self.front.host}/os@sha256:{'0' * 64}"

    def target(self, text):
        """Writes the target as a person does."""
        self.machine.write(TARGET, text)

    def good_target(self):
        """Sets a target that is reached."""
        self.want()

    def advised(self, text, command):
        """Runs a command that the text has to have, as it is written there."""
        self.sh(command)
        self.test.same(f"{command!r} is in {text}", command in text, True)

    def reload(self):
        """Has the agent look again, as the page says."""
        self.machine.run("systemctl", "reload", UNIT)


# Each makes its fault; after `yield` it takes the next step. The names are those of the table.
def policy_invalid(night):
    night.machine.write(f"{CONTROL}/policy.yaml", "spec: [\n")
    night.want()
    yield
    night.agent.set_policy(policy())


def settings_invalid(night):
    night.machine.write(SETTINGS, "repair = '/etc/lab'\n")
    night.reload()
    yield
    night.machine.write(SETTINGS, "")
    night.reload()


def settings_writable(night):
    night.machine.write(SETTINGS, "")
    night.sh(f"chmod 666 {SETTINGS}")
    night.reload()
    text = yield
    night.advised(text, f"chmod go-w {SETTINGS}")
    night.reload()


def target_tag(night):
    night.target('{"config": "rendered-worker-1", "image": "registry.test/os:latest"}')
    yield
    night.good_target()


def target_torn(night):
    night.target("config: [\n")
    yield
    night.good_target()


def target_unknown_key(night):
    night.target("config: rendered-worker-1\nimmage: registry.test/os\n")
    yield
    night.good_target()


def target_directory(night):
    night.sh(f"rm {TARGET} && mkdir {TARGET}")
    yield
    night.sh(f"mv {TARGET} /root/directory")
    night.good_target()


def target_writable(night):
    night.sh(f"chmod 666 {TARGET}")
    text = yield
    night.advised(text, f"chmod go-w {TARGET}")


def target_of_other_user(night):
    night.sh(f"chown 1000 {TARGET}")
    text = yield
    night.advised(text, f"chown root:root {TARGET}")


def target_huge(night):
    night.sh(f"cp {TARGET} /root/small && truncate --size=64M {TARGET}")
    yield
    night.sh(f"mv {TARGET} /root/huge && mv /root/small {TARGET}")


def directory_writable(night):
    night.sh(f"chmod 777 {CONTROL}")
    night.reload()
    text = yield
    night.advised(text, f"chmod go-w {CONTROL}")
    night.reload()


def config_missing(night):
    night.target('{"config": "rendered-worker-none"}')
    yield
    night.good_target()


def config_misnamed(night):
    made = night.prepare()
    night.machine.write(f"{CONTROL}/machineconfigs/rendered-worker-alias.json", json.dumps(made))
    night.target('{"config": "rendered-worker-alias"}')
    yield
    night.sh(f"rm {CONTROL}/machineconfigs/rendered-worker-alias.json")
    night.good_target()


def config_torn(night):
    night.machine.write(f"{CONTROL}/machineconfigs/rendered-worker-torn.json", '{"kind": ')
    night.target('{"config": "rendered-worker-torn"}')
    yield
    night.good_target()


def config_writable(night):
    made = night.prepare()
    name = made["metadata"]["name"]
    night.sh(f"chmod 666 {CONTROL}/machineconfigs/{name}.json")
    night.wanted = name
    night.agent.set_target_name(name)
    text = yield
    night.advised(text, f"chmod go-w {CONTROL}/machineconfigs/{name}.json")


def unknown_owner(night):
    made = config("rendered-worker-owner", {PATH: "1\n", NEW: "1\n"})
    made["spec"]["config"]["storage"]["files"][1]["user"] = {"name": "nobody-here"}
    night.agent.set_target(made)
    yield
    night.good_target()


def keys_without_account(night):
    night.want(passwd={"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA core@lab"]}]})
    night.agent.wait_done(night.wanted)
    yield
    night.sh("useradd --create-home core")
    night.reload()


def file_immutable(night):
    night.sh(f"chattr +i {PATH}")
    night.want()
    text = yield
    night.advised(text, f"chattr -i {PATH}")
    night.reload()


def directory_immutable(night):
    night.sh("chattr +i /etc/lab")
    night.want({NEW: "1\n"})
    text = yield
    night.advised(text, "chattr -i /etc/lab")
    night.reload()


def directory_in_place(night):
    night.sh(f"mkdir {PLACED}")
    night.want({PLACED: "1\n"})
    yield
    night.sh(f"mv {PLACED} /root/placed")
    night.reload()


def mount_over_file(night):
    night.sh(f"mount --bind /etc/hostname {PATH}")
    night.want()
    yield
    night.sh(f"umount {PATH}")
    night.reload()


def file_system_read_only(night):
    night.sh("mkdir -p /etc/lab/below && mount -t tmpfs -o ro tmpfs /etc/lab/below")
    night.want({BELOW: "1\n"})
    yield
    night.sh("umount /etc/lab/below && mount -t tmpfs tmpfs /etc/lab/below")
    night.reload()


def file_system_full(night):
    night.sh("mkdir /etc/lab/full && mount -t tmpfs -o size=64k tmpfs /etc/lab/full && head -c 64k /dev/zero >/etc/lab/full/fill")
    night.want({FULL: "2\n"})
    yield
    night.sh("rm /etc/lab/full/fill")
    night.reload()


def unit_masked(night):
    night.sh(f"systemctl mask {OURS}")
    night.want(systemd={"units": [{"name": OURS, "enabled": True}]})
    yield
    night.sh(f"systemctl unmask {OURS}")
    night.reload()


def restart_fails(night):
    night.sh("touch /run/lab-broken")
    night.want({SERVED: "2\n"})
    yield
    night.sh("rm /run/lab-broken")
    night.reload()


def drift_file(night):
    night.sh(f"cp {PATH} /root/kept && echo changed >{PATH}")
    yield
    night.sh(f"cp /root/kept {PATH}")


def drift_mode(night):
    night.sh(f"chmod 600 {PATH}")
    yield
    night.sh(f"chmod 644 {PATH}")


def drift_link(night):
    night.sh(f"cp {PATH} /root/kept && mv {PATH} /root/moved && ln -s /root/moved {PATH}")
    yield
    night.sh(f"rm {PATH} && cp /root/kept {PATH}")


def drift_missing(night):
    night.sh(f"mv {PATH} /root/kept")
    yield
    night.sh(f"mv /root/kept {PATH}")


def agent_masked(night):
    night.sh(f"systemctl mask --now {UNIT}")
    yield
    night.sh(f"systemctl unmask {UNIT} && systemctl start {UNIT}")


def agent_stopped(night):
    night.sh(f"systemctl stop {UNIT}")
    yield
    night.sh(f"systemctl start {UNIT}")


def agent_killed(night):
    """systemd would start it within a second."""
    night.sh(f"mkdir -p /run/systemd/system/{UNIT}.d && printf '[Service]\\nRestart=no\\n' >/run/systemd/system/{UNIT}.d/lab.conf"
             " && systemctl daemon-reload")
    night.agent.kill()
    yield
    night.sh(f"rm /run/systemd/system/{UNIT}.d/lab.conf && systemctl daemon-reload && systemctl start {UNIT}")


def agent_flag_unknown(night):
    night.sh(f"mkdir -p /run/systemd/system/{UNIT}.d && printf '[Service]\\nExecStart=\\n"
             f"ExecStart=/usr/bin/machine-config-agent daemon --nonsense\\n' >/run/systemd/system/{UNIT}.d/lab.conf"
             f" && systemctl daemon-reload && ! systemctl restart {UNIT}")
    yield
    night.sh(f"rm /run/systemd/system/{UNIT}.d/lab.conf && systemctl daemon-reload && systemctl start {UNIT}")


def state_damaged(night):
    night.sh(f"systemctl stop {UNIT} && cp {STATE}/current.json /root/ && printf '{{' >{STATE}/current.json"
             f" && ! systemctl start {UNIT}")
    yield
    night.sh(f"cp /root/current.json {STATE}/current.json && systemctl start {UNIT}")


def to_is_directory(_night):
    yield


def two_agents(_night):
    yield


def to_is_missing(_night):
    yield


def spoiled(night, **how):
    """The registry changes, and the agent asks again."""
    for name, value in how.items():
        setattr(night.front, name, value)
    night.reload()


def registry_ca_unknown(night):
    night.want(image=night.absent())
    yield
    night.machine.write(f"/etc/containers/certs.d/{night.front.host}/ca.crt", night.front.ca())
    night.reload()


def registry_expired(night):
    spoiled(night, certificate="expired")
    yield
    spoiled(night, certificate="right")


def registry_not_yet_valid(night):
    spoiled(night, certificate="early")
    yield
    spoiled(night, certificate="right")


def registry_other_ca(night):
    spoiled(night, certificate="other-ca")
    yield
    spoiled(night, certificate="right")


def registry_other_name(night):
    spoiled(night, certificate="other-name")
    yield
    spoiled(night, certificate="right")


def registry_without_tls(night):
    spoiled(night, certificate=None)
    yield
    spoiled(night, certificate="right")


def registry_401(night):
    spoiled(night, account=ACCOUNT)
    yield
    auth = {"auths": {night.front.host: {"auth": base64.b64encode(ACCOUNT.encode()).decode()}}}
    night.sh(f"mkdir -p /run/ostree && printf '%s' '{json.dumps(auth)}' >{AUTH}")
    night.reload()


def registry_503(night):
    spoiled(night, status=503)
    yield
    spoiled(night, status=None)


def proxy_refused(night):
    # No proxy is asked for what is on the loopback.
    night.machine.write(PROXY, "HTTPS_PROXY=http://127.0.0.1:1\n")
    night.want(image=f"registry.test/os@sha256:{'0' * 64}")
    yield
    night.sh(f"rm {PROXY}")
    night.want(image=night.absent())


def image_not_found(night):
    night.reload()
    yield
    night.want(image=night.good_image)
    night.machine.next_boot()


FAULTS = {name: made for name, made in globals().items()
          if getattr(made, "__code__", None) and made.__code__.co_flags & 0x20}


def waited(night, what, condition):
    """Waits for a status; returns what is wrong if it does not come."""
    try:
        night.agent.wait_status(what, condition)
        return []
    except HarnessError as error:
        return [str(error)[:1500]]


def is_told(row, status):
    """Says whether a status has the state, the reason and the cause of a row."""
    text = json.dumps(status, ensure_ascii=False)
    return (status["state"], (status["fault"] or {}).get("reason")) == (row.state, row.reason) and all(
        word in text for word in row.causes())


def is_done(night, status):
    """Says whether what is wanted is reached, and nothing is told."""
    told = status["fault"] or status["notApplied"] or status["waiting"]
    return status["state"] == "Done" and not told and (status["current"] or {}).get("config") == night.wanted


def play_one(night, row):
    """Makes a fault, looks for it with its one command, takes the next step, and waits for what comes then."""
    steps, wrong = FAULTS[row.fault](night), []
    next(steps)
    if row.state:
        wrong += waited(night, row.fault, lambda status: is_told(row, status))
    text = night.sh(f"{row.command} 2>&1 || true")
    with open(night.machine.directory / "shown.txt", "a", encoding="utf-8") as log:
        log.write(f"== {row.fault}: {row.command}\n{text}\n")
    if missing := [word for word in row.words() if word not in text]:
        wrong.append(f"{row.fault}: {missing} not in {text}")
    try:
        steps.send(text)
    except StopIteration:
        pass
    except HarnessError as error:
        wrong.append(f"{row.fault}: {error}")
    if row.then == "Done":
        return wrong + waited(night, f"Done after {row.fault}", lambda status: is_done(night, status))
    if row.then:
        wrong += waited(night, f"{row.then} after {row.fault}", lambda status: (status["fault"] or {}).get("reason") == row.then)
    return wrong


def play(test):
    rows = faults.rows()
    own = {row.fault: row for row in rows if row.test == "night_faults"}
    test.same("faults of the table and of this test", sorted(own), sorted(FAULTS))

    machine, agent, images, registry = test.machine, test.agent, test.images, test.registry()
    night = Night(test)
    night.front = Front(machine.directory, registry)
    digest = images.next("v2", {"usr/share/lab/version": "2\n"}, {})
    registry.push(images.layout.path, "v2", digest)
    night.good_image = f"{night.front.host}/os@{digest}"
    machine.put(f"/usr/lib/systemd/system/{OURS}", UNITTEXT.encode())
    machine.boot()
    machine.write(f"/etc/systemd/system/{SERVICE}", ONCE)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "start", SERVICE)
    agent.set_policy(policy())
    night.want()
    agent.start()
    agent.wait_done(night.wanted)

    wrong = faults.wrong(rows)
    for name in FAULTS:
        wrong += play_one(night, own[name])
    night.front.close()
    test.same("faults that are not told, or without their next step", wrong, [])
