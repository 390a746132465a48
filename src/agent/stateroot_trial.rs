//! Work of a boot on stateroots: a system that was activated proves itself or is left, and one that boots again
//! closes its record.
//!
//! # Decisions
//! 1. It does not depend on the daemon: that may wait for a cluster that the new system does not reach.
//! 2. Besides what the health rules say, the boot itself has to be complete. The time limit is the activation's.
//! 3. Why it is left is written down before anything is done, for this system and for the other one. The way back is a whole reboot:
//!    a soft one would keep this stateroot's `/var`.
//! 4. The return is recorded in the other stateroot on a best-effort basis: its boot does not wait for that.
//! 5. What fails ends the process; its unit starts another one. A way back that was requested does not end it: its reboot is
//!    requested again until the boot ends.

use std::time::Duration;

use tokio::time::Instant;
use tracing::{error, info, warn};

use super::AgentError;
use super::boot_count::with_counter;
use super::shutdown_listener::{ShutdownListener, reboot_in_vain};
use super::trial::attempts;
use crate::decide::stage::StageRetry;
use crate::decide::trial::Attempts;
use crate::host::health::HealthChecks;
use crate::host::os::stateroots::{Boots, Stateroots};
use crate::host::power::RebootKind;
use crate::host::{Host, Rebooting};
use crate::journal::stateroot::{StaterootJournal, Trial, load_record, load_return, record_return};
use crate::model::node_settings::HealthRules;
use crate::model::text::chain;
use crate::model::{BootId, FaultClass, UnitName, message};
use crate::stateroot::{Job, Return, TRIAL_SCHEMA, TrialAction, stateroot_of, trial_action, unproven};
use crate::update::Fault;
use crate::update::resume::BOOT_FAILED;

/// It is active when the boot is complete.
const COMPLETE: &str = "multi-user.target";

/// Result of a boot's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootEnd {
    /// The system stays.
    Stays,
    /// It is left: a supervisor plays the reboot.
    GoesDown,
}

/// Does what this boot has to do with stateroots.
#[derive(Debug)]
pub struct BootWorker<'a> {
    /// The host.
    pub host: &'a Host,
    /// Its stateroots.
    pub stateroots: &'a Stateroots,
    /// The rules of a health trial.
    pub rules: &'a HealthRules,
    /// Name of the node, which spreads its attempts.
    pub node: &'a str,
}

