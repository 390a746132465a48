//! The agent's next action, and the end of its wait: each wait, retry, limit and loop breaker.
//!
//! | file | decides |
//! |---|---|
//! | [`next`] | the one thing to do, from all inputs |
//! | [`ahead`] | fate of an open update before the plan that a verb shows |
//! | [`answer`] | time limits of the control plane's answers |
//! | [`down`] | state of a requested reboot, and its repetition |
//! | [`ended`] | result of a run of `apply` |
//! | [`failed`] | action after an error of a pass or of a wait |
//! | [`drift`] | repetition of drift's reports and repairs, and the part of the host that is observed for it |
//! | [`first_boot`] | next try of what a first boot needs before it begins |
//! | [`hold`] | next try of an update that failed |
//! | [`pinned`] | space, number and report of pinned images |
//! | [`prefetch`] | download of an image ahead of its update, and its tries |
//! | [`retention`] | retention of the previous deployment |
//! | [`stage`] | next try of a stage of an image-based upgrade |
//! | [`trial`] | next attempt of a health trial |
//! | `unreadable` | an open update whose config this version can't read |
//! | [`trust`] | next try of certificates and the pull secret |
//!
//! [`inputs`] and [`mode`] hold the inputs of a decision, [`action`] its result. Every function takes the time since
//! the boot by the monotonic clock; none takes wall time. The memory between two calls is a value of the caller: losing
//! it costs a wait, a report or a try more, never a promise.
//!
//! The tests walk through every state of a small world (`walk`): they hold the invariants of the design in each, and that
//! each leads to rest.

pub mod action;
pub mod ahead;
pub mod answer;
pub mod down;
pub mod drift;
pub mod ended;
#[cfg(test)]
mod example;
pub mod failed;
pub mod first_boot;
pub mod hold;
pub mod inputs;
pub mod mode;
pub mod next;
pub mod pinned;
pub mod prefetch;
pub mod retention;
pub mod stage;
pub mod trial;
pub mod trust;
mod unreadable;
#[cfg(test)]
mod walk;

pub use next::decide;
