"""First contacts: what is in the way between a new host and its image, or its API server, and what mends it. Everything else is right
from the beginning."""

import base64
import json
import select
import socket
import time

from .cluster import API, HOST
from .paths import CHECKOUT, HarnessError, run
from .proxy import Proxy
from .registry import Registry

# As the config names it; what a guest resolves it to is the contact's.
NAME, PORT = "registry.lab.test", 5000
SERVER = "api.lab.test"
HOSTS = f"127.0.0.1 localhost node {SERVER}"
REACHED = f"{HOSTS} {NAME}\n"
# A line of htpasswd: `node`, whose password is PASSWORD.
ACCOUNTS = "node:$2b$04$GHO1/zhrx5fBTOHmuC3ZzecX0WIEIRz6.y09WwJ.2Jn2HGESzMwLe\n"
PASSWORD = "open-sesame"
PLAIN = f'[[registry]]\nlocation = "{NAME}:{PORT}"\ninsecure = true\n'
REGISTRIES = "/etc/containers/registries.conf.d/lab.conf"
# For how long at least nobody answers at the API server's address, from the first try on.
LATE = 30
LATEST = 180
SKOPEO = CHECKOUT / "target/skopeo"


class Contact:
    """One of them. The reason and the words are of the fault that is reported until it is mended."""

    reason, words = "ImagePullFailed", NAME
    # What the console says first, and what the next step names.
    console, step = "ImagePull", "registry"
    # Why it makes no sense for a way by which the agent comes.
    senseless = {}

    def before(self, join):
        """Prepares the network, while the host is off."""

    def files(self, _join):
        """Returns what the host has from its installation: path to text."""
        return {"/etc/hosts": REACHED, REGISTRIES: PLAIN}

    def mend(self, join):
        """Mends it on the running host: one thing, and nothing else."""
        raise NotImplementedError

    def named(self, join):
        """Waits until the host names the cause."""
        def is_named(status):
            # Without its API server an agent is at no fault: `linkDown` says it.
            fault = status["fault"] or status.get("linkDown") or {}
            return fault.get("reason") == self.reason and self.words in fault.get("message", "") and self.step in fault.get("next", "")

        return join.agent.wait_status(f"{self.reason}: {self.words}", is_named)


class OwnAuthority(Contact):
    """The registry's certificate is of an own CA; its certificate comes into certs.d."""

    words, step = "x509", "ca.crt"

    def before(self, join):
        at = join.machine.directory
        run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
            "-subj", "/CN=lab", "-addext", f"subjectAltName=DNS:{NAME}", "-keyout", at / "tls.key", "-out", at / "tls.crt")
        self.certificate = (at / "tls.crt").read_text()
        join.registry.stop()
        join.registry.start(tls=(at / "tls.crt", at / "tls.key"))

    def files(self, _join):
        return {"/etc/hosts": REACHED}

    def mend(self, join):
        join.machine.write(f"/etc/docker/certs.d/{NAME}:{PORT}/ca.crt", self.certificate)


class Mirror(Contact):
    """Nobody knows the registry's name; a mirror has its images, and is named by a registries.conf."""

    def files(self, _join):
        return {"/etc/hosts": f"{HOSTS}\n"}

    def mend(self, join):
        at = join.registry.host
        join.machine.write(REGISTRIES, f'[[registry]]\nlocation = "{NAME}:{PORT}"\n[[registry.mirror]]\nlocation = "{at}"\ninsecure = true\n')


class PullSecret(Contact):
    """The registry wants an account; the pull secret has it."""

    reason, step = "ImagePullUnauthorized", "/etc/ostree/auth.json"

    def before(self, join):
        join.registry.stop()
        join.registry.start(ACCOUNTS)

    def mend(self, join):
        account = base64.b64encode(f"node:{PASSWORD}".encode()).decode()
        join.machine.write("/etc/ostree/auth.json", json.dumps({"auths": {f"{NAME}:{PORT}": {"auth": account}}}))


class ProxyOnly(Contact):
    """A forward proxy is the only way out of the host's network; /etc/mco/proxy.env names it."""

    proxy = None

    def before(self, join):
        self.proxy = Proxy(join.machine, (SERVER, NAME))
        join.closing.append(self.proxy.close)

    def files(self, _join):
        return {"/etc/hosts": "127.0.0.1 localhost node\n", REGISTRIES: PLAIN}

    def mend(self, join):
        url = self.proxy.url()
        join.machine.write("/etc/mco/proxy.env", f"HTTP_PROXY={url}\nHTTPS_PROXY={url}\nNO_PROXY=.svc,10.96.0.0/12\n")


class LateServer(Contact):
    """Nobody answers at the API server's address for LATE seconds after the first try; then it comes."""

    reason, words = "ApiServerUnreachable", SERVER
    console, step = f"https://{SERVER}:{API} can't be reached", "API server"
    senseless = {"alone": "no API server", "bootstrap": "no API server is asked",
                 "daemonset": "a pod comes through the API server"}

    seconds = LATE

    def before(self, join):
        join.cluster.stop_serving()

    def mend(self, join):
        gate(self.seconds)
        join.cluster.serve()


class Policy(Contact):
    """policy.json of the host refuses every image; it is corrected. (skopeo of Debian 13: Debian 12's does not ask it.)"""

    words, step = "rejected by policy", "policy.json"

    def before(self, join):
        for path, data in skopeo().items():
            join.put_program(path, data)

    def files(self, join):
        return {**super().files(join), "/etc/containers/policy.json": '{"default": [{"type": "reject"}]}\n'}

    def mend(self, join):
        join.machine.write("/etc/containers/policy.json", '{"default": [{"type": "insecureAcceptAnything"}]}\n')


CONTACTS = {"ca": OwnAuthority, "mirror": Mirror, "secret": PullSecret, "proxy": ProxyOnly, "late": LateServer, "policy": Policy}


def gate(seconds):
    """Turns everybody away at the API server's address until one comes who has waited so long since the first."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, API))
        listener.listen()
        first, limit = None, time.monotonic() + LATEST
        while True:
            ready, _, _ = select.select([listener], [], [], max(0, limit - time.monotonic()))
            if not ready:
                raise HarnessError(f"nobody has asked for the API server again within {LATEST} s")
            listener.accept()[0].close()
            first = first or time.monotonic()
            if time.monotonic() - first >= seconds:
                return


def skopeo():
    """Returns skopeo of Debian 13 with its libraries, beside the guest's: path to bytes."""
    return {f"/{path.relative_to(SKOPEO)}": path.read_bytes() for path in sorted(SKOPEO.glob("**/*")) if path.is_file()}


def build():
    """Unpacks skopeo where it is missing; wants Debian's mirror, so before the network goes."""
    run(CHECKOUT / "tests/skopeo")


def registry(directory):
    """Starts the registry."""
    return Registry(directory, port=PORT)

