//! The life of one update: its record, the legal edges of its phases, and the decision about it at start.
//!
//! Pure: imports `model` and `plan` only.

pub mod ending;
pub mod phase;
mod reason;
pub mod record;
pub mod resume;

pub use ending::Ending;
pub use phase::{IllegalTransition, Phase, Transition};
pub use record::{Begun, Fault, Record, StagedOs, Trial};
pub use resume::{Decision, after_verification, not_finalized, resume};
