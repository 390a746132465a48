//! The making of a seed: step by step, each recorded before it is taken, and the host restored whatever happens.
//!
//! # Decisions
//! 1. A seed that was cut short is not continued: what was archived is not that of a later moment. The host is restored, and
//!    another seed begins anew.
//! 2. An update that runs while the host is archived would make a seed of two configs: it ends the seed. The daemon is not held
//!    up meanwhile: its node comes first.
//! 3. The booted image is fetched before the services rest, and the image is pushed after: they rest while the host is archived.

use super::AgentError;
use crate::apply::{SeedHost, SeedWork, apply_seed, restore_seed_host};
use crate::host::{HostError, OsProgress, Root};
use crate::journal::AdvanceError;
use crate::journal::history::newest;
use crate::journal::seed::SeedJournal;
use crate::journal::stored::load_record as load_update;
use crate::model::FaultClass;
use crate::stateroot::{SeedRecord, SeedStep};
use crate::update::Fault;

/// Result of the making of a seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SeedEnd {
    /// It is made: the digest of its manifest.
    Made(String),
    /// It is not made, and the host is as it was.
    Failed(Fault),
}

/// Makes a seed; what an earlier one has left is restored before.
pub async fn make_seed(
    journal: &mut SeedJournal,
    record: SeedRecord,
    steps: &[SeedStep],
    host: &SeedHost<'_>,
    work: &SeedWork<'_>,
    progress: &dyn Fn(OsProgress),
) -> Result<SeedEnd, AgentError> {
    restore_seed(journal, host).await?;
    journal.begin(record)?;
    let updated = newest(host.root)?;
    let mut digest = String::new();
    for step in steps {
        let done =
            journal.advance(*step, async |intent| apply_seed(intent, host, work, progress).await).await;
        match done {
            Ok(_) if *step == SeedStep::ArchiveHost && is_updated(host.root, updated.as_deref())? => {
                restore_seed(journal, host).await?;
                return Ok(SeedEnd::Failed(overtaken()));
            }
            Ok(found) => digest = found.unwrap_or(digest),
            Err(AdvanceError::Journal(error)) => return Err(error.into()),
            Err(AdvanceError::Effect(error)) => {
                let fault = Fault::from_error(error.class(), error.reason(), &error, &error.next());
                restore_seed(journal, host).await?;
                return Ok(SeedEnd::Failed(fault));
            }
        }
    }
    if steps.contains(&SeedStep::PushImage) {
        restore_seed(journal, host).await?;
    }
    journal.close()?;
    Ok(SeedEnd::Made(digest))
}

/// Returns true if an update is under way, or has ended since the one that was the newest.
fn is_updated(root: &Root, newest_before: Option<&str>) -> Result<bool, AgentError> {
    Ok(load_update(root)?.is_some() || newest(root)?.as_deref() != newest_before)
}

fn overtaken() -> Fault {
    Fault {
        class: FaultClass::Retry,
        reason: "SeedOvertaken".to_owned(),
        message: "an update changed this host while it was archived, so no seed was made of it".to_owned(),
        next: "make the seed again after the update: `machine-config-agent status` shows its end".to_owned(),
    }
}

/// Restores the host from the record, if there is one: services are started, files are removed. Returns true if there was one.
pub async fn restore_seed(journal: &mut SeedJournal, host: &SeedHost<'_>) -> Result<bool, AgentError> {
    if journal.record().is_none() {
        return Ok(false);
    }
    journal
        .advance(SeedStep::RestoreHost, async |intent| restore_seed_host(intent, host).await)
        .await
        .map_err(unapplied)?;
    journal.close()?;
    Ok(true)
}

fn unapplied(error: AdvanceError<HostError>) -> AgentError {
    match error {
        AdvanceError::Journal(error) => error.into(),
        AdvanceError::Effect(error) => error.into(),
    }
}
