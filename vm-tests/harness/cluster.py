"""A cluster around a node: a real API server with its etcd, outside of the guest, and the parts that controllers play."""

import base64
import http.client
import json
import os
import select
import socket
import ssl
import subprocess
import time
from pathlib import Path

from .guest import GATEWAY
from .paths import CHECKOUT, TARGET, HarnessError, run

BUILT = TARGET / "apiserver"
# The network is the run's own, so nobody else has these.
HOST, API, ETCD, PEER = "127.0.0.1", 6443, 2379, 2380
LIMIT = 60
GROUP = "machineconfiguration.openshift.io"
NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
CONFIGS, MCNS, POOLS = (f"/apis/{GROUP}/v1/{plural}" for plural in
                        ("machineconfigs", "machineconfignodes", "machineconfigpools"))
POLICIES = "/apis/operator.openshift.io/v1/machineconfigurations"
# The folder in openshift/api, and the plural.
CRDS = (("machineconfiguration/v1", "machineconfigs"), ("machineconfiguration/v1", "machineconfignodes"),
        ("machineconfiguration/v1", "machineconfigpools"), ("machineconfiguration/v1", "controllerconfigs"), ("operator/v1", "machineconfigurations"),
        ("config/v1", "featuregates"), ("config/v1", "clusterversions"))
# For those who build images.
BUILD_CRDS = tuple(("machineconfiguration/v1", plural) for plural in ("machineosconfigs", "machineosbuilds"))
OS_CONFIGS, OS_BUILDS = (f"/apis/{GROUP}/v1/{plural}" for plural in ("machineosconfigs", "machineosbuilds"))
CRD_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# For a cluster of one node whose agent makes seeds and carries out stages.
LIFECYCLE_CRDS = CHECKOUT / "dist/manifests/components/lifecycle/crds.yaml"
SEED_GENERATORS, UPGRADES = (f"/apis/lca.openshift.io/v1/{plural}" for plural in ("seedgenerators", "imagebasedupgrades"))
# For nodes that keep images ahead.
PIN_CRDS, PIN_SETS = (("machineconfiguration/v1", "pinnedimagesets"),), f"/apis/{GROUP}/v1/pinnedimagesets"
# The small server has rules in the place of RBAC (tests/apiserver/auth.go).
RULES = "system:nodes * *\n"
AUDIT = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n"


def build():
    """Builds the API server and its etcd where they are missing; wants Go and its modules, so before the network goes."""
    run(CHECKOUT / "tests/apiserver/build")


def key(name):
    """Returns an annotation of the contract."""
    return f"{GROUP}/{name}"


