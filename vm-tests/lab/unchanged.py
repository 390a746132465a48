"""What a host is made of, to be compared: nothing of it may change when the agent refuses a target."""

import os

from .agent import CONTROL


def state(machine):
    """Returns the files below /etc (each with what tells of any write to it), the deployments, and what boots next."""
    etc, own = machine.deployment / "etc", machine.deployment / CONTROL.lstrip("/")
    files = {}
    for directory, directories, names in os.walk(etc):
        # The targets themselves are there.
        directories[:] = [name for name in directories if f"{directory}/{name}" != str(own)]
        for name in (*names, *directories):
            seen = os.lstat(f"{directory}/{name}")
            # A directory's time tells of a file that came and went.
            files[f"{directory}/{name}"] = (seen.st_ino, seen.st_mode, seen.st_uid, seen.st_gid, seen.st_mtime_ns)
    return {"files": files, "boot": boot(machine), "deployments": deployments(machine), "staged": staged(machine)}


def boot(machine):
    """Returns the boot entries and the kernels, with their sizes."""
    place = machine.sysroot / "boot"
    return {str(path.relative_to(place)): path.lstat().st_size for path in sorted(place.rglob("*")) if path.is_file()}


def deployments(machine):
    """Returns the names of the deployments."""
    place = machine.deployment.parent
    return sorted(path.name for path in place.iterdir() if path.is_dir())


def staged(machine):
    """Says whether a deployment is staged."""
    return machine.run("sh", "-c", "[ ! -e /run/ostree/staged-deployment ] || echo staged").strip()


def differences(before, now):
    """Returns what changed between two states, by name."""
    found = [key for key in ("boot", "deployments", "staged") if before[key] != now[key]]
    old, new = before["files"], now["files"]
    return found + sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path))
