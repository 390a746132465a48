"""The kubelet of one node: the pods that it has, as processes."""

import base64
import shlex
import shutil
import signal
import subprocess
import threading
import time

from api import ApiError, now, told

# What a container runtime gives by default.
DEFAULTS = ("CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP", "SETPCAP",
            "NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
# What the kubelet takes of a termination message, and of a log in its place.
MAX_MESSAGE, MAX_LOG, MAX_LINES = 4096, 2048, 80
SCRIPT = r"""
set -e
root=$1 image=$2; shift 2
mount -t tmpfs tmpfs "$root"
mkdir "$root/upper" "$root/work" "$root/merged"
# The image's own files are above this machine's, which overlayfs refuses of a directory below its other layer.
cp -a "$image/." "$root/upper/"
mount -t overlay overlay -o "lowerdir=/,upperdir=$root/upper,workdir=$root/work" "$root/merged"
cd "$root/merged"
mount -t proc proc proc
mount --rbind /sys sys; mount --make-rslave sys
mount -t tmpfs tmpfs tmp; chmod 1777 tmp
mount -t tmpfs tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx; ln -s /proc/self/fd dev/fd
for stream in 0:stdin 1:stdout 2:stderr; do ln -s /proc/self/fd/${stream%:*} dev/${stream#*:}; done
"""


class Kubelet:
    """Runs the pods of its node."""

    def __init__(self, api, work, node, images):
        self.api, self.work, self.node, self.images = api, work, node, images
        self.running, self.lock = {}, threading.Lock()

    def see(self, what, pod):
        """Takes an event of a pod."""
        uid, metadata = pod["metadata"]["uid"], pod["metadata"]
        if pod["spec"].get("nodeName") != self.node:
            return
        if what == "DELETED" or "deletionTimestamp" in metadata:
            if mine := self.running.get(uid):
                mine.end()
            elif what != "DELETED" and pod["status"].get("phase") in ("Succeeded", "Failed"):
                self.api.delete("pods", pod, gracePeriodSeconds=0)
            return
        if uid not in self.running and pod["status"].get("phase", "Pending") == "Pending":
            self.running[uid] = Pod(self, pod)
            threading.Thread(target=self.running[uid].run, daemon=True).start()


class Pod:
    """One pod."""

    def __init__(self, kubelet, pod):
        self.kubelet, self.api, self.pod = kubelet, kubelet.api, pod
        self.directory = kubelet.work / "pods" / pod["metadata"]["name"]
        self.process, self.ended, self.lock = None, threading.Event(), threading.Lock()
        self.statuses = {"initContainerStatuses": [], "containerStatuses": []}

    def end(self):
        """Ends it, as its deletion wants."""
        with self.lock:
            self.ended.set()
            if self.process:
                # With the process that holds the namespace, all others go.
                self.process.send_signal(signal.SIGKILL)

    def run(self):
        """Runs its containers, one after the other."""
        spec, phase = self.pod["spec"], "Failed"
        try:
            if self._volumes():
                self._status("Pending", startTime=now())
                each = [("initContainerStatuses", one) for one in spec.get("initContainers", [])]
                each += [("containerStatuses", one) for one in spec["containers"]]
                phase = "Succeeded" if all(self._container(*one) for one in each) else "Failed"
        except ApiError as error:
            told("pod", self.pod["metadata"]["name"], error)
        self._status(phase)
        told("pod", self.pod["metadata"]["name"], phase)
        if self.ended.is_set():
            self.api.delete("pods", self.pod, gracePeriodSeconds=0)
        for volume in spec.get("volumes", []):
            place = self.directory / "volumes" / volume["name"]
            if volume.get("emptyDir", {}).get("medium") == "Memory":
                subprocess.run(["umount", place], check=False)
            shutil.rmtree(place, ignore_errors=True)

    def _status(self, phase, **more):
        self.api.merge(f"{self.api.path('pods', self.pod)}/status", {"status": {"phase": phase, **self.statuses, **more}})

    def _volumes(self):
        """Makes the volumes; waits for what they are made of."""
        for volume in self.pod["spec"].get("volumes", []):
            place = self.directory / "volumes" / volume["name"]
            place.mkdir(parents=True)
            if "emptyDir" in volume:
                if volume["emptyDir"].get("medium") == "Memory":
                    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], check=True)
                place.chmod(0o777)
                continue
            found = None
            while found is None and not self.ended.is_set():
                found = self._source(volume)
                if found is None:
                    time.sleep(0.2)
            if found is None:
                return False
            files, mode = found
            # As the kubelet swaps them: links through a directory that is hidden.
            data = place / "..data"
            data.mkdir()
            for name, content in files.items():
                (data / name).write_bytes(content)
                (data / name).chmod(mode)
                (place / name).symlink_to(f"..data/{name}")
        return True

    def _source(self, volume):
        namespace = self.pod["metadata"]["namespace"]
        if source := volume.get("configMap"):
            one = self.api.ask("GET", f"/api/v1/namespaces/{namespace}/configmaps/{source['name']}", allow=(404,))
            files = {name: text.encode() for name, text in ((one or {}).get("data") or {}).items()}
            files |= {name: base64.b64decode(text) for name, text in ((one or {}).get("binaryData") or {}).items()}
        elif source := volume.get("secret"):
            one = self.api.ask("GET", f"/api/v1/namespaces/{namespace}/secrets/{source['secretName']}", allow=(404,))
            files = {name: base64.b64decode(text) for name, text in ((one or {}).get("data") or {}).items()}
        else:
            raise ApiError(0, f"a volume of a kind that is not played: {volume}")
        if one is None and not source.get("optional"):
            return None
        return files, source.get("defaultMode", 0o644)

    def _container(self, statuses, container):
        """Runs a container; returns whether it ended well."""
        name, began = container["name"], now()
        entry = {"name": name, "image": container["image"], "imageID": "", "restartCount": 0, "ready": True, "started": True,
                 "state": {"running": {"startedAt": began}}}
        self.statuses[statuses].append(entry)
        self._status("Running" if statuses == "containerStatuses" else "Pending")
        message = self.directory / f"{name}.message"
        message.touch()
        log = self.directory / f"{name}.log"
        code = self._execute(container, message, log)
        text = message.read_bytes()[:MAX_MESSAGE]
        if not text and code != 0 and container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            text = b"\n".join(log.read_bytes()[-MAX_LOG:].splitlines()[-MAX_LINES:])
        terminated = {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "startedAt": began, "finishedAt": now(),
                      "message": text.decode(errors="replace")}
        entry |= {"ready": False, "started": False, "state": {"terminated": terminated}}
        return code == 0

    def _execute(self, container, message, log):
        image = self.kubelet.images.get(container["image"])
        if image is None:
            log.write_text(f"there is no image {container['image']}\n")
            return 128
        root = self.directory / f"{container['name']}.root"
        root.mkdir()
        lines = [SCRIPT]
        binds = [(f"/dev/{name}", f"dev/{name}", True) for name in DEVICES]
        binds.append((message, container.get("terminationMessagePath", "/dev/termination-log").lstrip("/"), True))
        binds += [(self.directory / "volumes" / mount["name"], mount["mountPath"].lstrip("/"), False)
                  for mount in container.get("volumeMounts", [])]
        for source, target, is_file in binds:
            target = shlex.quote(target)
            lines.append(f": >{target}" if is_file else f"mkdir -p {target}")
            lines.append(f"mount --bind {shlex.quote(str(source))} {target}")
        lines += [f"mount -o remount,bind,ro {shlex.quote(mount['mountPath'].lstrip('/'))}"
                  for mount in container.get("volumeMounts", []) if mount.get("readOnly")]
        # No chroot: in one the kernel gives no user namespace, which buildah wants.
        lines.append('mkdir oldroot; pivot_root . oldroot; cd /; umount -l oldroot; rmdir oldroot; exec "$@"')
        env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME": self.pod["metadata"]["name"]}
        env |= {each["name"]: each.get("value", "") for each in container.get("env", [])}
        command = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "sh", "-c", "\n".join(lines), "sh",
                   str(root), image, "env", "-i", *(f"{name}={value}" for name, value in env.items()),
                   *privileges(container), *container["command"], *container.get("args", [])]
        with self.lock:
            if self.ended.is_set():
                return 137
            with open(log, "wb") as out:
                self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        code = self.process.wait()
        self.process = None
        return 128 - code if code < 0 else code


def privileges(container):
    """Returns the words before a command that take from it what its security context does not give."""
    context = container.get("securityContext", {})
    if context.get("privileged"):
        return []
    asked = context.get("capabilities", {})
    kept = set() if "ALL" in asked.get("drop", []) else set(DEFAULTS) - set(asked.get("drop", []))
    kept |= set(asked.get("add", []))
    words = ["setpriv", "--bounding-set=" + ",".join(["-all", *(f"+{name.lower()}" for name in sorted(kept))]),
             "--inh-caps=-all"]
    user = context.get("runAsUser", 0)
    if user:
        words += [f"--reuid={user}", f"--regid={context.get('runAsGroup', user)}", "--clear-groups"]
    if context.get("allowPrivilegeEscalation") is False:
        words.append("--no-new-privs")
    return [*words, "--"]
