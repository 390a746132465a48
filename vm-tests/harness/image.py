"""The OS images and the disk, each made once for what goes into it.

base   Debian packages in the layout of a libostree host, a commit, an image of one layer
v1     base and a layer with the files of this checkout; deployed on the disk
others v1 and a layer more, as a promise wants it
"""

import hashlib
import inspect
import os
import shutil
import tempfile
from pathlib import Path

from . import composefs, disk, grub, guest, oci, softly
from .paths import CHECKOUT, TARGET, WORK, HarnessError, run

# The name in a registry of what is on the disk; that registry need not be there.
FIRST = "registry.invalid/os"
INSTALLED = {
    "usr/lib/systemd/system/machine-config-agent.service": "systemd/machine-config-agent.service",
    "usr/lib/systemd/system/machine-config-agent-firstboot.service": "systemd/machine-config-agent-firstboot.service",
    "usr/lib/systemd/system/machine-config-agent-stateroot.service": "systemd/machine-config-agent-stateroot.service",
    "usr/lib/systemd/system-preset/90-machine-config-agent.preset": "systemd/90-machine-config-agent.preset",
    "usr/lib/systemd/catalog/machine-config-agent.catalog": "dist/machine-config-agent.catalog",
}


def build(*features):
    """Builds what the guest runs and what makes its images. Returns the directory of the executables."""
    run("cargo", "build", "--locked", "--workspace", "--bins", "--example", "os-image", "--example", "bootc",
        "--example", "rpm-ostreed", f"--features={','.join(features)}", cwd=CHECKOUT)
    return TARGET / "debug"


class Derived:
    """Images that a promise makes from the first one."""

    def __init__(self, tool: Path, layout, first=None, disk_image: Path = None):
        self.tool, self.layout, self.first, self.disk = tool, layout, first, disk_image

    def next(self, tag, files, labels, programs=None, architecture=None, links=None):
        """Makes an image of v1 and one more layer: path to text, to bytes of programs, to where a link points. Returns its
        digest."""
        layer = {path: (0o644, text.encode()) for path, text in files.items()}
        layer |= {path: (0o755, data) for path, data in (programs or {}).items()}
        layer |= {path: (0o777, target) for path, target in (links or {}).items()}
        return self.layout.derive("v1", tag, layer, labels, architecture)

    def program(self, name):
        """Returns the bytes of a program of the tests, or of this checkout."""
        found = next(path for path in (self.tool.with_name(name), self.tool.parents[1] / name) if path.exists())
        with tempfile.TemporaryDirectory(dir=WORK) as stripped:
            run("strip", "--strip-debug", "-o", Path(stripped) / name, found)
            return (Path(stripped) / name).read_bytes()

    def install(self, tag, digest, file_system, raw, work, with_composefs=False):
        """Makes a disk on which an image is installed, which is mounted at `work` meanwhile."""
        disk.make(raw, file_system)
        with disk.mounted(raw, work):
            self._deploy(work, tag, digest)
            if with_composefs:
                composefs.make_first(work)
            grub.configure(work / "boot")
        grub.write(raw)

    def _deploy(self, sysroot, tag, digest):
        repo = f"--repo={sysroot}/ostree/repo"
        run("ostree", "admin", "init-fs", "--modern", sysroot)
        run("ostree", "admin", "os-init", f"--sysroot={sysroot}", disk.STATEROOT)
        run("ostree", repo, "config", "set", "sysroot.readonly", "true")
        # The boot loader reads the boot entries themselves.
        run("ostree", repo, "config", "set", "sysroot.bootloader", "none")
        run("ostree", repo, "config", "set", "core.fsync", "false")
        run(self.tool, "install", sysroot, disk.STATEROOT, self.layout.path, tag, f"{FIRST}@{digest}", *guest.ARGUMENTS)
        run("ostree", repo, "config", "unset", "core.fsync")


class WorkerImages(Derived):
    """The images of a worker, in a layout of its own."""

    def __init__(self, request):
        super().__init__(Path(request.tool), oci.Layout(Path(request.layout)), request.first, Path(request.disk))


