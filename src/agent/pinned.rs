//! The node's pinned images, beside its updates: pulled through the container runtime, pinned there, and reported.
//!
//! It runs while the loop waits, so that a pull of images never competes with an update. Nothing is remembered that the host
//! does not say: the runtime knows its images, and a file of the agent's own knows that there is something to undo.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use tracing::{info, warn};

use crate::control::PinLink;
use crate::decide::pinned::{
    ImageSpace, LABEL_READ_INTERVAL, MAX_LABEL_READS, PinProgress, PinRetry, check_space, crio_drop_in,
    pulls_at_once,
};
use crate::host::clock::elapsed;
use crate::host::cri::{Cri, CriError, PullAuth, Runtime};
use crate::host::{BoxFuture, Host, HostError, Proxies, Root, Systemd, registry};
use crate::model::image::PULL_SECRETS;
use crate::model::pinned::Pins;
use crate::model::registry_auth::registry_auth;
use crate::model::text::chain;
use crate::model::{FileMode, ImageRef, UnitName, message};

/// CRI-O's list, where MCD writes it.
const DROP_IN_PATH: &str = "/etc/crio/crio.conf.d/50-pinned-images";

/// File that exists while CRI-O has not read its list yet: a list that is right already may be of a process that died, or of a
/// reload that failed. Below `/run`, since a boot starts CRI-O anyway.
const RELOAD_DUE_PATH: &str = "/run/machine-config-agent-crio-reload";

/// File that exists while images are pinned.
const MARK_PATH: &str = "/var/lib/machine-config-agent/pinned-images";

/// The work on pinned images.
pub(super) struct Pinning(Option<BoxFuture<'static, ()>>);

impl fmt::Debug for Pinning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pinning")
    }
}

