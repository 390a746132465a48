"""Paths of the checkout and its build, and how to run programs."""

import os
import subprocess
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
# Where cargo builds.
TARGET = CHECKOUT / os.environ.get("CARGO_TARGET_DIR", "target")
WORK = TARGET / "vm-tests"
TESTS = CHECKOUT / "vm-tests" / "tests"
CASES = WORK / "cases"

# What building and booting need, beyond ./setup; all of Debian 12 or later.
PACKAGES = ("mmdebstrap", "debian-archive-keyring", "iproute2", "systemd-container", "ostree", "skopeo", "docker-registry",
            "e2fsprogs", "xfsprogs", "fdisk", "mount", "util-linux", "libostree-dev", "libssl-dev", "libzstd-dev", "pkg-config",
             "strace", "openssl", "openssh-client", "grub-common", "grub-pc-bin", "ignition", "tinyproxy-bin")
EMULATOR = ("qemu-system-x86",)
# What records the writes of a disk.
RECORDER = ("qemu-utils", "fuse3")


class HarnessError(Exception):
    """The harness failed, or a host did not reach the awaited state."""


def run(*command, **options):
    """Runs a program and returns its standard output; its own words are in the error."""
    result = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True,
                            text=True, check=False, **options)
    if result.returncode != 0:
        last = (result.stderr or result.stdout).strip()[-2000:]
        raise HarnessError(f"{' '.join(map(str, command))}: exit code {result.returncode}\n{last}")
    return result.stdout


def need_packages(*more):
    """Installs what is missing."""
    packages = [*PACKAGES, *more]
    query = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Status}\n", *packages],
                           capture_output=True, text=True, check=False)
    installed = {line.split()[0] for line in query.stdout.splitlines() if line.endswith(" installed")}
    missing = [package for package in packages if package not in installed]
    if missing:
        print("installing", *missing, flush=True)
        run("apt-get", "update", "-qq")
        run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing,
            env={"DEBIAN_FRONTEND": "noninteractive", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})


def mirror():
    """Returns the Debian mirror of this machine."""
    sources = [*Path("/etc/apt/sources.list.d").glob("*.sources"), *Path("/etc/apt").glob("sources.list")]
    for source in sources:
        for line in source.read_text().splitlines():
            for word in line.split():
                if word.startswith("http") and word.rstrip("/").endswith("/debian"):
                    return word
    raise HarnessError("no Debian mirror is named in /etc/apt/sources.list or sources.list.d: name one there")