class Cluster:
    """The API server, as an administrator sees it, and one node."""

    def __init__(self, directory, node):
        self.directory, self.node = directory / "cluster", node
        # How much longer than in the container everything may take.
        self.timeout_factor = 1
        self.directory.mkdir()
        self.log = open(self.directory / "log", "ab")
        self.processes = []
        self._certificates()
        self._start()
        for name in ("default", "openshift-machine-config-operator"):
            self.create("/api/v1/namespaces", {"metadata": {"name": name}})
        self.define(CRDS)

    def _certificates(self):
        self._openssl("req", "-x509", "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=lab", "-days", "30")
        self._certificate("server", "/CN=server", "-addext", f"subjectAltName=IP:{HOST},IP:{GATEWAY}")
        self._certificate("admin", "/O=system:masters/CN=admin")

    def _certificate(self, name, subject, *more):
        self._openssl("req", "-x509", "-CA", "ca.crt", "-CAkey", "ca.key", "-keyout", f"{name}.key", "-out", f"{name}.crt",
                      "-subj", subject, "-days", "30", "-addext", "basicConstraints=critical,CA:FALSE", *more)

    def _openssl(self, *words):
        run("openssl", *words, "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", cwd=self.directory)

    def _start(self):
        client, peer = f"http://{HOST}:{ETCD}", f"http://{HOST}:{PEER}"
        self._run(BUILT / "etcd", f"--data-dir={self.directory}/etcd", "--log-level=warn", "--unsafe-no-fsync",
                  f"--listen-client-urls={client}", f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}",
                  f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}")
        for name, text in (("tokens", ""), ("rules", RULES), ("audit", AUDIT)):
            (self.directory / name).write_text(text)
        self.serve()
        self._trust()

    def serve(self):
        """Starts the API server, and waits until it is ready."""
        files = {"tls-cert": "server.crt", "tls-key": "server.key", "client-ca": "ca.crt", "tokens": "tokens", "rules": "rules",
                 "audit-policy": "audit", "audit-log": "audit.log"}
        self._run(BUILT / "apiserver", f"--etcd=http://{HOST}:{ETCD}", f"--address={HOST}:{API}",
                  *(f"--{flag}={self.directory / name}" for flag, name in files.items()))

    def stop_serving(self):
        """Ends the API server; what it holds stays."""
        server = self.processes.pop()
        server.kill()
        server.wait()

    def _trust(self):
        self.tls = ssl.create_default_context(cafile=self.directory / "ca.crt")
        self.tls.load_cert_chain(self.directory / "admin.crt", self.directory / "admin.key")

    def _run(self, *command):
        """Starts a server and waits until it says that it is ready."""
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.bind("")
        name = "@" + notify.getsockname()[1:].decode()
        process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                   env={**os.environ, "NOTIFY_SOCKET": name})
        self.processes.append(process)
        ended, limit = os.pidfd_open(process.pid), time.monotonic() + LIMIT
        try:
            while True:
                ready, _, _ = select.select([notify, ended], [], [], max(0, limit - time.monotonic()))
                if notify in ready and "READY=1" in notify.recv(4096).decode().splitlines():
                    return
                if notify not in ready:
                    raise HarnessError(f"{command[0]} {'has ended' if ready else 'is not ready'}: see {self.directory}/log")
        finally:
            os.close(ended)
            notify.close()

    def define(self, crds):
        """Creates these CRDs, and waits until they are served."""
        module = Path((BUILT / "openshift-api").read_text().strip())
        for folder, plural in crds:
            manifests = module / folder / "zz_generated.crd-manifests"
            endings = (f"_{plural}-SelfManagedHA-Default", f"_{plural}-Default", f"_{plural}-SelfManagedHA", f"_{plural}")
            found = [path for ending in endings for path in manifests.glob(f"*{ending}.crd.yaml")]
            self._define(found[0].read_bytes())

    def define_file(self, path):
        """Creates the CRDs of a file, and waits until they are served."""
        for document in path.read_bytes().split(b"\n---\n"):
            self._define(document)

    def _define(self, document):
        made = self.ask("POST", CRD_PATH, document, "application/yaml")
        plural = made["spec"]["names"]["plural"]

        def is_established(crd):
            conditions = crd.get("status", {}).get("conditions") or []
            return any((each["type"], each["status"]) == ("Established", "True") for each in conditions)

        self.wait(f"the CRD of {plural}", CRD_PATH, made["metadata"]["name"], is_established)
        # It is served a moment later, and no event tells that.
        group, version = made["spec"]["group"], made["spec"]["versions"][0]["name"]
        limit = time.monotonic() + LIMIT
        while self.ask("GET", f"/apis/{group}/{version}/{plural}", allow=(404, 429, 503)) is None:
            if time.monotonic() > limit:
                raise HarnessError(f"{plural} are not served")

    def ask(self, method, path, body=None, kind="application/json", allow=()):
        """Sends one request and returns the answer's object, or nothing where its code is one of those allowed."""
        connection = http.client.HTTPSConnection(HOST, API, context=self.tls, timeout=LIMIT)
        try:
            connection.request(method, path, body, {"Content-Type": kind, "Accept": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status in allow:
            return None
        if answer.status >= 300:
            raise HarnessError(f"{method} {path}: {answer.status}: {text[:1000]}")
        return json.loads(text)

    def create(self, path, value):
        """Creates an object."""
        return self.ask("POST", path, json.dumps(value))

    def merge(self, path, patch):
        """Merges a patch into an object."""
        return self.ask("PATCH", path, json.dumps(patch), "application/merge-patch+json")

    def grant(self, token, user, rules):
        """Makes a token of a user's known, and what it may do, in the lines of tests/apiserver/auth.go."""
        for name, text in (("tokens", f"{token},{user},uid-of-{user}\n"), ("rules", rules)):
            with open(self.directory / name, "a", encoding="utf-8") as file:
                file.write(text)

    def create_policies(self):
        """Creates the object of the disruption policies, without one."""
        self.create(POLICIES, {"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
                               "metadata": {"name": "cluster"}, "spec": {"managementState": "Managed"}})

    def create_node(self, name, annotations, labels=("node-role.kubernetes.io/worker",)):
        """Creates a node with annotations of the contract."""
        named = {key(each): value for each, value in annotations.items()}
        self.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {
            "name": name, "labels": dict.fromkeys(labels, ""), "annotations": named}})

    def patch(self, **annotations):
        """Changes annotations of the contract on the node, as controllers do; `unschedulable` is the spec's."""
        spec = {"spec": {"unschedulable": annotations.pop("unschedulable")}} if "unschedulable" in annotations else {}
        named = {key(name): value for name, value in annotations.items()}
        patch = {"metadata": {"annotations": named}, **spec}
        return self.merge(f"{NODES}/{self.node}", patch)

    def wait(self, what, path, name, condition):
        """Waits until an object is as `condition` requires: first its present state, then each change of a watch."""
        only = f"fieldSelector=metadata.name%3D{name}"
        listed = self.ask("GET", f"{path}?{only}")
        last = listed["items"][0] if listed["items"] else None
        if last and condition(last):
            return last
        timeout = LIMIT * self.timeout_factor
        limit = time.monotonic() + timeout
        connection = http.client.HTTPSConnection(HOST, API, context=self.tls, timeout=timeout)
        try:
            version = listed["metadata"]["resourceVersion"]
            connection.request("GET", f"{path}?watch=true&{only}&timeoutSeconds={timeout}&resourceVersion={version}")
            answer = connection.getresponse()
            while time.monotonic() < limit and (line := answer.readline()):
                last = json.loads(line)["object"]
                if condition(last):
                    return last
        finally:
            connection.close()
        raise HarnessError(f"waited for {what}: not within {timeout} s; last: {json.dumps(last)}")

    def wait_node(self, what, **annotations):
        """Waits until annotations of the contract on the node are as given, and returns the node."""
        def is_so(node):
            present = node["metadata"].get("annotations", {})
            return all(present.get(key(name)) == value for name, value in annotations.items())

        return self.wait(what, NODES, self.node, is_so)

    def kubeconfig(self, address, node=None):
        """Returns what the kubelet of a node has, which finds the API server at this address."""
        name = f"kubelet-{node or self.node}"
        self._certificate(name, f"/O=system:nodes/CN=system:node:{node or self.node}")
        return self._kubeconfig(name, address)

    def admin_kubeconfig(self):
        """Returns the path of an administrator's, who is in the network of the run."""
        path = self.directory / "admin.kubeconfig"
        path.write_text(self._kubeconfig("admin", HOST))
        return path

    def _kubeconfig(self, identity, address):
        def data(name):
            return base64.b64encode((self.directory / name).read_bytes()).decode()

        cluster = {"server": f"https://{address}:{API}", "certificate-authority-data": data("ca.crt")}
        user = {"client-certificate-data": data(f"{identity}.crt"), "client-key-data": data(f"{identity}.key")}
        return json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "lab",
                           "clusters": [{"name": "lab", "cluster": cluster}], "users": [{"name": "lab", "user": user}],
                           "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}]})

    def close(self):
        """Ends both."""
        for process in reversed(self.processes):
            process.kill()
            process.wait()
        self.log.close()
