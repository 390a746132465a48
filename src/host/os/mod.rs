//! The operating system behind the configuration: what boots, what is staged, what boots next.
//!
//! One trait, because hosts differ in it. Invariant: no method leaves a half-made deployment behind when it fails,
//! and each may be repeated.

#[cfg(feature = "backend-ostree")]
pub mod ostree;

use std::fmt;

use crate::model::observation::{Carries, OsSeen, Staged};
use crate::model::{Contents, ImageRef, Karg};

use super::{BoxFuture, HostError};

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
}

impl StageRequest {
    /// Says whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.image.is_none() && self.delete_kargs.is_empty() && self.append_kargs.is_empty()
    }
}

/// How far a pull or a deployment is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OsProgress {
    /// What is being done, for people.
    pub text: String,
    /// How much of it, where that is known.
    pub percent: Option<u8>,
}

/// What can be asked of the host's OS tooling.
pub trait OsBackend: fmt::Debug {
    /// Returns the backend's name, as in `--os-backend` and `status`.
    fn name(&self) -> &'static str;

    /// Looks at what is booted and what is staged.
    fn seen(&self) -> BoxFuture<'_, Result<OsSeen, HostError>>;

    /// Finds out which config an image carries, without pulling its layers.
    fn carries<'a>(
        &'a self,
        image: &'a ImageRef,
        credentials: Option<&'a Contents>,
    ) -> BoxFuture<'a, Result<Carries, HostError>>;

    /// Pulls what is missing and stages a deployment for the next boot. What is staged already is not made again.
    fn stage<'a>(
        &'a self,
        request: &'a StageRequest,
        progress: &'a (dyn Fn(OsProgress) + 'a),
    ) -> BoxFuture<'a, Result<Staged, HostError>>;

    /// Drops the staged deployment; none is no error.
    fn unstage(&self) -> BoxFuture<'_, Result<(), HostError>>;

    /// Makes sure that the reboot will finalise the staged deployment; none is no error.
    fn finalise(&self) -> BoxFuture<'_, Result<(), HostError>>;
}

/// The backend of a host that is not image-based, and of `--os-backend none`: it sees nothing and stages nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NotImageBased;

impl OsBackend for NotImageBased {
    fn name(&self) -> &'static str {
        "none"
    }

    fn seen(&self) -> BoxFuture<'_, Result<OsSeen, HostError>> {
        Box::pin(async { Ok(OsSeen::NotImageBased) })
    }

    fn carries<'a>(
        &'a self,
        _image: &'a ImageRef,
        _credentials: Option<&'a Contents>,
    ) -> BoxFuture<'a, Result<Carries, HostError>> {
        Box::pin(async { Ok(Carries::Unknown) })
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

    fn finalise(&self) -> BoxFuture<'_, Result<(), HostError>> {
        Box::pin(async { Ok(()) })
    }
}
