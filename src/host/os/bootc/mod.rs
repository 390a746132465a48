//! The bootc backend: the image is switched by `bootc switch`, everything else is libostree's.
//!
//! bootc has no interface but its command line. It runs as a transient unit of systemd ([`mod@unit`]): it outlives the agent,
//! and a second one can't be started beside it. Its result is read from the sysroot, by the worker: `bootc status`
//! takes the sysroot's lock and waits for it, so it is used only for facts that libostree does not have, and not for
//! long.
//!
//! | file | does |
//! |---|---|
//! | `unit` | runs `bootc switch`, `bootc rollback` and `bootc status`, finds them again |
//! | `status` | reads the document of `bootc status` |
//! | `progress` | reads the lines of `--progress-fd` |
//! | `stage_record` | remembers the request of the staged deployment |
//!
//! Invariant: the arguments of the staged deployment are those of the booted one, changed by the image's own
//! (`kargs.d`) and then as requested, once, however often `stage` is called.

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod progress;
mod stage_record;
mod status;
#[cfg(test)]
mod tests;
mod unit;

use super::super::command::with_words;
use super::super::credentials::AuthFile;
use super::super::{BoxFuture, HostError, Proxies, Root, Systemd, next_root};
use super::error::{OsError, OsErrorKind, SYSROOT};
use super::sysroot_cache::SysrootCache;
use super::worker::Worker;
use super::worker::protocol::WithoutCommit;
use super::{OsBackend, OsProgress, Preflight, SoftRebootState, StageRequest};
use crate::model::observation::{Booted, ObservedOs, Staged};
use crate::model::os::Layers;
use crate::model::soft_reboot::SoftRebootFacts;
use crate::model::{Contents, ImageRef};

use stage_record::StageRecord;
use status::{BootcHost, Entry, Store};
use unit::{Bootc, NextRoot, Ran};

/// Obstacle of packages of kernels and extensions.
const CANNOT_LAYER: &str = "bootc can't layer packages";

/// The bootc backend.
#[derive(Debug, Clone)]
pub struct BootcBackend {
    worker: Worker,
    last: SysrootCache,
    bootc: Bootc,
    stage_record: StageRecord,
    root: Root,
}

impl BootcBackend {
    /// Takes the worker's client, the systemd that runs bootc, and the root below which their files are.
    pub fn new(worker: Worker, systemd: Systemd, root: Root) -> Self {
        let (last, stage_record) = (SysrootCache::default(), StageRecord::new(root.clone()));
        Self { worker, last, stage_record, bootc: Bootc::new(systemd, root.clone()), root }
    }

    /// Takes the proxies for its pulls.
    #[must_use]
    pub fn through(self, proxies: Proxies) -> Self {
        Self { bootc: self.bootc.through(proxies), ..self }
    }

    /// Takes another place of the program than `/usr/bin`.
    #[must_use]
    pub fn at(self, program: &str) -> Self {
        Self { bootc: self.bootc.at(program), ..self }
    }

