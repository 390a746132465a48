//! What a node should be, what it takes to get there, and what is said of it.
//!
//! | module | holds | may import |
//! |---|---|---|
//! | [`model`] | the vocabulary: names, specs, observations | nothing |
//! | [`plan`] | deciding what has to be done | `model` |
//! | [`update`] | the life of one update: record, phases, resume | `model plan` |
//! | [`decide`] | when, and how long to wait | `model plan update` |
//! | [`mod@report`] | what the cluster is told | `model plan update` |
//! | [`stateroot`] | a second system beside the running one | `model update` |
//!
//! Pure: no I/O, no clock, no async, no logging, no environment. What is seen comes in as a value, and what is decided
//! goes out as one; the agent observes, applies and publishes. None of the dependencies can reach a machine, and
//! `clippy.toml` refuses what the standard library could. `tests/cli/architecture.rs` of the agent holds the table.

pub mod decide;
pub mod model;
pub mod plan;
pub mod report;
pub mod stateroot;
pub mod update;
