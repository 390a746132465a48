//! What the agent does next, and until when it waits: each wait, retry, limit and loop breaker.
//!
//! | file | decides |
//! |---|---|
//! | [`next`] | the one thing to do, from all inputs |
//! | [`answer`] | how long an answer of the control plane may take |
//! | [`down`] | whether a reboot that was requested is under way, or is requested again |
//! | [`ended`] | how a run of `apply` ended |
//! | [`failed`] | what follows an error of a pass or of a wait |
//! | [`drift`] | when drift is told or repaired again, and how much is looked at for it |
//! | [`hold`] | when an update that failed is tried again |
//! | [`kept`] | how long the previous deployment is kept |
//! | [`prefetch`] | when an image is downloaded ahead of its update, and how often that is tried |
//! | [`trial`] | when a health trial makes its next attempt |
//! | [`trust`] | when certificates and the pull secret are tried again |
//!
//! [`inputs`] and [`mode`] have what a decision is made from, [`action`] what it says. Every function takes the time, the time since the
//! boot by the clock that nobody sets; none takes wall time. What is remembered between two calls is a value of the caller:
//! losing it costs a wait, a telling or a try more, never a promise.
//!
//! The tests walk through every state of a small world (`walk`): they hold the invariants of the design in each, and that
//! each leads to rest.

pub mod action;
pub mod answer;
pub mod down;
pub mod drift;
pub mod ended;
pub mod failed;
pub mod hold;
pub mod inputs;
pub mod kept;
pub mod mode;
pub mod next;
pub mod prefetch;
pub mod trial;
pub mod trust;
#[cfg(test)]
mod walk;

pub use next::decide;