    async fn staging(
        &self,
        request: &StageRequest,
        progress: &(dyn Fn(OsProgress) + '_),
    ) -> Result<Staged, HostError> {
        // None to drop with another image: a host that has some is refused by their names, below.
        let drops = |layers: &Layers| layers.is_empty() && request.image.is_some();
        if let Some(layers) = request.layers.as_ref().filter(|layers| !drops(layers)) {
            let cause = format!("{CANNOT_LAYER}: {layers}");
            return Err(OsError::new(OsErrorKind::CannotLayer, "the next deployment", cause).into_error());
        }
        let (booted, staged) = deployments(self.worker.observe().await?)?;
        let Some(image) = &request.image else { return self.worker.stage(request, progress).await };
        pure_image(&booted)?;
        if booted.image.as_ref() == Some(image) {
            // bootc prints "unchanged" and stages nothing.
            let request = StageRequest { image: None, ..request.clone() };
            return self.worker.stage(&request, progress).await;
        }
        let staged = match staged {
            Some(staged) if self.stage_record.is(request, &staged)? => {
                // Nothing is changed by it, but that a lock is taken away.
                self.worker.kargs(&[], &[]).await?
            }
            other => {
                if other.is_some() {
                    // bootc goes by the arguments of the staged deployment, and those were another request's.
                    self.drop_staged(progress).await?;
                }
                let same_kargs = request.delete_kargs.is_empty() && request.append_kargs.is_empty();
                // Other arguments are another deployment than the one that was prepared, and need the whole boot.
                let staged = self.switch(image, request.soft_reboot && same_kargs, progress).await?;
                if same_kargs {
                    staged
                } else {
                    // After the switch, which brings the image's own arguments.
                    self.worker.kargs(&request.delete_kargs, &request.append_kargs).await?
                }
            }
        };
        self.stage_record.note(request, &staged)?;
        Ok(staged)
    }

    async fn switch(
        &self,
        image: &ImageRef,
        softly: bool,
        progress: &(dyn Fn(OsProgress) + '_),
    ) -> Result<Staged, HostError> {
        let object = || image.to_string();
        self.bootc.await_others(progress).await?;
        let next_root = match self.check().await? {
            Softly::Known if softly => NextRoot::Prepared,
            Softly::Known | Softly::Unknown => NextRoot::Left,
        };
        progress(OsProgress { text: "running bootc switch".to_owned(), percent: None });
        let Ran { ended, words } = self.bootc.switch(image, next_root, progress).await?;
        if !ended.is_success() {
            let cause = with_words(&format!("bootc switch ended with {ended}"), &words);
            return Err(OsError::from_text(&object(), &cause, OsErrorKind::Bootc).into_error());
        }
        let (_, staged) = deployments(self.worker.observe().await?)?;
        match staged {
            Some(staged) if is_of(&staged, image) => Ok(staged),
            other => {
                let staged = other.map_or_else(|| "nothing".to_owned(), |staged| named(&staged));
                let cause = format!("bootc switch ended well, but what is staged is {staged}");
                Err(OsError::new(OsErrorKind::DigestMismatch, object(), cause).into_error())
            }
        }
    }

    /// Drops the staged deployment, and before that the way into it.
    async fn drop_staged(&self, progress: &(dyn Fn(OsProgress) + '_)) -> Result<(), HostError> {
        self.bootc.drop_next_root().await?;
        self.worker.unstage(progress).await
    }

    /// Reads from bootc the reasons against a switch. A status that is late is no reason to stop: bootc itself
    /// waits for the sysroot.
    async fn check(&self) -> Result<Softly, HostError> {
        let Some(host) = self.host().await? else { return Ok(Softly::Unknown) };
        let refuse = |trouble, cause: &str| Err(OsError::new(trouble, SYSROOT, cause).into_error());
        match host.booted {
            None => {
                refuse(OsErrorKind::NotBooted, "bootc reports that this machine was not booted from an image")
            }
            Some(booted) if booted.store == Store::Composefs => refuse(
                OsErrorKind::Composefs,
                "bootc keeps it in composefs, where libostree sees no deployments",
            ),
            Some(booted) if booted.incompatible => refuse(
                OsErrorKind::LocalPackages,
                "rpm-ostree changed something on top of the booted image (bootc calls it incompatible), \
                 which bootc switch would drop silently",
            ),
            Some(Entry { soft_reboot: Some(_), .. }) => Ok(Softly::Known),
            Some(_) => Ok(Softly::Unknown),
        }
    }

    async fn host(&self) -> Result<Option<BootcHost>, HostError> {
        match self.bootc.status().await? {
            Ok(text) => match BootcHost::parse(&text) {
                Ok(host) => return Ok(Some(host)),
                Err(cause) => tracing::warn!("{cause}; using what libostree reports"),
            },
            Err(Ran { ended, words }) => {
                let how = with_words(&format!("bootc status ended with {ended}"), &words);
                tracing::warn!("{how}; using what libostree reports");
            }
        }
        Ok(None)
    }

    /// Has the previous deployment boot next. A second `bootc rollback` would undo the first, so it is run only where that
    /// deployment does not come first already; where bootc takes another one for it, libostree puts the order right.
    async fn back_to(&self, deployment: &str, progress: &(dyn Fn(OsProgress) + '_)) -> Result<(), HostError> {
        if self.boots_next(deployment).await? {
            return Ok(());
        }
        if !self.exists(deployment) {
            return Err(OsError::gone(deployment).into_error());
        }
        let Ran { ended, words } = self.bootc.rollback(deployment, progress).await?;
        if !ended.is_success() {
            let cause = with_words(&format!("bootc rollback ended with {ended}"), &words);
            return Err(OsError::new(OsErrorKind::Bootc, deployment, cause).into_error());
        }
        if self.boots_next(deployment).await? {
            Ok(())
        } else {
            self.worker.set_default_deployment(deployment, progress).await
        }
    }

    fn exists(&self, deployment: &str) -> bool {
        deployment.rsplit_once('-').is_some_and(|(stateroot, checkout)| {
            let all = self.worker.sysroot().join("ostree/deploy").join(stateroot).join("deploy");
            all.join(checkout).exists()
        })
    }

    async fn boots_next(&self, deployment: &str) -> Result<bool, HostError> {
        let ObservedOs::Deployments { booted, staged, next } = self.worker.observe().await? else {
            return Ok(false);
        };
        let first = staged.or(next).map_or(booted.deployment, |first| first.deployment);
        Ok(first == deployment)
    }

    /// A deployment that bootc staged is also prepared by bootc: only bootc knows all obstacles to a soft reboot.
    async fn soft(&self, deployment: Option<&str>) -> Result<SoftRebootState, HostError> {
        let (_, staged) = deployments(self.worker.observe().await?)?;
        if deployment.is_none() || staged.is_none_or(|staged| Some(staged.deployment.as_str()) != deployment)
        {
            return self.worker.soft_reboot(deployment).await;
        }
        let host = self.host().await?;
        let capable = host.as_ref().map(|host| host.staged.as_ref().map(|staged| staged.soft_reboot));
        let facts = match capable {
            None => SoftRebootFacts::refused("bootc status gave no answer"),
            Some(None) => SoftRebootFacts::refused("nothing is staged"),
            Some(Some(Some(true))) => SoftRebootFacts::capable(),
            Some(Some(Some(false))) => {
                SoftRebootFacts::refused("bootc reports that the staged deployment needs a full reboot")
            }
            Some(Some(None)) => SoftRebootFacts::refused("this bootc does not know soft reboots"),
        };
        if next_root::is_mounted(&self.root)? {
            return Ok(SoftRebootState { facts, index: None, is_prepared: true });
        }
        // Staged by a run that prepared nothing, or given up since.
        Ok(SoftRebootState { facts, ..self.worker.soft_reboot(deployment).await? })
    }
}

impl OsBackend for BootcBackend {
    fn name(&self) -> &'static str {
        "bootc"
    }

    fn layering_obstacle(&self) -> Option<&'static str> {
        Some(CANNOT_LAYER)
    }

    fn auth_file(&self) -> Option<AuthFile> {
        Some(AuthFile::Etc)
    }

    fn reports_progress(&self) -> bool {
        self.bootc.reports_progress()
    }

    fn observe(&self) -> BoxFuture<'_, Result<ObservedOs, HostError>> {
        Box::pin(self.last.get_or_observe(self.worker.sysroot(), self.worker.observe()))
    }

    fn preflight<'a>(
        &'a self,
        image: &'a ImageRef,
        credentials: Option<&'a Contents>,
    ) -> BoxFuture<'a, Result<Preflight, HostError>> {
        Box::pin(self.worker.preflight(image, credentials, WithoutCommit::Taken))
    }

    fn stage<'a>(
        &'a self,
        request: &'a StageRequest,
        progress: &'a (dyn Fn(OsProgress) + 'a),
    ) -> BoxFuture<'a, Result<Staged, HostError>> {
        Box::pin(self.staging(request, progress))
    }

    fn abandon(&self) -> BoxFuture<'_, Result<(), HostError>> {
        Box::pin(self.bootc.stop())
    }

    fn unstage<'a>(
        &'a self,
        progress: &'a (dyn Fn(OsProgress) + 'a),
    ) -> BoxFuture<'a, Result<(), HostError>> {
        Box::pin(self.drop_staged(progress))
    }

    fn ensure_finalizable(&self) -> BoxFuture<'_, Result<(), HostError>> {
        Box::pin(self.worker.ensure_finalizable())
    }

    fn ensure_per_object_fsync(&self) -> BoxFuture<'_, Result<(), HostError>> {
        Box::pin(self.worker.ensure_per_object_fsync())
    }

    fn drop_rollback<'a>(
        &'a self,
        progress: &'a (dyn Fn(OsProgress) + 'a),
    ) -> BoxFuture<'a, Result<(), HostError>> {
        Box::pin(self.worker.drop_rollback(progress))
    }

    fn set_default_deployment<'a>(
        &'a self,
        deployment: &'a str,
        progress: &'a (dyn Fn(OsProgress) + 'a),
    ) -> BoxFuture<'a, Result<(), HostError>> {
        Box::pin(self.back_to(deployment, progress))
    }

    fn soft_reboot<'a>(
        &'a self,
        deployment: Option<&'a str>,
    ) -> BoxFuture<'a, Result<SoftRebootState, HostError>> {
        Box::pin(self.soft(deployment))
    }
}

