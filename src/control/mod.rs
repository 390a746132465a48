//! Where the target comes from and the report goes to.
//!
//! Imports `model`, `report` and, for files, `host`. An implementor decides nothing: it reads, waits and publishes.
//! A half pair, a half-written file, an object that is not there yet: an error, and the old target stays.

pub mod directory;
pub mod oneshot;

mod error;

use crate::model::machineconfig::MachineConfig;
use crate::model::policy::DisruptionPolicy;
use crate::model::{ConfigName, Target};
use crate::report::NodeReport;

pub use error::ControlError;

/// How the workload left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// The node is empty.
    Yes,
    /// There is nobody to ask: a single machine is not drained.
    NotAsked,
}

/// A source of targets.
pub trait ControlPlane {
    /// Waits until something may have changed. Cancel-safe: a change that was not yet returned is not lost.
    fn changed(&mut self) -> impl Future<Output = Result<(), ControlError>>;

    /// Reads the target, both halves from one version of their source; `None` when nothing is wanted.
    fn wanted(&mut self) -> impl Future<Output = Result<Option<Target>, ControlError>>;

    /// Fetches a MachineConfig by name.
    fn machine_config(
        &mut self,
        name: &ConfigName,
    ) -> impl Future<Output = Result<MachineConfig, ControlError>>;

    /// Fetches the disruption policy in force.
    fn policy(&mut self) -> impl Future<Output = Result<DisruptionPolicy, ControlError>>;

    /// Says whether a drain can be asked for.
    fn drains(&self) -> bool;

    /// Asks for a drain and awaits the answer.
    fn drain(&mut self, target: &Target) -> impl Future<Output = Result<Drained, ControlError>>;

    /// Publishes the node's state. The same report again costs nothing.
    fn publish(&mut self, report: &NodeReport) -> impl Future<Output = Result<(), ControlError>>;
}
