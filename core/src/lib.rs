//! Desired state of a node, the plan to reach it, and the reports about it.
//!
//! | module | holds | may import |
//! |---|---|---|
//! | [`model`] | the vocabulary: names, specs, observations | nothing |
//! | [`plan`] | the steps from one spec to another | `model` |
//! | [`update`] | the life of one update: record, phases, resume | `model plan` |
//! | [`decide`] | the next action, and the length of waits | `model plan update` |
//! | [`drain`] | the pods of a drain, and what it waits for | `model` |
//! | [`mod@report`] | reports to the cluster | `model plan update` |
//! | [`stateroot`] | a second system beside the running one | `model update` |
//!
//! Pure: no I/O, no clock, no async, no logging, no environment. Observations come in as values, and decisions
//! go out as values; the agent observes, applies and publishes. None of the dependencies can reach a machine, and
//! `clippy.toml` refuses the rest of the standard library. `tests/cli/architecture.rs` of the agent holds the table.

pub mod decide;
pub mod drain;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod model;
pub mod plan;
pub mod report;
pub mod stateroot;
pub mod update;
