//! One step of the making of a seed becomes an effect.

use std::path::Path;
use std::time::Duration;

use super::single_step::SingleStep;
use crate::host::os::push;
use crate::host::os::stateroots::{SeedToMake, Stateroots};
use crate::host::{AuthFile, Credentials, HostError, OsProgress, Proxies, Root, Systemd, containers};
use crate::journal::seed::SeedIntent;
use crate::model::{FileMode, ImageRef, UnitName};
use crate::stateroot::SeedStep;

/// Only root reads what is made there.
const DIRECTORY_MODE: FileMode = FileMode::PRIVATE_DIRECTORY;

/// The service whose containers are stopped before it.
const CONTAINER_ENGINE: &str = "crio.service";

/// Longest push: a large system to a slow registry.
const PUSH_TIMEOUT: Duration = Duration::from_secs(4 * 3600);

/// The means of a step.
#[derive(Debug)]
pub struct SeedHost<'a> {
    /// The host's files.
    pub root: &'a Root,
    /// The running systemd.
    pub systemd: &'a Systemd,
}

/// The means to make a seed.
#[derive(Debug)]
pub struct SeedWork<'a> {
    /// Archives the host.
    pub stateroots: &'a Stateroots,
    /// The way to the registry.
    pub proxies: &'a Proxies,
    /// The booted image, on which a bootc seed is built.
    pub base: Option<ImageRef>,
    /// The contents.
    pub seed: SeedToMake,
    /// Credentials for the push; without them those of pulls.
    pub auth_file: Option<String>,
}

/// Carries out a step; returns the digest that it ends with, if it has one.
pub async fn apply_seed(
    intent: &SeedIntent<'_>,
    host: &SeedHost<'_>,
    work: &SeedWork<'_>,
    progress: &dyn Fn(OsProgress),
) -> Result<Option<String>, HostError> {
    logged(intent, Box::pin(run(intent, host, work, progress))).await
}

/// Starts what was stopped and removes what was made.
pub async fn restore_seed_host(intent: &SeedIntent<'_>, host: &SeedHost<'_>) -> Result<(), HostError> {
    let restored = async {
        let started = start(host.systemd, &intent.record().stopped).await;
        started.and(host.root.remove_tree(&intent.record().directory))
    };
    logged(intent, restored).await
}

async fn logged<T>(
    intent: &SeedIntent<'_>,
    run: impl Future<Output = Result<T, HostError>>,
) -> Result<T, HostError> {
    let record = intent.record();
    let (id, image, name) = (&record.id, record.image.as_str(), intent.step().as_str());
    SingleStep { id, image: Some(&image), name, target: image }.run(run).await
}

async fn run(
    intent: &SeedIntent<'_>,
    host: &SeedHost<'_>,
    work: &SeedWork<'_>,
    progress: &dyn Fn(OsProgress),
) -> Result<Option<String>, HostError> {
    let record = intent.record();
    let directory = Path::new(&record.directory);
    match intent.step() {
        SeedStep::FetchBase => {
            empty(host.root, &record.directory)?;
            let Some(base) = &work.base else { return Ok(None) };
            let credentials = Credentials::there(host.root, AuthFile::Run)?.map(|found| found.json);
            work.stateroots.fetch_base(base, credentials.as_ref(), directory, progress).await?;
        }
        SeedStep::StopServices => stop(host, &record.stopped).await?,
        SeedStep::ArchiveHost => {
            if work.base.is_none() {
                empty(host.root, &record.directory)?;
            }
            work.stateroots.archive(directory, &work.seed, progress).await?;
        }
        SeedStep::StartServices => start(host.systemd, &record.stopped).await?,
        SeedStep::AssembleImage => {
            let digest = work.stateroots.assemble(directory, &work.seed, progress).await?;
            return Ok(Some(format!("sha256:{digest}")));
        }
        SeedStep::PushImage => {
            let image =
                push::Image { layout: &directory.join("image"), tag: "seed", to: record.image.as_str() };
            let auth_file = match &work.auth_file {
                Some(path) => Some(path.clone()),
                None => Credentials::there(host.root, AuthFile::Run)?.map(|found| found.path.to_string()),
            };
            push::push(&image, auth_file.as_deref(), &work.proxies.for_pulls()?, PUSH_TIMEOUT).await?;
        }
        SeedStep::RestoreHost => restore_seed_host(intent, host).await?,
    }
    Ok(None)
}

/// Makes the directory; what an earlier seed has left there goes.
fn empty(root: &Root, directory: &str) -> Result<(), HostError> {
    root.remove_tree(directory)?;
    root.create_dir(directory, DIRECTORY_MODE)
}

async fn stop(host: &SeedHost<'_>, units: &[UnitName]) -> Result<(), HostError> {
    for unit in units {
        if unit.as_str() == CONTAINER_ENGINE {
            // Their data is in /var; the kubelet starts them again.
            containers::stop_all(host.root).await?;
        }
        host.systemd.stop(unit).await?;
    }
    Ok(())
}

/// Starts all of them; returns the first error.
async fn start(systemd: &Systemd, units: &[UnitName]) -> Result<(), HostError> {
    let mut started = Ok(());
    for unit in units.iter().rev() {
        // One that does not start keeps no other one down.
        started = started.and(systemd.start_installed(unit).await.map(drop));
    }
    started
}
