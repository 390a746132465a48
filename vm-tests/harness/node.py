"""A real node: kubelet and containerd beside a real API server, one build in a pod of it, and an update of a cluster of one node. `tests/node/run` is its command."""

import base64
import contextlib
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from . import nspawn, single_node
from .cluster import BUILD_CRDS, CONFIGS, ETCD, HOST, API, NODES, OS_BUILDS, OS_CONFIGS, PEER, POOLS, Cluster, key
from .controller import Controller
from .paths import HarnessError, run
from .registry import CONFIG as REGISTRY, HTTP

ADDRESS, NAMESPACE = "10.99.0.1", "openshift-machine-config-operator"
BUILDER, AGENT, PAUSE = "localhost/builder:v1", "localhost/agent:v1", "localhost/pause:v1"
CONTROLLER_IMAGE = "localhost/controller"
CONTAINERD = """version = 2
root = "{root}/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{root}/cni"
"""
NETWORK = {"cniVersion": "0.4.0", "name": "pods", "plugins": [
    {"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.98.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]}}]}
KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
    "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"}, "cgroupDriver": "cgroupfs", "failCgroupV1": False, "failSwapOn": False,
    "localStorageCapacityIsolation": False, "address": ADDRESS, "healthzPort": 0,
    "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock", "resolvConf": "/etc/resolv.conf",
    "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1Mi", "imagefs.available": "1Mi"},
    "imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
}


class RealCluster(Cluster):
    """kube-apiserver, its controllers and scheduler."""

    def __init__(self, directory, assets):
        self.assets = assets
        super().__init__(directory, "node1")

    def _start(self):
        client, peer, at = f"http://{HOST}:{ETCD}", f"http://{HOST}:{PEER}", self.directory
        self._run(self.assets / "etcd", f"--data-dir={at}/etcd", "--log-level=warn", "--unsafe-no-fsync",
                  f"--listen-client-urls={client}", f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}",
                  f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}")
        run("openssl", "genrsa", "-out", "accounts.key", "2048", cwd=at)
        self._run(self.assets / "kube-apiserver", f"--etcd-servers={client}", f"--bind-address={HOST}", f"--secure-port={API}",
                  f"--advertise-address={ADDRESS}", f"--cert-dir={at}", f"--tls-cert-file={at}/server.crt",
                  f"--tls-private-key-file={at}/server.key", f"--client-ca-file={at}/ca.crt",
                  f"--service-account-issuer=https://{HOST}:{API}/", f"--service-account-key-file={at}/accounts.key",
                  f"--service-account-signing-key-file={at}/accounts.key", "--authorization-mode=Node,RBAC",
                  "--service-cluster-ip-range=10.0.0.0/24",
                  f"--kubelet-client-certificate={at}/admin.crt", f"--kubelet-client-key={at}/admin.key",
                  "--kubelet-preferred-address-types=InternalIP", "--endpoint-reconciler-type=none", "--shutdown-delay-duration=0s")
        self._trust()

    def start(self, *command):
        """Starts a part of the cluster that says nothing when it is ready."""
        self.processes.append(subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log))

    def create(self, path, value):
        # A real API server makes some namespaces itself.
        return self.ask("POST", path, json.dumps(value), allow=(409,) if path.endswith("/namespaces") else ())


def libraries(program):
    """Returns the files that the loader maps for a program, each by its place below `root`."""
    return {f"root{word}": Path(word).resolve() for word in run("ldd", program).split() if word.startswith("/")}


