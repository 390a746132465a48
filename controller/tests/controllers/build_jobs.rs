//! The cluster's part of a build: the Job controller, the kubelet's status of its pods, and the garbage collector.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Volume};
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, ObjectList, Patch, PatchParams, PostParams, Preconditions,
    PropagationPolicy,
};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cluster::{Bench, Presence, changes, key, object_api, within};
use crate::process::NAMESPACE;

/// Fate of the Jobs' pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plays {
    /// None is made.
    Held,
    /// They are made, and build on.
    Running,
    /// They push.
    Well,
    /// They fail.
    Badly,
}

/// The digest that a build's pod pushes.
pub fn digest(build: &str) -> String {
    let digits = build.rsplit('-').next().unwrap();
    format!("sha256:{digits}{digits}")
}

/// Tries of a Job.
const TRIES: i32 = 4;

/// Begin and end of each Job.
const BEGAN: &str = "2026-01-01T00:00:00Z";
const ENDED: &str = "2026-01-01T00:00:01Z";

/// Builds with the UIDs of their Jobs.
type Started = Arc<Mutex<Vec<(String, String)>>>;

/// Jobs are carried out, and what has lost its owner is removed.
pub struct JobController {
    plays: watch::Sender<Plays>,
    started: Started,
    client: Client,
    tasks: Vec<JoinHandle<()>>,
}

impl JobController {
    pub async fn start(bench: &Bench, plays: Plays) -> Self {
        let client = bench.client("job-controller").await;
        let plays = watch::channel(plays).0;
        let started = Started::default();
        let world = World { client: client.clone(), plays: plays.subscribe(), started: Arc::clone(&started) };
        let tasks = vec![tokio::spawn(world.clone().on_jobs()), tokio::spawn(world.on_builds())];
        Self { plays, started, client, tasks }
    }

    pub fn play(&self, plays: Plays) {
        self.plays.send_replace(plays);
    }

    /// The builds whose Jobs ran, one entry for each Job.
    pub fn started(&self) -> Vec<String> {
        self.started.lock().unwrap().iter().map(|(build, _)| build.clone()).collect()
    }

