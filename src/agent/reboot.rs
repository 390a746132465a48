//! The reboot of an update: the finalisation is armed, whoever blocks the shutdown is waited for and named, the record
//! says that the machine goes down, logind is asked; a shutdown that was taken back is asked for again.
//!
//! Nothing here is polled: logind tells when a block comes or goes, and when a shutdown begins or is taken back.
//!
//! # Decisions
//! 1. A block is waited for before the record says `rebooting`: another target can still be taken meanwhile, and the
//!    wait is no try.
//! 2. A soft reboot keeps the kernel and so the boot id. It is asked for only when a deployment is staged: `resume` then
//!    sees by the booted deployment that it happened. One that did not bring the deployment up is followed by a whole
//!    reboot, never by a second soft one.

use std::time::Duration;

use tracing::{info, warn};

use super::{Agent, AgentError, End, Reboots, Turn, Until};
use crate::control::ControlPlane;
use crate::decide::down::{Down, Look, Shutdown};
use crate::host::finalisation::FINALISER;
use crate::host::os::SoftReboot;
use crate::host::power::{Inhibitor, RebootKind, Rebooting, Shutdowns};
use crate::host::systemd::ServiceOutcome;
use crate::model::text::chain;
use crate::model::tuning::SoftReboot as Wish;
use crate::model::{Observation, UnitName, message};
use crate::report::Occurrence;
use crate::update::{Event, Phase, Record};

/// Where the deployment is mounted that a soft reboot starts (systemd-soft-reboot.service(8)).
const NEXT_ROOT: &str = "/run/nextroot/usr";

/// How far the end of this boot is, as far as this process knows.
#[derive(Debug, Default)]
pub(super) struct GoingDown {
    shutdowns: Option<Shutdowns>,
    down: Down,
}

impl GoingDown {
    /// Waits until logind tells something. Cancel-safe, as [`Shutdowns::changed`] is.
    pub(super) async fn changed(&mut self) {
        let ended = match &mut self.shutdowns {
            Some(shutdowns) => shutdowns.changed().await.is_err(),
            None => std::future::pending().await,
        };
        if ended {
            // The bus goes away with the machine; when it does not, the time that is waited ends, too.
            self.shutdowns = None;
        }
    }
}

impl<C: ControlPlane> Agent<C> {
    /// Asks for the reboot: first in the record, then of the machine.
    pub(super) async fn reboot(&mut self, seen: &Observation) -> Result<Turn, AgentError> {
        if let Some(turn) = self.on_its_way().await? {
            return Ok(turn);
        }
        let Some(record) = self.journal.record().cloned() else { return Ok(Turn::Again) };
        if let Some(turn) = self.drained(&record).await? {
            return Ok(turn);
        }
        self.arm(seen).await?;
        if let Some(turn) = self.left_to_a_person(&record, seen)? {
            return Ok(turn);
        }
        if self.reboots == Reboots::Asked
            && let Some(turn) = self.blocked().await?
        {
            return Ok(turn);
        }
        let asked = matches!(record.phase, Phase::Rebooting { .. }) || record.fallbacks > 0;
        if !(asked && self.reboots == Reboots::Left) {
            self.journal.note(|record| record.waiting = None)?;
            self.journal.step(&Event::Reboot { boot_id: seen.boot_id.clone() }, self.host.clock.now())?;
            if !matches!(record.phase, Phase::Rebooting { .. }) {
                self.tell_phase();
            }
        }
        if self.reboots == Reboots::Left {
            return Ok(Turn::End(End::Reboot));
        }
        self.go_down(&record, seen).await
    }

    /// Says how to wait while a reboot that was asked for is under way; `None` when none is.
    pub(super) async fn going_down(&mut self) -> Result<Option<Turn>, AgentError> {
        if self.going_down.down.is_asked() { self.on_its_way().await } else { Ok(None) }
    }

    /// Notes in whose hands the reboot is; says how to wait when it is a person's, who did not leave it to this process.
    fn left_to_a_person(&mut self, record: &Record, seen: &Observation) -> Result<Option<Turn>, AgentError> {
        let left = record.reboot_left.as_ref() == Some(&seen.boot_id);
        if self.until == Until::Stopped && left {
            let waiting = "a reboot by hand: `apply --no-reboot` left it to you".to_owned();
            if record.waiting.as_ref() != Some(&waiting) {
                info!(MESSAGE_ID = message::WAITING, "Waiting for {waiting} (systemctl reboot)");
                self.journal.note(|record| record.waiting = Some(waiting))?;
            }
            return Ok(Some(Turn::Wait(None)));
        }
        let left = (self.reboots == Reboots::Left).then(|| seen.boot_id.clone());
        self.journal.note(|record| record.reboot_left = left)?;
        Ok(None)
    }

    /// Says how to wait when the reboot was asked for already.
    pub(super) async fn on_its_way(&mut self) -> Result<Option<Turn>, AgentError> {
        let GoingDown { shutdowns, down } = &mut self.going_down;
        let preparing = match shutdowns {
            Some(logind) if down.is_asked() => logind.preparing().await.unwrap_or(true),
            Some(_) | None => true,
        };
        let was_begun = shutdowns.as_ref().is_some_and(Shutdowns::was_begun);
        match down.look(Shutdown { preparing, was_begun }, self.host.clock.monotonic()) {
            Look::Free => Ok(None),
            Look::Wait(left) => Ok(Some(Turn::Wait(Some(left)))),
            Look::InVain(how) => self.taken_back(how).map(Some),
        }
    }

