//! The wait for the first target of a directory.
//!
//! An enabled unit starts on a host that nobody has configured yet, or that another agent manages. Until there is a target its process
//! opens nothing of the host's state and takes no lock. A stage of an image-based upgrade counts as a target, and work that a process
//! left open is carried on without any.

use std::path::Path;
use std::time::Duration;

use tracing::info;

use super::CliError;
use crate::agent::ProcessSignals;
use crate::control::ControlPlane as _;
use crate::control::directory::Directory;
use crate::host::Root;
use crate::journal::state;
use crate::model::message;
use crate::settings::Environment;
use crate::stateroot::lifecycle::LIFECYCLE_FILE;
use crate::telemetry::notify::Notify;

/// Time between two looks where the kernel gives no watch.
const UNWATCHED: Duration = Duration::from_secs(30);

/// Files of work that a process left open: an update, work on stateroots and its trial, stages, the making of a seed.
const OPEN_WORK: [&str; 7] = [
    "record.json",
    "stateroot.json",
    "stateroot-trial.json",
    "stateroot-return.json",
    LIFECYCLE_FILE,
    "seed.json",
    "seed-generation.json",
];

/// Waits until the directory has a target or a stage; false if a stop was requested before.
pub(super) async fn wait(
    path: &Path,
    root: &Root,
    environment: &Environment,
    stop: &mut ProcessSignals,
) -> Result<bool, CliError> {
    let mut directory = Directory::open(path)?;
    for file in OPEN_WORK {
        if root.exists(&state(file))? {
            return Ok(true);
        }
    }
    if directory.has_request()? {
        return Ok(true);
    }
    let awaited = directory.target_file();
    info!(
        MESSAGE_ID = message::WAITING,
        "Waiting for {awaited}, which does not exist; until then the agent changes nothing on this host. Next: write it; if another \
         agent manages this host, disable this unit"
    );
    let mut notify = Notify::new(environment.notify.clone(), environment.watchdog);
    notify.waits_for(&awaited);
    loop {
        let looks = directory.unwatched().is_some();
        tokio::select! {
            () = stop.stopped() => return Ok(false),
            () = notify.idle() => {}
            () = directory.request_changed() => {}
            () = tokio::time::sleep(UNWATCHED), if looks => {}
        }
        if directory.has_request()? {
            return Ok(true);
        }
    }
}
