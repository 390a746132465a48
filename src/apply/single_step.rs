//! The log of one step that stands alone: not one of an update's many.

use std::fmt::Display;
use std::time::Instant;

use tracing::{error, info};

use super::run_steps::micros;
use crate::host::HostError;
use crate::model::text::chain;
use crate::model::{UpdateId, message};

/// A step of a stateroot or a seed, as its lines name it.
pub(super) struct SingleStep<'a> {
    pub(super) id: &'a UpdateId,
    /// The image that it is about, where it is about one.
    pub(super) image: Option<&'a (dyn Display + Sync)>,
    pub(super) name: &'a str,
    pub(super) target: &'a str,
}

impl SingleStep<'_> {
    /// Carries it out, with a line before and after.
    pub(super) async fn run<T>(
        &self,
        work: impl Future<Output = Result<T, HostError>>,
    ) -> Result<T, HostError> {
        let Self { id, image, name, target } = *self;
        info!(
            MESSAGE_ID = message::STEP_STARTED,
            MCA_UPDATE = %id,
            MCA_IMAGE = image.map(display),
            MCA_STEP = name,
            MCA_TARGET = target,
            "{name} {target}"
        );
        let since = Instant::now();
        let done = work.await;
        let micros = micros(since);
        match &done {
            Ok(_) => info!(
                MESSAGE_ID = message::STEP_DONE,
                MCA_UPDATE = %id,
                MCA_IMAGE = image.map(display),
                MCA_STEP = name,
                MCA_TARGET = target,
                MCA_DURATION_USEC = micros,
                "{name} {target}: done in {} ms",
                micros / 1000
            ),
            Err(error) => error!(
                MESSAGE_ID = message::STEP_FAILED,
                MCA_UPDATE = %id,
                MCA_IMAGE = image.map(display),
                MCA_STEP = name,
                MCA_TARGET = target,
                MCA_DURATION_USEC = micros,
                MCA_FAULT = error.reason(),
                "{name} {target}: not done: {}",
                chain(error)
            ),
        }
        done
    }
}
