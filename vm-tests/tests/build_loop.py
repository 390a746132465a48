"""Promise: an image of a pool is built in the cluster from the hosts' own OS and a user's RUN step, and rolled out to two hosts that
boot: each is drained, switches, reboots and is Done. A change of files alone builds nothing. A build that fails is told, and touches no
host. Without the MachineOSConfig the hosts leave image mode. No secret is in a log, in an object but Secrets, or in the image.

Boots: 10
Minutes: 6
"""

import base64
import gzip
import json

from harness.agent import no_action
from harness.cluster import BUILD_CRDS, CONFIGS, MCNS, NODES, OS_BUILDS, OS_CONFIGS, POLICIES, POOLS, key
from harness.controller import Controller
from harness.pods import AGENT, BUILDER, Pods
from harness.promise import load

NOT_IN = {"machine": "two machines at once are too much for most processors"}
# It takes as long as ten others: only `./test all` plays it.
LONG = True
rollout = load("rollout")
NAMESPACE = "openshift-machine-config-operator"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
PATH, ADDED, PRIVATE, BUILT = "/etc/lab/settings.conf", "/etc/lab/added.conf", "/etc/lab/private.conf", "/usr/share/lab/built"
# Lines of htpasswd: `node`, whose password is PASSWORD.
ACCOUNTS = "node:$2b$04$GHO1/zhrx5fBTOHmuC3ZzecX0WIEIRz6.y09WwJ.2Jn2HGESzMwLe\n"
PASSWORD, HIDDEN = "open-sesame", "hidden-in-a-config"
# Of which an object may be said to hold no secret; events, too.
KINDS = ("/api/v1/configmaps", "/api/v1/pods", "/api/v1/events", "/api/v1/nodes", "/apis/batch/v1/jobs",
         OS_CONFIGS, OS_BUILDS, POOLS, MCNS)


def run_step(text):
    """Returns a user's part of a Containerfile."""
    return f"FROM configs AS final\nRUN {text}\n"


class Loop:
    """The cluster, its hosts, and what builds images for them."""

    def __init__(self, test):
        self.test, self.cluster, self.registry = test, test.cluster(), test.registry()
        self.first, self.second = test.machine, None
        # A build takes longer than a boot.
        self.cluster.timeout_factor = 10 * self.first.TIMEOUT_FACTOR
        self.second, agent = test.add_second()
        self.hosts = {self.cluster.node: (self.first, test.agent), self.second.name: (self.second, agent)}
        self.base = self.registry.push(test.images.layout.path, "v1", test.images.first)
        self.registry.stop()
        self.registry.start(ACCOUNTS)
        auth = base64.b64encode(f"node:{PASSWORD}".encode()).decode()
        self.auth = json.dumps({"auths": {self.registry.host: {"auth": auth}}})
        self.encoded = auth
        self.reboots = 0

    def secrets(self):
        """Creates the credentials of builds."""
        for name in ("pull", "push"):
            self.cluster.create(SECRETS, {"metadata": {"name": name}, "type": "kubernetes.io/dockerconfigjson",
                                          "data": {".dockerconfigjson": base64.b64encode(self.auth.encode()).decode()}})

    def join(self):
        """Boots the hosts and makes them nodes of the pool."""
        rollout.render(self.cluster)
        self.cluster.merge(f"{POLICIES}/cluster", {"spec": no_action(ADDED)["spec"]})
        base = rollout.pool_config("40-os", {PRIVATE: HIDDEN})
        base["spec"]["osImageURL"] = self.base
        self.cluster.create(CONFIGS, base)

        def has_os(pool):
            sources = [each["name"] for each in pool["spec"].get("configuration", {}).get("source", [])]
            return "40-os" in sources and rollout.rendered(pool)

        old = rollout.rendered(rollout.wait_pool(self.cluster, "a rendered config with an OS", has_os))
        for name, (machine, agent) in self.hosts.items():
            machine.boot()
            machine.write(PRIVATE, HIDDEN)
            agent.trust(self.registry)
            machine.write("/var/lib/kubelet/config.json", self.auth)
            machine.run("chmod", "600", "/var/lib/kubelet/config.json")
            rollout.join(machine, self.cluster, name, old)
            agent.start()
        for name in self.hosts:
            rollout.wait_done(self.cluster, name, old)
        return old

    def configure(self, containerfile):
        """Creates the MachineOSConfig, or gives it another Containerfile."""
        files = [{"containerfileArch": "NoArch", "content": containerfile}]
        if self.cluster.ask("GET", f"{OS_CONFIGS}/worker", allow=(404,)):
            return self.cluster.merge(f"{OS_CONFIGS}/worker", {"spec": {"containerFile": files}})
        return self.cluster.create(OS_CONFIGS, {
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineOSConfig", "metadata": {"name": "worker"},
            "spec": {"machineConfigPool": {"name": "worker"}, "imageBuilder": {"imageBuilderType": "Job"}, "containerFile": files,
                     "baseImagePullSecret": {"name": "pull"}, "renderedImagePushSecret": {"name": "push"},
                     "renderedImagePushSpec": f"{self.registry.host}/built/os:latest"}})

    def wait_image(self, what, is_so):
        """Waits until the MachineOSConfig names an image that is as required, and returns it."""
        def named(one):
            image = one.get("status", {}).get("currentImagePullSpec")
            return image and is_so(image)

        return self.cluster.wait(what, OS_CONFIGS, "worker", named)["status"]["currentImagePullSpec"]

    def roll_out(self, config, image):
        """Sees both hosts through a drain and a reboot, one after the other."""
        for name, (machine, _) in self.hosts.items():
            rollout.end_pod(self.cluster, name)
            machine.next_boot()
            self.wait_done(name, config, image)
            self.cluster.create("/api/v1/namespaces/default/pods", rollout.app_pod(name))
        self.reboots += 1
        for name, (_, agent) in self.hosts.items():
            self.test.same(f"reboots of {name}", len(agent.logged("REBOOT")), self.reboots)

    def wait_done(self, name, config, image):
        """Waits until a node is Done with both and takes pods."""
        rollout.wait_done(self.cluster, name, config)

        def has_image(node):
            told = node["metadata"]["annotations"]
            return [told.get(key(each)) for each in ("desiredImage", "currentImage")] == [image, image]

        self.cluster.wait(f"{name} has {image}", NODES, name, has_image)

    def builds(self):
        """Returns the builds by name."""
        return {each["metadata"]["name"]: each for each in self.cluster.ask("GET", OS_BUILDS)["items"]}


