//! Builds and pushes an image on this machine, with buildah: no daemon, chroot isolation.
//!
//! # Decisions
//!
//! - The builder has images of its own, below its directory: what a killed build left there is nobody else's, so the next start
//!   removes it without a question. Base images stay there for the next build.
//! - Each call of buildah costs some 30 ms, so a build that ended well removes its image, and nothing else is searched for.
//! - One layer a stage and one timestamp: the same inputs on the same base give the same digest.
//! - Every wait ends: one deadline for build and push together.

mod error;
mod failure;
mod output;
mod process;
mod work;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

pub use error::LocalError;
pub use failure::{BuildFailure, explained};
use output::Output;
use work::Work;

use super::Context;

/// Name of the image until it is pushed.
const TAG: &str = "localhost/machine-config-build";

/// Time limit of buildah's commands that fetch nothing.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(120);

/// A builder on this machine.
#[derive(Debug, Clone)]
pub struct Local {
    /// The program.
    pub buildah: OsString,
    /// The agent's executable: it has to run in the base image.
    pub agent: PathBuf,
    /// The builder's directory.
    pub work: PathBuf,
    /// The storage driver; buildah's choice without one.
    pub storage_driver: Option<String>,
    /// False for registries without TLS.
    pub tls_verify: bool,
    /// Time limit of build and push together.
    pub timeout: Duration,
}

/// Image to build, and its destination.
#[derive(Debug, Clone)]
pub struct Order<'a> {
    /// Its inputs.
    pub context: &'a Context,
    /// Reference of the pushed image, by tag.
    pub push: &'a str,
    /// Credentials for pulls.
    pub authfile: Option<&'a Path>,
    /// Credentials for the push.
    pub push_authfile: Option<&'a Path>,
    /// Secrets for the steps of the user, as buildah's `--secret` has them.
    pub secrets: &'a [String],
    /// Directories that steps see and the image does not have, as `SOURCE:TARGET`.
    pub mounts: &'a [String],
    /// The time of the image and of its files, in seconds since 1970.
    pub timestamp: u32,
}

impl Local {
    /// Builds and pushes; returns the digest.
    pub async fn build(
        &self,
        order: &Order<'_>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<String, LocalError> {
        let work = Work::open(&self.work)?;
        if work.has_leftovers()? {
            // In this order: a start that is killed here leaves the sign to the next one.
            self.clean(&work).await?;
            work.clear()?;
        }
        let done = tokio::select! {
            done = self.build_in(&work, order, progress) => done,
            () = ended_by_signal() => Err(LocalError::Interrupted),
        };
        // The image is in the registry, and what is left of a failed one is of no use.
        let cleaned = match &done {
            Ok(_) => self.remove_image(&work).await,
            Err(_) => self.clean(&work).await,
        };
        let cleaned = cleaned.and_then(|()| work.clear());
        done.and_then(|digest| cleaned.map(|()| digest))
    }

    async fn build_in(
        &self,
        work: &Work,
        order: &Order<'_>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<String, LocalError> {
        let deadline = Instant::now() + self.timeout;
        work.write(order.context, &self.agent)?;
        let (built, output) = self.run(work, self.build_arguments(work, order), deadline, progress).await?;
        if !built {
            return Err(Box::new(failure::of_build(&output)).into());
        }
        progress(&format!("PUSH {}", order.push));
        let (pushed, output) = self.run(work, self.push_arguments(work, order), deadline, progress).await?;
        if !pushed {
            return Err(Box::new(failure::of_push(&output, order.push)).into());
        }
        work.digest()
    }

    fn build_arguments(&self, work: &Work, order: &Order<'_>) -> Vec<String> {
        let context = work.join("context");
        let mut arguments: Vec<String> =
            ["bud", "--isolation=chroot", "--layers=false", "--format=oci", "--pull-always", "--force-rm"]
                .map(str::to_owned)
                .into();
        arguments.push(format!("--timestamp={}", order.timestamp));
        arguments.push(format!("--tls-verify={}", self.tls_verify));
        arguments.extend(order.authfile.map(|path| format!("--authfile={}", path.display())));
        arguments.extend(order.secrets.iter().map(|secret| format!("--secret={secret}")));
        arguments.extend(order.mounts.iter().map(|mount| format!("--volume={mount}:ro")));
        arguments.push(format!("--file={}", context.join("Containerfile").display()));
        arguments.push(format!("--tag={TAG}"));
        arguments.push(context.display().to_string());
        arguments
    }

    fn push_arguments(&self, work: &Work, order: &Order<'_>) -> Vec<String> {
        let digest = work.join("context").join("digest");
        let mut arguments = vec!["push".to_owned(), format!("--tls-verify={}", self.tls_verify)];
        arguments.extend(order.push_authfile.map(|path| format!("--authfile={}", path.display())));
        arguments.push(format!("--digestfile={}", digest.display()));
        arguments.extend([TAG.to_owned(), format!("docker://{}", order.push)]);
        arguments
    }

    /// Removes the image of a build that ended well: buildah itself removed the containers and the images between.
    async fn remove_image(&self, work: &Work) -> Result<(), LocalError> {
        let deadline = Instant::now() + CLEANUP_TIMEOUT;
        let arguments = ["rmi", "--force", TAG].map(str::to_owned).into();
        let (removed, _) = self.run(work, arguments, deadline, &mut |_| {}).await?;
        if removed { Ok(()) } else { self.clean(work).await }
    }

    /// Removes containers and images that have no name: whatever a build that was killed or failed left.
    async fn clean(&self, work: &Work) -> Result<(), LocalError> {
        let deadline = Instant::now() + CLEANUP_TIMEOUT;
        for arguments in [&["rm", "--all"][..], &["rmi", "--force", TAG], &["rmi", "--prune", "--force"]] {
            let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
            // Nothing to remove is an error of buildah's; a broken store fails the build in its own words.
            self.run(work, arguments, deadline, &mut |_| {}).await?;
        }
        Ok(())
    }

    async fn run(
        &self,
        work: &Work,
        arguments: Vec<String>,
        deadline: Instant,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(bool, Output), LocalError> {
        let mut all = vec![
            format!("--root={}", work.join("storage").display()),
            format!("--runroot={}", work.join("run").display()),
        ];
        all.extend(self.storage_driver.iter().map(|driver| format!("--storage-driver={driver}")));
        all.extend(arguments);
        let (status, output) = process::run(&self.buildah, &all, deadline, progress).await?;
        // setpriv's, when there is nothing to run. A step's own status is buildah's, too.
        let says_setpriv = |line: &String| line.starts_with("setpriv: failed to execute");
        if status.code() == Some(127) && output.step().is_none() && output.lines().iter().any(says_setpriv) {
            return Err(LocalError::NoBuildah { program: self.buildah.clone() });
        }
        Ok((status.success(), output))
    }
}

async fn ended_by_signal() {
    let [terminate, interrupt] = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
    let (Ok(mut terminate), Ok(mut interrupt)) = (terminate, interrupt) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