    /// Waits until no Job, pod or input of a build is left.
    pub async fn until_gone(&self) {
        within("Jobs, pods and inputs are gone", async {
            while !objects(&self.client).await.is_empty() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// The names of what is there of builds.
    pub async fn objects(&self) -> Vec<String> {
        objects(&self.client).await
    }
}

impl Drop for JobController {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn names<K>(client: &Client) -> Vec<String>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let of_builds = ListParams::default().labels(&key("machine-os-build"));
    let listed = Api::<K>::namespaced(client.clone(), NAMESPACE).list(&of_builds).await;
    let names = |all: ObjectList<K>| all.items.iter().map(kube::ResourceExt::name_any).collect();
    // One that can't be read is not empty.
    listed.map_or_else(|_| vec!["?".to_owned()], names)
}

async fn objects(client: &Client) -> Vec<String> {
    let jobs = [names::<Job>(client).await, names::<Pod>(client).await];
    let inputs = [names::<ConfigMap>(client).await, names::<Secret>(client).await];
    jobs.into_iter().chain(inputs).flatten().collect()
}

#[derive(Clone)]
struct World {
    client: Client,
    plays: watch::Receiver<Plays>,
    started: Started,
}

impl World {
    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Carries Jobs out, each time one changes, or what is played does.
    async fn on_jobs(mut self) {
        loop {
            let jobs = self.api::<Job>();
            let Ok(changes) = changes(&jobs, &ListParams::default()).await else {
                tokio::task::yield_now().await;
                continue;
            };
            self.collect().await;
            let mut changes = pin!(changes);
            let mut known = BTreeMap::new();
            loop {
                tokio::select! {
                    change = changes.next() => match change {
                        Some((job, Presence::There)) => { known.insert(job.name_any(), job); }
                        Some((job, Presence::Gone)) => { known.remove(&job.name_any()); self.collect().await; }
                        None => break,
                    },
                    changed = self.plays.changed() => if changed.is_err() { return },
                }
                let plays = *self.plays.borrow_and_update();
                for job in known.values_mut() {
                    self.go_on(job, plays).await;
                }
            }
        }
    }

    /// Removes objects whose owner, a Job, is gone: whenever one goes, and what went while nothing was watched.
    async fn collect(&self) {
        let pods = listed(&self.api::<Pod>()).await;
        let secrets = listed(&self.api::<Secret>()).await;
        let maps = listed(&self.api::<ConfigMap>()).await;
        // Read after what they own. One that can't be read may be there.
        let Ok(jobs) = self.api::<Job>().list(&ListParams::default()).await else { return };
        let jobs: Vec<String> = jobs.items.iter().filter_map(kube::ResourceExt::uid).collect();
        let is_left = |owners: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference]| {
            owners.iter().any(|one| one.kind == "Job" && !jobs.contains(&one.uid))
        };
        for pod in pods.iter().filter(|pod| is_left(pod.owner_references())) {
            let now = this_one(pod).grace_period(0);
            drop(self.api::<Pod>().delete(&pod.name_any(), &now).await);
        }
        for one in secrets.iter().filter(|one| is_left(one.owner_references())) {
            drop(self.api::<Secret>().delete(&one.name_any(), &this_one(one)).await);
        }
        for one in maps.iter().filter(|one| is_left(one.owner_references())) {
            drop(self.api::<ConfigMap>().delete(&one.name_any(), &this_one(one)).await);
        }
    }

    /// One step of a Job, as the Job controller and a kubelet take it.
    async fn go_on(&self, job: &mut Job, plays: Plays) {
        let spec = job.spec.clone().unwrap();
        let status = job.status.clone().unwrap_or_default();
        let is_over = status.conditions.iter().flatten().any(|one| one.status == "True");
        if spec.suspend == Some(true)
            || job.metadata.deletion_timestamp.is_some()
            || is_over
            || plays == Plays::Held
        {
            return;
        }
        let (active, failed) = (status.active.unwrap_or(0), status.failed.unwrap_or(0));
        let build = job.labels()[&key("machine-os-build")].clone();
        let pod = format!("{}-{failed}", job.name_any());
        if active == 0 && failed <= 3 {
            if failed == 0 {
                self.note(&build, &job.uid().unwrap());
            }
            self.has_inputs(&spec.template.spec.clone().unwrap()).await;
            self.pod(job, &pod).await;
            let running = json!({ "active": 1, "startTime": BEGAN });
            *job = self.status(job, running).await.unwrap_or_else(|| job.clone());
            return;
        }
        match plays {
            Plays::Held | Plays::Running => {}
            Plays::Well => {
                self.ended(&pod, "Succeeded", json!({ "exitCode": 0, "message": digest(&build) })).await;
                let ended = ended_well();
                *job = self.status(job, ended).await.unwrap_or_else(|| job.clone());
            }
            Plays::Badly => {
                let words = format!("STEP 7: no such command {failed}");
                self.ended(&pod, "Failed", json!({ "exitCode": 1, "reason": "Error", "message": words }))
                    .await;
                *job = self.status(job, failed_again(failed + 1)).await.unwrap_or_else(|| job.clone());
            }
        }
    }

    /// A status that could not be written is written again: that is no other start.
    fn note(&self, build: &str, uid: &str) {
        let mut started = self.started.lock().unwrap();
        if !started.iter().any(|(_, known)| known == uid) {
            started.push((build.to_owned(), uid.to_owned()));
        }
    }

    /// A pod does not start without what it mounts.
    async fn has_inputs(&self, spec: &k8s_openapi::api::core::v1::PodSpec) {
        for volume in spec.volumes.iter().flatten() {
            if let Some(secret) = &volume.secret {
                self.api::<Secret>().get(secret.secret_name.as_ref().unwrap()).await.unwrap();
            }
            if let Some(map) = &volume.config_map {
                self.api::<ConfigMap>().get(&map.name).await.unwrap();
            }
            for name in projected(volume) {
                self.api::<Secret>().get(&name).await.unwrap();
            }
        }
    }

    async fn pod(&self, job: &Job, name: &str) {
        let owner = json!({ "apiVersion": "batch/v1", "kind": "Job", "name": job.name_any(), "uid": job.uid(), "controller": true });
        let template = job.spec.clone().unwrap().template;
        let pod = json!({
            "metadata": { "name": name, "labels": template.metadata.unwrap().labels, "ownerReferences": [owner] },
            "spec": template.spec,
        });
        drop(self.api::<Pod>().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await);
    }

    async fn ended(&self, name: &str, phase: &str, terminated: Value) {
        let containers = json!([{ "name": "image-build", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": { "terminated": terminated } }]);
        let status = json!({ "status": { "phase": phase, "containerStatuses": containers } });
        drop(self.api::<Pod>().patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await);
    }

    async fn status(&self, job: &Job, status: Value) -> Option<Job> {
        let body = json!({ "metadata": { "uid": job.uid() }, "status": status });
        self.api::<Job>()
            .patch_status(&job.name_any(), &PatchParams::default(), &Patch::Merge(body))
            .await
            .ok()
    }

    /// The garbage collector: Jobs of builds that are gone, and builds of a `MachineOSConfig` that is gone.
    async fn on_builds(self) {
        let configs = object_api(&self.client, "machineosconfigs");
        let builds = object_api(&self.client, "machineosbuilds");
        loop {
            let all = ListParams::default();
            let (Ok(of_configs), Ok(of_builds)) =
                (changes(&configs, &all).await, changes(&builds, &all).await)
            else {
                tokio::task::yield_now().await;
                continue;
            };
            let mut both = pin!(futures_util::stream::select(
                of_configs.map(|change| (true, change)),
                of_builds.map(|change| (false, change)),
            ));
            while let Some((is_config, (object, presence))) = both.next().await {
                if presence == Presence::Gone {
                    self.orphaned(&builds, is_config, &object).await;
                }
            }
        }
    }

    async fn orphaned(&self, builds: &Api<DynamicObject>, is_config: bool, owner: &DynamicObject) {
        let uid = owner.uid().unwrap();
        if is_config {
            for build in listed(builds).await {
                if build.owner_references().iter().any(|one| one.uid == uid) {
                    drop(builds.delete(&build.name_any(), &this_one(&build)).await);
                }
            }
            return;
        }
        for job in listed(&self.api::<Job>()).await {
            if job.owner_references().iter().any(|one| one.uid == uid) {
                // A Job's own default leaves its pods.
                let background = DeleteParams {
                    propagation_policy: Some(PropagationPolicy::Background),
                    ..this_one(&job)
                };
                drop(self.api::<Job>().delete(&job.name_any(), &background).await);
            }
        }
    }
}

/// Names of the Secrets of a projected volume.
pub fn projected(volume: &Volume) -> Vec<String> {
    let sources = volume.projected.iter().filter_map(|projected| projected.sources.as_ref()).flatten();
    sources.filter_map(|source| Some(source.secret.as_ref()?.name.clone())).collect()
}

/// Status of a Job that has ended well: a real API server takes no end without what leads to it.
pub fn ended_well() -> Value {
    let conditions = ["SuccessCriteriaMet", "Complete"]
        .map(|kind| json!({ "type": kind, "status": "True", "lastTransitionTime": ENDED }));
    json!({ "active": 0, "succeeded": 1, "completionTime": ENDED, "conditions": conditions })
}

/// Status of a Job of which so many tries have failed.
pub fn failed_again(failed: i32) -> Value {
    let condition = |kind: &str| {
        let message = "Job has reached the specified backoff limit";
        json!({ "type": kind, "status": "True", "reason": "BackoffLimitExceeded", "message": message, "lastTransitionTime": ENDED })
    };
    let conditions =
        if failed == TRIES { vec![condition("FailureTarget"), condition("Failed")] } else { Vec::new() };
    json!({ "active": 0, "failed": failed, "conditions": conditions })
}

/// Objects of a kind; none where the server does not answer.
async fn listed<K>(api: &Api<K>) -> Vec<K>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    api.list(&ListParams::default()).await.map(|all| all.items).unwrap_or_default()
}

/// Deletes this object alone: by now another one may have its name.
pub fn this_one(object: &impl kube::ResourceExt) -> DeleteParams {
    let preconditions = Preconditions { uid: object.uid(), resource_version: None };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}
