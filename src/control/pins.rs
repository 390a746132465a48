//! The pinned images of a node on their way to whom they concern, and the way back of what became of them.
//!
//! Values of their own beside the target: a pull of images delays no update, and an update keeps no one from seeing them.

use std::sync::Arc;

use super::link::{Link, Source};
use crate::decide::pinned::PinProgress;
use crate::model::pinned::Pins;

/// Desired images; `None` while they are not known.
pub type DesiredPins = Option<Arc<Pins>>;

/// Progress; `None` while there is none.
pub type PinReport = Option<(Arc<Pins>, PinProgress)>;

/// The end of whoever carries it out.
pub type PinLink = Link<DesiredPins, PinReport>;

/// The end of whoever sees what is desired.
pub type PinSource = Source<DesiredPins, PinReport>;
