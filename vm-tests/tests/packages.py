"""Promise: the Debian package installs, upgrades and removes the agent of a running host: it is enabled and works after the
installation, goes on with its host after the upgrade, leaves nothing but its state at the removal, and not even that after a purge.

Boots: 1
Minutes: 0.2; in a machine 3
"""

from harness.agent import CONTROL, UNIT, config, no_action
from harness.packages import Packages

# The packages are built first, by a tool of its own.
LONG = True
NOT_IN = {"sid": "the package is one for Debian 12"}

PATH, STATE = "/etc/lab/settings.conf", "/var/lib/machine-config-agent"
FIRST, SECOND, THIRD = (f"rendered-worker-{letter}" for letter in "abc")


def play(test):
    machine, agent, packages = test.machine, test.agent, Packages(test.machine)
    machine.boot()
    packages.take_away()
    test.same("the image's agent", machine.exists("/usr/bin/machine-config-agent"), False)
    agent.set_policy(no_action(PATH))
    agent.set_target(config(FIRST, {PATH: "version = 1\n"}))

    # Installed: nobody has to enable or start it.
    packages.install(1)
    agent.wait_done(FIRST)
    test.same("enabled", machine.run("systemctl", "is-enabled", UNIT).strip(), "enabled")
    test.same("revision", packages.version(), "1")

    # Upgraded: the new one takes over.
    first = agent.unit("MainPID")
    packages.install(2)
    agent.wait_log("the new one", lambda lines: len(lines) == 2, "STARTED")
    agent.set_target(config(SECOND, {PATH: "version = 2\n"}))
    agent.wait_done(SECOND)
    test.same("revision", packages.version(), "2")
    test.same("another process", agent.unit("MainPID") != first, True)
    test.same("faults in the journal", agent.logged("FAULT"), [])

    # Removed: what it applied stays, and its state for the next one.
    files = packages.files()
    test.same("files of the package", len(files) > 20, True)
    packages.remove("--remove")
    test.same("files that are left", packages.present(files), [])
    test.same("it runs", machine.run("sh", "-c", f"systemctl is-active {UNIT} || true").strip(), "inactive")
    test.same(PATH, machine.read(PATH), "version = 2\n")
    test.same("its state", machine.exists(f"{STATE}/current.json"), True)

    # Installed again, it goes on where it was; purged, its state is gone, too. Targets are an administrator's.
    packages.install(2)
    agent.wait_done(SECOND)
    agent.set_target(config(THIRD, {PATH: "version = 3\n"}))
    agent.wait_done(THIRD)
    packages.remove("--purge")
    test.same("its state", machine.exists(STATE), False)
    test.same("the target", machine.exists(f"{CONTROL}/target.yaml"), True)
    test.same(PATH, machine.read(PATH), "version = 3\n")
    # The guest goes down with the /usr that it booted.
    machine.run("umount", "--lazy", "/usr")
