//! The life of one update: its record, the legal edges of its phases, and what to do with it at start.
//!
//! Pure: imports `model` and `plan` only.

pub mod phase;
pub mod record;
pub mod resume;

pub use phase::{Event, IllegalEdge, Phase};
pub use record::{Fault, Record, StagedOs, Trial};
pub use resume::{Decision, not_finalised, resume, verdict};
