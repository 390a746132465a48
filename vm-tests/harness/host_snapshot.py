"""What a host is made of, to be compared: nothing of it may change when the agent refuses a target."""

from .agent import CONTROL


def state(machine):
    """Returns the files below /etc (each with what tells of any write to it), the deployments, and what boots next."""
    # The targets themselves are in the agent's own directory. A directory's time tells of a file that came and went.
    files = found(machine, "/etc", "-mindepth", 1, "-path", CONTROL, "-prune", "-o", "-printf", r"%p\t%i %M %U %G %T@\0")
    return {"files": files, "boot": boot(machine), "deployments": deployments(machine), "staged": staged(machine)}


def boot(machine):
    """Returns the boot entries and the kernels, with their sizes."""
    sizes = found(machine, "/boot", "-type", "f", "-printf", r"%P\t%s\0")
    return {path: int(size) for path, size in sizes.items()}


def deployments(machine):
    """Returns the names of the deployments."""
    return sorted(found(machine, "/sysroot/ostree/deploy/debian/deploy", "-mindepth", 1, "-maxdepth", 1, "-type", "d",
                        "-printf", r"%f\t\0"))


def objects(machine):
    """Returns the number of objects in libostree's repository."""
    return len(machine.run("find", "/sysroot/ostree/repo/objects", "-type", "f", "-printf", "."))


def found(machine, *search):
    """Returns what `find` tells of files in the guest: path to words."""
    return dict(line.split("\t", 1) for line in machine.run("find", *search).split("\0") if line)


def staged(machine):
    """Says whether a deployment is staged."""
    return machine.run("sh", "-c", "[ ! -e /run/ostree/staged-deployment ] || echo staged").strip()


def differences(before, now):
    """Returns what changed between two states, by name."""
    changed = [key for key in ("boot", "deployments", "staged") if before[key] != now[key]]
    old, new = before["files"], now["files"]
    return changed + sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path))
