//! The loop: one task owns the journal. It reads the target, asks `resume`, does the one thing it says, publishes,
//! and waits for an event. No state is only in memory: what is here can be lost at any moment.
//!
//! | file | does |
//! |---|---|
//! | `drift` | the idle host, watched, compared and, where it is asked for, repaired |
//! | `begin` | from a wanted target to a record: take-over, drift check, plan |
//! | `carry` | an open update: its batches, its verification, its roll-back |
//! | `hold` | what went wrong, and what ends it |
//! | `reboot` | its reboot: what holds it back, and what takes it back |
//! | `bring_over` | what the merge of `/etc` in that shutdown leaves behind |
//! | `trial` | the proof of a new deployment, and the way back to the one before |
//! | `rollback` | how long the deployment before is kept |
//! | `boot_count` | the boot loader's counter |
//! | `workload` | its leave and its return |
//! | `service` | its settings, and the hint at a login |
//! | `duties` | certificates and the pull secret, beside all of these |
//! | `stop` | SIGTERM, SIGINT and SIGHUP as events |

mod begin;
mod boot_count;
mod bring_over;
mod carry;
pub(crate) mod drift;
mod duties;
mod error;
mod hold;
mod reboot;
mod rollback;
mod service;
mod stop;
mod trial;
mod workload;

use std::time::Duration;

use tracing::{info, warn};

use crate::control::ControlPlane;
use crate::decide::hold::Retry;
use crate::decide::kept::Kept;
pub use crate::decide::mode::{Reboots, Until};
use crate::host::Host;
use crate::journal::{Journal, Outcome};
use crate::model::message;
use crate::model::pace::Pace;
use crate::model::{HostSpec, Observation, Target, Tuning};
use crate::observe::observe;
use crate::report::{Health, report};
use crate::telemetry::Telemetry;
use crate::telemetry::metrics::Worked;
use crate::update::ending::{Ask, SOON};
use crate::update::record::StagedOs;
use crate::update::{Decision, Event, Record, resume};

use drift::{Last, Monitor};
use duties::OnDuty;
pub use error::AgentError;
use hold::{Dated, log_fault};
use reboot::GoingDown;
pub use service::Reread;
pub use stop::Stop;
use stop::Word;

/// Why the loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It was stopped.
    Stopped,
    /// Nothing is left to do by itself.
    Settled,
    /// The machine is to reboot, and somebody else plays it.
    Reboot,
}

/// What the loop does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Another pass at once.
    Again,
    /// Wait for an event, or for the given time.
    Wait(Option<Duration>),
    /// End.
    End(End),
}

/// The agent of one node.
#[derive(Debug)]
pub struct Agent<C> {
    host: Host,
    journal: Journal,
    control: C,
    telemetry: Telemetry,
    monitor: Monitor,
    stop: Stop,
    until: Until,
    reboots: Reboots,
    health: Health,
    tuning: Tuning,
    settings: Reread,
    hinted: Option<String>,
    backoff: Pace,
    on_duty: OnDuty,
    going_down: GoingDown,
    kept: Kept,
    retry: Retry,
    /// When the release was asked for, by the clock that nobody sets.
    release_asked: Option<Duration>,
    told_late: bool,
    told_fault: Option<String>,
    /// Why the control plane could not be asked, as it was logged.
    told_away: Option<String>,
    dated: Dated,
}

impl<C: ControlPlane> Agent<C> {
    /// Puts the parts together. Nothing is read yet.
    pub fn new(
        host: Host,
        journal: Journal,
        control: C,
        telemetry: Telemetry,
        stop: Stop,
        node: &str,
    ) -> Self {
        let since = host.clock.now();
        let health = Health { node: node.to_owned(), since, ..Health::default() };
        Self {
            host,
            journal,
            on_duty: OnDuty::new(control.trust(), node),
            control,
            telemetry,
            monitor: Monitor::default(),
            stop,
            until: Until::Stopped,
            reboots: Reboots::Asked,
            health,
            tuning: Tuning::default(),
            settings: Reread::default(),
            hinted: None,
            backoff: Pace::of_work(node),
            going_down: GoingDown::default(),
            kept: Kept::default(),
            retry: Retry::default(),
            release_asked: None,
            told_late: false,
            told_fault: None,
            told_away: None,
            dated: Dated::default(),
        }
    }

    /// Sets how long the loop lives and what becomes of reboots.
    #[must_use]
    pub fn with(self, until: Until, reboots: Reboots) -> Self {
        Self { until, reboots, ..self }
    }

