//! Source of the target and destination of the report.
//!
//! Imports `model`, `decide`, `report` and, for files, `host`. An implementor decides nothing: it reads, waits and publishes.
//! A half pair, a half-written file, an object that is not there yet: an error, and the old target stays.

pub mod directory;
pub mod download;
pub mod encapsulated;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
pub mod kube;
pub mod lifecycle;
pub mod link;
#[cfg(test)]
mod one_answer;
pub mod oneshot;
pub mod pins;
pub mod seed_generation;
mod source_watch;
pub mod stage_file;
pub mod trust;

mod error;

use crate::model::machineconfig::MachineConfig;
use crate::model::policy::DisruptionPolicy;
use crate::model::{ConfigName, Target};
use crate::report::{Event, LinkDown, NodeReport, Unread};
use crate::update::Fault;

pub use crate::decide::answer::{DrainStatus, UncordonStatus};
pub use error::ControlError;
pub use pins::PinLink;
pub use trust::{TrustReceiver, TrustSender, trust_channel};

/// A MachineConfig, and the policy or why it can't be read.
pub type ConfigAndPolicy = (MachineConfig, Result<DisruptionPolicy, ControlError>);

/// A source of targets.
pub trait ControlPlane {
    /// Waits until something may have changed. Cancel-safe: a change that was not yet returned is not lost.
    fn changed(&mut self) -> impl Future<Output = Result<(), ControlError>>;

    /// Returns true if the last change wrote the target or an object that it names, even with the same content: that
    /// requests another try. Always false where the source can't tell.
    fn rewritten(&self) -> bool {
        false
    }

    /// Reads the target, both halves from one version of their source; `None` when nothing is desired.
    fn desired(&mut self) -> impl Future<Output = Result<Option<Target>, ControlError>>;

    /// Fetches a MachineConfig by name.
    fn machine_config(
        &mut self,
        name: &ConfigName,
    ) -> impl Future<Output = Result<MachineConfig, ControlError>>;

    /// Fetches the disruption policy in force.
    fn policy(&mut self) -> impl Future<Output = Result<DisruptionPolicy, ControlError>>;

    /// Fetches both, at the same time where that saves time.
    fn config_and_policy(
        &mut self,
        name: &ConfigName,
    ) -> impl Future<Output = Result<ConfigAndPolicy, ControlError>> {
        async {
            let config = self.machine_config(name).await?;
            Ok((config, self.policy().await))
        }
    }

    /// Returns where the cluster's trust is found; it changes beside the target. None by default.
    fn trust(&self) -> TrustReceiver {
        TrustReceiver::default()
    }

    /// Takes the images that the node is to keep; they change beside the target. None by default.
    fn take_pins(&mut self) -> Option<PinLink> {
        None
    }

    /// Returns why the control plane can't be reached. That it changed is a change. None by default.
    fn link_down(&self) -> Option<LinkDown> {
        None
    }

    /// Returns why nobody knows yet whether something is desired. None by default: each read finds out.
    fn unread(&self) -> Option<Unread> {
        None
    }

    /// Names the object that has to come before there is a target. None by default: a node without a target is at rest.
    fn awaited_target(&self) -> Option<String> {
        None
    }

    /// Returns the target as it is named now where it is refused for the object that it names. None by default.
    fn refused_target(&self) -> Option<Target> {
        None
    }

    /// Checks the disruption policy as it is given now, ahead of the update that needs it. Nothing by default: a read finds out.
    fn check_policy(&mut self) -> Result<(), ControlError> {
        Ok(())
    }

    /// Returns why the source is not watched, and has to be read from time to time. None by default.
    fn unwatched(&self) -> Option<Fault> {
        None
    }

    /// Returns true if the node is of the control plane. False if unknown.
    fn is_control_plane(&self) -> bool {
        false
    }

    /// Returns the image that is to be downloaded before it is desired, as it was requested. None by default.
    fn prefetch(&self) -> Option<String> {
        None
    }

    /// Returns true if a drain can be requested. By default it can't: there is no workload.
    fn can_drain(&self) -> bool {
        false
    }

    /// Drains the node and returns the progress. Called again at every change, and again
    /// before a reboot: a node that takes workload again is to be drained again.
    fn drain(&mut self, _target: &Target) -> impl Future<Output = Result<DrainStatus, ControlError>> {
        async { Ok(DrainStatus::NotRequested) }
    }

    /// Uncordons the node, once it runs its desired state.
    fn uncordon(
        &mut self,
        _committed: &Target,
    ) -> impl Future<Output = Result<UncordonStatus, ControlError>> {
        async { Ok(UncordonStatus::Yes) }
    }

    /// Emits an event. It does not wait for the delivery: see [`ControlPlane::flush`].
    fn emit(&mut self, _event: &Event) -> impl Future<Output = ()> {
        async {}
    }

    /// Waits until queued writes are sent, or can't be now. Bounded in time. Nothing is queued by default.
    fn flush(&mut self) -> impl Future<Output = ()> {
        async {}
    }

    /// Publishes the node's state. The same report again costs nothing.
    fn publish(&mut self, report: &NodeReport) -> impl Future<Output = Result<(), ControlError>>;
}
