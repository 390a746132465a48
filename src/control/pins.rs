//! The pinned images of a node on their way to whom they concern, and the way back of what became of them.
//!
//! Values of their own beside the target: a pull of images delays no update, and an update keeps no one from seeing them.

use std::sync::Arc;

use tokio::sync::watch::{Receiver, Sender, channel};

use crate::decide::pinned::PinProgress;
use crate::model::pinned::Pins;

/// Desired images; `None` while they are not known.
pub type DesiredPins = Option<Arc<Pins>>;

/// Progress; `None` while there is none.
pub type PinReport = Option<(Arc<Pins>, PinProgress)>;

/// The end of whoever carries it out.
#[derive(Debug)]
pub struct PinLink {
    /// The desired images.
    pub desired: Receiver<DesiredPins>,
    /// Their progress.
    pub report: Sender<PinReport>,
}

/// The end of whoever sees what is desired.
#[derive(Debug)]
pub struct PinSource {
    /// The desired images.
    pub desired: Sender<DesiredPins>,
    /// Their progress.
    pub report: Receiver<PinReport>,
}

/// Makes both ends.
pub fn pin_channel() -> (PinSource, PinLink) {
    let (desired, wanted) = channel(None);
    let (report, reports) = channel(None);
    (PinSource { desired, report: reports }, PinLink { desired: wanted, report })
}