def images(lab, builder, bins, registry):
    """Gives containerd the builder, the agent, the controller and a pause image, and the registry a base; returns the base."""
    tool = ["buildah", "--root", lab / "storage", "--runroot", lab / "run", "--storage-driver", "vfs"]

    def image(name, lines, files):
        context = lab / name
        context.mkdir()
        for path, source in files.items():
            (context / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, context / path) if isinstance(source, Path) else (context / path).write_text(source)
        (context / "Containerfile").write_text("\n".join(lines) + "\n")
        run(*tool, "bud", "--isolation=chroot", "--layers=false", f"--tag=localhost/{name}:v1", context)
        return f"localhost/{name}:v1"

    def load(name):
        archive = lab / "image.tar"
        run(*tool, "push", "--quiet", name, f"oci-archive:{archive}:{name}")
        run("ctr", "--namespace", "k8s.io", "images", "import", archive)
        archive.unlink()

    busybox = Path(shutil.which("busybox"))
    agent = bins / "machine-config-agent"
    conf = f'[[registry]]\nlocation = "{registry}"\ninsecure = true\n'
    load(image("builder", ["FROM scratch", "ADD builder.tar /", "COPY lab.conf /etc/containers/registries.conf.d/lab.conf"],
               {"builder.tar": builder, "lab.conf": conf}))
    load(image("pause", ["FROM scratch", "COPY busybox /busybox", 'ENTRYPOINT ["/busybox", "sleep", "1000000"]'], {"busybox": busybox}))
    load(image("agent", ["FROM scratch", "COPY busybox /bin/cp", "COPY agent /usr/bin/machine-config-agent"],
               {"busybox": busybox, "agent": agent}))
    controller = bins / "machine-config-controller"
    load(image("controller", ["FROM scratch", "COPY root /"], libraries(controller) | {"root/usr/bin/machine-config-controller": controller}))
    files = libraries(agent)
    files |= {"root/bin/busybox": busybox, "root/etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "root/etc/group": "root:x:0:\n"}
    base = image("base", ["FROM scratch", "COPY root /", 'RUN ["/bin/busybox", "--install", "-s", "/bin"]'], files)
    run(*tool, "push", "--quiet", "--tls-verify=false", "--digestfile", lab / "digest", base, f"docker://{registry}/base:1")
    return f"{registry}/base@{(lab / 'digest').read_text()}"


def wait_file(path, process):
    """Waits for a socket of a program that tells nobody."""
    for _ in range(600):
        if path.exists():
            return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise HarnessError(f"{path} is not there")


def play(lab, assets, builder, bins):
    """Plays one build; returns what was seen."""
    run("ip", "link", "add", "br0", "type", "bridge")
    run("ip", "address", "add", f"{ADDRESS}/24", "dev", "br0")
    run("ip", "link", "set", "br0", "up")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    registry = f"{ADDRESS}:5000"
    (lab / "registry.yml").write_text(REGISTRY.format(root=lab / "registry", http=HTTP.format(address=registry)))
    (lab / "cni").mkdir()
    (lab / "cni/10-pods.conflist").write_text(json.dumps(NETWORK))
    (lab / "containerd.toml").write_text(CONTAINERD.format(root=lab, pause=PAUSE))
    cluster = RealCluster(lab, assets)
    try:
        cluster.start("docker-registry", "serve", lab / "registry.yml")
        run("mount", "-t", "tmpfs", "tmpfs", "/run")
        cluster.start("containerd", "--config", lab / "containerd.toml")
        wait_file(Path("/run/containerd/containerd.sock"), cluster.processes[-1])
        base = images(lab, builder, bins, registry)
        cluster.define(BUILD_CRDS)
        admin = cluster.admin_kubeconfig()
        cluster.start(assets / "kube-controller-manager", f"--kubeconfig={admin}", "--leader-elect=false",
                      "--controllers=*,-nodeipam,-cloud-node-lifecycle", f"--service-account-private-key-file={cluster.directory}/accounts.key",
                      f"--root-ca-file={cluster.directory}/ca.crt", f"--bind-address={HOST}")
        cluster.start(assets / "kube-scheduler", f"--kubeconfig={admin}", "--leader-elect=false", f"--bind-address={HOST}")
        node = lab / "node.kubeconfig"
        node.write_text(cluster.kubeconfig(HOST, "node1"))
        settings = {**KUBELET, "authentication": {**KUBELET["authentication"], "x509": {"clientCAFile": f"{cluster.directory}/ca.crt"}}}
        (lab / "kubelet.yaml").write_text(json.dumps(settings))
        began = time.monotonic()
        cluster.start(assets / "kubelet", f"--config={lab}/kubelet.yaml", f"--kubeconfig={node}", "--hostname-override=node1",
                      f"--node-ip={ADDRESS}", f"--root-dir={lab}/kubelet", f"--cert-dir={lab}/kubelet-certificates")

        def is_ready(node):
            return any((each["type"], each["status"]) == ("Ready", "True") for each in node["status"].get("conditions", []))

        cluster.timeout_factor = 5
        cluster.wait("the node is ready", NODES, "node1", is_ready)
        print(f"node ready after {time.monotonic() - began:.1f} s", flush=True)
        image = build(cluster, bins / "machine-config-controller", base, registry)
        single_node.with_controller(cluster, assets / "kubectl", CONTROLLER_IMAGE, bins / "machine-config-agent", PAUSE)
        return image
    finally:
        cluster.close()


def last_line(cluster, program, listener, expected):
    """Waits until the step of the build that connects here runs; returns what `status` shows of it, and how long the step was held."""
    screen = [str(program), "status", "--kubeconfig", str(cluster.admin_kubeconfig())]
    listener.settimeout(300)
    step, _ = listener.accept()
    began = time.monotonic()
    with step, subprocess.Popen([*screen, "--watch", "--output", "json"], stdout=subprocess.PIPE) as watch:
        try:
            limit, row = time.monotonic() + 120, None
            while not row:
                ready, _, _ = select.select([watch.stdout], [], [], max(0, limit - time.monotonic()))
                line = watch.stdout.readline() if ready else b""
                if not line:
                    raise HarnessError(f"status --watch does not show {expected!r}")
                row = next((each for each in json.loads(line)["builds"] if each["detail"] == expected), None)
        finally:
            watch.kill()
        if row["step"] != "Building" or not row.get("since"):
            raise HarnessError(f"status shows {row}")
        shown = [line for line in run(*screen).splitlines() if expected in line]
        if len(shown) != 1 or not re.search(r"Building +[0-9]+[sm]", shown[0]):
            raise HarnessError(f"the screen shows {shown}")
        return shown[0].strip(), time.monotonic() - began


def build(cluster, program, base, registry):
    """Has one image built by the controller's Job, and tells how."""
    settings = cluster.directory / "builds.yaml"
    settings.write_text(json.dumps({"builderImage": BUILDER, "agentImage": AGENT, "insecureRegistries": [registry]}))
    controller = Controller(cluster, "--build-settings", settings, program=program)
    try:
        auth = base64.b64encode(json.dumps({"auths": {}}).encode()).decode()
        for name in ("pull", "push"):
            cluster.create(f"/api/v1/namespaces/{NAMESPACE}/secrets", {
                "metadata": {"name": name}, "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": auth}})
        config = {"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
                  "metadata": {"name": "50-os", "labels": {key("role"): "worker"}},
                  "spec": {"osImageURL": base, "config": {"ignition": {"version": "3.2.0"}, "storage": {"files": [
                      {"path": "/etc/app.conf", "mode": 384, "contents": {"source": "data:,hello%0A"}}]}}}}
        cluster.create(CONFIGS, config)
        cluster.create(POOLS, {"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "metadata": {"name": "worker"},
                               "spec": {"machineConfigSelector": {"matchLabels": {key("role"): "worker"}},
                                        "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}}}})
        listener = socket.create_server((ADDRESS, 0))
        waits = f"RUN echo this step waits && nc {ADDRESS} {listener.getsockname()[1]} </dev/null && echo built >/built"
        began = time.monotonic()
        cluster.create(OS_CONFIGS, {
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineOSConfig", "metadata": {"name": "worker"},
            "spec": {"machineConfigPool": {"name": "worker"}, "imageBuilder": {"imageBuilderType": "Job"},
                     "containerFile": [{"containerfileArch": "NoArch", "content": f"FROM configs AS final\n{waits}\n"}],
                     "baseImagePullSecret": {"name": "pull"}, "renderedImagePushSecret": {"name": "push"},
                     "renderedImagePushSpec": f"{registry}/built/os:latest"}})

        def ended(one):
            return one.get("status", {}).get("currentImagePullSpec")

        try:
            shown, held = last_line(cluster, program, listener, "this step waits")
            print(f"status, while a step runs: {shown}", flush=True)
            image = cluster.wait("an image", OS_CONFIGS, "worker", ended)["status"]["currentImagePullSpec"]
        except (HarnessError, TimeoutError):
            for path in (OS_BUILDS, f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", f"/api/v1/namespaces/{NAMESPACE}/pods"):
                print(json.dumps([(each["metadata"]["name"], each.get("status")) for each in cluster.ask("GET", path)["items"]], indent=1)[:6000])
            print(controller.log.read_text()[-3000:])
            raise
        print(f"image built and pushed after {time.monotonic() - began - held:.1f} s: {image}", flush=True)
        labels = json.loads(run("skopeo", "inspect", "--tls-verify=false", f"docker://{image}"))["Labels"]
        if labels.get("machineconfigpool") != "worker":
            raise HarnessError(f"the labels of the image: {labels}")
        return image
    finally:
        controller.close()


def end_pods():
    """Ends the processes of pods: they keep their cgroups. Those of another process namespace have no number here."""
    groups = [path for path in Path("/sys/fs/cgroup").glob("**/kubepods/**/cgroup.procs")]
    for _ in range(100):
        left = {int(line) for path in groups if path.exists() for line in path.read_text().split()} - {0}
        if not left:
            return
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.1)


def clear(lab):
    """Removes what kubelet and containerd leave outside of their namespaces: mounts below a directory, and cgroups."""
    end_pods()
    mounted = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for place in sorted((place for place in mounted if place.startswith(f"{lab}/")), reverse=True):
        subprocess.run(["umount", "-l", place], check=False, capture_output=True)
    for directory in sorted(Path("/sys/fs/cgroup").glob("**/kubepods/**/"), reverse=True):
        with contextlib.suppress(OSError):
            directory.rmdir()


if __name__ == "__main__":
    nspawn.isolate()
    # What has its place outside of the directory ends with this process.
    for private in ("/var/log/pods", "/var/log/containers", "/var/lib/cni"):
        os.makedirs(private, exist_ok=True)
        run("mount", "-t", "tmpfs", "tmpfs", private)
    with tempfile.TemporaryDirectory(prefix="node-") as made:
        try:
            play(Path(made), *map(Path, sys.argv[1:]))
        finally:
            clear(made)
    print("2 passed, 0 failed")