def secrets_found(loop, pods, controller):
    """Returns where a secret of this test is that has no place there."""
    places = {path: json.dumps(loop.cluster.ask("GET", path)) for path in KINDS}
    places |= {str(path): text for path, text in pods.logs().items()}
    places |= {str(path): path.read_text(errors="replace") for path in (controller.log, pods.directory / "log")}
    places |= {f"journal of {name}": machine.run("journalctl", "--no-pager", "--output=json") for name, (machine, _) in loop.hosts.items()}
    found = [f"{word} in {place}" for place, text in places.items() for word in (PASSWORD, loop.encoded, HIDDEN) if word in text]
    # The config is in the image, as it has to be; credentials are not. What the hosts were installed from was there before.
    old = [loop.registry.blob(layer) for layer in loop.test.images.layout.layers("v1")]
    for blob in (loop.registry.root / "docker/registry/v2/blobs/sha256").glob("*/*/data"):
        data = blob.read_bytes() if blob not in old else b""
        data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
        found += [f"{word} in {blob}" for word in (PASSWORD, loop.encoded) if word.encode() in data]
    return found


def play(test):
    loop = Loop(test)
    cluster, registry = loop.cluster, loop.registry
    cluster.define(BUILD_CRDS)
    pods = Pods(cluster, registry, test.images.program("machine-config-agent"))
    settings = cluster.directory / "builds.yaml"
    settings.write_text(json.dumps({"builderImage": BUILDER, "agentImage": AGENT, "insecureRegistries": [registry.host]}))
    controller = Controller(cluster, "--build-settings", settings)
    try:
        loop.secrets()
        config = loop.join()

        # Boots 3 and 4: into image mode, by a build with a step of the user's.
        loop.configure(run_step(f"echo 1 >{BUILT}"))
        first = loop.wait_image("the first image", bool)
        loop.roll_out(config, first)
        for name, (machine, _) in loop.hosts.items():
            test.same(f"{BUILT} of {name}", machine.read(BUILT), "1\n")
        test.same("builds", len(loop.builds()), 1)

        # A change of files: the same image, nothing is built, nobody reboots.
        cluster.create(CONFIGS, rollout.pool_config("60-added", {ADDED: "by = files\n"}))
        config = rollout.rendered(rollout.wait_pool(cluster, "a config with another file", lambda pool: rollout.rendered(pool) != config))
        for name, (machine, _) in loop.hosts.items():
            loop.wait_done(name, config, first)
            test.same(f"{ADDED} of {name}", machine.read(ADDED), "by = files\n")
        test.same("images of all builds", {each["status"]["digestedImagePushSpec"] for each in loop.builds().values()}, {first})

        # Boots 5 and 6: a change that needs an image.
        loop.configure(run_step(f"echo 2 >{BUILT}"))
        second = loop.wait_image("the second image", lambda image: image != first)
        loop.roll_out(config, second)
        for name, (machine, _) in loop.hosts.items():
            test.same(f"{BUILT} of {name}", machine.read(BUILT), "2\n")
            test.same(f"{ADDED} of {name}", machine.read(ADDED), "by = files\n")

        # A step that fails: the pool says so, nobody is touched.
        loop.configure(run_step("echo no luck >&2 && false"))
        told = rollout.wait_pool(cluster, "the build fails", lambda pool: condition(pool, "ImageBuildDegraded")["status"] == "True")
        message = condition(told, "ImageBuildDegraded")["message"]
        test.same(f"the step and what it said are in {message}", "no luck" in message and "false" in message, True)
        for name in loop.hosts:
            loop.wait_done(name, config, second)
        test.same("boots", [machine.boots for machine, _ in loop.hosts.values()], [3, 3])

        # Boots 7 and 8: corrected.
        loop.configure(run_step(f"echo 3 >{BUILT}"))
        third = loop.wait_image("the third image", lambda image: image != second)
        loop.roll_out(config, third)
        rollout.wait_pool(cluster, "the pool is well", lambda pool: condition(pool, "ImageBuildDegraded")["status"] == "False")

        # Boots 9 and 10: out of image mode.
        cluster.ask("DELETE", f"{OS_CONFIGS}/worker")
        loop.roll_out(config, None)
        for name, (machine, agent) in loop.hosts.items():
            test.same(f"{BUILT} of {name}", machine.exists(BUILT), False)
            test.same(f"{ADDED} of {name}", machine.read(ADDED), "by = files\n")
            test.same(f"faults in the journal of {name}", [line["MESSAGE"] for line in agent.logged("FAULT")], [])
        test.same("secrets where none belongs", secrets_found(loop, pods, controller), [])
    finally:
        controller.close()
        pods.close()


def condition(pool, kind):
    """Returns a condition of the pool."""
    conditions = pool.get("status", {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == kind), {"status": "Unknown", "message": ""})
