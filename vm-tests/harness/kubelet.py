"""A stand-in for the kubelet: a unit of its name that says in which boots it was started."""

STARTED = "/var/lab-kubelet"
UNIT = (f"[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -c 'cat /proc/sys/kernel/random/boot_id >>{STARTED}'\n"
        "[Install]\nWantedBy=multi-user.target\n")


def boots(machine):
    """Returns the boots in which it was started."""
    return machine.read(STARTED).split() if machine.exists(STARTED) else []
