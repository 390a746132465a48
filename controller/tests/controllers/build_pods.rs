//! A small kubelet for the pods of builds: volumes out of the API server's objects, each container's own command with this machine's
//! buildah in namespaces of its own, exit code and termination message into the pod's status.
//!
//! The builder's image is this machine's root; any other image is a directory. No network, no resources, no probes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Stdio;
use std::sync::Arc;

use futures_util::StreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, Secret, Volume};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use tokio::process::Command;
use tokio::task::JoinHandle;

use crate::build_jobs::{ended_well, failed_again, projected};
use crate::cluster::{Bench, Presence, changes, key};
use crate::process::NAMESPACE;

/// Bytes and lines of a log that a kubelet takes as the termination message.
const MAX_MESSAGE: usize = 2048;
const MAX_LINES: usize = 80;

/// What a container runtime does before a container's command: volumes and a `/dev` with the termination log. `$1` is the container's
/// root, `$2` the directory of the pod; the lines of `mounts` are source, target and mode.
const RUN: &str = r#"
root=${1%/} pod=$2
shift 2
mount -t tmpfs tmpfs "$root/run"
[ -n "$root" ] || mount -t tmpfs tmpfs /var/lib
mkdir -p "$root/etc/containers/certs.d"
mount -t tmpfs tmpfs "$root/etc/containers/certs.d"
while read -r source target mode; do
  mkdir -p "$root$target"
  mount --bind "$source" "$root$target"
  [ "$mode" = rw ] || mount -o remount,bind,ro "$root$target"
done <"$pod/mounts"
mkdir -p "$pod/dev"
mount -t tmpfs tmpfs "$pod/dev"
mkdir "$pod/dev/shm" "$pod/dev/pts" "$pod/dev/mqueue"
for device in null zero full random urandom tty; do
  touch "$pod/dev/$device"
  mount --bind "/dev/$device" "$pod/dev/$device"
done
ln -s /proc/self/fd "$pod/dev/fd"
touch "$pod/dev/termination-log"
mount --bind "$pod/message" "$pod/dev/termination-log"
mkdir -p "$root/dev"
mount --rbind "$pod/dev" "$root/dev"
exec chroot "${root:-/}" "$@"
"#;

/// Runs the pods of builds until it is dropped. The rest of a Job is [`crate::build_jobs`]'s.
pub struct PodRunner {
    task: JoinHandle<()>,
}

impl PodRunner {
    /// `roots` are directories by the name of an image.
    pub async fn start(bench: &Bench, lab: &Path, roots: &[(&str, &Path)]) -> Self {
        let roots = roots.iter().map(|(image, root)| ((*image).to_owned(), (*root).to_owned()));
        let client = bench.client("kubelet").await;
        let kubelet = Arc::new(Kubelet { client, lab: lab.to_owned(), roots: roots.collect() });
        Self { task: tokio::spawn(kubelet.run()) }
    }
}

impl Drop for PodRunner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Kubelet {
    client: Client,
    lab: PathBuf,
    roots: BTreeMap<String, PathBuf>,
}

/// End of a container.
struct Ended {
    code: i32,
    message: String,
}

impl Kubelet {
    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// One pod after the other, as each comes.
    async fn run(self: Arc<Self>) {
        let which = ListParams::default().labels(&key("machine-os-build"));
        let pods = self.api::<Pod>();
        let mut changes = pin!(changes(&pods, &which).await.unwrap());
        while let Some((pod, presence)) = changes.next().await {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
            if presence == Presence::There && phase == "Pending" {
                self.run_pod(&pod).await;
            }
        }
    }

    async fn run_pod(&self, pod: &Pod) {
        let spec = pod.spec.clone().unwrap();
        let volumes = self.volumes(pod, spec.volumes.as_deref().unwrap_or_default()).await;
        let mut statuses = [Vec::new(), Vec::new()];
        let mut is_well = true;
        let init = spec.init_containers.clone().unwrap_or_default();
        let all =
            init.iter().map(|container| (0, container)).chain(spec.containers.iter().map(|one| (1, one)));
        for (kind, container) in all {
            let ended = self.run_container(pod, container, &volumes).await;
            is_well = ended.code == 0;
            let reason = if is_well { "Completed" } else { "Error" };
            let terminated = json!({ "exitCode": ended.code, "reason": reason, "message": ended.message });
            statuses[kind].push(json!({
                "name": container.name, "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": { "terminated": terminated },
            }));
            if !is_well {
                break;
            }
        }
        let phase = if is_well { "Succeeded" } else { "Failed" };
        let [init, main] = statuses;
        let status =
            json!({ "status": { "phase": phase, "initContainerStatuses": init, "containerStatuses": main } });
        self.api::<Pod>()
            .patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
        self.end_job(&pod.owner_references()[0].name, is_well).await;
    }

