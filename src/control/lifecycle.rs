//! Channel pair of an image-based upgrade: the desired stage in, its status out.
//!
//! Values of their own beside the target: a stateroot that is prepared delays no update.

use std::sync::Arc;

use super::link::{Link, Reports, Source};
use crate::stateroot::lifecycle::{Desire, Lifecycle, Stage};
use crate::update::Fault;

/// The desire; `None` while none was read.
pub type DesiredStage = Option<Arc<Desire>>;

/// Progress of the stages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LifecycleReport {
    /// Their state.
    pub state: Lifecycle,
    /// The stages that may be desired next.
    pub valid: Vec<Stage>,
    /// Fault that stops the stages.
    pub fault: Option<Fault>,
}

/// Known progress.
pub type LifecycleReports = Reports<LifecycleReport>;

/// The end of whoever carries it out.
pub type LifecycleLink = Link<DesiredStage, LifecycleReports>;

/// The end of whoever sees what is desired.
pub type LifecycleSource = Source<DesiredStage, LifecycleReports>;

impl LifecycleSource {
    /// Hands a desire on, if it is another one.
    pub fn put(&self, desire: Desire) {
        self.desired.send_if_modified(|known| {
            let is_news = known.as_deref() != Some(&desire);
            if is_news {
                *known = Some(Arc::new(desire));
            }
            is_news
        });
    }
}