    /// Returns what is known beside the record; `apply` tells its caller.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// Returns the journal.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Runs until the end. An error is one of the agent's own state: nothing was touched.
    pub async fn run(&mut self) -> Result<End, AgentError> {
        let end = self.run_to_end().await;
        self.control.flush().await;
        end
    }

    async fn run_to_end(&mut self) -> Result<End, AgentError> {
        info!(
            MESSAGE_ID = message::STARTED,
            MCA_NODE = self.health.node,
            "machine-config-agent {} on node {}, OS backend {}: {}",
            env!("CARGO_PKG_VERSION"),
            self.health.node,
            self.host.os.name(),
            self.host.os_because
        );
        self.take_over()?;
        self.tell_record();
        // Who runs `apply` once more does not wait for the time of the next try. It may be a script at each boot.
        self.retry.ask(if self.until == Until::Settled { Ask::Rewritten } else { Ask::Start });
        loop {
            let turn = match Box::pin(self.pass()).await {
                Ok(turn) => {
                    self.told_away = None;
                    turn
                }
                // A stop ends the workers of this service, too: the next process looks anew.
                Err(_) if self.stop.is_asked() => Turn::Again,
                Err(error) => self.bear_or_end(error).await?,
            };
            self.publish().await;
            match turn {
                Turn::Again => {}
                Turn::End(end) => return Ok(end),
                Turn::Wait(_) if self.until == Until::Settled => return Ok(End::Settled),
                Turn::Wait(delay) => {
                    if let Err(error) = self.wait(delay).await {
                        Box::pin(self.bear_in_wait(error)).await?;
                    }
                }
            }
            if self.stop.is_asked() {
                info!(MESSAGE_ID = message::STOPPED, "Stopped by a signal; the next start resumes");
                return Ok(End::Stopped);
            }
        }
    }

    /// One look at the target and the record, one decision, one deed.
    async fn pass(&mut self) -> Result<Turn, AgentError> {
        self.read_wanted().await;
        self.on_duty.attend(&self.host, &self.journal, &mut self.health);
        let seen = observe(&self.host, &[]).await?;
        let committed = self.journal.committed().cloned();
        self.health.committed.clone_from(&committed);
        let decision = resume(self.journal.record(), committed.as_ref(), &seen, self.health.wanted.as_ref());
        if !matches!(decision, Decision::Reboot | Decision::FallBack | Decision::Continue) {
            self.going_down = GoingDown::default();
        }
        self.forget_count(&decision, &seen);
        let last = self.monitor.take_last();
        match decision {
            Decision::Watch => self.rest(committed.as_ref(), seen, last).await,
            Decision::Begin => self.begin().await,
            Decision::Continue => self.go_on(&seen).await,
            Decision::Supersede => self.supersede(),
            Decision::Restage => self.restage(&seen),
            Decision::Inquire => self.inquire(&seen).await,
            Decision::Reboot => self.reboot(&seen).await,
            Decision::Verify => self.verify().await,
            Decision::FallBack => self.fall_back(&seen).await,
            Decision::TakeBack => self.take_back_there(),
            Decision::Replan(fault) => self.replan(fault),
            Decision::Fault(fault) => self.fail(fault, &seen).await,
            Decision::Hold => self.hold().await,
            Decision::Archive => self.archive(),
            Decision::Commit => self.commit().await,
        }
    }

    /// Reads the target. When it can't be read, the old one stays and the report says why.
    async fn read_wanted(&mut self) {
        let before = self.health.fault.take();
        self.health.awaited = None;
        match self.control.wanted().await {
            Ok(wanted) if wanted != self.health.wanted => {
                if let Some(target) = &wanted {
                    let image =
                        target.image.as_ref().map(|image| format!(" with image {image}")).unwrap_or_default();
                    info!(MESSAGE_ID = message::TARGET, MCA_CONFIG = %target.config, "wanted: {}{image}", target.config);
                }
                self.health.wanted = wanted;
                self.backoff.reset();
            }
            Ok(_) => {}
            Err(error) if error.is_away() => {}
            Err(error) => {
                let fault = AgentError::from(error).fault();
                // Each pass reads it again: told once.
                if before.as_ref() != Some(&fault) {
                    log_fault(&fault, None);
                }
                self.health.fault = Some(fault);
            }
        }
    }

