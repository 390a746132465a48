//! The loop: one task owns the journal. It gathers the inputs of a decision, calls [`decide`], carries out the
//! resulting action, publishes, and waits for an event or until a time has passed. It decides nothing itself, and no
//! state is only in memory: the memory can be lost at any moment.
//!
//! | file | does |
//! |---|---|
//! | `parts` | the agent's parts, and its memory |
//! | `drift` | watches the idle host, compares it, and repairs it as the settings allow |
//! | `begin` | from a desired target to a record: import from MCD, drift check, plan |
//! | `execute` | an open update: its batches, transitions and verification |
//! | `end` | the ends of an update: committed, archived, replanned, failed |
//! | `errors` | logs and reports the errors of a pass or of a wait |
//! | `reboot` | the reboot, its delays and its cancellation |
//! | `etc_carry_over` | files that the merge of `/etc` would drop in that shutdown |
//! | `trial` | the health trial of a new deployment, and the way back to the previous one |
//! | `prefetch` | an image is downloaded ahead of its update |
//! | `pinned` | keeps the images of PinnedImageSets, beside all of these |
//! | `rollback` | removes the previous deployment |
//! | `deployments` | changes of the deployments, and what is heard meanwhile |
//! | `boot_count` | the boot loader's counter |
//! | `stateroot` | work on stateroots, for the verbs |
//! | `stateroot_prepare` | what preparing a seed comes to, for the verbs and `lifecycle` |
//! | `seed` | the making of a seed, and the host's restore, for the verbs and `lifecycle` |
//! | `seed_facts` | the facts of the host that go into a seed |
//! | `seed_restorer` | the host after a seed that was cut short |
//! | `lifecycle` | stages of an image-based upgrade and seeds of a cluster, beside all of these |
//! | `stateroot_trial` | what a boot does with an activation |
//! | `workload` | drain and uncordon |
//! | `service` | settings, report, and the hint at a login |
//! | `trust` | certificates and the pull secret, beside all of these |
//! | `signals` | SIGTERM, SIGINT and SIGHUP as events |
//!
//! `monitor`, `download`, `installed`, `shutdown_listener` and `settings_loader` hold what these remember or are given.

mod begin;
mod boot_count;
mod deployments;
mod download;
pub(crate) mod drift;
mod end;
mod error;
mod errors;
mod etc_carry_over;
mod execute;
mod fields;
mod installed;
mod lifecycle;
mod monitor;
mod parts;
mod pinned;
mod prefetch;
mod reboot;
pub(crate) mod rehearsal;
mod rollback;
mod seed;
mod seed_facts;
mod seed_restorer;
mod service;
mod settings_loader;
mod shutdown_listener;
mod signals;
mod stateroot;
mod stateroot_prepare;
mod stateroot_trial;
mod trial;
mod trust;
mod workload;

use std::time::Duration;

use tracing::info;

use crate::control::link::changed;
use crate::control::{ControlPlane, UncordonStatus};
use crate::decide::action::{Action, Query, Wait};
use crate::decide::decide;
use crate::decide::failed::{Failed, failed, pause};
use crate::decide::inputs::{Answers, Inputs};
pub use crate::decide::mode::{ExitReason, Reboots, RunMode};
use crate::host::clock::elapsed;
use crate::model::{FaultClass, Timestamp, message};
use crate::update::ending::RetryTrigger;
use crate::update::resume::held;
use crate::update::{Fault, Record};

pub use begin::update_id;
pub use error::AgentError;
pub use errors::log_fault;
pub use lifecycle::{GenerationWorker, LifecycleEnd, LifecycleHost, LifecycleWorker};
pub use parts::Agent;
use parts::{Next, Pass};
pub use reboot::REBOOT_LEFT;
pub use seed::{SeedEnd, make_seed, restore_seed};
pub use seed_facts::{SeedFacts, active_services, list_seed, portable, seed_directory, seed_facts};
pub use seed_restorer::SeedRestorer;
pub use settings_loader::{ReadSettings, SettingsLoader};
pub use signals::ProcessSignals;
use signals::SignalKind;
pub use stateroot::{StaterootEnd, StaterootWorker};
pub use stateroot_prepare::{Preparation, SeedRequest, preparation};
pub use stateroot_trial::{BootEnd, BootWorker};

