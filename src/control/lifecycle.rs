//! The desired stage of an image-based upgrade on its way to whoever carries it out, and the way back of what became of it.
//!
//! Values of their own beside the target: a stateroot that is prepared delays no update.

use std::sync::Arc;

use tokio::sync::watch::{Receiver, Sender, channel};

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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LifecycleReports {
    /// The agent's own state was read: without a report no stage was ever set.
    pub is_read: bool,
    /// The last report.
    pub last: Option<Arc<LifecycleReport>>,
}

/// The end of whoever carries it out.
#[derive(Debug)]
pub struct LifecycleLink {
    /// The desire.
    pub desired: Receiver<DesiredStage>,
    /// The progress.
    pub report: Sender<LifecycleReports>,
}

/// The end of whoever sees what is desired.
#[derive(Debug)]
pub struct LifecycleSource {
    /// The desire.
    pub desired: Sender<DesiredStage>,
    /// The progress.
    pub report: Receiver<LifecycleReports>,
}

/// Makes both ends.
pub fn lifecycle_channel() -> (LifecycleSource, LifecycleLink) {
    let (desired, wanted) = channel(None);
    let (report, reports) = channel(LifecycleReports::default());
    (LifecycleSource { desired, report: reports }, LifecycleLink { desired: wanted, report })
}

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