class Images(Derived):
    """The images of one build of the agent."""

    def __init__(self, built: Path, file_system, base=guest.BASES[0]):
        tool, self.base = built / "examples" / "os-image", base
        super().__init__(tool, oci.Layout(self._base(tool) / "oci"))
        self.first = self.layout.derive("base", "v1", self._files(built), {})
        self.disk = self._disk(file_system)

    def for_worker(self, directory):
        """Copies the layout, by links, and returns what a worker needs of it all."""
        directory.mkdir(parents=True)
        run("cp", "--archive", "--link", self.layout.path, directory / "oci")
        return {"tool": str(self.tool), "layout": str(directory / "oci"), "first": self.first, "disk": str(self.disk)}

    def _suffix(self):
        """What the names of cached results go by: nothing for the default, whose caches stay."""
        return () if self.base == guest.BASES[0] else (self.base,)

    def _base(self, tool):
        directory = WORK / f"base-{digest_of(inspect.getsource(guest), guest.mirror(), *self._suffix())}"
        if not directory.exists():
            with building(directory) as (new, tree):
                guest.unpack(new / "debian.tar", self.base)
                run("tar", "-C", tree, "--numeric-owner", "--xattrs", "-xf", new / "debian.tar")
                run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", new / "key")
                guest.lay_out(tree, new / "key.pub", self.base)
                repo = new / "repo"
                run("ostree", f"--repo={repo}", "init", "--mode=bare")
                run("ostree", f"--repo={repo}", "config", "set", "core.fsync", "false")
                commit = run("ostree", f"--repo={repo}", "commit", "--branch=lab", f"--tree=dir={tree}", "--bootable",
                             "--timestamp=2026-01-01 00:00:00Z").strip()
                run(tool, "export", repo, commit, new / "oci", "base")
                shutil.rmtree(repo)
                (new / "debian.tar").unlink()
        return directory

    def _files(self, built):
        with tempfile.TemporaryDirectory(dir=WORK) as stripped:
            files = {}
            for path in ("usr/bin/machine-config-agent", "usr/libexec/machine-config-agent/machine-config-agent-ostree"):
                name = Path(path).name
                run("strip", "--strip-debug", "-o", Path(stripped) / name, built / name)
                files[path] = (0o755, (Path(stripped) / name).read_bytes())
        for path, source in INSTALLED.items():
            files[path] = (0o644, (CHECKOUT / source).read_bytes())
        for page in sorted((CHECKOUT / "docs").glob("*.md")):
            files[f"usr/share/doc/machine-config-agent/{page.name}"] = (0o644, page.read_bytes())
        files["usr/share/lab/version"] = (0o644, b"1\n")
        if self.base in guest.COMPOSEFS:
            files |= {path: (0o644, text.encode()) for path, text in softly.FILES.items()}
            files |= {path: (0o777, target) for path, target in softly.LINKS.items()}
        return files

    def _disk(self, file_system):
        kind = "-".join((file_system, *self._suffix()))
        made_of = digest_of(self.first, inspect.getsource(disk), inspect.getsource(grub), *guest.ARGUMENTS)
        directory = WORK / f"disk-{kind}-{made_of}"
        if not directory.exists():
            with building(directory) as (new, mounted):
                self.install("v1", self.first, file_system, new / "disk.raw", mounted, self.base in guest.COMPOSEFS)
                # What the guest lets in; a key has one reader.
                shutil.copy(self.layout.path.with_name("key"), new)
            forget(f"disk-{kind}-{16 * '?'}", directory)
        return directory / "disk.raw"


def digest_of(*texts):
    """Names a cached result by what goes into it."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


class building:
    """A directory that is there when all of it is, and one to work in beside it."""

    def __init__(self, directory):
        self.directory, self.new = directory, directory.with_name(directory.name + ".new")
        self.work = directory.with_name(directory.name + ".work")

    def __enter__(self):
        for path in (self.new, self.work):
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True, mode=0o755)
        return self.new, self.work

    def __exit__(self, kind, *_):
        if os.path.ismount(self.work):
            raise HarnessError(f"{self.work} is still mounted")
        shutil.rmtree(self.work, ignore_errors=True)
        if kind is None:
            self.new.rename(self.directory)


def forget(older, kept):
    """Removes what older builds left: each is half a gigabyte."""
    for directory in WORK.glob(older):
        if directory != kept:
            shutil.rmtree(directory)