impl Pinning {
    /// Takes the link to the control plane. Nothing is done yet.
    pub(super) fn new(link: Option<PinLink>, host: &Host, node: &str) -> Self {
        let pinner = |link| Pinner {
            link,
            root: host.root.clone(),
            systemd: host.systemd.clone(),
            proxies: host.proxies.clone(),
            retry: PinRetry::new(node),
        };
        Self(link.map(|link| -> BoxFuture<'static, ()> { Box::pin(pinner(link).run()) }))
    }

    /// Works for as long as it is polled; it does not end. Cancel-safe: the work continues where it was.
    pub(super) async fn run(&mut self) {
        if let Some(work) = &mut self.0 {
            work.await;
            self.0 = None;
        }
        std::future::pending::<()>().await;
    }
}

struct Pinner {
    link: PinLink,
    root: Root,
    systemd: Systemd,
    proxies: Proxies,
    retry: PinRetry,
}

/// Cause of images that are not pinned.
struct Refusal(String);

impl From<CriError> for Refusal {
    fn from(error: CriError) -> Self {
        Self(error.to_string())
    }
}

impl From<HostError> for Refusal {
    fn from(error: HostError) -> Self {
        Self(chain(&error))
    }
}

impl Pinner {
    async fn run(mut self) {
        loop {
            let desired = self.link.desired.borrow_and_update().clone();
            let mut changes = self.link.desired.clone();
            let mut wait = None;
            if let Some(pins) = desired {
                // A newer desired set cancels the work on an older one; the runtime continues pulls in flight.
                let done = tokio::select! {
                    done = Box::pin(self.reconcile(&pins)) => done,
                    _ = changes.changed() => continue,
                };
                wait = self.account(&pins, done);
            }
            tokio::select! {
                // Each only waits.
                changed = changes.changed() => if changed.is_err() { return },
                () = elapsed(wait) => {}
            }
        }
    }

    /// Reports the result; returns the wait for the next try.
    fn account(&mut self, pins: &Arc<Pins>, done: Result<bool, Refusal>) -> Option<Duration> {
        match done {
            Ok(is_done) => {
                self.retry.succeed();
                if is_done {
                    self.report(pins, PinProgress::Pinned);
                }
                None
            }
            Err(Refusal(why)) => {
                let (wait, is_news) = self.retry.fail(&why);
                if is_news {
                    warn!(
                        MESSAGE_ID = message::PINS_FAILED,
                        "Failed to keep pinned images: {why}. Next: correct the PinnedImageSet or the node; the agent retries"
                    );
                }
                self.report(pins, PinProgress::Failed(why));
                Some(wait)
            }
        }
    }

    fn report(&self, pins: &Arc<Pins>, progress: PinProgress) {
        // Without a receiver nobody reports it.
        self.link.report.send_replace(Some((Arc::clone(pins), progress)));
    }

    /// Brings the host to what is desired; false where there was and is nothing.
    async fn reconcile(&self, pins: &Arc<Pins>) -> Result<bool, Refusal> {
        if pins.is_empty() {
            return self.unpin().await;
        }
        if let Some(why) = pins.refusal() {
            return Err(Refusal(why));
        }
        if !self.root.exists(MARK_PATH)? {
            self.root.replace(MARK_PATH, b"", FileMode::PRIVATE)?;
        }
        let (images, cri) = (pins.images(), Cri::connect(&self.root).await?);
        let missing = missing(&cri, &images).await?;
        if !missing.is_empty() {
            self.report(pins, PinProgress::Prefetching);
            self.check_space(&cri, &missing).await?;
            self.pull(&cri, &missing, pulls_at_once(pins)).await?;
        }
        if let Some(gone) = self::missing(&cri, &images).await?.first() {
            return Err(Refusal(format!("{gone} was removed while others were pulled")));
        }
        self.pin(&cri, &images).await?;
        info!(
            MESSAGE_ID = message::PINNED,
            "{} pinned images are on the node, {} of them new",
            images.len(),
            missing.len()
        );
        Ok(true)
    }

    /// Ends what was pinned before (MCD-245).
    async fn unpin(&self) -> Result<bool, Refusal> {
        let has_list = self.root.exists(DROP_IN_PATH)? || self.root.exists(RELOAD_DUE_PATH)?;
        if !has_list && !self.root.exists(MARK_PATH)? {
            return Ok(false);
        }
        if has_list {
            self.pin_in_crio(&BTreeSet::new()).await?;
        } else {
            let cri = Cri::connect(&self.root).await?;
            self.pin(&cri, &BTreeSet::new()).await?;
        }
        self.root.remove(MARK_PATH)?;
        info!(MESSAGE_ID = message::PINNED, "No images are pinned on the node any more");
        Ok(true)
    }

    /// Checks that what is missing fits (MCD-244). A layer of several images counts once.
    async fn check_space(&self, cri: &Cri, missing: &[String]) -> Result<(), Refusal> {
        let Some((total, free)) = cri.space().await? else { return Ok(()) };
        let proxies = self.proxies.for_pulls()?;
        let mut layers = BTreeMap::new();
        for image in missing {
            layers.extend(registry::layers(&self.root, image, &proxies).await?.unwrap_or_default());
        }
        let bytes = layers.values().fold(0_u64, |sum, size| sum.saturating_add(*size));
        check_space(ImageSpace { total, free }, bytes).map_err(Refusal)
    }

    /// Pulls so many at once. The first failure ends it: what was pulled is there for the next try.
    async fn pull(&self, cri: &Cri, missing: &[String], at_once: usize) -> Result<(), Refusal> {
        let pulls = missing.iter().map(|image| self.pull_one(cri, image));
        let mut pulls = futures_util::stream::iter(pulls).buffer_unordered(at_once);
        while let Some(pulled) = pulls.next().await {
            pulled?;
        }
        Ok(())
    }

    async fn pull_one(&self, cri: &Cri, image: &str) -> Result<(), Refusal> {
        let failed = |error: &CriError| Refusal(format!("{image} can't be pulled: {error}"));
        // CRI-O knows the pull secret and, unlike this, which mirror it is for.
        let first = if cri.runtime == Runtime::CriO { None } else { self.auth(image)? };
        let Err(error) = cri.pull(image, first.as_ref()).await else { return Ok(()) };
        let second = if cri.runtime == Runtime::CriO && !error.is_full() { self.auth(image)? } else { None };
        match second {
            Some(auth) => cri.pull(image, Some(&auth)).await.map_err(|error| failed(&error)),
            None => Err(failed(&error)),
        }
    }

    /// Finds the credentials of an image's own registry.
    fn auth(&self, image: &str) -> Result<Option<PullAuth>, HostError> {
        let Ok(image) = ImageRef::parse(image) else { return Ok(None) };
        for path in PULL_SECRETS {
            let secret = self.root.read(path)?.unwrap_or_default();
            if let Some(auth) = registry_auth(&secret, image.name()) {
                return Ok(Some(PullAuth::new(auth)));
            }
        }
        Ok(None)
    }

    /// Has the runtime keep these images, and no others that were kept before.
    async fn pin(&self, cri: &Cri, images: &BTreeSet<String>) -> Result<(), Refusal> {
        match cri.runtime {
            Runtime::CriO => self.pin_in_crio(images).await,
            Runtime::Containerd => pin_in_containerd(cri, images).await,
        }
    }

    async fn pin_in_crio(&self, images: &BTreeSet<String>) -> Result<(), Refusal> {
        let desired = crio_drop_in(images).map(String::into_bytes);
        if self.root.read(DROP_IN_PATH)? != desired {
            self.root.replace(RELOAD_DUE_PATH, b"", FileMode::PRIVATE)?;
            match desired {
                Some(text) => self.root.replace(DROP_IN_PATH, &text, FileMode::DEFAULT)?,
                None => self.root.remove(DROP_IN_PATH)?,
            }
        }
        if self.root.exists(RELOAD_DUE_PATH)? {
            let unit = UnitName::new("crio.service").map_err(|error| Refusal(error.to_string()))?;
            self.systemd.reload(&unit).await?;
            self.root.remove(RELOAD_DUE_PATH)?;
        }
        Ok(())
    }
}

/// Returns the images that are not there.
async fn missing(cri: &Cri, images: &BTreeSet<String>) -> Result<Vec<String>, CriError> {
    let mut missing = Vec::new();
    for image in images {
        if cri.image(image).await?.is_none() {
            missing.push(image.clone());
        }
    }
    Ok(missing)
}

/// Labels names and ids: each of them is an entry of containerd's.
async fn pin_in_containerd(cri: &Cri, images: &BTreeSet<String>) -> Result<(), Refusal> {
    let mut names = images.clone();
    for image in images {
        names.extend(cri.image(image).await?.map(|image| image.id));
    }
    let pinned: BTreeSet<String> = cri.pinned().await?.into_iter().collect();
    for name in pinned.difference(&names) {
        cri.set_pinned(name, false).await?;
    }
    for name in names.difference(&pinned) {
        cri.set_pinned(name, true).await?;
    }
    for image in images {
        await_pinned(cri, image).await?;
    }
    Ok(())
}

async fn await_pinned(cri: &Cri, image: &str) -> Result<(), Refusal> {
    for _ in 0..MAX_LABEL_READS {
        if cri.image(image).await?.is_some_and(|image| image.is_pinned) {
            return Ok(());
        }
        tokio::time::sleep(LABEL_READ_INTERVAL).await;
    }
    Err(Refusal(format!("containerd has {image}, but does not keep it: that needs containerd 1.7 or later")))
}

#[cfg(test)]
mod tests;
