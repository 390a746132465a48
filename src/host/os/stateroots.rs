//! Stateroots beside the running one: what the verbs ask, whichever program updates the running system.
//!
//! rpm-ostree and bootc know one stateroot, so this is libostree's work on every host, done by the worker.

use std::collections::BTreeMap;
use std::path::Path;

use super::OsProgress;
use super::error::{OsError, OsErrorKind, SYSROOT};
use super::in_time::{LimitsSource, in_time};
use super::worker::Worker;
use super::worker::protocol::{
    ArchiveRequest, AssembleRequest, DeployRequest, Secret, SeedRequest, StaterootCommand, StaterootReply,
};
use crate::host::HostError;
use crate::model::{BootId, Contents, ImageRef, Sha256};
use crate::stateroot::lifecycle::Lifecycle;
use crate::stateroot::{
    Layout, Return, SeedEntry, SeedRules, Stateroot, StaterootDeployment, StaterootName, StaterootTrial,
    Version,
};

/// The stateroots of a host.
#[derive(Debug, Clone)]
pub struct Stateroots {
    worker: Worker,
    limits: LimitsSource,
}

/// Description of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSeed {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Bytes of its layers, compressed.
    pub download: u64,
}

/// The running deployment, the next one, and all stateroots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boots {
    /// The deployment that runs.
    pub booted: String,
    /// The deployment that boots next.
    pub next: String,
    /// All stateroots.
    pub all: Vec<Stateroot>,
}

impl Stateroots {
    /// Takes what asks the worker.
    pub fn new(worker: Worker) -> Self {
        Self { worker, limits: LimitsSource::default() }
    }

    /// Takes the limits of its pulls.
    #[must_use]
    pub fn within(self, limits: LimitsSource) -> Self {
        Self { limits, ..self }
    }

    /// Returns the stateroots in the order of their names.
    pub async fn list(&self) -> Result<Vec<Stateroot>, HostError> {
        let reply = self.worker.stateroot(StaterootCommand::List, &|_| {}).await?;
        let StaterootReply::Listed(found) = reply else { return Err(other()) };
        Ok(found)
    }

    /// Reads the labels of an image, without its layers.
    pub async fn inspect(
        &self,
        image: &ImageRef,
        credentials: Option<&Contents>,
    ) -> Result<FoundSeed, HostError> {
        let credentials = credentials.and_then(Secret::from_json);
        let command = StaterootCommand::Inspect { image: image.clone(), credentials };
        let reply = self.in_time(command, &|_| {}).await?;
        let StaterootReply::Labels { labels, download } = reply else { return Err(other()) };
        Ok(FoundSeed { labels, download })
    }

