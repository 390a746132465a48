//! Preparation of a seed on this host: it is there already, or it is a job. Refusals come before anything is changed.

use super::AgentError;
use crate::host::os::stateroots::Stateroots;
use crate::host::{AuthFile, Credentials, Root};
use crate::journal::stateroot::load_prepared;
use crate::model::ImageRef;
use crate::observe::host_traits;
use crate::stateroot::{
    Findings, Job, Refusal, Seed, SeedError, StaterootName, StaterootRecord, Version, refusals,
};

/// A seed that is to be prepared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeedRequest {
    /// The image.
    pub image: ImageRef,
    /// Its version.
    pub version: Version,
    /// Kernel arguments of this host that the new system gets, too.
    pub carried: Vec<String>,
}

/// Result of the check of a seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preparation {
    /// An earlier run has made it.
    Made(Findings),
    /// Work.
    Job(Job),
}

/// Checks the seed and this host; `open` is work that was cut short.
pub async fn preparation(
    root: &Root,
    stateroots: &Stateroots,
    open: Option<&StaterootRecord>,
    request: SeedRequest,
) -> Result<Preparation, AgentError> {
    let SeedRequest { image, version, carried } = request;
    let stateroot = StaterootName::from_version(&version);
    // Work of this kind that was cut short owns what is there.
    if open.is_none_or(|record| *record.job.stateroot() != stateroot) {
        let prepared =
            load_prepared(root)?.remove(stateroot.as_str()).filter(|prepared| prepared.image.is_same(&image));
        if let Some(prepared) = prepared {
            stateroots.ensure_exists(&stateroot).await?;
            let found = Findings { containers: prepared.containers, deployment: prepared.deployment };
            return Ok(Preparation::Made(found));
        }
        stateroots.ensure_absent(&stateroot).await?;
    }
    let credentials = Credentials::there(root, AuthFile::Run)?.map(|found| found.json);
    let found = stateroots.inspect(&image, credentials.as_ref()).await?;
    let seed = Seed::from_labels(&found.labels)?;
    let refused = refusals(&seed, Some(&version), &host_traits(root)?).into_iter().next();
    if let Some(Refusal { field, message }) = refused {
        return Err(SeedError::Refused { field, message, image: image.to_string() }.into());
    }
    Ok(Preparation::Job(Job::Prepare { stateroot, image, layout: seed.layout, version, carried }))
}
