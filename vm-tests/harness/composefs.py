"""The composefs of a deployment, which a host of `--base sid` has as its root: what is written below it is not seen there."""

import contextlib
import tempfile
from pathlib import Path

from . import disk
from .paths import run

IMAGE = ".ostree.cfs"
# Of the commits that `put` makes, one branch for each deployment: what they bring is not pruned.
BRANCH = "lab/put"


def make_first(sysroot):
    """Gives the first deployment its composefs, which the build machine's libostree can't: the guest's own makes it."""
    [deployment] = (path for path in (sysroot / "ostree/deploy" / disk.STATEROOT / "deploy").iterdir() if path.is_dir())
    make(sysroot, deployment, deployment.name.rpartition(".")[0])


def make(sysroot, deployment, commit):
    """Makes the composefs of a deployment from a commit."""
    inside = (("/proc", deployment / "proc"), (sysroot, deployment / "sysroot"))
    with contextlib.ExitStack() as mounts:
        run("chattr", "-i", deployment)
        mounts.callback(run, "chattr", "+i", deployment)
        (deployment / IMAGE).unlink(missing_ok=True)
        for path, at in inside:
            run("mount", "--bind", path, at)
            mounts.callback(run, "umount", at)
        run("chroot", deployment, "ostree", "--repo=/sysroot/ostree/repo", "checkout", "--composefs", commit, IMAGE)


def put(sysroot, deployment, path, data, mode):
    """Puts a file into the composefs of a deployment, if it has one: its image is then that of another commit."""
    if not (deployment / IMAGE).exists():
        return
    repo, branch = f"--repo={sysroot}/ostree/repo", f"{BRANCH}/{deployment.name}"
    brought = branch in run("ostree", repo, "refs").splitlines()
    before = branch if brought else deployment.name.rpartition(".")[0]
    with tempfile.TemporaryDirectory() as made:
        tree = Path(made) / "tree"
        file = tree / path.lstrip("/")
        file.parent.mkdir(parents=True)
        file.write_bytes(data)
        file.chmod(mode)
        commit = run("ostree", repo, "commit", f"--branch={branch}", f"--tree=ref={before}", f"--tree=dir={tree}").strip()
    make(sysroot, deployment, commit)