    /// Pulls, unpacks and checks a seed beside the repository; returns the images that its containers ran.
    pub async fn fetch(
        &self,
        seed: &SeedToFetch<'_>,
        progress: &(dyn Fn(OsProgress) + '_),
    ) -> Result<Vec<String>, HostError> {
        let reply = self.in_time(StaterootCommand::Fetch(seed.request()), progress).await?;
        let StaterootReply::Fetched(seed) = reply else { return Err(other()) };
        Ok(seed.containers)
    }

    /// Makes a stateroot of a seed; returns its deployment, which does not boot by itself.
    pub async fn deploy(
        &self,
        seed: &SeedToFetch<'_>,
        version: &Version,
        carried: &[String],
        progress: &(dyn Fn(OsProgress) + '_),
    ) -> Result<String, HostError> {
        let (version, carried) = (version.clone(), carried.to_vec());
        let request = DeployRequest { seed: seed.request(), version, carried };
        let reply = self.in_time(StaterootCommand::Deploy(request), progress).await?;
        let StaterootReply::Deployed(deployment) = reply else { return Err(other()) };
        Ok(deployment)
    }

    /// Fetches the image on which a seed is built.
    pub async fn fetch_base(
        &self,
        image: &ImageRef,
        credentials: Option<&Contents>,
        directory: &Path,
        progress: &(dyn Fn(OsProgress) + '_),
    ) -> Result<(), HostError> {
        let credentials = credentials.and_then(Secret::from_json);
        let (image, directory) = (image.clone(), directory.to_owned());
        let command = StaterootCommand::FetchBase { image, credentials, directory };
        self.in_time(command, progress).await.map(drop)
    }

    /// Lists what a seed of this host has and what it leaves out, or only what refuses it. Nothing is changed.
    pub async fn list_files(
        &self,
        rules: &SeedRules,
        refusals_only: bool,
    ) -> Result<Vec<SeedEntry>, HostError> {
        let command = StaterootCommand::ListFiles { rules: rules.clone(), refusals_only };
        let reply = self.in_time(command, &|_| {}).await?;
        let StaterootReply::Files(found) = reply else { return Err(other()) };
        Ok(found)
    }

    /// Archives `/etc` and `/var` of this host.
    pub async fn archive(
        &self,
        directory: &Path,
        seed: &SeedToMake,
        progress: &(dyn Fn(OsProgress) + '_),
    ) -> Result<(), HostError> {
        let request = ArchiveRequest {
            directory: directory.to_owned(),
            layout: seed.layout,
            rules: seed.rules.clone(),
            config: seed.config.clone(),
        };
        self.in_time(StaterootCommand::Archive(request), progress).await.map(drop)
    }

    /// Puts the image of a seed together, as a directory in OCI layout; returns the digest of its manifest.
    pub async fn assemble(
        &self,
        directory: &Path,
        seed: &SeedToMake,
        progress: &(dyn Fn(OsProgress) + '_),
    ) -> Result<Sha256, HostError> {
        let request = AssembleRequest {
            directory: directory.to_owned(),
            layout: seed.layout,
            labels: seed.labels.clone(),
            status: seed.status.clone(),
            config: seed.config.clone(),
            containers: seed.containers.clone(),
            manifest: seed.manifest.clone(),
        };
        let reply = self.in_time(StaterootCommand::Assemble(request), progress).await?;
        let StaterootReply::Assembled(digest) = reply else { return Err(other()) };
        Ok(digest)
    }

    /// Removes a stateroot with all that is its own; a missing one is ignored.
    pub async fn remove(
        &self,
        name: &StaterootName,
        image: Option<ImageRef>,
        progress: &(dyn Fn(OsProgress) + '_),
    ) -> Result<(), HostError> {
        let command = StaterootCommand::Remove { name: name.clone(), image };
        self.in_time(command, progress).await.map(drop)
    }

    /// Writes down in the `/var` of a deployment's stateroot what it has to show; `None` is one that ran before.
    pub async fn arm(&self, deployment: &str, trial: Option<StaterootTrial>) -> Result<(), HostError> {
        self.quietly(StaterootCommand::Arm { deployment: deployment.to_owned(), trial }).await
    }

    /// Makes a deployment of any stateroot the next boot's; refused while something is staged.
    pub async fn set_default(&self, deployment: &str) -> Result<(), HostError> {
        self.quietly(StaterootCommand::SetDefault { deployment: deployment.to_owned(), drop_staged: false })
            .await
    }

    /// Makes the deployment that ran before the next boot's, whatever is staged.
    pub async fn go_back(&self, deployment: &str) -> Result<(), HostError> {
        self.quietly(StaterootCommand::SetDefault { deployment: deployment.to_owned(), drop_staged: true })
            .await
    }

    /// Makes the deployment that ran before the next boot's, and disarms the other one.
    pub async fn restore(&self, deployment: &str, previous: &str) -> Result<(), HostError> {
        let (deployment, previous) = (deployment.to_owned(), previous.to_owned());
        self.quietly(StaterootCommand::Restore { deployment, previous }).await
    }

    /// Records in the stateroot of a deployment why the other one was left.
    pub async fn record_return(&self, deployment: &str, left: Return) -> Result<(), HostError> {
        self.quietly(StaterootCommand::RecordReturn { deployment: deployment.to_owned(), left }).await
    }

    /// Hands the state of the stages to the stateroot of a deployment. It is the agent's own, and the same again changes
    /// nothing: no record is needed for it.
    pub async fn hand_over(&self, deployment: &str, state: Lifecycle) -> Result<(), HostError> {
        self.quietly(StaterootCommand::HandOver { deployment: deployment.to_owned(), state }).await
    }

    /// Does work within the limits of pulls: it may reach out, or wait for the sysroot. Late, its worker is ended, and lets go of
    /// its locks.
    async fn in_time(
        &self,
        command: StaterootCommand,
        progress: &(dyn Fn(OsProgress) + '_),
    ) -> Result<StaterootReply, HostError> {
        let (limits, object) = (self.limits.get(), command.object());
        // An archive is written without progress.
        let stall = if command.shows_progress() { limits.stall } else { limits.total };
        let work = async |heard: &dyn Fn(OsProgress)| self.worker.stateroot(command, heard).await;
        let done = in_time(limits.total, |_| stall, progress, work).await;
        done.unwrap_or_else(|late| Err(late.into_error(object, limits)))
    }

    async fn quietly(&self, command: StaterootCommand) -> Result<(), HostError> {
        self.in_time(command, &|_| {}).await.map(drop)
    }

    /// Returns the deployment that runs and the one that boots next.
    pub async fn boots(&self) -> Result<Boots, HostError> {
        let all = self.list().await?;
        let deployments = || all.iter().flat_map(|stateroot| &stateroot.deployments);
        let id = |is: fn(&StaterootDeployment) -> bool| {
            deployments().find(|one| is(one)).map(|one| one.id.clone())
        };
        let not_booted =
            || OsError::new(OsErrorKind::NotBooted, SYSROOT, "this machine was not booted from it");
        let booted = id(|one| one.booted).ok_or_else(|| not_booted().into_error())?;
        let next = id(|one| one.boots_next).unwrap_or_else(|| booted.clone());
        Ok(Boots { booted, next, all })
    }

    /// Returns the first deployment of a stateroot, which is not staged.
    pub async fn deployment(&self, name: &StaterootName) -> Result<String, HostError> {
        let Some(found) = self.find(name).await? else {
            let cause = "there is no stateroot of this name";
            return Err(OsError::new(OsErrorKind::NoStateroot, name.to_string(), cause).into_error());
        };
        let first = found.deployments.iter().find(|one| !one.staged);
        let none = || OsError::new(OsErrorKind::NoStateroot, name.to_string(), "it has no deployment");
        first.map(|one| one.id.clone()).ok_or_else(|| none().into_error())
    }

    /// Refuses a name that a stateroot has already.
    pub async fn ensure_absent(&self, name: &StaterootName) -> Result<(), HostError> {
        match self.find(name).await? {
            None => Ok(()),
            Some(_) => Err(in_use(name, "a stateroot of this name exists already")),
        }
    }

    /// Refuses a name that no stateroot with a deployment has.
    pub async fn ensure_exists(&self, name: &StaterootName) -> Result<(), HostError> {
        match self.find(name).await?.filter(|found| !found.deployments.is_empty()) {
            Some(_) => Ok(()),
            None => Err(in_use(name, "it was prepared, but its deployment is gone")),
        }
    }

    /// Refuses a stateroot that is not there, runs or boots next.
    pub async fn ensure_removable(&self, name: &StaterootName) -> Result<(), HostError> {
        match self.find(name).await? {
            None => {
                let cause = "there is no stateroot of this name";
                Err(OsError::new(OsErrorKind::NoStateroot, name.to_string(), cause).into_error())
            }
            Some(found) if found.booted => Err(in_use(name, "the running system is in it")),
            Some(found) if found.boots_next => Err(in_use(name, "it boots next")),
            Some(_) => Ok(()),
        }
    }

    async fn find(&self, name: &StaterootName) -> Result<Option<Stateroot>, HostError> {
        Ok(self.list().await?.into_iter().find(|found| found.name == name.as_str()))
    }
}

/// A seed that is to be made.
#[derive(Debug, Clone)]
pub struct SeedToMake {
    /// Its layout.
    pub layout: Layout,
    /// The rules by which paths are taken.
    pub rules: SeedRules,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its `rpm-ostree.json`.
    pub status: String,
    /// Its `mco-currentconfig.json`.
    pub config: String,
    /// Its `containers.list`.
    pub containers: String,
    /// Its `manifest.json`.
    pub manifest: String,
}

/// A seed that is to be fetched.
#[derive(Debug)]
pub struct SeedToFetch<'a> {
    /// The stateroot that it is for.
    pub stateroot: &'a StaterootName,
    /// The image.
    pub image: &'a ImageRef,
    /// Its layout.
    pub layout: Layout,
    /// Registry credentials.
    pub credentials: Option<Contents>,
    /// The boot.
    pub boot_id: &'a BootId,
}

impl SeedToFetch<'_> {
    fn request(&self) -> SeedRequest {
        SeedRequest {
            image: self.image.clone(),
            credentials: self.credentials.as_ref().and_then(Secret::from_json),
            layout: self.layout,
            name: self.stateroot.clone(),
            boot_id: self.boot_id.clone(),
        }
    }
}

fn in_use(name: &StaterootName, cause: &str) -> HostError {
    OsError::new(OsErrorKind::StaterootInUse, name.to_string(), cause).into_error()
}

fn other() -> HostError {
    OsError::new(OsErrorKind::Worker, SYSROOT, "the worker process answered another question").into_error()
}
