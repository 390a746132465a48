"""The command: `vm-tests/run [PROMISE...]`."""

import argparse
import fcntl
import importlib.util
import shutil
import sys
import time
import traceback

from . import image, machine
from .agent import Agent
from .place import CASES, PROMISES, WORK, LabError, need_packages
from .registry import Registry


class Lab:
    """What one promise is given: a host that has not booted yet, its agent, images and a registry."""

    def __init__(self, name, images):
        self.images, self.opened = images, None
        self.machine = machine.Machine(images.disk, CASES / name)
        self.agent = Agent(self.machine)

    def registry(self):
        """Returns the registry; it is started when it is first asked for."""
        self.opened = self.opened or Registry(self.machine.place)
        return self.opened

    def same(self, what, seen, wanted):
        """Fails unless both are equal."""
        if seen != wanted:
            raise LabError(f"{what}: {seen!r}, and not {wanted!r}")

    def close(self):
        """Ends all of it."""
        if self.opened:
            self.opened.close()
        self.machine.close()


def play(name, images):
    """Plays one promise; returns what went wrong, or nothing."""
    spec = importlib.util.spec_from_file_location(name, PROMISES / f"{name}.py")
    promise = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(promise)
    lab = Lab(name, images)
    try:
        promise.play(lab)
        lab.machine.power_off()
        return None
    except LabError as error:
        return str(error)
    except Exception:  # a promise that is wrong itself fails, and the others go on
        return traceback.format_exc()
    finally:
        lab.close()


def main():
    """Builds what is missing, plays, tells."""
    known = sorted(path.stem for path in PROMISES.glob("*.py"))
    parser = argparse.ArgumentParser(prog="vm-tests/run", description="Plays promises on hosts that really boot.")
    parser.add_argument("promise", nargs="*", help=f"of: {', '.join(known)} (default: all)")
    arguments = parser.parse_args()
    if unknown := set(arguments.promise) - set(known):
        parser.error(f"no such promise: {', '.join(sorted(unknown))}")
    WORK.mkdir(parents=True, exist_ok=True)
    with open(WORK / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        began = time.monotonic()
        need_packages()
        machine.prepare()
        images = image.Images(image.build())
        machine.isolate()
        print(f"prepared in {time.monotonic() - began:.1f} s", flush=True)
        return tell(arguments.promise or known, images)


def tell(names, images):
    """Plays each and prints a line for it; returns the exit code."""
    failed = 0
    for name in names:
        began = time.monotonic()
        wrong = play(name, images)
        seconds = time.monotonic() - began
        print(f"{'failed' if wrong else 'ok    '}  {name:<20} {seconds:6.1f} s", flush=True)
        if wrong:
            failed += 1
            print(f"  {wrong}\n  kept: {CASES / name}", flush=True)
        else:
            (CASES / name / "disk.raw").unlink()
            shutil.rmtree(CASES / name / "registry", ignore_errors=True)
    print(f"{len(names) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LabError as error:
        sys.exit(f"vm-tests: {error}")
