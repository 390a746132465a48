//! Builders: one trait for whatever carries a build out.
//!
//! Each builder's object, a Job or a Build of OpenShift, is reduced to a [`crate::build::Job`]: [`crate::build`] knows no other. It is created so that it
//! does not run yet, gets its inputs, and is let run.

use std::pin::Pin;

use machine_config_core::model::reference::is_digest;

use crate::build::{JobRequest, JobSettings, Outcome, Surroundings, push_spec};
use crate::controllers::cache::Snapshot;
use crate::controllers::client::RequestError;
use crate::image::Context;
use crate::image::local::explained;

/// Future of requests to the API server.
pub(super) type ApiFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, RequestError>> + Send + 'a>>;

/// A build to carry out.
#[derive(Debug, Clone)]
pub(super) struct Order {
    /// Name of the build.
    pub(super) build: String,
    /// Its UID.
    pub(super) build_uid: String,
    /// The `MachineOSConfig`.
    pub(super) os_config: String,
    pub(super) pool: String,
    /// The rendered config.
    pub(super) rendered: String,
    /// Destination of the image, by tag.
    pub(super) push_spec: String,
    pub(super) context: Context,
    pub(super) surroundings: Surroundings,
}

impl Order {
    pub(super) fn request(&self) -> JobRequest<'_> {
        JobRequest {
            build: &self.build,
            build_uid: &self.build_uid,
            os_config: &self.os_config,
            pool: &self.pool,
            rendered: &self.rendered,
            push_spec: &self.push_spec,
            context: &self.context,
        }
    }
}

/// The credentials of a build, as the contents of `.dockerconfigjson`.
#[derive(Clone)]
pub(super) struct Credentials {
    /// For the base image.
    pub(super) base: Vec<u8>,
    /// For the push.
    pub(super) push: Vec<u8>,
}

/// They are secrets.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials")
    }
}

/// A builder. What the API server answers is put into the cache at once.
pub(super) trait Builder: std::fmt::Debug + Send + Sync {
    /// Returns the missing object that it waits for, with the next step.
    fn missing(&self, snapshot: &Snapshot) -> Option<String>;

    /// Returns the build settings.
    fn settings(&self) -> &JobSettings;

    /// Creates the object, so that it does not run yet.
    fn create<'a>(&'a self, order: &'a Order) -> ApiFuture<'a, ()>;

    /// Creates its inputs as far as they are missing, and lets it run.
    fn start<'a>(&'a self, order: &'a Order, uid: &'a str, credentials: &'a Credentials)
    -> ApiFuture<'a, ()>;

    /// Deletes it with its pods and inputs, if it still has that UID.
    fn delete<'a>(&'a self, name: &'a str, uid: &'a str) -> ApiFuture<'a, ()>;

    /// Reads it from the API server into the cache; returns its UID.
    fn find<'a>(&'a self, name: &'a str) -> ApiFuture<'a, Option<String>>;

    /// Returns the results of its pods.
    fn outcome<'a>(&'a self, ended: &'a EndedBuild<'a>) -> ApiFuture<'a, PodOutcome>;
}

/// A build whose results are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndedBuild<'a> {
    /// Its name.
    pub(super) build: &'a str,
    /// The UID of what ran it.
    pub(super) uid: &'a str,
    /// Destination of the image, by tag.
    pub(super) push_spec: &'a str,
    /// The user's part of its Containerfile.
    pub(super) containerfile: &'a str,
}

impl EndedBuild<'_> {
    /// Says in one sentence what its last lines are about.
    pub(super) fn explained(&self, lines: &str) -> String {
        explained(lines, self.push_spec, self.containerfile)
    }
}

/// Results of the pods of a build.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PodOutcome {
    pub(super) outcome: Outcome,
    /// No pod is there that ended well: somebody removed it.
    pub(super) is_gone: bool,
}

/// Returns the image by digest.
pub(super) fn image(tag: &str, digest: &str) -> Option<String> {
    let digest = Some(digest.trim()).filter(|digest| is_digest(digest))?;
    let repository = push_spec(tag, "x").strip_suffix(":x")?.to_owned();
    Some(format!("{repository}@{digest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_is_taken_by_whole_digest_alone() {
        let digest = format!("sha256:{}", "a".repeat(64));
        assert_eq!(
            image("r.test:5000/os/worker:b-1", &format!("{digest}\n")),
            Some(format!("r.test:5000/os/worker@{digest}"))
        );
        for digest in ["", "sha256:", "sha256:A", "error: no space left", &digest[..70]] {
            assert_eq!(image("r.test/os:b", digest), None, "{digest}");
        }
    }
}
