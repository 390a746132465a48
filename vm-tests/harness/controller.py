"""`machine-config-controller run` beside the API server, as in a pod of the cluster."""

import subprocess

from .paths import TARGET

CONTROLLER = TARGET / "debug/machine-config-controller"


class Controller:
    """The controllers of a cluster, until they are closed."""

    def __init__(self, cluster, *more, program=CONTROLLER):
        """Starts it, with further flags."""
        self.log = cluster.directory / "controller.log"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [str(program), "run", "--kubeconfig", str(cluster.admin_kubeconfig()), "--metrics-listen", "127.0.0.1:0",
                 "--lease-duration", "6", *more],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def close(self):
        """Ends it as a node that fails does: it can't clean up."""
        self.process.kill()
        self.process.wait()