/// The loop's next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LoopAction {
    /// Another decision in this pass.
    Decide,
    /// Another pass at once.
    Requeue,
    /// Wait for an event, or for the given time.
    Wait(Option<Duration>),
    /// Leave the loop.
    Exit(ExitReason),
}

impl From<Next> for LoopAction {
    fn from(next: Next) -> Self {
        match next {
            Next::Decide => Self::Decide,
            Next::Requeue => Self::Requeue,
        }
    }
}

impl<C: ControlPlane> Agent<C> {
    /// Runs until the end. An error is one of the agent's own state: nothing was touched.
    pub async fn run(&mut self) -> Result<ExitReason, AgentError> {
        let end = self.run_to_end().await;
        self.control.flush().await;
        end
    }

    async fn run_to_end(&mut self) -> Result<ExitReason, AgentError> {
        info!(
            MESSAGE_ID = message::STARTED,
            MCA_NODE = self.health.node,
            "machine-config-agent {} on node {}, OS backend {}: {}",
            env!("CARGO_PKG_VERSION"),
            self.health.node,
            self.host.os.name(),
            self.host.backend_reason
        );
        self.log_record();
        loop {
            let next = match Box::pin(self.pass()).await {
                Ok(next) => {
                    self.logged_away = None;
                    next
                }
                // A stop ends the workers of this service, too: the next process looks again.
                Err(_) if self.signals.is_stopping() => LoopAction::Requeue,
                Err(error) => self.handle_error(error).await?,
            };
            self.health.next_try = self.next_try(next);
            self.health.doing = None;
            self.publish().await;
            match next {
                LoopAction::Decide | LoopAction::Requeue => {}
                LoopAction::Exit(end) => return Ok(end),
                LoopAction::Wait(delay) => {
                    if let Err(error) = self.wait(delay).await {
                        Box::pin(self.handle_wait_error(error)).await?;
                    }
                }
            }
            if self.signals.is_stopping() {
                info!(MESSAGE_ID = message::STOPPED, "Stopped by a signal; the next start resumes");
                return Ok(ExitReason::Stopped);
            }
        }
    }

    /// Returns the time of the next try by itself. What a held update waits for beside it is none.
    fn next_try(&self, next: LoopAction) -> Option<Timestamp> {
        let LoopAction::Wait(delay) = next else { return None };
        let clock = &self.host.clock;
        let is_held = self.journal.record().is_some_and(|record| record.fault.is_some());
        let left = if is_held && self.health.fault.is_none() {
            self.memory.retry.due().map(|due| due.saturating_sub(clock.monotonic()))
        } else {
            delay
        };
        let left = u64::try_from(left?.as_micros()).ok()?;
        // In whole seconds: a report that differs by nothing else is not written again.
        let at = clock.now().micros().saturating_add(left);
        Some(Timestamp::from_micros(at.div_ceil(1_000_000).saturating_mul(1_000_000)))
    }

    /// One look at the target and the machine, then decisions until no question is left, and one action.
    async fn pass(&mut self) -> Result<LoopAction, AgentError> {
        self.is_behind = false;
        self.read_desired().await;
        self.read_prefetch();
        self.import_mcd_state()?;
        if self.health.desired.as_ref().is_some_and(|desired| desired.content.is_some()) {
            self.journal.identify()?;
        }
        self.health.current = self.journal.current().cloned();
        self.tell_target().await;
        self.trust.reconcile(&self.host, &self.journal, &mut self.health);
        let Some(observed) = self.observe_machine().await? else { return Ok(LoopAction::Requeue) };
        self.settle_unapplied(&observed)?;
        self.health.current = self.journal.current().cloned();
        self.installed.compare(&self.host.root, &self.journal, &mut self.health)?;
        let is_forced = self.is_due()?;
        let last = self.monitor.take_last();
        let mut pass = Pass { observed, is_forced, last, answers: Answers::default() };
        loop {
            let action = self.decided(&pass);
            let next = if let Action::Query(query) = action {
                self.answer(query, &mut pass).await?.into()
            } else {
                self.act(action, &mut pass).await?
            };
            if next != LoopAction::Decide {
                if pass.answers.shutdown.is_none() && pass.answers.is_blocked.is_none() {
                    self.shutdown_listener.end();
                }
                return Ok(next);
            }
        }
    }

