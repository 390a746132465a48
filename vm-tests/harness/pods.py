"""What runs the pods of builds: `tests/pods/run`, with an image that has buildah and one that has the agent."""

import subprocess

from .paths import CHECKOUT

BUILDER, AGENT = "registry.invalid/builder:1", "registry.invalid/agent:1"


class Pods:
    """The Job controller, the kubelet and the garbage collector of a cluster, until they are closed."""

    def __init__(self, cluster, registry, agent):
        """`agent` is the executable for the steps of a build; builds reach the registry without TLS."""
        self.directory = cluster.directory / "pods"
        builder, agents = self.directory / "builder-image", self.directory / "agent-image"
        for path, data, mode in ((builder / "etc/containers/registries.conf.d/lab.conf", registry.trusted().encode(), 0o644),
                                 (agents / "usr/bin/machine-config-agent", agent, 0o755)):
            path.parent.mkdir(parents=True)
            path.write_bytes(data)
            path.chmod(mode)
        self.log = open(self.directory / "log", "ab")
        self.process = subprocess.Popen(
            [CHECKOUT / "tests/pods/run", "--kubeconfig", cluster.admin_kubeconfig(), "--work", self.directory,
             "--image", f"{BUILDER}={builder}", "--image", f"{AGENT}={agents}"],
            stdin=subprocess.PIPE, stdout=self.log, stderr=self.log)

    def logs(self):
        """Returns the logs of all containers, by path."""
        return {path: path.read_text(errors="replace") for path in sorted(self.directory.glob("pods/*/*.log"))}

    def close(self):
        """Ends all of it."""
        self.process.stdin.close()
        self.process.wait()
        self.log.close()
