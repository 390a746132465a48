//! The reboot of an update: the finalization is ensured, block inhibitors are awaited and named, the reboot is
//! recorded and requested of logind; a shutdown that was canceled is requested again.
//!
//! Nothing is polled: logind signals when a block comes or goes, and when a shutdown begins or is canceled.
//!
//! # Decisions
//! 1. A block is awaited before the record's phase is `rebooting`: another target can still be taken meanwhile, and the
//!    wait is no try.
//! 2. A soft reboot (`core/src/model/soft_reboot.rs`) is the first try alone, of the way on and of the way back. It is prepared
//!    here, when the reboot is recorded: after a crash in between the record has a requested
//!    reboot, and the next request is a full one.

use std::time::Duration;

use tracing::{info, warn};

use super::fields::update_line;
use super::{Agent, AgentError};
use crate::control::ControlPlane;
use crate::decide::down::Down;
use crate::decide::mode::ExitReason;
use crate::host::finalization::FINALIZER;
use crate::host::power::{Inhibitor, RebootKind, Rebooting};
use crate::host::systemd::ServiceOutcome;
use crate::host::{HostError, next_root};
use crate::model::soft_reboot::{Requirement, SoftRebootFacts, Verdict, judge};
use crate::model::text::chain;
use crate::model::{Observation, UnitName, message};
use crate::report::Event;
use crate::update::{Phase, Record, Transition};

/// The reboot that an update waits for, where it was left to a person.
pub const REBOOT_LEFT: &str = "a manual reboot: `apply --no-reboot` left it to you (systemctl reboot)";

impl<C: ControlPlane> Agent<C> {
    /// Requests the reboot: first in the record, then of the machine. Returns the end of the loop, if it ends.
    pub(super) async fn reboot(&mut self, observed: &Observation) -> Result<Option<ExitReason>, AgentError> {
        let Some(record) = self.journal.record().cloned() else { return Ok(None) };
        self.journal.note(|record| record.waiting = None)?;
        self.record_reboot(&record, &Transition::Reboot { boot_id: observed.boot_id.clone() })?;
        self.request_reboot(&record, observed).await
    }

    /// Leaves the reboot to a person: no process but this one ends this boot.
    pub(super) fn leave_reboot(
        &mut self,
        event: Option<&Transition>,
        observed: &Observation,
    ) -> Result<(), AgentError> {
        let Some(record) = self.journal.record().cloned() else { return Ok(()) };
        self.journal.note(|record| record.reboot_left = Some(observed.boot_id.clone()))?;
        let Some(event) = event else { return Ok(()) };
        self.journal.note(|record| record.waiting = None)?;
        self.record_reboot(&record, event)
    }

    fn record_reboot(&mut self, record: &Record, event: &Transition) -> Result<(), AgentError> {
        self.journal.step(event, self.host.clock.now())?;
        if !matches!(record.phase, Phase::Rebooting { .. }) {
            self.log_phase();
        }
        Ok(())
    }

    /// Notes that the reboot is left to a person.
    pub(super) fn note_reboot_left(&mut self) -> Result<(), AgentError> {
        let waiting = REBOOT_LEFT.to_owned();
        if self.journal.record().is_some_and(|record| record.waiting.as_ref() != Some(&waiting)) {
            info!(MESSAGE_ID = message::WAITING, "Waiting for {waiting}");
            self.journal.note(|record| record.waiting = Some(waiting))?;
        }
        Ok(())
    }

    /// Logs a shutdown that came to nothing, and when it is requested again.
    pub(super) fn reboot_in_vain(&mut self, how: &str, again: Duration) -> Result<(), AgentError> {
        self.shutdown_listener.end();
        update_line!(
            warn,
            self.journal.record(),
            MESSAGE_ID = message::REBOOT_ABORTED,
            "The requested reboot {how}: requesting it again in {} s",
            again.as_secs()
        );
        self.telemetry.metrics.reboot_failed();
        self.note_retry(&format!("it {how}"))
    }

    /// Records why the reboot is requested again: the last fault reports it, too.
    fn note_retry(&mut self, cause: &str) -> Result<(), AgentError> {
        let waiting = format!("another try of the reboot: {cause}");
        Ok(self.journal.note(|record| record.waiting = Some(waiting))?)
    }

    /// Makes sure that the shutdown will finalize the staged deployment, or refuses to reboot. Returns false once a signal stops the
    /// process.
    pub(super) async fn arm(&mut self, observed: &Observation) -> Result<bool, AgentError> {
        let Self { host, signals, .. } = self;
        tokio::select! {
            ensured = host.os.ensure_finalizable() => ensured?,
            () = signals.stopped() => return Ok(false),
        }
        if let Some(staged) = observed.os.staged() {
            let unit = UnitName::new(FINALIZER)?;
            if self.host.systemd.stopped_by_shutdown(&unit).await? == ServiceOutcome::NoSystemd {
                info!("No systemd runs for this host: the supervisor must finalize the staged deployment");
            }
            self.carry_over_etc(&staged.deployment, observed).await;
        }
        Ok(true)
    }

