"""The pod of MCD's DaemonSet with only its image replaced, as the kubelet and the container runtime start it."""

from .cluster import GROUP

NAMESPACE = "openshift-machine-config-operator"
ACCOUNT, TOKEN = f"system:serviceaccount:{NAMESPACE}:machine-config-daemon", "geheim-mcd"
# MCD's ClusterRole, as far as it names what the agent asks for.
RULES = (f"{ACCOUNT} get,list,watch *\n{ACCOUNT} create,patch events,events.events.k8s.io\n"
         f"{ACCOUNT} * machineconfignodes.{GROUP},machineconfignodes.{GROUP}/status\n")
# What the image has.
IMAGE, VOLUME = "/var/lib/lab-image", "/var/lib/lab-volume"
PROGRAMS = ("/usr/bin/machine-config-agent", "/usr/libexec/machine-config-agent")
KEEP = ('mkdir -p "$0/usr/bin" "$0/usr/libexec" && cp -a "$1" "$0/usr/bin/" && cp -a "$2" "$0/usr/libexec/"'
        ' && ln -s machine-config-agent "$0/usr/bin/machine-config-daemon"')
# The kubelet's and the container runtime's part: a root of the container's own, with the libraries of its image, the host's root
# with what is mounted there later, and the account's volume. The process is the host's, as is its network.
ROOT = "/run/lab-pod"
CONTAINER = r"""set -e
image=$1 volume=$2 root=$3; shift 3
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
# It starts the container again, as the kubelet does.
UNIT = (f"[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestart=always\nRestartSec=1\nExecStart=/usr/bin/unshare --mount"
        f" --propagation=slave /bin/sh {SCRIPT} {IMAGE} {VOLUME} {ROOT} {' '.join(ARGUMENTS)}\n[Install]\nWantedBy=multi-user.target\n")
# Of a host that has no agent of its own.
HIDE = (f"[Unit]\nBefore={POD}\n[Service]\nType=oneshot\nRemainAfterExit=yes\n"
        f"ExecStart=/bin/sh -c 'mount --bind /dev/null {PROGRAMS[0]} && mount -t tmpfs lab {PROGRAMS[1]}'\n"
        "[Install]\nWantedBy=multi-user.target\n")


def keep(machine):
    """Makes the pod's image of the agent that a running host has."""
    machine.run("sh", "-ec", KEEP, IMAGE, *PROGRAMS)


def grant(cluster):
    """Lets the pod's account do what MCD's may."""
    cluster.grant(TOKEN, ACCOUNT, RULES)


def place(machine, cluster):
    """Gives a host what the kubelet needs to run the pod, but for its image; it runs when its unit is started."""
    for name, text in (("token", TOKEN), ("ca.crt", (cluster.directory / "ca.crt").read_text())):
        machine.write(f"{VOLUME}/{name}", text)
    machine.write(SCRIPT, CONTAINER)
    machine.write(f"/etc/systemd/system/{POD}", UNIT)
