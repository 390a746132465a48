"""A real forward proxy, Debian's tinyproxy: the only one who reaches the servers and knows their names. It wants a password."""

import select
import subprocess
import time

from .paths import HarnessError

# The network is the run's own, so nobody else has it.
PORT = 8888
USER, PASSWORD = "node", "proxy-geheim"
CONFIG = """Port {port}
Listen {address}
Timeout 600
LogLevel Info
BasicAuth {user} {password}
"""
# The names are in a file that only tinyproxy sees in the place of the real one.
STARTS = 'mount --bind "$0" /etc/hosts && exec tinyproxy -d -c "$1"'
READY, LIMIT = b"Accepting connections", 60


class Proxy:
    """tinyproxy, which resolves these names to this run's loopback; for a guest it is the only way out of its network."""

    def __init__(self, machine, names):
        directory = machine.directory
        address, self.address = machine.confine(PORT)
        hosts, config, self.log = (directory / f"proxy.{kind}" for kind in ("hosts", "conf", "log"))
        hosts.write_text("127.0.0.1 localhost " + " ".join(names) + "\n")
        config.write_text(CONFIG.format(port=PORT, address=address, user=USER, password=PASSWORD))
        log = open(self.log, "wb")
        self.process = subprocess.Popen(["unshare", "--mount", "--propagation=private", "sh", "-c", STARTS, hosts, config],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        with log:
            self._wait_ready(log)
        with open(self.log, "ab") as rest:
            self.rest = subprocess.Popen(["cat"], stdin=self.process.stdout, stdout=rest)

    def _wait_ready(self, log):
        """Waits until it says that it listens; what it says goes to its log."""
        said, limit = b"", time.monotonic() + LIMIT
        while READY not in said:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, limit - time.monotonic()))
            more = self.process.stdout.read1(65536) if ready else b""
            if not more:
                self.process.kill()
                raise HarnessError(f"tinyproxy {'ended' if ready else 'is not ready'}: {said.decode()}")
            log.write(more)
            said += more

    def url(self):
        """Returns its URL for the guest."""
        return f"http://{USER}:{PASSWORD}@{self.address}:{PORT}"

    def asked(self):
        """Returns what it has logged of requests."""
        return [line for line in self.log.read_text().splitlines() if "Request (file descriptor" in line]

    def close(self):
        """Ends it."""
        self.process.kill()
        self.process.wait()
        self.rest.wait()
