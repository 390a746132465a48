"""A real registry on the machine's loopback, which the guests share."""

import re
import subprocess

from .place import LabError, run

CONFIG = """version: 0.1
log: {{ level: info }}
storage: {{ filesystem: {{ rootdirectory: {root} }} }}
http: {{ addr: "127.0.0.1:0" }}
"""


class Registry:
    """Debian's docker-registry, on a port that is free."""

    def __init__(self, place):
        (place / "registry").mkdir()
        (place / "registry.yml").write_text(CONFIG.format(root=place / "registry"))
        self.log = open(place / "registry.log", "wb")
        self.process = subprocess.Popen(["docker-registry", "serve", str(place / "registry.yml")],
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.PIPE)
        self.host = self._listening()
        # Its log goes on; nobody reads it but a person.
        self.rest = subprocess.Popen(["cat"], stdin=self.process.stderr, stdout=self.log)

    def _listening(self):
        for line in self.process.stderr:
            self.log.write(line)
            if found := re.search(rb"listening on (127\.0\.0\.1:[0-9]+)", line):
                return found[1].decode()
        raise LabError("docker-registry ended before it listened")

    def push(self, layout, tag, digest):
        """Copies an image to the registry, byte for byte, and returns its name there."""
        run("skopeo", "--insecure-policy", "copy", "--quiet", "--preserve-digests", "--dest-tls-verify=false",
            f"oci:{layout}:{tag}", f"docker://{self.host}/os:{tag}")
        return f"{self.host}/os@{digest}"

    def trusted(self):
        """Returns the file that lets skopeo reach it without TLS."""
        return f'[[registry]]\nlocation = "{self.host}"\ninsecure = true\n'

    def close(self):
        """Ends it."""
        self.process.kill()
        self.process.wait()
        self.rest.wait()
        self.log.close()