    /// The Job controller's part.
    async fn end_job(&self, name: &str, is_well: bool) {
        let jobs = self.api::<Job>();
        let failed = jobs.get(name).await.unwrap().status.and_then(|status| status.failed).unwrap_or(0);
        let status = if is_well { ended_well() } else { failed_again(failed + 1) };
        let status = Patch::Merge(json!({ "status": status }));
        jobs.patch_status(name, &PatchParams::default(), &status).await.unwrap();
    }

    fn place(&self, pod: &Pod) -> PathBuf {
        self.lab.join(pod.uid().unwrap())
    }

    /// Writes the volumes of a pod; returns them by name.
    async fn volumes(&self, pod: &Pod, volumes: &[Volume]) -> BTreeMap<String, PathBuf> {
        let mut all = BTreeMap::new();
        for volume in volumes {
            let path = self.place(pod).join("volumes").join(&volume.name);
            std::fs::create_dir_all(&path).unwrap();
            for (name, bytes) in self.contents(volume).await {
                std::fs::write(path.join(name), bytes).unwrap();
            }
            all.insert(volume.name.clone(), path);
        }
        all
    }

    async fn contents(&self, volume: &Volume) -> Vec<(String, Vec<u8>)> {
        if let Some(secret) = &volume.secret {
            let found = self.api::<Secret>().get(secret.secret_name.as_ref().unwrap()).await.unwrap();
            return found.data.unwrap().into_iter().map(|(name, bytes)| (name, bytes.0)).collect();
        }
        if let Some(map) = &volume.config_map {
            let found = self.api::<ConfigMap>().get(&map.name).await.unwrap();
            return found.data.unwrap().into_iter().map(|(name, text)| (name, text.into_bytes())).collect();
        }
        let mut all = Vec::new();
        for name in projected(volume) {
            let found = self.api::<Secret>().get(&name).await.unwrap();
            all.extend(found.data.unwrap().into_iter().map(|(name, bytes)| (name, bytes.0)));
        }
        assert!(volume.empty_dir.is_some() || !all.is_empty(), "{volume:?}");
        all
    }

    async fn run_container(
        &self,
        pod: &Pod,
        container: &Container,
        volumes: &BTreeMap<String, PathBuf>,
    ) -> Ended {
        let place = self.place(pod);
        let mounts = container.volume_mounts.iter().flatten().map(|mount| {
            let mode = if mount.read_only == Some(true) { "ro" } else { "rw" };
            format!("{} {} {mode}\n", volumes[&mount.name].display(), mount.mount_path)
        });
        std::fs::write(place.join("mounts"), mounts.collect::<String>()).unwrap();
        std::fs::write(place.join("message"), "").unwrap();
        let log = std::fs::File::create(place.join("log")).unwrap();
        let root = self.roots.get(container.image.as_ref().unwrap()).map_or(Path::new("/"), PathBuf::as_path);
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "--propagation",
            "private",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ]);
        command
            .args(["sh", "-euc", RUN, "run"])
            .arg(root)
            .arg(&place)
            .args(container.command.iter().flatten());
        command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        for variable in container.env.iter().flatten() {
            command.env(&variable.name, variable.value.as_deref().unwrap_or_default());
        }
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).kill_on_drop(true);
        let status = command.status().await.unwrap();
        let mut message = std::fs::read_to_string(place.join("message")).unwrap();
        let policy = container.termination_message_policy.as_deref();
        if !status.success() && message.is_empty() && policy == Some("FallbackToLogsOnError") {
            message = tail(&String::from_utf8_lossy(&std::fs::read(place.join("log")).unwrap()));
        }
        Ended { code: status.code().unwrap_or(137), message }
    }
}

/// The end of a log, as a kubelet takes it.
fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let text = lines[lines.len().saturating_sub(MAX_LINES)..].join("\n");
    let skipped = text.chars().count().saturating_sub(MAX_MESSAGE);
    text.chars().skip(skipped).collect()
}
