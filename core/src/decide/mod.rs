//! When the agent does something, and how long it waits: each wait, limit and loop breaker beside the life of one update.
//!
//! | file | decides |
//! |---|---|
//! | [`answer`] | how long an answer of the control plane may take |
//! | [`down`] | whether a reboot that was asked for is under way, or is asked for again |
//! | [`drift`] | when drift is told or repaired once more, and how much is looked at for it |
//! | [`hold`] | when an update that failed is tried once more |
//! | [`kept`] | how long the deployment before is kept |
//!
//! Every function takes the time, the time since the boot by the clock that nobody sets; none takes wall time. What is
//! remembered between two calls is a value of the caller: losing it costs a wait, a telling or a try more, never a
//! promise.

pub mod answer;
pub mod down;
pub mod drift;
pub mod hold;
pub mod kept;
