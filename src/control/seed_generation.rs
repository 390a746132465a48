//! Channel pair of a seed that an object of the cluster describes: the desired seed in, its status out.

use super::ControlError;
use super::link::{Link, Reports, Source};
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
pub type GenerationReports = Reports<SeedGeneration>;

/// The end of whoever makes it.
pub type GenerationLink = Link<DesiredSeed, GenerationReports>;

/// The end of whoever sees what is desired.
pub type GenerationSource = Source<DesiredSeed, GenerationReports>;

impl GenerationSource {
    /// Hands a desire on, if it is of another object: what an object describes is what it described at first.
    pub fn put(&self, desired: DesiredSeed) {
        self.desired.send_if_modified(|known| {
            let is_same = match (&*known, &desired) {
                (DesiredSeed::Of(known), DesiredSeed::Of(desired)) => known.uid == desired.uid,
                (known, desired) => known == desired,
            };
            if !is_same {
                *known = desired;
            }
            !is_same
        });
    }
}