    /// Waits before the way to the reboot is tried again.
    pub(super) fn later(&mut self) -> (Duration, Turn) {
        let delay = self.backoff.next_wait();
        let at = self.host.clock.monotonic() + delay;
        self.going_down = GoingDown { shutdowns: None, down: Down::Later { at } };
        (delay, Turn::Wait(Some(delay)))
    }

    /// Tells of a shutdown that came to nothing, and waits before it is asked for again.
    fn taken_back(&mut self, how: &'static str) -> Result<Turn, AgentError> {
        let (delay, turn) = self.later();
        warn!(
            MESSAGE_ID = message::REBOOT_ABORTED,
            "the reboot that was asked for {how}: it is asked for again in {} s",
            delay.as_secs()
        );
        self.telemetry.metrics.reboot_failed();
        self.again_because(&format!("it {how}"))?;
        Ok(turn)
    }

    /// Writes down why the reboot is asked for once more: the last fault tells it, too.
    fn again_because(&mut self, cause: &str) -> Result<(), AgentError> {
        let waiting = format!("another try of the reboot: {cause}");
        Ok(self.journal.note(|record| record.waiting = Some(waiting))?)
    }

    /// Makes sure that the shutdown will finalise what is staged, or refuses to reboot.
    async fn arm(&self, seen: &Observation) -> Result<(), AgentError> {
        self.host.os.finalise().await?;
        if let Some(staged) = seen.os.staged() {
            let unit = UnitName::new(FINALISER)?;
            if self.host.systemd.stopped_by_shutdown(&unit).await? == ServiceOutcome::NoSystemd {
                info!("no systemd runs for this host: who reboots it finalises what is staged");
            }
            self.bring_over(&staged.deployment).await;
        }
        Ok(())
    }

    /// Says how to wait while somebody blocks the shutdown.
    async fn blocked(&mut self) -> Result<Option<Turn>, AgentError> {
        if self.going_down.shutdowns.is_none() {
            // Listened to first, looked at then: a block that goes away in between is told. A bus that is away shows
            // in the request itself, which is counted, and which logind checks once more.
            self.going_down.shutdowns = self.host.power.listen().await.unwrap_or_default();
        }
        let Some(shutdowns) = &self.going_down.shutdowns else { return Ok(None) };
        let blockers = shutdowns.blockers().await.unwrap_or_default();
        if blockers.is_empty() {
            return Ok(None);
        }
        let names: Vec<String> = blockers.iter().map(Inhibitor::to_string).collect();
        let waiting = format!("the reboot, which is blocked by {}", names.join("; "));
        if self.journal.record().is_some_and(|record| record.waiting.as_ref() != Some(&waiting)) {
            info!(
                MESSAGE_ID = message::REBOOT_BLOCKED,
                "waiting for {waiting}. It goes on when the block ends"
            );
            self.journal.note(|record| record.waiting = Some(waiting))?;
        }
        Ok(Some(Turn::Wait(None)))
    }

    /// Tells everybody, then asks for the reboot.
    async fn go_down(&mut self, record: &Record, seen: &Observation) -> Result<Turn, AgentError> {
        let config = &record.to.config;
        let why = if matches!(record.phase, Phase::FallingBack { .. }) {
            format!("Node will reboot into its deployment before: config {config} failed in the new one")
        } else {
            format!("Node will reboot into config {config}")
        };
        info!(MESSAGE_ID = message::REBOOT, MCA_UPDATE = %record.id, MCA_CONFIG = %config, "{why}");
        self.publish().await;
        self.control.tell(&Occurrence::Reboot { why: why.clone() }).await;
        self.control.flush().await;
        let kind = self.kind(record, seen).await?;
        if kind == RebootKind::Whole {
            self.count_boots(record);
        }
        let asked = self.host.power.reboot(kind, &why).await;
        if let Err(error) = &asked {
            self.telemetry.metrics.reboot_failed();
            self.again_because(&chain(error))?;
        }
        match asked? {
            Rebooting::Exit => Ok(Turn::End(End::Reboot)),
            Rebooting::Asked => {
                self.going_down.down = Down::asked(self.host.clock.monotonic());
                // What logind said meanwhile is looked at in the next pass.
                Ok(Turn::Again)
            }
        }
    }

    /// Says whether the kernel may stay: where it is allowed, for the first try, into a deployment that allows it.
    async fn kind(&self, record: &Record, seen: &Observation) -> Result<RebootKind, AgentError> {
        let allowed = self.host.soft_reboot == Wish::WhereCapable;
        if !allowed || record.reboots > 0 || seen.os.staged().is_none() {
            return Ok(RebootKind::Whole);
        }
        let why = match self.host.os.soft_reboot().await? {
            SoftReboot::Incapable { why } => why,
            // Without it systemd would start the old user space once more.
            SoftReboot::Capable if !self.host.root.exists(NEXT_ROOT)? => {
                format!("nothing is prepared in {NEXT_ROOT}")
            }
            SoftReboot::Capable => return Ok(RebootKind::Soft),
        };
        info!("no soft reboot: {why}");
        Ok(RebootKind::Whole)
    }
}
