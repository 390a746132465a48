"""A real containerd in the guest: that of Debian 13, whose CRI keeps images that are pinned. Debian 12's does not."""

from .paths import CHECKOUT, run

UNPACKED = CHECKOUT / "target/containerd"
PROGRAMS, UNIT = ("usr/bin/containerd", "usr/bin/ctr"), "usr/lib/systemd/system/containerd.service"
REGISTRIES = "/etc/containerd/certs.d"
CONFIG = f'version = 2\n[plugins."io.containerd.grpc.v1.cri".registry]\n  config_path = "{REGISTRIES}"\n'
PINNED = "io.cri-containerd.pinned=pinned"


def build():
    """Unpacks it where it is missing; wants Debian's mirror, so before the network goes."""
    run(CHECKOUT / "tests/containerd")


def programs():
    """Returns its executables for an OS image: path to bytes."""
    return {path: (UNPACKED / path).read_bytes() for path in PROGRAMS}


def unit():
    """Returns the unit of Debian's package for an OS image: path to text."""
    return {UNIT: (UNPACKED / UNIT).read_text()}


class Containerd:
    """containerd in a guest, whose image it joins; it is made while the guest is off."""

    def __init__(self, machine):
        self.machine = machine
        for path, data in programs().items():
            machine.put(f"/{path}", data, 0o755)
        for path, text in unit().items():
            machine.put(f"/{path}", text.encode())

    def start(self, registry):
        """Enables and starts it; it reaches this registry without TLS."""
        self.machine.write("/etc/containerd/config.toml", CONFIG)
        at = f"http://{registry.host}"
        text = f'server = "{at}"\n[host."{at}"]\ncapabilities = ["pull", "resolve"]\n'
        self.machine.write(f"{REGISTRIES}/{registry.host}/hosts.toml", text)
        self.machine.run("systemctl", "enable", "--now", "containerd.service")

    def images(self):
        """Returns its images by name: true for those that it keeps."""
        listed = self.machine.run("ctr", "--namespace", "k8s.io", "images", "list").splitlines()[1:]
        return {line.split()[0]: PINNED in line for line in listed}
