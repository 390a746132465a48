//! The seed that an object of the cluster describes on its way to whoever makes it, and the way back of what became of it.

use std::sync::Arc;

use tokio::sync::watch::{Receiver, Sender, channel};

use super::ControlError;
use crate::model::Contents;
use crate::stateroot::{DesiredSeed, SeedGeneration};

/// Inputs of a seed from its cluster. `Debug` shows no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeedInputs {
    /// Version of the cluster.
    pub version: String,
    /// Credentials of the push.
    pub credentials: Contents,
}

/// Reason for which the inputs are not there.
#[derive(Debug)]
pub enum NoInputs {
    /// A person has to make them.
    Missing(String),
    /// The cluster is not at rest.
    Waits(String),
    /// It may pass by itself.
    Retry(ControlError),
}

/// The cluster of a seed.
pub trait SeedCluster {
    /// Reads version and credentials, while the API server still answers.
    fn inputs(&self) -> impl Future<Output = Result<SeedInputs, NoInputs>>;
}

/// Known progress.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GenerationReports {
    /// The agent's own state was read: without a report it makes no seed.
    pub is_read: bool,
    /// The last state.
    pub last: Option<Arc<SeedGeneration>>,
}

/// The end of whoever makes it.
#[derive(Debug)]
pub struct GenerationLink {
    /// The desire.
    pub desired: Receiver<DesiredSeed>,
    /// The progress.
    pub report: Sender<GenerationReports>,
}

/// The end of whoever sees what is desired.
#[derive(Debug)]
pub struct GenerationSource {
    /// The desire.
    pub desired: Sender<DesiredSeed>,
    /// The progress.
    pub report: Receiver<GenerationReports>,
}

/// Makes both ends.
pub fn generation_channel() -> (GenerationSource, GenerationLink) {
    let (desired, seen) = channel(DesiredSeed::default());
    let (report, reports) = channel(GenerationReports::default());
    (GenerationSource { desired, report: reports }, GenerationLink { desired: seen, report })
}

impl GenerationSource {
    /// Hands a desire on, if it is of another object: what an object describes is what it described at first.
    pub fn put(&self, desired: DesiredSeed) {
        let uid = |desired: &DesiredSeed| match desired {
            DesiredSeed::Of(desire) => Some(desire.uid.clone()),
            DesiredSeed::Unknown | DesiredSeed::None => None,
        };
        self.desired.send_if_modified(|known| {
            let is_same = match (&*known, &desired) {
                (DesiredSeed::Of(_), DesiredSeed::Of(_)) => uid(known) == uid(&desired),
                (known, desired) => known == desired,
            };
            if !is_same {
                *known = desired;
            }
            !is_same
        });
    }
}
