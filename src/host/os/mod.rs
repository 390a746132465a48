//! The operating system behind the configuration: what boots, what is staged, what boots next.
//!
//! One trait, because hosts differ in it. Invariant: no method leaves a half-made deployment behind when it fails,
//! and each may be repeated.

pub mod bootc;
pub mod choice;
pub mod ostree;
pub mod rpmostree;
pub mod stateroots;
pub mod worker;

mod error;
mod sysroot_cache;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::observation::{EmbeddedConfig, ObservedOs, Staged};
use crate::model::os::Layers;
use crate::model::soft_reboot::SoftRebootFacts;
use crate::model::{Contents, ImageRef, Karg};

use super::{AuthFile, BoxFuture, HostError};
use error::{OsError, OsErrorKind};

/// What the next boot is to run, in one deployment.
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
    /// Where their packages come from: the image of the packages.
    pub extensions_image: Option<ImageRef>,
    /// Whether a soft reboot is to be prepared, where the backend has to be told so.
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

/// What an image is, found out without pulling its layers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preflight {
    /// The config it carries.
    pub carries: EmbeddedConfig,
    /// How many bytes are to be pulled, compressed; `None` where the source does not say.
    pub download: Option<u64>,
}

/// What is known of a soft reboot into one deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoftRebootState {
    /// What it needs.
    pub facts: SoftRebootFacts,
    /// The deployment's place in the list of deployments, where it has to be prepared with the host's `ostree`.
    pub index: Option<u32>,
    /// Whether it is prepared.
    pub is_prepared: bool,
}

/// How far a pull or a deployment is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OsProgress {
    /// What is being done, for people.
    pub text: String,
    /// How much of it, where that is known.
    pub percent: Option<u8>,
}

/// What is to be on the host before an update wants it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PrefetchRequest {
    /// The image; `None` drops what was prefetched.
    pub image: Option<ImageRef>,
    /// Registry credentials; `None` leaves them to the host's tooling.
    pub credentials: Option<Contents>,
    /// How many bytes per second are downloaded at most, over the time of a layer.
    pub bandwidth: Option<u64>,
}

/// What a prefetch came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefetched {
    /// What is free in the file system of the images, in bytes, where that is known.
    pub free: Option<u64>,
}

/// Where a prefetch reports its progress.
pub type ProgressSender = tokio::sync::watch::Sender<Option<OsProgress>>;

/// The longest text of a progress line: tooling may tell anything.
const MAX_PROGRESS_CHARS: usize = 200;

impl OsProgress {
    /// Takes a tool's progress, cut to a line.
    pub(super) fn new(text: &str, percent: Option<u8>) -> Self {
        Self { text: text.trim().chars().take(MAX_PROGRESS_CHARS).collect(), percent }
    }

    /// Returns what is waited for, when nothing else is being done.
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

/// What can be asked of the host's OS tooling.
pub trait OsBackend: fmt::Debug {
    /// Returns the backend's name, as in `--os-backend` and `status`.
    fn name(&self) -> &'static str;

    /// Returns where it looks for registry credentials; `None` when it pulls nothing.
    fn auth_file(&self) -> Option<AuthFile> {
        Some(AuthFile::Run)
    }

    /// Returns true if silence means that nothing moves: not before the first progress, as there may never be one.
    fn tells_progress(&self) -> bool {
        true
    }

    /// Looks at what is booted and what is staged.
    fn observe(&self) -> BoxFuture<'_, Result<ObservedOs, HostError>>;

    /// Finds out what an image is, without pulling its layers. An image that this machine can't boot is an error.
    fn preflight<'a>(
        &'a self,
        image: &'a ImageRef,
        credentials: Option<&'a Contents>,
    ) -> BoxFuture<'a, Result<Preflight, HostError>>;

    /// Pulls what is missing and stages a deployment for the next boot. What is staged already is not made again.
    fn stage<'a>(
        &'a self,
        request: &'a StageRequest,
        progress: &'a (dyn Fn(OsProgress) + 'a),
    ) -> BoxFuture<'a, Result<Staged, HostError>>;

    /// Ends what a `stage` whose future was dropped has left running; none is ignored.
    fn abandon(&self) -> BoxFuture<'_, Result<(), HostError>> {
        Box::pin(async { Ok(()) })
    }

    /// Downloads an image without staging it, at the lowest priority. Its future may be dropped at any time: what was
    /// downloaded stays until another prefetch or staging.
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
    fn unstage(&self) -> BoxFuture<'_, Result<(), HostError>>;

    /// Makes sure that the reboot will finalize the staged deployment; a missing one is ignored.
    fn ensure_finalizable(&self) -> BoxFuture<'_, Result<(), HostError>>;

    /// Has pulls sync each object by itself, not the file system at their end: etcd's disk then has no long wait.
    fn ensure_per_object_fsync(&self) -> BoxFuture<'_, Result<(), HostError>> {
        Box::pin(async { Ok(()) })
    }

    /// Gives up the deployment that ran before the booted one; a missing one is ignored.
    fn drop_rollback(&self) -> BoxFuture<'_, Result<(), HostError>> {
        Box::pin(async { Ok(()) })
    }

    /// Makes a deployment of this host the next boot's; none is dropped but a staged one, which would come before it.
    fn set_default_deployment<'a>(&'a self, deployment: &'a str) -> BoxFuture<'a, Result<(), HostError>> {
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

    fn unstage(&self) -> BoxFuture<'_, Result<(), HostError>> {
        Box::pin(async { Ok(()) })
    }

    fn ensure_finalizable(&self) -> BoxFuture<'_, Result<(), HostError>> {
        Box::pin(async { Ok(()) })
    }
}
