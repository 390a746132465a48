"""A real registry on this run's loopback. A guest reaches it there, or by the address its tier has for it."""

import re
import subprocess

from .paths import HarnessError, run

CONFIG = """version: 0.1
log: {{ level: info }}
storage: {{ filesystem: {{ rootdirectory: {root} }}, delete: {{ enabled: true }} }}
{http}
"""
HTTP = 'http: {{ addr: "{address}" }}'
TLS = 'http: {{ addr: "{address}", tls: {{ certificate: {certificate}, key: {key} }} }}'
# What the registry reads passwords from: htpasswd's format, of which it takes bcrypt only.
AUTH = "auth: {{ htpasswd: {{ realm: test, path: {path} }} }}\n"


class Registry:
    """Debian's docker-registry, on a port that is free or on this one; with `accounts`, lines of htpasswd, for those only."""

    def __init__(self, directory, host_address="127.0.0.1", port=0, accounts=None):
        self.directory, self.root = directory, directory / "registry"
        self.root.mkdir(exist_ok=True)
        self.accounts, self.host_address, self.tls = accounts, host_address, None
        self.log = open(directory / "registry.log", "ab")
        self.process = None
        self.address = f"127.0.0.1:{port}"
        self.start()

    def start(self, accounts=None, tls=None):
        """Starts it, again on its port; with `accounts` it is for those only from now on, with `tls` by this certificate and key."""
        self.accounts, self.tls = accounts or self.accounts, tls or self.tls
        certificate, key = self.tls or (None, None)
        http = (TLS if self.tls else HTTP).format(address=self.address, certificate=certificate, key=key)
        text = CONFIG.format(root=self.root, http=http)
        if self.accounts:
            (self.directory / "htpasswd").write_text(self.accounts)
            text += AUTH.format(path=self.directory / "htpasswd")
        (self.directory / "registry.yml").write_text(text)
        self.process = subprocess.Popen(["docker-registry", "serve", str(self.directory / "registry.yml")],
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.PIPE)
        self.address = self._listening()
        # As the guest names it.
        self.host = self.address.replace("127.0.0.1", self.host_address)
        # Its log goes on; nobody reads it but a person.
        self.rest = subprocess.Popen(["cat"], stdin=self.process.stderr, stdout=self.log)

    def stop(self):
        """Ends it; what it holds stays."""
        self.process.kill()
        self.process.wait()
        self.rest.wait()

    def _listening(self):
        for line in self.process.stderr:
            self.log.write(line)
            if found := re.search(rb"listening on (127\.0\.0\.1:[0-9]+)", line):
                return found[1].decode()
        raise HarnessError("docker-registry ended before it listened")

    def push(self, layout, tag, digest):
        """Copies an image to the registry, byte for byte, and returns its name for the guest."""
        run("skopeo", "--insecure-policy", "copy", "--quiet", "--preserve-digests", "--dest-tls-verify=false",
            f"oci:{layout}:{tag}", f"docker://{self.address}/os:{tag}")
        return f"{self.host}/os@{digest}"

    def blob(self, digest):
        """Returns the file in which it keeps a blob."""
        kind, _, digits = digest.partition(":")
        return self.root / "docker/registry/v2/blobs" / kind / digits[:2] / digits / "data"

    def trusted(self):
        """Returns the file that lets skopeo reach it without TLS."""
        return f'[[registry]]\nlocation = "{self.host}"\ninsecure = true\n'

    def close(self):
        """Ends it for good."""
        self.stop()
        self.log.close()