/// Soft reboots of this bootc: an older one refuses the option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Softly {
    /// It does.
    Known,
    /// It does not, or the status has no such key.
    Unknown,
}

fn deployments(observed: ObservedOs) -> Result<(Booted, Option<Staged>), HostError> {
    match observed {
        ObservedOs::Deployments { booted, staged, .. } => Ok((booted, staged)),
        ObservedOs::NotImageBased => {
            let cause = "libostree sees no deployments here";
            Err(OsError::new(OsErrorKind::NotBooted, SYSROOT, cause).into_error())
        }
    }
}

/// Refuses a host with packages of its own: bootc would drop them without a word.
fn pure_image(booted: &Booted) -> Result<(), HostError> {
    let local = &booted.local;
    if local.is_empty() {
        return Ok(());
    }
    let changed: Vec<String> = local.listed().map(|(word, names)| format!("{word}: {names}")).collect();
    let cause = format!(
        "rpm-ostree changed the booted image ({}), which bootc switch would drop silently",
        changed.join("; ")
    );
    Err(OsError::new(OsErrorKind::LocalPackages, SYSROOT, cause).into_error())
}

fn is_of(staged: &Staged, image: &ImageRef) -> bool {
    staged.image.as_ref().is_some_and(|staged| staged.digest() == image.digest())
}

fn named(staged: &Staged) -> String {
    staged.image.as_ref().map_or_else(|| staged.deployment.clone(), ImageRef::to_string)
}
