//! Node agent that applies MachineConfigs and OS images.
//!
//! It reads the desired state of the node, decides every step before changing anything, records each step before taking
//! it, and reports only recorded state.
//!
//! ```text
//!   target: config + image (control)            host: files, units, users, arguments, booted image, boot id
//!            |                                            |  observe
//!            v                                            v
//!   MachineConfig + policy -> model::HostSpec        model::Observation, Facts
//!            \______________________  ____________________/
//!                                   \/
//!                 plan(from, to, facts, policy) -> Plan | Irreconcilable               pure
//!                                   |
//!                 journal.begin(record)                                record.json, on disk
//!                                   |
//!                 stage the OS image (not disruptive) -> drain, where it can be requested
//!                                   |
//!                 journal.advance(|intent| apply(intent, host))        each batch: recorded, run, recorded
//!                                   |
//!                 reboot, if the plan needs it ~~~~~~~~ the machine goes down ~~~~~~~~
//!                                   |
//!            start, always: resume(record, committed, seen, desired) -> Decision        pure
//!                                   |
//!                 verify: differences(spec, seen) is empty                             pure; drift asks the same
//!                                   |
//!                 a new deployment proves itself: units, health checks; else the previous one boots again
//!                                   |
//!                 commit: the new spec is current.json; the record goes to history/
//!                                   :
//!            at every change: report(record, health) -> NodeReport                     pure
//!                                   :  control publishes it; telemetry: log, sd_notify
//! ```
//!
//! Three pure functions decide ([`plan::plan`], [`update::resume()`], [`report::report`]); three effectful ones do
//! ([`observe::observe`], [`apply::apply`], publishing by a [`control::ControlPlane`]).
//!
//! [`machine_config_core`] in `core/` (`decide model plan report stateroot update`) is pure: no I/O, clock, async runtime or logging.
//! `docs/architecture.md` has the table of folders and imports, ten recipes for changes, and the dependencies.
//!
//! # Glossary
//! *config*: a rendered MachineConfig. *target*: a config and the image that goes with it. *spec*: a target, validated.
//! *observation*: the observed state of a host. *facts*: an observation and the further inputs of a plan. *difference*:
//! a disagreement of spec and observation. *plan*: ordered *steps*, and the actions after them. *batch*: neighbouring
//! steps that are carried out and recorded together. *record*: an update in progress. *phase*: its position. *intent*:
//! the permission for one batch. *originals*: the files that a batch replaced. *fault*: an error with its class and the
//! next step. *drift*: differences on an idle node. *event*: a change, sent to the cluster. *link*: the way to the API
//! server.
//!
//! # Decisions
//! 1. Steps are recorded by batch, not one by one: all contents of a batch are staged side by side, synced in parallel,
//!    renamed, and recorded once. Each step stays idempotent, so a batch that was cut short is run again.
//! 2. Undo restores saved originals, not the old spec, whoever had written them.
//! 3. libostree runs in child processes of a second executable (`machine-config-agent-ostree`): in their own mount
//!    namespace with a writable `/sysroot`, and its libraries, its memory and its aborts stay out of the agent. No
//!    code that the agent's `main` reaches names its symbols, so the linker leaves its sixty libraries out.
//! 4. `resume` is also given the committed target: "is there work for an idle node" is a row of the same table.
//! 5. A directory as control plane reads and writes files, so `control` may import `host`; a cluster's reads its
//!    credentials and keeps fetched objects by it.
//! 6. A drain and its end are requested and answered by the control plane's changes, never awaited in place: a new target
//!    is noticed meanwhile, and another process can take the answer.
//! 7. `sandbox` is a folder of its own beside `host`: it builds a machine out of files and namespaces, which is neither
//!    the agent's business nor a verb's.

pub mod agent;
pub mod apply;
pub mod cli;
pub mod control;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod host;
pub mod journal;
pub mod observe;
pub mod reconcilers;
#[cfg(feature = "backend-ostree")]
pub mod sandbox;
pub mod settings;
pub mod telemetry;

pub use machine_config_core::{decide, drain, model, plan, report, stateroot, update};

/// Takes the lines that a test logs.
#[cfg(test)]
#[path = "../tests/support/log_lines.rs"]
mod log_lines;

/// Makes programs for tests.
#[cfg(test)]
#[path = "../tests/support/program.rs"]
pub(crate) mod program;

/// Lists the tests of the library that were not run.
#[cfg(test)]
#[path = "../tests/support/ran.rs"]
pub(crate) mod ran;

/// Waits for a lock of which a program that is being started has a copy.
#[cfg(test)]
#[path = "../tests/support/unlocked.rs"]
pub(crate) mod unlocked;

// The doubles in `tests/` name the crate as its users do.
#[cfg(test)]
extern crate self as machine_config_agent;
