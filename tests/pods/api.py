"""The API server, as an administrator sees it."""

import base64
import http.client
import json
import os
import ssl
import tempfile
import time
import urllib.parse

# Where each kind is, and the object's own path.
PATHS = {
    "jobs": "/apis/batch/v1", "pods": "/api/v1", "configmaps": "/api/v1", "secrets": "/api/v1",
    "machineosbuilds": "/apis/machineconfiguration.openshift.io/v1",
    "machineosconfigs": "/apis/machineconfiguration.openshift.io/v1",
}
TIMEOUT = 60


class ApiError(Exception):
    """An answer that is none."""

    def __init__(self, status, text):
        super().__init__(f"{status}: {text[:500]}")
        self.status = status


class Api:
    """A client."""

    def __init__(self, kubeconfig):
        read = json.loads(kubeconfig.read_text())
        cluster, user = read["clusters"][0]["cluster"], read["users"][0]["user"]
        self.server = urllib.parse.urlsplit(cluster["server"])

        def data(of, name):
            return base64.b64decode(of[f"{name}-data"]) if f"{name}-data" in of else open(of[name], "rb").read()

        self.tls = ssl.create_default_context(cadata=data(cluster, "certificate-authority").decode())
        with tempfile.NamedTemporaryFile() as both:
            both.write(data(user, "client-certificate") + b"\n" + data(user, "client-key"))
            both.flush()
            self.tls.load_cert_chain(both.name)

    def connect(self):
        return http.client.HTTPSConnection(self.server.hostname, self.server.port, context=self.tls, timeout=TIMEOUT)

    def ask(self, method, path, body=None, kind="application/json", allow=()):
        """Sends one request; an error of those allowed is None. The server may be away for a moment."""
        until = time.monotonic() + TIMEOUT
        while True:
            try:
                connection = self.connect()
                connection.request(method, path, json.dumps(body) if body is not None else None,
                                   {"Content-Type": kind, "Accept": "application/json"})
                answer = connection.getresponse()
                text = answer.read().decode()
                break
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)
            finally:
                connection.close()
        if answer.status in allow:
            return None
        if answer.status >= 300:
            raise ApiError(answer.status, text)
        return json.loads(text)

    def path(self, kind, one):
        """Returns the path of an object."""
        metadata = one["metadata"]
        namespace = f"/namespaces/{metadata['namespace']}" if metadata.get("namespace") else ""
        return f"{PATHS[kind]}{namespace}/{kind}/{metadata['name']}"

    def merge(self, path, patch, allow=(404,)):
        """Merges a patch."""
        return self.ask("PATCH", path, patch, "application/merge-patch+json", allow)

    def delete(self, kind, one, **options):
        """Deletes this object, and no other one of its name."""
        precondition = {"uid": one["metadata"]["uid"]}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": precondition, **options}
        self.ask("DELETE", self.path(kind, one), options, allow=(404, 409))

    def remove_finalizer(self, kind, one, name):
        """Removes a finalizer, unless it is gone."""
        while True:
            found = self.ask("GET", self.path(kind, one), allow=(404,))
            left = [each for each in (found or {}).get("metadata", {}).get("finalizers", []) if each != name]
            if not found or found["metadata"]["uid"] != one["metadata"]["uid"] or name not in found["metadata"].get("finalizers", []):
                return
            patch = {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"], "finalizers": left}}
            try:
                self.merge(self.path(kind, one), patch)
                return
            except ApiError as error:
                if error.status != 409:
                    raise

    def watch(self, kind, events):
        """Puts what is there and each change into a queue, until the process ends."""
        known = {}
        while True:
            try:
                listed = self.ask("GET", f"{PATHS[kind]}/{kind}", allow=(404,))
                if listed is None:
                    # The kind is not served yet.
                    time.sleep(0.2)
                    continue
                items = {one["metadata"]["uid"]: one for one in listed["items"]}
                for uid in set(known) - set(items):
                    events.put(("DELETED", kind, known.pop(uid)))
                for uid, one in items.items():
                    known[uid] = one
                    events.put(("MODIFIED", kind, one))
                self._follow(kind, listed["metadata"]["resourceVersion"], known, events)
            except (OSError, http.client.HTTPException, json.JSONDecodeError):
                time.sleep(0.2)
            except ApiError as error:
                events.put(("failed", kind, str(error)))
                return

    def _follow(self, kind, version, known, events):
        connection = self.connect()
        try:
            connection.request("GET", f"{PATHS[kind]}/{kind}?watch=true&resourceVersion={version}&timeoutSeconds={TIMEOUT - 5}")
            answer = connection.getresponse()
            while line := answer.readline():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                one = event["object"]
                if event["type"] == "DELETED":
                    known.pop(one["metadata"]["uid"], None)
                else:
                    known[one["metadata"]["uid"]] = one
                events.put((event["type"], kind, one))
        finally:
            connection.close()


def now():
    """Returns the time as the API server writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def told(what, *words):
    """Prints a line."""
    os.write(1, (" ".join([what, *map(str, words)]) + "\n").encode())
