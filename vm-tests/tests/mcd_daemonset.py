"""Promise: the pod of MCD's DaemonSet with only its image replaced carries a node: by MCD's command and arguments, with MCD's account,
which may write no Node, and without the agent on the host; a file and an image are applied with one reboot that the pod asks
for, and the pod that the kubelet starts in the next boot reports Done; a pod that is killed is replaced.

Boots: 2
Minutes: 0.4; in a machine 5
"""

from harness.agent import KUBECONFIG, config
from harness.cluster import CONFIGS, GROUP

PATH, BROUGHT, VERSION = "/etc/lab/settings.conf", "/etc/lab/app.conf", "/usr/share/lab/version"
FIRST, SECOND = "rendered-worker-a", "rendered-worker-b"
NAMESPACE = "openshift-machine-config-operator"
ACCOUNT, TOKEN = f"system:serviceaccount:{NAMESPACE}:machine-config-daemon", "geheim-mcd"
# MCD's ClusterRole, as far as it names what the agent asks for.
RULES = (f"{ACCOUNT} get,list,watch *\n{ACCOUNT} create,patch events,events.events.k8s.io\n"
         f"{ACCOUNT} * machineconfignodes.{GROUP},machineconfignodes.{GROUP}/status\n")
# What the image has; the host has none of it.
IMAGE, VOLUME = "/var/lib/lab-image", "/var/lib/lab-volume"
PROGRAMS = ("/usr/bin/machine-config-agent", "/usr/libexec/machine-config-agent")
KEEP = ('mkdir -p "$0/usr/bin" "$0/usr/libexec" && cp -a "$1" "$0/usr/bin/" && cp -a "$2" "$0/usr/libexec/"'
        ' && ln -s machine-config-agent "$0/usr/bin/machine-config-daemon"')
HIDE = f"mount --bind /dev/null {PROGRAMS[0]} && mount -t tmpfs lab {PROGRAMS[1]}"
# The kubelet's and the container runtime's part: a root of the container's own, with the libraries of its image, the host's root
# with what is mounted there later, and the account's volume. The process is the host's, as is its network.
ROOT = "/run/lab-pod"
CONTAINER = r"""set -e
image=$0 volume=$1 root=$2; shift 2
mkdir -p "$root"
mount -t tmpfs lab "$root"
cd "$root"
mkdir -p usr/lib usr/lib64 dev etc proc rootfs run/secrets/kubernetes.io/serviceaccount tmp var
cp -a "$image/usr/." usr
ln -s ../run var/run
for place in bin lib lib64; do ln -s "usr/$place" "$place"; done
for place in usr/lib usr/lib64; do mount --bind "/$place" "$place"; done
mount --rbind / rootfs
mount --rbind /dev dev
mount -t proc proc proc
mount --bind "$volume" run/secrets/kubernetes.io/serviceaccount
mount --move . /
exec chroot . /rootfs/usr/bin/env -i PATH=/usr/bin:/usr/sbin NODE_NAME=node KUBERNETES_SERVICE_HOST=127.0.0.1 KUBERNETES_SERVICE_PORT=1 "$@"
"""
# Of MCD's manifest.
ARGUMENTS = ("/usr/bin/machine-config-daemon", "start", "--payload-version=4.20.1", "--v=2",
             "--tls-cipher-suites=TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384", "--tls-min-version=VersionTLS12")
SCRIPT, POD, HIDDEN = "/etc/lab/pod", "lab-pod.service", "lab-hide.service"
UNITS = {
    HIDDEN: (f"[Unit]\nBefore={POD}\n[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -c '{HIDE}'\n"
             "[Install]\nWantedBy=multi-user.target\n"),
    # It starts the container again, as the kubelet does.
    POD: (f"[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestart=always\nRestartSec=1\nExecStart=/usr/bin/unshare --mount"
          f" --propagation=slave /bin/sh {SCRIPT} {VOLUME} {ROOT} {' '.join(ARGUMENTS)}\n[Install]\nWantedBy=multi-user.target\n"),
}


def installed(test):
    """Takes the agent from the host, and makes the pod of it."""
    machine, cluster = test.machine, test.cluster()
    machine.run("sh", "-ec", KEEP, IMAGE, *PROGRAMS)
    cluster.grant(TOKEN, ACCOUNT, RULES)
    for name, text in (("token", TOKEN), ("ca.crt", (cluster.directory / "ca.crt").read_text())):
        machine.write(f"{VOLUME}/{name}", text)
    machine.write(SCRIPT, CONTAINER.replace("$0", IMAGE))
    for name, text in UNITS.items():
        machine.write(f"/etc/systemd/system/{name}", text)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "enable", "--now", *UNITS)


def play(test):
    machine, agent, images, registry, cluster = test.machine, test.agent, test.images, test.registry(), test.cluster()
    digest = images.next("v2", {BROUGHT.lstrip("/"): "from = image\n", VERSION.lstrip("/"): "2\n"}, {"machineconfig": SECOND})
    image = registry.push(images.layout.path, "v2", digest)
    cluster.timeout_factor = machine.TIMEOUT_FACTOR
    cluster.create_policies()
    cluster.create(CONFIGS, config(FIRST, {PATH: "version = 1\n"}))
    cluster.create(CONFIGS, config(SECOND, {PATH: "version = 1\n", BROUGHT: "from = image\n"}))
    # A single node is not drained.
    cluster.create_node(cluster.node, {"desiredConfig": FIRST, "controlPlaneTopology": "SingleReplica"})

    # Boot 1: the kubelet's credentials are the host's, as are those of the registry.
    machine.boot()
    machine.write(PATH, "version = 1\n")
    agent.trust(registry)
    machine.write(KUBECONFIG, cluster.kubeconfig(machine.HOST_ADDRESS))
    machine.run("chmod", "600", KUBECONFIG)
    installed(test)
    cluster.wait_node(f"Done with {FIRST}", state="Done", currentConfig=FIRST)
    test.same("the host's agent", machine.run("stat", "-c", "%F", PROGRAMS[0]).strip(), "character special file")
    machine.kill(machine.run("systemctl", "show", "--value", "--property=MainPID", POD).strip())

    # Boot 2: another pod stages and reboots; the one of the new boot says that it is done.
    cluster.patch(desiredConfig=SECOND, desiredImage=image)
    machine.next_boot()
    cluster.wait_node("Done", state="Done", currentConfig=SECOND, currentImage=image, reason="")
    test.same(BROUGHT, machine.read(BROUGHT), "from = image\n")
    test.same(VERSION, machine.read(VERSION), "2\n")
    test.same("the host's agent", machine.run("stat", "-c", "%F", PROGRAMS[0]).strip(), "character special file")
    test.same("boots", machine.boots, 2)
    journal = machine.run("journalctl", "--no-pager", "--output=json")
    test.same("the token in the journal", TOKEN in journal, False)
