//! The boot loader's counter, if it has one: it covers the boots of a new deployment in which the agent never starts.
//!
//! # Decisions
//! 1. It is begun before the reboot and ended before the commit: a count that is left over would one day boot the old
//!    deployment of a node that is well.
//! 2. After the boot loader went back, the new deployment is still the first of its menu. While the order is changed, boots
//!    are counted again: at every instant the next boot ends in a deployment that comes up.
//! 3. A count that is left over is ended only once the deployment that runs is the first of the menu.
//! 4. A counter that can't be written keeps no update from its reboot: most boot loaders have none.

use tracing::{info, warn};

use super::Agent;
use super::deployments::ChangeEnd;
use crate::control::ControlPlane;
use crate::host::boot_counter::BootCounter;
use crate::host::os::OsChange;
use crate::host::{HostError, Root};
use crate::journal::stateroot::load_record;
use crate::model::Observation;
use crate::model::observation::{BootCount, ObservedOs};
use crate::model::text::chain;
use crate::stateroot::{Job, StaterootRecord};
use crate::update::record::StagedOs;
use crate::update::{Phase, Record};

impl<C: ControlPlane> Agent<C> {
    /// Has the boots of a new deployment counted.
    pub(super) fn count_boots(&self, record: &Record) {
        let new = record.staged_os() != StagedOs::None && !matches!(record.phase, Phase::FallingBack { .. });
        if new && self.with_counter(|counter| counter.arm()) {
            info!("Boot loader counts the boots of the new deployment");
        }
    }

    /// Ends the count: the running deployment is good, or is left by the agent itself.
    pub(super) fn end_count(&self) {
        self.with_counter(|counter| counter.end());
    }

    /// Ends a count that no update needs any more. As long as another deployment than the one that runs is the first of the
    /// menu, only the count brings a machine up on which that one does not: it is ended after that is changed.
    ///
    /// While another stateroot is activated it boots next, and the count is its own.
    pub(super) async fn end_stale_count(&mut self, observed: &Observation) {
        let activates = |record: StaterootRecord| {
            matches!(record.job, Job::Activate { .. }) && !record.came_back(&observed.boot_id)
        };
        if load_record(&self.host.root).is_ok_and(|record| record.is_some_and(activates)) {
            return;
        }
        if let ObservedOs::Deployments { booted, next: Some(next), .. } = &observed.os {
            let (booted, next) = (&booted.deployment, &next.deployment);
            match self.change_deployments(OsChange::SetDefault(booted)).await {
                Ok(ChangeEnd::Done) => {}
                Ok(ChangeEnd::Left(_)) => return,
                Err(error) => {
                    warn!(
                        "Failed to make {booted} the default instead of {next}; boots stay counted: {}",
                        chain(&error)
                    );
                    return;
                }
            }
        }
        self.end_count();
    }

    /// Makes the deployment that the boot loader went back to the first of its menu.
    pub(super) async fn stay(&mut self, observed: &Observation) -> Result<ChangeEnd, HostError> {
        let (BootCount::FellBack, Some(booted)) = (observed.boots, observed.os.booted()) else {
            return Ok(ChangeEnd::Done);
        };
        self.with_counter(|counter| counter.arm());
        let end = self.change_deployments(OsChange::SetDefault(&booted.deployment)).await?;
        if end == ChangeEnd::Done {
            self.end_count();
        }
        Ok(end)
    }

    /// Does something with the counter; returns true if there is one and that succeeded.
    fn with_counter(&self, what: impl Fn(BootCounter<'_>) -> Result<(), HostError>) -> bool {
        with_counter(&self.host.root, what)
    }
}

/// Does something with the counter; returns true if there is one and that succeeded.
pub(super) fn with_counter(root: &Root, what: impl Fn(BootCounter<'_>) -> Result<(), HostError>) -> bool {
    let Ok(Some(counter)) = BootCounter::find(root) else { return false };
    let done = what(counter);
    if let Err(error) = &done {
        warn!("Failed to write the boot loader's counter: {}", chain(error));
    }
    done.is_ok()
}
