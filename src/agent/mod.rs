//! The loop: one task owns the journal. It gathers what a decision is made from, asks [`decide`], carries out the one
//! thing it says, publishes, and waits for an event or until a time has passed. It decides nothing itself, and no state
//! is only in memory: what is here can be lost at any moment.
//!
//! | file | does |
//! |---|---|
//! | `parts` | the agent's parts, and what it remembers |
//! | `drift` | the idle host, watched, compared and, where it is asked for, repaired |
//! | `begin` | from a wanted target to a record: take-over, drift check, plan |
//! | `carry` | an open update: its batches, its edges, its verification |
//! | `end` | the ends of an update: committed, archived, planned for once more, failed |
//! | `hold` | an error of a pass or of a wait, told |
//! | `reboot` | its reboot: what holds it back, and what takes it back |
//! | `bring_over` | what the merge of `/etc` in that shutdown leaves behind |
//! | `trial` | the proof of a new deployment, and the way back to the one before |
//! | `rollback` | the deployment before is given up |
//! | `boot_count` | the boot loader's counter |
//! | `workload` | its leave and its return |
//! | `service` | its settings, its report, and the hint at a login |
//! | `duties` | certificates and the pull secret, beside all of these |
//! | `stop` | SIGTERM, SIGINT and SIGHUP as events |
//!
//! `monitor`, `listening`, `reread` and `dated` are what these remember or are given.

mod begin;
mod boot_count;
mod bring_over;
mod carry;
mod dated;
pub(crate) mod drift;
mod duties;
mod end;
mod error;
mod hold;
mod listening;
mod monitor;
mod parts;
mod reboot;
mod reread;
mod rollback;
mod service;
mod stop;
mod trial;
mod workload;

use std::time::Duration;

use tracing::info;

use crate::control::ControlPlane;
use crate::decide::action::{Action, Question, Wait};
use crate::decide::decide;
use crate::decide::failed::{Failed, failed, pause};
use crate::decide::inputs::{Answers, Inputs};
pub use crate::decide::mode::{End, Reboots, Until};
use crate::model::{FaultClass, message};
use crate::update::ending::Ask;
use crate::update::resume::held;

pub use error::AgentError;
pub use parts::Agent;
use parts::{Next, Pass};
pub use reread::Reread;
pub use stop::Stop;
use stop::Word;

/// What the loop does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Another decision in this pass.
    Decide,
    /// Another pass at once.
    Again,
    /// Wait for an event, or for the given time.
    Wait(Option<Duration>),
    /// End.
    End(End),
}

impl From<Next> for Turn {
    fn from(next: Next) -> Self {
        match next {
            Next::Decide => Self::Decide,
            Next::LookAgain => Self::Again,
        }
    }
}

