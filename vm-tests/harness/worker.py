"""Promises side by side: each worker is a process with mounts, processes, a network and a cgroup of its own, and plays one
promise after the other. The command `harness.worker` is such a process; a run starts them."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

from . import image, joins_cell, nspawn
from .paths import CHECKOUT, WORK
from .promise import keep, load


class Worker:
    """One of them, as the run sees it."""

    def __init__(self, number, images, options):
        self.directory = WORK / f"worker-{number}"
        shutil.rmtree(self.directory, ignore_errors=True)
        request = {"hosts": options.hosts, "tier": options.tier, "tries": options.tries, "reboots": options.reboots,
                   **images.for_worker(self.directory)}
        self.line, other = socket.socketpair()
        self.answers = self.line.makefile()
        with other:
            command = [CHECKOUT / "vm-tests/isolated", "harness.worker", str(other.fileno()), json.dumps(request)]
            # A worker that can't begin is a promise that failed.
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[other.fileno()],
                                            env={**os.environ, "MCA_NOT_RUN": "2"})

    def play(self, name):
        """Plays one promise; returns whether it was kept, or nothing when the worker has ended."""
        try:
            self.line.sendall(f"{name}\n".encode())
            answer = self.answers.readline()
        except OSError:
            answer = ""
        return answer == "kept\n" if answer else None

    def close(self):
        """Ends it: there is nothing more to play."""
        self.line.shutdown(socket.SHUT_WR)
        self.process.wait()
        self.answers.close()
        self.line.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def play_all(names, images, options, told=lambda name, kept: None):
    """Plays all of them, so many at a time, and tells of each; returns those that failed."""
    left, failed, lock = list(names), [], threading.Lock()

    def take():
        with lock:
            return left.pop(0) if left else None

    def work(number):
        worker = None
        while name := take():
            worker = worker or Worker(number, images, options)
            kept = worker.play(name)
            with lock:
                told(name, bool(kept))
            if not kept:
                failed.append(name)
            if kept is None:
                print(f"failed  {name:<20} its worker has ended", flush=True)
                worker.close()
                worker = None
        if worker:
            worker.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(min(options.hosts, len(names)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failed


def main(connection_fd, request):
    """Plays the requested promises until the connection closes."""
    options = SimpleNamespace(**json.loads(request))
    images = image.WorkerImages(options)
    nspawn.prepare()
    nspawn.isolate()
    if options.hosts > 1:
        # The processors have other work, too.
        nspawn.Machine.TIMEOUT_FACTOR *= 2
    # A program in a guest does not get it.
    os.set_inheritable(connection_fd, False)
    with socket.socket(fileno=connection_fd) as connection, connection.makefile() as names:
        for name in names:
            kept = joins_cell.keep(name.strip(), images) if "/" in name else keep(name.strip(), load(name.strip()), images, options)
            connection.sendall(b"kept\n" if kept else b"failed\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
