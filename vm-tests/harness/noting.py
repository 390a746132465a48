"""Services that note when they ran: one of one run, one that waits for the OS of the config, and the upstream unit that pulls it."""

FILE = "/etc/ignition-machine-config-encapsulated.json"
VERSION = "/usr/share/lab/version"
# Each notes the boot and the OS.
NOTES = "/var/lib/lab-notes"
ONCE, AFTER, PULL = "lab-once.service", "lab-after.service", "machine-config-daemon-pull.service"
UNIT = ("[Unit]\n{}\n[Service]\nType=oneshot\n"
        f"ExecStart=/bin/sh -c 'echo {{}} $$(cat /proc/sys/kernel/random/boot_id {VERSION}) >>{NOTES}'\n"
        "[Install]\nWantedBy=multi-user.target\n")
UNITS = {
    ONCE: "", AFTER: "Wants=firstboot-osupdate.target\nAfter=firstboot-osupdate.target",
    PULL: f"ConditionPathExists={FILE}\nAfter=network-online.target\nBefore=machine-config-daemon-firstboot.service"}


def place(machine, units=tuple(UNITS)):
    """Writes them; somebody has to enable them."""
    machine.write("/etc/systemd/system/firstboot-osupdate.target", "[Unit]\nDescription=OS of the first boot\n")
    for unit in units:
        machine.write(f"/etc/systemd/system/{unit}", UNIT.format(UNITS[unit], unit))


def notes(machine, unit):
    """Returns the boots and the OSes in which a unit ran."""
    lines = [line.split() for line in machine.read(NOTES).splitlines()] if machine.exists(NOTES) else []
    return [(boot, version) for name, boot, version in lines if name == unit]