impl<C: ControlPlane> Agent<C> {
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
        loop {
            let turn = match Box::pin(self.pass()).await {
                Ok(turn) => {
                    self.told_away = None;
                    turn
                }
                // A stop ends the workers of this service, too: the next process looks anew.
                Err(_) if self.stop.is_asked() => Turn::Again,
                Err(error) => self.bear(error).await?,
            };
            self.publish().await;
            match turn {
                Turn::Decide | Turn::Again => {}
                Turn::End(end) => return Ok(end),
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

    /// One look at the target and the machine, then decisions until there is nothing left to ask, and one deed.
    async fn pass(&mut self) -> Result<Turn, AgentError> {
        self.read_wanted().await;
        self.on_duty.attend(&self.host, &self.journal, &mut self.health);
        let seen = self.look_at_machine().await?;
        self.health.committed = self.journal.committed().cloned();
        let is_forced = self.is_due()?;
        let last = self.monitor.take_last();
        let mut pass = Pass { seen, is_forced, last, answers: Answers::default() };
        loop {
            let action = self.decided(&pass);
            let turn = if let Action::Ask(question) = action {
                self.answer(question, &mut pass).await?.into()
            } else {
                self.act(action, &mut pass).await?
            };
            if turn != Turn::Decide {
                if pass.answers.shutdown.is_none() && pass.answers.is_blocked.is_none() {
                    self.listening.end();
                }
                return Ok(turn);
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
        let inputs = Inputs {
            until: self.until,
            reboots: self.reboots,
            record: self.journal.record(),
            committed: self.journal.committed(),
            wanted: self.health.wanted.as_ref(),
            seen: &pass.seen,
            is_forced: pass.is_forced,
            is_refused: self.health.fault.is_some(),
            is_unwatched: self.health.unwatched.is_some(),
            drains: self.control.drains(),
            node_settings: &self.node_settings,
            answers: &pass.answers,
            now: self.host.clock.monotonic(),
        };
        decide(&inputs, &mut self.memory)
    }

    /// Asks, and keeps the answer for the next decision.
    async fn answer(&mut self, question: Question, pass: &mut Pass) -> Result<Next, AgentError> {
        let Pass { seen, answers, .. } = pass;
        match question {
            Question::CountOver => {
                self.end_count();
                answers.is_count_over = true;
            }
            Question::Shutdown => answers.shutdown = Some(self.listening.shutdown().await),
            Question::Blocks => answers.is_blocked = Some(self.is_blocked().await?),
            Question::Drained => answers.drained = Some(self.ask_to_leave().await?),
            Question::Released => answers.released = Some(self.ask_back().await?),
            Question::Staged => return self.stage(pass).await,
            Question::Armed => {
                self.arm(seen).await?;
                answers.is_armed = true;
            }
            Question::Finalisation => answers.finalisation = Some(self.inquire(seen).await?),
            Question::Differences => answers.differences = Some(self.compare(seen.clone())?),
            Question::WatchSet => {
                self.watch_target()?;
                answers.is_watched = true;
            }
            Question::Trial => return self.prove(pass).await,
            Question::FallenBack => return self.fall_back(pass).await,
            Question::Rest => {
                let last = pass.last.take();
                answers.rest = Some(self.compare_idle(seen, last).await?);
            }
        }
        Ok(Next::Decide)
    }

    /// Carries out one action.
    async fn act(&mut self, action: Action, pass: &mut Pass) -> Result<Turn, AgentError> {
        match action {
            // It has been asked.
            Action::Ask(_) | Action::LookAgain => {}
            Action::Begin => self.begin().await?,
            Action::Resume => {
                let boot_id = pass.seen.boot_id.clone();
                self.journal.note(|record| record.boot_id = boot_id)?;
                return Ok(Turn::Decide);
            }
            Action::Move(event) => self.move_along(&event).await?,
            Action::Supersede => self.supersede()?,
            Action::TakeBack => self.take_back_there()?,
            Action::CarryOut => return Ok(self.carry_out(pass).await?.into()),
            Action::Restage => self.restage(pass).await?,
            Action::Fail(fault, way) => self.fail(fault, way.as_ref(), &pass.seen).await?,
            Action::Replan(fault) => self.replan(fault)?,
            Action::Commit => self.commit().await?,
            Action::Archive => self.archive()?,
            Action::LeaveDrift => self.leave_drift()?,
            Action::Forgive => self.journal.note(|record| record.fault = None)?,
            Action::LeaveReboot(event) => {
                self.leave_reboot(event.as_ref(), &pass.seen)?;
                return Ok(Turn::End(End::Reboot));
            }
            Action::Reboot => return Ok(self.reboot(&pass.seen).await?.map_or(Turn::Again, Turn::End)),
            Action::RebootInVain { how, again } => self.reboot_in_vain(how, again)?,
            Action::DropRollback => self.drop_rollback().await,
            Action::Wait(wait) => return self.begin_wait(wait).await,
            Action::EndForReboot => return Ok(Turn::End(End::Reboot)),
        }
        Ok(Turn::Again)
    }

    async fn begin_wait(&mut self, wait: Wait) -> Result<Turn, AgentError> {
        self.meanwhile(wait.meanwhile).await?;
        Ok(if wait.ends { Turn::End(End::Settled) } else { Turn::Wait(wait.left) })
    }

    /// Takes an error: a broken state ends the agent, all else is told and waited out.
    async fn bear(&mut self, error: AgentError) -> Result<Turn, AgentError> {
        let fault = error.fault();
        if fault.class == FaultClass::Fatal {
            return Err(error);
        }
        let goes_down = self.memory.down.is_asked();
        let mut shutdown = None;
        let action = loop {
            let fault = (!error.is_away()).then_some(&fault);
            let (until, is_unwatched) = (self.until, self.health.unwatched.is_some());
            let error = Failed { until, is_unwatched, shutdown, fault, now: self.host.clock.monotonic() };
            let action = failed(&error, &mut self.memory);
            if !matches!(action, Action::Ask(_)) {
                break action;
            }
            shutdown = Some(self.listening.shutdown().await);
        };
        self.tell_error(&error, fault, goes_down).await;
        if let Action::RebootInVain { how, again } = action {
            self.reboot_in_vain(how, again)?;
        }
        let Action::Wait(wait) = action else { return Ok(Turn::Again) };
        self.begin_wait(wait).await
    }

    /// Takes an error of a wait: what it came from would end the next wait, too, so it is paused for.
    async fn bear_in_wait(&mut self, error: AgentError) -> Result<(), AgentError> {
        self.bear(error).await?;
        self.publish().await;
        let pause = pause(&mut self.memory);
        tokio::select! {
            // Each only waits. The pause has an end of its own, so it is a sign of life.
            word = self.stop.heard() => if word == Word::Reload { self.reload()? },
            () = self.telemetry.notify.idle() => {}
            () = tokio::time::sleep(pause) => {}
        }
        Ok(())
    }

    /// Waits for an event.
    async fn wait(&mut self, delay: Option<Duration>) -> Result<(), AgentError> {
        self.memory.retry.answered();
        self.journal.release_decoded();
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
                    self.memory.retry.ask(Ask::Rewritten);
                }
            }
            changed = drift => {
                self.memory.retry.ask(Ask::Host);
                match changed {
                    Ok(paths) => self.monitor.changed = Some(paths),
                    // The next pass begins another watch, or tells why it can't.
                    Err(_) => self.monitor.watch = None,
                }
            }
            () = self.on_duty.changed() => {}
            () = self.listening.changed() => {}
            () = timer => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
