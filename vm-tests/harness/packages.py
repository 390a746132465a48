"""The Debian packages of this checkout, in a running guest whose /usr can be written until it goes down."""

import shutil

from .image import INSTALLED
from .paths import CHECKOUT, WORK, run

BUILT, THERE = WORK / "packages", "/usr/share/lab"
# What the image brings, and the package as well.
OURS = (*INSTALLED, "usr/bin/machine-config-agent", "usr/libexec/machine-config-agent", "usr/share/doc/machine-config-agent")
WRITABLE = ("mkdir -p /var/lab-usr/upper /var/lab-usr/work && mount -t overlay overlay"
            " -o lowerdir=/usr,upperdir=/var/lab-usr/upper,workdir=/var/lab-usr/work /usr")


def build():
    """Makes two packages of the same files, one an upgrade of the other; wants cargo-deb, so before the network goes."""
    shutil.rmtree(BUILT, ignore_errors=True)
    BUILT.mkdir(parents=True)
    for revision in ("1", "2"):
        made = run("env", f"PACKAGE_REVISION={revision}", CHECKOUT / "package", "deb", "debug", cwd=CHECKOUT)
        shutil.copy(CHECKOUT / made.split()[-1], BUILT / f"{revision}.deb")


class Packages:
    """dpkg in a guest. It is made while the guest is off."""

    def __init__(self, machine):
        self.machine = machine
        for package in sorted(BUILT.iterdir()):
            machine.put(f"{THERE}/{package.name}", package.read_bytes())

    def take_away(self):
        """Makes /usr writable, and takes away the agent that the image brought."""
        self.machine.run("sh", "-c", WRITABLE)
        self.machine.run("rm", "-rf", *(f"/{path}" for path in OURS))
        self.machine.run("systemctl", "daemon-reload")

    def install(self, revision):
        """Installs a package, or upgrades to it. What it depends on is there, or dpkg refuses."""
        self.machine.run("dpkg", "--path-include=/usr/share/*", "--no-pager", "--install", f"{THERE}/{revision}.deb")

    def remove(self, verb):
        """Removes it, or purges it."""
        self.machine.run("dpkg", verb, "machine-config-agent")

    def version(self):
        """Returns the revision of the installed package."""
        return self.machine.run("dpkg-query", "--show", "--showformat=${Version}", "machine-config-agent").rpartition("-")[2]

    def files(self):
        """Returns the files of the installed package."""
        listed = self.machine.run("dpkg", "--listfiles", "machine-config-agent").split("\n")
        return self.present([path for path in listed if path])

    def present(self, paths):
        """Returns which of these files are there."""
        return self.machine.run("sh", "-c", 'for path; do [ ! -f "$path" ] || echo "$path"; done', "sh", *paths).split()