    /// Returns true if an update is due although its target is committed.
    fn is_due(&self) -> Result<bool, AgentError> {
        Ok(match self.journal.record() {
            Some(record) => held(record) && self.is_forced()?,
            None => self.is_forced()? || self.journal.has_left_effects()?,
        })
    }

    fn decided(&mut self, pass: &Pass) -> Action {
        let unreadable = self.journal.unreadable().map(|error| AgentError::from(error.clone()).fault());
        let inputs = Inputs {
            mode: self.mode,
            reboots: self.reboots,
            record: self.journal.record(),
            current: self.provisioned.as_ref().or_else(|| self.journal.current()),
            desired: self.health.desired.as_ref(),
            observed: &pass.observed,
            is_forced: pass.is_forced,
            is_refused: self.health.refused.is_some(),
            unreadable: unreadable.as_ref(),
            is_unwatched: self.health.is_unwatched(),
            can_drain: self.control.can_drain(),
            node_settings: &self.node_settings,
            answers: &pass.answers,
            prefetch: self.prefetching.requested.as_ref(),
            now: self.host.clock.monotonic(),
        };
        decide(&inputs, &mut self.memory)
    }

    /// Answers a question, and keeps the answer for the next decision.
    async fn answer(&mut self, query: Query, pass: &mut Pass) -> Result<Next, AgentError> {
        let Pass { observed, answers, .. } = pass;
        match query {
            Query::CountOver => {
                self.end_stale_count(observed).await;
                answers.is_count_over = true;
            }
            Query::Shutdown => answers.shutdown = Some(self.shutdown_listener.shutdown().await),
            Query::Blocks => answers.is_blocked = Some(self.is_blocked().await?),
            Query::Drained => answers.drained = Some(self.request_drain().await?),
            Query::Uncordoned => answers.uncordoned = Some(self.request_uncordon().await?),
            Query::Staged => return self.stage(pass).await,
            Query::Armed => {
                if !self.arm(observed).await? {
                    return Ok(Next::Requeue);
                }
                answers.is_armed = true;
            }
            Query::Finalization => answers.finalization = Some(self.check_finalization(observed).await?),
            Query::Differences => answers.differences = Some(self.compare(observed.clone())?),
            Query::WatchSet => {
                self.watch_target()?;
                answers.is_watched = true;
            }
            Query::Trial => return self.run_trial(pass).await,
            Query::FallenBack => return self.fall_back(pass).await,
            Query::Rest => {
                let last = pass.last.take();
                answers.rest = Some(self.compare_idle(observed, last).await?);
            }
        }
        Ok(Next::Decide)
    }

    /// Carries out one action.
    async fn act(&mut self, action: Action, pass: &mut Pass) -> Result<LoopAction, AgentError> {
        match action {
            // It has been answered.
            Action::Query(_) | Action::Requeue => {}
            Action::Begin => self.begin().await?,
            Action::Resume => {
                let boot_id = pass.observed.boot_id.clone();
                self.journal.note(|record| record.boot_id = boot_id)?;
                return Ok(LoopAction::Decide);
            }
            Action::Move(event) => self.move_along(&event, &pass.observed).await?,
            Action::Supersede => self.supersede()?,
            Action::TakeBack => self.undo_after_fallback()?,
            Action::Execute => return Ok(self.execute(pass).await?.into()),
            Action::Restage => self.restage(pass).await?,
            Action::RestageDropped => self.restage_dropped(&pass.observed)?,
            Action::Fail(fault, way) => self.fail(fault, way.as_ref(), &pass.observed).await?,
            Action::Replan(fault) => self.replan(fault)?,
            Action::Commit => self.commit().await?,
            Action::Archive => self.archive(&pass.observed)?,
            Action::LeaveDrift => self.leave_drift(&pass.observed)?,
            Action::Forgive => self.journal.note(|record| record.fault = None)?,
            Action::LeaveReboot(event) => {
                self.leave_reboot(event.as_ref(), &pass.observed)?;
                return Ok(LoopAction::Exit(ExitReason::Reboot));
            }
            Action::Reboot => {
                return Ok(self.reboot(&pass.observed).await?.map_or(LoopAction::Requeue, LoopAction::Exit));
            }
            Action::RebootInVain { how, again } => self.reboot_in_vain(how, again)?,
            Action::Prefetch(image) => self.begin_prefetch(image)?,
            Action::EndPrefetch => self.end_prefetch(),
            Action::DropRollback => self.drop_rollback().await?,
            Action::Wait(wait) => return self.begin_wait(wait).await,
            Action::EndForReboot => return Ok(LoopAction::Exit(ExitReason::Reboot)),
        }
        Ok(LoopAction::Requeue)
    }