impl BootWorker<'_> {
    /// Closes the record of a stateroot that boots again, and carries out the trial of one that was activated.
    pub async fn settle(&self) -> Result<BootEnd, AgentError> {
        let boot_id = self.host.boot_id().await?;
        let boots = self.stateroots.boots().await?;
        self.close(&boots, &boot_id).await?;
        let fail_points = self.host.fail_points.clone();
        let Some(mut trial) = Trial::open(self.host.root.clone(), fail_points)? else {
            return Ok(BootEnd::Stays);
        };
        let now = self.host.clock.monotonic_micros();
        match trial_action(trial.current(), &boots.booted, &boots.next, &boot_id, now) {
            TrialAction::Nothing => Ok(BootEnd::Stays),
            TrialAction::Begin => {
                let begun = trial.current().clone().begun(boot_id.clone(), now);
                trial.record(begun)?;
                self.run(&mut trial, boot_id, Duration::ZERO).await
            }
            TrialAction::Continue(spent) => self.run(&mut trial, boot_id, spent).await,
            TrialAction::GiveUp(fault) => self.fail(&mut trial, boot_id, fault).await,
            TrialAction::GoBack(fault) => self.go_back(&trial, &fault).await,
        }
    }

    /// Closes the record of an activation after whose reboot this stateroot runs again.
    async fn close(&self, boots: &Boots, boot_id: &BootId) -> Result<(), AgentError> {
        let is_back = load_record(&self.host.root)?.filter(|record| record.came_back(boot_id));
        let Some(record) = is_back else { return Ok(()) };
        let Job::Activate { deployment, .. } = &record.job else { return Ok(()) };
        let mut journal = StaterootJournal::open(self.host.root.clone(), self.host.fail_points.clone())?;
        if !record.has_left(&boots.next) {
            let stateroot = stateroot_of(deployment);
            info!("The activation of stateroot {stateroot} was interrupted before it was the next to boot");
            return Ok(journal.restart(boot_id.clone())?);
        }
        if boots.next == *deployment {
            // The boot loader went back, or a person did in its menu.
            self.stateroots.set_default(&boots.booted).await?;
            let message = format!("{deployment} was activated, and {} booted instead", boots.booted);
            let fault = boot_failed(message, deployment);
            record_return(&self.host.root, &self.returned(deployment, fault))?;
        }
        with_counter(&self.host.root, |counter| counter.end());
        if let Some(left) = load_return(&self.host.root)?.filter(|left| left.deployment == *deployment) {
            error!(
                MESSAGE_ID = message::STATEROOT_FAULT,
                MCA_FAULT = %left.fault.reason,
                "Returned from the stateroot {}: {}",
                stateroot_of(deployment),
                left.fault.message
            );
        } else {
            info!("Came back from the stateroot {}", stateroot_of(deployment));
        }
        Ok(journal.close(self.host.clock.now())?)
    }

    fn returned(&self, deployment: &str, fault: Fault) -> Return {
        let (deployment, at) = (deployment.to_owned(), self.host.clock.now());
        Return { schema: TRIAL_SCHEMA, deployment, fault, at }
    }

    /// Tries the system until it is healthy or its time is over.
    async fn run(&self, trial: &mut Trial, boot_id: BootId, spent: Duration) -> Result<BootEnd, AgentError> {
        let (deployment, limit) = (trial.current().deployment.clone(), trial.current().rules.within);
        let units = self.units()?;
        if spent.is_zero() {
            info!(
                MESSAGE_ID = message::STATEROOT_TRIAL,
                "Health trial of the new deployment {deployment} started: {limit} s"
            );
        }
        let left = Duration::from_secs(limit).saturating_sub(spent);
        let log_waiting = |what: String| info!("Waiting for {what}");
        let deadline = Instant::now() + left;
        let tried = attempts(self.host, Some(&units), deadline, Attempts::new(self.node), &log_waiting).await;
        let Err(ill) = tried else {
            with_counter(&self.host.root, |counter| counter.end());
            let passed = trial.current().clone().passed();
            trial.record(passed)?;
            info!(
                MESSAGE_ID = message::STATEROOT_PASSED,
                "Health trial of the new deployment {deployment} passed"
            );
            return Ok(BootEnd::Stays);
        };
        let fault = unproven(trial.current(), &ill);
        self.fail(trial, boot_id, fault).await
    }

    /// Returns the units that have to be active.
    fn units(&self) -> Result<std::collections::BTreeSet<UnitName>, AgentError> {
        let list = HealthChecks::load(&self.host.root, self.rules.units.as_ref())?;
        let mut units: std::collections::BTreeSet<UnitName> = list.units.into_iter().collect();
        units.insert(UnitName::new(COMPLETE)?);
        Ok(units)
    }

    async fn fail(&self, trial: &mut Trial, boot_id: BootId, fault: Fault) -> Result<BootEnd, AgentError> {
        error!(
            MESSAGE_ID = message::STATEROOT_FAULT,
            MCA_FAULT = %fault.reason,
            "Health trial of the new deployment {} failed: {}",
            trial.current().deployment,
            fault.message
        );
        let failed = trial.current().clone().failed(boot_id, fault.clone());
        trial.record(failed)?;
        if trial.current().rules.returns {
            return self.go_back(trial, &fault).await;
        }
        with_counter(&self.host.root, |counter| counter.end());
        Ok(BootEnd::Stays)
    }

    /// Boots the deployment that ran before. systemd ends this process with the boot; a reboot that came to nothing is requested
    /// again, ever less often: the system is not well, and nobody else leaves it.
    async fn go_back(&self, trial: &Trial, fault: &Fault) -> Result<BootEnd, AgentError> {
        let (mut shutdowns, mut retry) = (ShutdownListener::default(), StageRetry::new(self.node));
        loop {
            // Before the request: what comes of it is not missed.
            shutdowns.listen(&*self.host.power).await;
            if self.request_return(trial, fault).await? == Rebooting::Exit {
                return Ok(BootEnd::GoesDown);
            }
            let how = shutdowns.until_in_vain(&self.host.clock).await;
            let again = retry.fail();
            reboot_in_vain(stateroot_of(&trial.current().previous), how, again);
            shutdowns.end();
            tokio::time::sleep(again).await;
        }
    }

    /// Makes the deployment that ran before the next boot's, and requests the reboot.
    async fn request_return(&self, trial: &Trial, fault: &Fault) -> Result<Rebooting, AgentError> {
        let previous = &trial.current().previous;
        let left = self.returned(&trial.current().deployment, fault.clone());
        if let Err(error) = self.stateroots.record_return(previous, left).await {
            warn!("Failed to pass the cause of the return to {previous}: {}", chain(&error));
        }
        self.host.fail_points.hit("stateroot-told");
        if let Err(error) = self.stateroots.go_back(previous).await {
            error!(
                MESSAGE_ID = message::STATEROOT_FAULT,
                MCA_FAULT = error.reason(),
                "Failed to make {previous} the default deployment: {}",
                chain(&error)
            );
            return Err(error.into());
        }
        self.host.fail_points.hit("stateroot-left");
        with_counter(&self.host.root, |counter| counter.end());
        let why = format!("Node will reboot into the stateroot {}, its previous one", stateroot_of(previous));
        info!(MESSAGE_ID = message::STATEROOT_REBOOT, "{why}");
        Ok(self.host.power.reboot(RebootKind::Whole, &why).await?)
    }
}

fn boot_failed(message: String, deployment: &str) -> Fault {
    Fault {
        class: FaultClass::Degraded,
        reason: BOOT_FAILED.to_owned(),
        message,
        next: format!(
            "Check the logs of its boots in /sysroot/ostree/deploy/{}/var/log; correct the seed, remove the stateroot and prepare it \
             again.",
            stateroot_of(deployment)
        ),
    }
}
