//! The operating system behind the configuration: the booted, the staged and the next deployment.
//!
//! One trait, because hosts differ in it. Invariant: no method leaves a half-made deployment behind when it fails,
//! and each may be repeated.

pub mod bootc;
pub mod choice;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
pub mod in_time;
pub mod ostree;
pub mod push;
pub mod rpmostree;
pub mod stateroots;
pub mod worker;

mod change;
mod error;
mod rate;
mod sysroot_cache;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::observation::{EmbeddedConfig, ObservedOs, Staged};
use crate::model::os::Layers;
use crate::model::soft_reboot::SoftRebootFacts;
use crate::model::text::escaped;
use crate::model::{Contents, ImageRef, Karg};

use super::{AuthFile, BoxFuture, HostError};
pub use change::OsChange;
use error::{OsError, OsErrorKind};

/// Contents of the next boot, in one deployment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StageRequest {
    /// The image; `None` keeps the booted one.
    pub image: Option<ImageRef>,
    /// Registry credentials; `None` leaves them to the host's tooling.
    pub credentials: Option<Contents>,
    /// Arguments to remove, one instance each.
    pub delete_kargs: Vec<Karg>,
    /// Arguments to add at the end, in order.
    pub append_kargs: Vec<Karg>,
    /// The kernel and the extensions, layered on the image; `None` leaves them as they are.
    pub layers: Option<Layers>,
    /// Image of the packages.
    pub extensions_image: Option<ImageRef>,
    /// Set if the backend prepares a soft reboot while it stages.
    pub soft_reboot: bool,
}

impl StageRequest {
    /// Returns true if nothing is requested.
    pub fn is_empty(&self) -> bool {
        self.image.is_none()
            && self.delete_kargs.is_empty()
            && self.append_kargs.is_empty()
            && self.layers.is_none()
    }
}

/// Properties of an image, read without pulling its layers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preflight {
    /// The config it carries.
    pub carries: EmbeddedConfig,
    /// Compressed bytes to pull; `None` if the source does not report them.
    pub download: Option<u64>,
}

/// Facts of a soft reboot into one deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoftRebootState {
    /// Facts that decide about a soft reboot.
    pub facts: SoftRebootFacts,
    /// The deployment's place in the list of deployments, if it has to be prepared with the host's `ostree`.
    pub index: Option<u32>,
    /// Set if the soft reboot is prepared.
    pub is_prepared: bool,
}

/// Progress of a pull or a deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OsProgress {
    /// Current action, for people.
    pub text: String,
    /// Percentage done, if known.
    pub percent: Option<u8>,
}

/// Image to have on the host before an update needs it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PrefetchRequest {
    /// The image; `None` drops the prefetched one.
    pub image: Option<ImageRef>,
    /// Registry credentials; `None` leaves them to the host's tooling.
    pub credentials: Option<Contents>,
    /// Highest download rate in bytes per second, averaged over a layer.
    pub bandwidth: Option<u64>,
}

/// Result of a prefetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefetched {
    /// Free bytes in the file system of the images, if known.
    pub free: Option<u64>,
}

/// Sender of a prefetch's progress.
pub type ProgressSender = tokio::sync::watch::Sender<Option<OsProgress>>;

/// The longest text of a progress line: tooling may tell anything.
const MAX_PROGRESS_CHARS: usize = 200;

impl OsProgress {
    /// Takes a tool's progress, cut to a line.
    pub(super) fn new(text: &str, percent: Option<u8>) -> Self {
        let text: String = text.trim().chars().take(MAX_PROGRESS_CHARS).collect();
        Self { text: escaped(&text), percent }
    }

    /// Returns the awaited object, when nothing else is being done.
    pub fn waits_for(&self) -> Option<&str> {
        self.text.strip_prefix("waiting for ")
    }
}

impl fmt::Display for OsProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.percent {
            Some(percent) => write!(f, "{}, {percent} %", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// Operations of the host's OS tooling.
pub trait OsBackend: fmt::Debug {
    /// Returns the backend's name, as in `--os-backend` and `status`.
    fn name(&self) -> &'static str;

    /// Returns the place of its registry credentials; `None` when it pulls nothing.
    fn auth_file(&self) -> Option<AuthFile> {
        Some(AuthFile::Run)
    }

    /// Returns why it can't layer packages on an image; `None` if it can.
    fn layering_obstacle(&self) -> Option<&'static str> {
        None
    }

    /// Returns why it has no source of packages but an image of them; `None` if it may have one.
    fn repositories_obstacle(&self) -> Result<Option<&'static str>, HostError> {
        Ok(None)
    }

    /// Returns true if silence means that nothing moves: not before the first progress, as there may never be one.
    fn reports_progress(&self) -> bool {
        true
    }

    /// Reads the booted and the staged deployment.
    fn observe(&self) -> BoxFuture<'_, Result<ObservedOs, HostError>>;