    /// Returns true if an inhibitor blocks the shutdown, and reports it. From here on only the agent reboots.
    pub(super) async fn is_blocked(&mut self) -> Result<bool, AgentError> {
        self.journal.note(|record| record.reboot_left = None)?;
        let inhibitors = self.shutdown_listener.block_inhibitors(&*self.host.power).await;
        if inhibitors.is_empty() {
            return Ok(false);
        }
        let names: Vec<String> = inhibitors.iter().map(Inhibitor::to_string).collect();
        let waiting = format!("the reboot, which is blocked by {}", names.join("; "));
        if let Some(record) = self.journal.record().filter(|record| record.waiting.as_ref() != Some(&waiting))
        {
            update_line!(
                info,
                Some(record),
                MESSAGE_ID = message::REBOOT_BLOCKED,
                "Waiting for {waiting}; continues when the block ends"
            );
            self.journal.note(|record| record.waiting = Some(waiting))?;
        }
        Ok(true)
    }

    /// Announces the reboot, then requests it.
    async fn request_reboot(
        &mut self,
        record: &Record,
        observed: &Observation,
    ) -> Result<Option<ExitReason>, AgentError> {
        let config = &record.to.config;
        let why = if matches!(record.phase, Phase::FallingBack { .. }) {
            format!("Node will reboot into its previous deployment: config {config} failed in the new one")
        } else {
            format!("Node will reboot into config {config}")
        };
        update_line!(info, Some(record), MESSAGE_ID = message::REBOOT, "{why}");
        self.publish().await;
        self.control.emit(&Event::Reboot { why: why.clone() }).await;
        self.control.flush().await;
        let kind = self.kind(record, observed).await;
        if kind == RebootKind::Whole {
            self.count_boots(record);
        }
        let result = self.host.power.reboot(kind, &why).await;
        if let Err(error) = &result {
            self.telemetry.metrics.reboot_failed();
            self.note_retry(&chain(error))?;
        }
        match result? {
            Rebooting::Exit => Ok(Some(ExitReason::Reboot)),
            Rebooting::Requested => {
                self.memory.down = Down::requested(self.host.clock.monotonic());
                // logind's signals meanwhile are read in the next pass.
                Ok(None)
            }
        }
    }

    /// Returns the kind of the reboot, and prepares a soft one. A failure of that makes it a full reboot.
    async fn kind(&mut self, record: &Record, observed: &Observation) -> RebootKind {
        let why = match self.soft_reboot(record, observed).await {
            Ok(None) => return RebootKind::Soft,
            Ok(Some(why)) => why,
            Err(error) => chain(&error),
        };
        if !why.is_empty() {
            update_line!(info, Some(record), "No soft reboot: {why}");
        }
        if let Err(error) = next_root::drop(&self.host.root, &self.host.systemd).await {
            warn!("Failed to give up a prepared soft reboot: {}", chain(&error));
        }
        RebootKind::Whole
    }

    /// Prepares a soft reboot; returns why it is none, or nothing where it is not allowed.
    async fn soft_reboot(
        &self,
        record: &Record,
        observed: &Observation,
    ) -> Result<Option<String>, HostError> {
        let (wish, host) = (self.host.soft_reboot, &self.host);
        let (tries, deployment) = if matches!(record.phase, Phase::FallingBack { .. }) {
            (record.fallbacks, record.origin.as_deref())
        } else {
            (record.reboots, observed.os.staged().map(|staged| staged.deployment.as_str()))
        };
        let no = |verdict| match verdict {
            Verdict::Whole { why } => Some(why.unwrap_or_default()),
            Verdict::SoftIf { .. } => Some("the host's capabilities are unknown".to_owned()),
            Verdict::Soft => None,
        };
        let beforehand = match deployment {
            Some(_) => SoftRebootFacts::capable(),
            None => SoftRebootFacts::default().with(Requirement::Deployment, false),
        };
        if let Some(why) = no(judge(wish, tries, &beforehand)) {
            return Ok(Some(why));
        }
        let found = host.soft_reboot_into(deployment).await?;
        if let Some(why) = no(judge(wish, tries, &found.facts)) {
            return Ok(Some(why));
        }
        if found.is_prepared {
            return Ok(None);
        }
        let Some(index) = found.index else { return Ok(Some("nothing is prepared".to_owned())) };
        next_root::prepare(&host.root, &host.systemd, index).await?;
        host.fail_points.hit("soft-reboot-prepared");
        // A person may have changed the order of the deployments meanwhile.
        let is_prepared = host.soft_reboot_into(deployment).await?.is_prepared;
        Ok((!is_prepared).then(|| "libostree prepared another deployment".to_owned()))
    }
}