    /// Lets the workload come back to the idle node, and watches over it.
    async fn rest(
        &mut self,
        committed: Option<&Target>,
        seen: Observation,
        last: Option<Last>,
    ) -> Result<Turn, AgentError> {
        if self.health.wanted.is_some() && self.is_forced()? {
            return self.begin().await;
        }
        let released = match committed {
            Some(committed) if self.health.fault.is_none() => self.release(committed).await?,
            Some(_) | None => None,
        };
        let turn = match self.watch_drift(seen, last.filter(|_| released.is_none())).await? {
            Turn::Wait(None) => Turn::Wait(self.give_rollback_up().await),
            turn @ (Turn::Again | Turn::Wait(Some(_)) | Turn::End(_)) => turn,
        };
        Ok(released.unwrap_or(turn))
    }

    /// Undoes an update that is no longer wanted.
    fn supersede(&mut self) -> Result<Turn, AgentError> {
        if let Some(record) = self.journal.record() {
            let (id, config) = (&record.id, &record.to.config);
            info!(MESSAGE_ID = message::PHASE, MCA_UPDATE = %id, MCA_PHASE = "rolling-back", MCA_CONFIG = %config,
                MCA_IMAGE = record.to.image.as_ref().map(tracing::field::display), "update {id} to {config}: rolling back, since another target is desired");
        }
        self.answered();
        self.retry.end();
        self.journal.step(&Event::RollBack, self.host.clock.now())?;
        Ok(Turn::Again)
    }

    /// Ends an undone update: its target is no longer the wanted one, or its next try is due.
    fn archive(&mut self) -> Result<Turn, AgentError> {
        let faulted = self.journal.record().is_some_and(|record| record.fault.is_some());
        let outcome = if faulted { Outcome::RolledBack } else { Outcome::Superseded };
        self.retry.end();
        let record = self.journal.record().cloned();
        self.journal.archive(outcome, self.host.clock.now())?;
        if let Some(record) = &record {
            self.count_end(record, outcome);
        }
        self.health.since = self.host.clock.now();
        Ok(Turn::Again)
    }

    /// Counts an update that has ended.
    fn count_end(&self, record: &Record, outcome: Outcome) {
        self.telemetry.metrics.ended(outcome.word(), &record.durations);
        if record.staged_os() != StagedOs::None {
            let worked = if outcome == Outcome::Committed { Worked::Yes } else { Worked::No };
            self.telemetry.metrics.switched(worked);
        }
    }

    /// Publishes what is written down. A control plane that is away does not stop the work.
    async fn publish(&mut self) {
        self.health.link_down = self.control.link_down();
        self.date_faults();
        let report = report(self.journal.record(), &self.health);
        // Before `status` shows the same.
        self.hint(&report);
        self.telemetry.report(&report, self.host.clock.now());
        if let Err(error) = self.control.publish(&report).await
            && !error.is_away()
        {
            let fault = AgentError::from(error).fault();
            warn!(
                MESSAGE_ID = message::NOT_PUBLISHED,
                MCA_FAULT = fault.reason,
                "the report can't be published: {}",
                fault.message
            );
        }
    }

    /// Waits for an event.
    async fn wait(&mut self, delay: Option<Duration>) -> Result<(), AgentError> {
        self.retry.answered();
        // What can't be watched is looked at.
        let delay = if self.health.unwatched.is_some() {
            Some(delay.map_or(SOON, |delay| delay.min(SOON)))
        } else {
            delay
        };
        let drift = async {
            match &mut self.monitor.watch {
                Some(watch) => watch.changed().await,
                None => std::future::pending().await,
            }
        };
        let timer = async {
            match delay {
                Some(delay) => tokio::time::sleep(delay).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // Each arm only waits; what it waited for is read anew in the next pass, so losing an arm loses nothing.
            word = self.stop.heard() => if word == Word::Reload { self.reload()? },
            () = self.telemetry.notify.idle() => {}
            changed = self.control.changed() => {
                changed?;
                if self.control.rewritten() {
                    self.retry.ask(Ask::Rewritten);
                }
            }
            changed = drift => {
                self.retry.ask(Ask::Host);
                match changed {
                    Ok(paths) => self.monitor.changed = Some(paths),
                    // The next pass begins another watch, or tells why it can't.
                    Err(_) => self.monitor.watch = None,
                }
            }
            () = self.on_duty.changed() => {}
            () = self.going_down.changed() => {}
            () = timer => {}
        }
        Ok(())
    }

    /// Returns what is seen of the host for a spec.
    async fn look(&self, spec: &HostSpec) -> Result<Observation, AgentError> {
        Ok(observe(&self.host, &[spec]).await?)
    }
}

#[cfg(test)]
mod tests;