    async fn begin_wait(&mut self, wait: Wait) -> Result<LoopAction, AgentError> {
        self.meanwhile(wait.meanwhile).await?;
        Ok(if wait.ends { LoopAction::Exit(ExitReason::Settled) } else { LoopAction::Wait(wait.left) })
    }

    /// Handles an error: a broken state ends the agent, any other error is reported and waited out.
    async fn handle_error(&mut self, error: AgentError) -> Result<LoopAction, AgentError> {
        let fault = error.fault();
        if fault.class == FaultClass::Fatal {
            return Err(error);
        }
        let goes_down = self.memory.down.is_requested();
        let action = self.after_error(&error, &fault).await;
        self.report_error(&error, fault, goes_down).await;
        if let Action::RebootInVain { how, again } = action {
            self.reboot_in_vain(how, again)?;
        }
        let Action::Wait(wait) = action else { return Ok(LoopAction::Requeue) };
        self.begin_wait(wait).await
    }

    /// Decides what follows an error, and answers the questions on the way.
    async fn after_error(&mut self, error: &AgentError, fault: &Fault) -> Action {
        let (mut shutdown, mut uncordoned) = (None, None);
        loop {
            let failed_with = Failed {
                mode: self.mode,
                is_unwatched: self.health.is_unwatched(),
                shutdown,
                fault: (!error.is_away()).then_some(fault),
                is_untouched: self.is_untouched(),
                uncordoned: uncordoned.as_ref(),
                now: self.host.clock.monotonic(),
            };
            let action = failed(&failed_with, &mut self.memory);
            let Action::Query(query) = action else { return action };
            if query == Query::Uncordoned {
                // The error that led here is the one to report; the next one asks again.
                uncordoned = Some(self.request_uncordon().await.unwrap_or(UncordonStatus::Yes));
            } else {
                shutdown = Some(self.shutdown_listener.shutdown().await);
            }
        }
    }

    /// Returns true if the host is as its current target, as far as updates go.
    fn is_untouched(&self) -> bool {
        self.journal.current().is_some() && self.journal.record().is_none_or(Record::is_undone)
    }

    /// Takes an error of a wait: its cause would end the next wait, too, so it is paused for.
    async fn handle_wait_error(&mut self, error: AgentError) -> Result<(), AgentError> {
        self.handle_error(error).await?;
        self.publish().await;
        let pause = pause(&mut self.memory);
        tokio::select! {
            // Each only waits. The pause has an end of its own, so it is a sign of life.
            signal = self.signals.recv() => if signal == SignalKind::Reload { self.reload()? },
            () = self.telemetry.notify.idle() => {}
            () = tokio::time::sleep(pause) => {}
        }
        Ok(())
    }

    /// Waits for an event.
    async fn wait(&mut self, delay: Option<Duration>) -> Result<(), AgentError> {
        self.memory.retry.answered();
        self.journal.release_decoded();
        if self.is_behind {
            return Ok(());
        }
        let stall = self.host.limits.stall;
        let prefetched =
            self.prefetching.ended(stall, &self.journal, &mut self.health, &mut self.telemetry.last);
        tokio::select! {
            // Each arm only waits; its event is read again in the next pass, so losing an arm loses nothing.
            signal = self.signals.recv() => if signal == SignalKind::Reload { self.reload()? },
            () = self.telemetry.notify.idle() => {}
            changed = self.control.changed() => {
                changed?;
                if self.control.rewritten() {
                    self.memory.retry.request(RetryTrigger::Rewritten);
                }
            }
            () = self.monitor.host_changed() => self.memory.retry.request(RetryTrigger::Host),
            () = self.trust.changed() => {}
            () = prefetched => {}
            () = self.pinning.run() => {}
            () = self.shutdown_listener.changed() => {}
            () = changed(&mut self.unrestored) => {}
            () = elapsed(delay) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