    /// Reads an image's properties, without pulling its layers. An image that this machine can't boot is an error.
    fn preflight<'a>(
        &'a self,
        image: &'a ImageRef,
        credentials: Option<&'a Contents>,
    ) -> BoxFuture<'a, Result<Preflight, HostError>>;

    /// Pulls missing layers and stages a deployment for the next boot. A deployment that is staged already is not made
    /// again.
    fn stage<'a>(
        &'a self,
        request: &'a StageRequest,
        progress: &'a (dyn Fn(OsProgress) + 'a),
    ) -> BoxFuture<'a, Result<Staged, HostError>>;

    /// Ends the work left running by a `stage` whose future was dropped; none is ignored.
    fn abandon(&self) -> BoxFuture<'_, Result<(), HostError>> {
        Box::pin(async { Ok(()) })
    }

    /// Downloads an image without staging it, at the lowest priority. Its future may be dropped at any time: the
    /// downloaded part stays until another prefetch or staging.
    fn prefetch(
        &self,
        request: PrefetchRequest,
        _progress: ProgressSender,
    ) -> BoxFuture<'static, Result<Prefetched, HostError>> {
        let refused = request.image.map(|image| {
            let cause = format!("the backend {} can't download an image without staging it", self.name());
            OsError::new(OsErrorKind::CannotPrefetch, image.to_string(), cause).into_error()
        });
        Box::pin(async { refused.map_or(Ok(Prefetched { free: None }), Err) })
    }

    /// Drops the staged deployment; a missing one is ignored.
    fn unstage<'a>(&'a self, progress: &'a (dyn Fn(OsProgress) + 'a))
    -> BoxFuture<'a, Result<(), HostError>>;

    /// Makes sure that the reboot will finalize the staged deployment; a missing one is ignored.
    fn ensure_finalizable(&self) -> BoxFuture<'_, Result<(), HostError>>;

    /// Has pulls sync each object by itself, not the file system at their end: etcd's disk then has no long wait.
    fn ensure_per_object_fsync(&self) -> BoxFuture<'_, Result<(), HostError>> {
        Box::pin(async { Ok(()) })
    }

    /// Gives up the deployment that ran before the booted one; a missing one is ignored.
    fn drop_rollback<'a>(
        &'a self,
        _progress: &'a (dyn Fn(OsProgress) + 'a),
    ) -> BoxFuture<'a, Result<(), HostError>> {
        Box::pin(async { Ok(()) })
    }

    /// Makes a deployment of this host the next boot's; none is dropped but a staged one, which would come before it.
    fn set_default_deployment<'a>(
        &'a self,
        deployment: &'a str,
        _progress: &'a (dyn Fn(OsProgress) + 'a),
    ) -> BoxFuture<'a, Result<(), HostError>> {
        Box::pin(async { Err(HostError::NoBackend { object: deployment.to_owned() }) })
    }

    /// Finds out whether a soft reboot leads into a deployment; `None` is one that is yet to be staged.
    fn soft_reboot<'a>(
        &'a self,
        _deployment: Option<&'a str>,
    ) -> BoxFuture<'a, Result<SoftRebootState, HostError>> {
        let facts = SoftRebootFacts::refused(format!("the backend {} knows no soft reboot", self.name()));
        Box::pin(async { Ok(SoftRebootState { facts, index: None, is_prepared: false }) })
    }
}

/// The backend of a host that is not image-based, and of `--os-backend none`: it sees nothing and stages nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NotImageBased;

impl OsBackend for NotImageBased {
    fn name(&self) -> &'static str {
        "none"
    }

    fn auth_file(&self) -> Option<AuthFile> {
        None
    }

    fn observe(&self) -> BoxFuture<'_, Result<ObservedOs, HostError>> {
        Box::pin(async { Ok(ObservedOs::NotImageBased) })
    }

    fn preflight<'a>(
        &'a self,
        _image: &'a ImageRef,
        _credentials: Option<&'a Contents>,
    ) -> BoxFuture<'a, Result<Preflight, HostError>> {
        Box::pin(async { Ok(Preflight { carries: EmbeddedConfig::Unknown, download: None }) })
    }

    fn stage<'a>(
        &'a self,
        request: &'a StageRequest,
        _progress: &'a (dyn Fn(OsProgress) + 'a),
    ) -> BoxFuture<'a, Result<Staged, HostError>> {
        let object =
            request.image.as_ref().map_or_else(|| "kernel arguments".to_owned(), ImageRef::to_string);
        Box::pin(async { Err(HostError::NoBackend { object }) })
    }

    fn unstage<'a>(
        &'a self,
        _progress: &'a (dyn Fn(OsProgress) + 'a),
    ) -> BoxFuture<'a, Result<(), HostError>> {
        Box::pin(async { Ok(()) })
    }

    fn ensure_finalizable(&self) -> BoxFuture<'_, Result<(), HostError>> {
        Box::pin(async { Ok(()) })
    }
}
