"""A server before the registry that answers as a test wants it: with another certificate, without TLS, or with an error."""

import base64
import http.client
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from .paths import run

# What a certificate is, by name: its days, its name, who signs it.
CERTIFICATES = {"right": ("365", "IP:127.0.0.1", "ca"), "expired": ("-1", "IP:127.0.0.1", "ca"),
                "other-name": ("365", "DNS:other.test", "ca"), "other-ca": ("365", "IP:127.0.0.1", "other")}
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
# The one kind that `openssl x509` can't make.
CA = """[ca]
default_ca = own
[own]
database = {0}/index
new_certs_dir = {0}
serial = {0}/serial
default_md = sha256
policy = any
x509_extensions = name
[any]
commonName = supplied
[name]
subjectAltName = IP:127.0.0.1
"""
EARLY = ("-startdate", "20400101000000Z", "-enddate", "20410101000000Z")
OWN = ("authorization", "accept-encoding")
HOP = ("connection", "transfer-encoding", "content-length", "keep-alive")


class Certificates:
    """A CA, and certificates of each kind in a directory."""

    def __init__(self, directory):
        self.directory = directory / "certificates"
        self.directory.mkdir()
        for ca in ("ca", "other"):
            run("openssl", "req", "-x509", *KEY, "-keyout", self.key(ca), "-out", self.path(ca), "-subj", f"/CN={ca}")
        for name, (days, subject, ca) in CERTIFICATES.items():
            extension = self.directory / f"{name}.ext"
            extension.write_text(f"subjectAltName={subject}\n")
            run("openssl", "x509", "-req", "-in", self._request(name), "-CA", self.path(ca), "-CAkey", self.key(ca),
                "-CAcreateserial", "-days", days, "-extfile", extension, "-out", self.path(name))
        (self.directory / "index").touch()
        (self.directory / "serial").write_text("77\n")
        (self.directory / "ca.conf").write_text(CA.format(self.directory))
        run("openssl", "ca", "-batch", "-notext", "-config", self.directory / "ca.conf", "-in", self._request("early"),
            "-cert", self.path("ca"), "-keyfile", self.key("ca"), *EARLY, "-out", self.path("early"))

    def _request(self, name):
        request = self.directory / f"{name}.csr"
        run("openssl", "req", *KEY, "-keyout", self.key(name), "-out", request, "-subj", f"/CN={name}")
        return request

    def path(self, name):
        """Returns a certificate."""
        return self.directory / f"{name}.crt"

    def key(self, name):
        """Returns its key."""
        return self.directory / f"{name}.key"

    def context(self, name):
        """Returns what a server with this certificate needs."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path(name), self.key(name))
        return context


class Front:
    """It passes on what it is asked; `certificate` (none: no TLS), `status` and `account` change that, also while it runs."""

    def __init__(self, directory, registry):
        self.certificates, self.registry = Certificates(directory), registry
        self.contexts = {name: self.certificates.context(name) for name in (*CERTIFICATES, "early")}
        self.certificate, self.status, self.account = "right", None, None
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler(self))
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None
        self.host = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def ca(self):
        """Returns the text of the CA that a host has to trust."""
        return self.certificates.path("ca").read_text()

    def close(self):
        """Ends it: nobody listens there any more."""
        self.server.shutdown()
        self.server.server_close()


def handler(front):
    """Returns the handler of a front."""

    class Handler(BaseHTTPRequestHandler):
        """Of one connection."""

        def setup(self):
            if not front.certificate and self.request.recv(1, socket.MSG_PEEK) == b"\x16":
                # A TLS greeting, which Python answers as HTTP 0.9; a registry says this.
                self.request.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")
                raise ConnectionError("TLS where there is none")
            if front.certificate:
                self.request = front.contexts[front.certificate].wrap_socket(self.request, server_side=True)
            super().setup()

        def log_message(self, *_):
            pass

        def do_GET(self):
            """Answers."""
            wanted = f"Basic {base64.b64encode((front.account or '').encode()).decode()}"
            if front.account and self.headers.get("Authorization") != wanted:
                self.answer(401, {"WWW-Authenticate": 'Basic realm="test"'}, b"")
            elif front.status and "/manifests/" in self.path:
                self.answer(front.status, {}, b"")
            else:
                self.pass_on()

        do_HEAD = do_GET

        def pass_on(self):
            """Asks the registry."""
            behind = http.client.HTTPConnection(front.registry.address)
            # Each of what is accepted comes in a line of its own.
            headers = {key: ", ".join(self.headers.get_all(key)) for key in self.headers if key.lower() not in OWN}
            behind.request(self.command, self.path, headers=headers)
            said = behind.getresponse()
            kept = {key: value for key, value in said.getheaders() if key.lower() not in HOP}
            self.answer(said.status, kept, said.read(), said.getheader("Content-Length"))
            behind.close()

        def answer(self, status, headers, body, length=None):
            """Sends an answer; that to HEAD has a length and no body."""
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", length or str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    return Handler
