"""Real Ignition (Debian's package) on a host that is off, and the machine-config-server that it asks."""

import json
import os
import re
import subprocess
import urllib.parse
from pathlib import Path

from . import disk
from .paths import HarnessError, TARGET, run

PROGRAM = "/usr/lib/dracut/modules.d/30ignition/ignition"
STAGES = ("fetch-offline", "fetch", "disks", "mount", "files", "umount")
CONTROLLER = TARGET / "debug/machine-config-controller"
# Ignition relabels what it wrote and fails where that can't be done; a Debian host has no labels.
UNLABELED = {"config": "SELINUX=disabled\nSELINUXTYPE=none\n", "none/contexts/files/file_contexts": ""}
TOKEN, FIRST_CONTACT = "token-of-the-pool-worker", "token-of-the-first-contact"


class Server:
    """`machine-config-controller serve` over what `bootstrap` makes of these objects."""

    def __init__(self, directory: Path, objects):
        self.directory = directory
        manifests, self.output = directory / "manifests", directory / "bootstrap"
        manifests.mkdir(parents=True)
        for number, value in enumerate(objects):
            (manifests / f"{number}.json").write_text(json.dumps(value))
        run(CONTROLLER, "bootstrap", "--manifests", manifests, "--output", self.output)
        self.config = re.search(r"name: (rendered-worker-[0-9a-f]+)", (self.output / "machine-pools/worker.yaml").read_text())[1]
        self._write("tokens", f"worker {TOKEN}\n")
        self._write("kubeconfig", json.dumps({
            "kind": "Config", "current-context": "a", "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "clusters": [{"name": "a", "cluster": {"server": "https://api.test:6443"}}],
            "users": [{"name": "a", "user": {"token": FIRST_CONTACT}}]}))
        run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
            "-subj", "/CN=mcs", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", directory / "tls.key",
            "-out", directory / "tls.crt")
        self.log = directory / "serve.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([str(CONTROLLER), "serve", "--listen", "127.0.0.1:0", "--directory", str(self.output),
                                             *self._files("tls-cert=tls.crt", "tls-key=tls.key", "token-file=tokens",
                                                          "bootstrap-kubeconfig=kubeconfig")],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.PIPE)
        self.url = f"https://{self._listening()}"

    def _write(self, name, text):
        (self.directory / name).write_text(text)

    def _files(self, *flags):
        pairs = (flag.split("=") for flag in flags)
        return [word for name, file in pairs for word in (f"--{name}", str(self.directory / file))]

    def _listening(self):
        """Waits until it says where it listens; what else it says goes to its log."""
        with open(self.log, "ab") as log:
            for line in self.process.stderr:
                log.write(line)
                if found := re.search(rb"Serving new nodes on ([0-9.:]+)", line):
                    self.rest = subprocess.Popen(["cat"], stdin=self.process.stderr, stdout=log)
                    return found[1].decode()
        raise HarnessError(f"the server ended before it listened: {self.log.read_text()}")

    def provision(self, machine, units, token=TOKEN):
        """Has Ignition bring the pool's config to the host, and enables these units by its preset, as the first boot does."""
        authority = "data:," + urllib.parse.quote((self.directory / "tls.crt").read_text())
        pool = {"source": f"{self.url}/config/worker", "httpHeaders": [{"name": "Authorization", "value": f"Bearer {token}"}]}
        self._write("user-data.ign", json.dumps({"ignition": {
            "version": "3.3.0", "config": {"merge": [pool]},
            "security": {"tls": {"certificateAuthorities": [{"source": authority}]}}}}))
        root = self.directory / "root"
        root.mkdir(exist_ok=True)
        run("mount", "--bind", disk.entry(machine.sysroot)[0], root)
        try:
            run("mount", "--bind", machine.stateroot / "var", root / "var")
            self._ignite(root)
            run("systemctl", f"--root={root}", "preset", *units)
        finally:
            run("umount", "--recursive", root)

    def _ignite(self, root):
        state, stubs = self.directory / "ignition", self.directory / "stubs"
        run("rm", "-rf", state)
        for place in (state, stubs, *(root / "var" / name for name in ("home", "roothome", "usrlocal", "opt", "lib"))):
            place.mkdir(exist_ok=True)
        (stubs / "setfiles").write_text("#!/bin/sh\ncat >/dev/null\n")
        (stubs / "setfiles").chmod(0o755)
        for name, text in UNLABELED.items():
            (root / "etc/selinux" / name).parent.mkdir(parents=True, exist_ok=True)
            (root / "etc/selinux" / name).write_text(text)
        environment = {"PATH": f"{stubs}:{os.environ['PATH']}", "IGNITION_CONFIG_FILE": str(self.directory / "user-data.ign")}
        for stage in STAGES:
            run(PROGRAM, "-platform", "file", "-stage", stage, "-root", root, "-config-cache", state / "config.json",
                "-neednet", state / "neednet", "-state-file", state / "state", "-log-to-stdout", env=environment)
        run("rm", "-rf", root / "etc/selinux")

    def logged(self):
        """Returns what the server has said."""
        return self.log.read_text()

    def close(self):
        """Ends it."""
        self.process.terminate()
        self.process.wait()
        self.rest.wait()
