//! Work on stateroots: carried out step by step, each recorded before and after.

use super::AgentError;
use super::begin::update_id;
use crate::apply::apply_stateroot;
use crate::host::clock::Clock;
use crate::host::os::stateroots::Stateroots;
use crate::host::{OsProgress, Root};
use crate::journal::AdvanceError;
use crate::journal::stateroot::StaterootJournal;
use crate::model::{BootId, FaultClass};
use crate::stateroot::{Findings, Job, StaterootAction, StaterootRecord, next_action};
use crate::update::Fault;

/// How work on a stateroot ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StaterootEnd {
    /// It is done.
    Done(Findings),
    /// It was refused, and what was done is undone.
    Undone(Fault),
    /// It failed; asked for again it goes on.
    Open(Fault),
}

/// What the work is done with.
#[derive(Debug)]
pub struct StaterootWorker<'a> {
    /// The host's files.
    pub root: &'a Root,
    /// The stateroots.
    pub stateroots: &'a Stateroots,
    /// The wall clock.
    pub clock: &'a Clock,
    /// The boot.
    pub boot_id: BootId,
}

impl StaterootWorker<'_> {
    /// Carries out what is asked for; other work that was left open is undone or ended first.
    pub async fn carry_out(
        &self,
        journal: &mut StaterootJournal,
        asked: &Job,
        progress: &dyn Fn(OsProgress),
    ) -> Result<StaterootEnd, AgentError> {
        loop {
            match next_action(journal.record(), asked, &self.boot_id) {
                StaterootAction::Begin => {
                    let now = self.clock.now();
                    let id = update_id(now)?;
                    journal.begin(StaterootRecord::new(id, asked.clone(), self.boot_id.clone(), now))?;
                }
                StaterootAction::Restart => journal.restart(self.boot_id.clone())?,
                StaterootAction::RollBack => journal.roll_back(None)?,
                StaterootAction::Step(_) => {
                    if let Some(fault) = self.step(journal, progress).await? {
                        return Ok(StaterootEnd::Open(fault));
                    }
                }
                StaterootAction::Close { ours } => {
                    let record = journal.record().cloned();
                    journal.close(self.clock.now())?;
                    if let Some(record) = record.filter(|_| ours) {
                        let is_undone = record.is_undone();
                        let fault = record.fault.filter(|_| is_undone);
                        return Ok(fault.map_or(StaterootEnd::Done(record.findings), StaterootEnd::Undone));
                    }
                }
            }
        }
    }

    /// Carries out one step. A failure that may pass by itself is returned; any other turns the work back.
    async fn step(
        &self,
        journal: &mut StaterootJournal,
        progress: &dyn Fn(OsProgress),
    ) -> Result<Option<Fault>, AgentError> {
        let work = journal
            .advance(async |intent| apply_stateroot(intent, self.root, self.stateroots, progress).await)
            .await;
        let error = match work {
            Ok(()) => return Ok(None),
            Err(AdvanceError::Journal(error)) => return Err(error.into()),
            Err(AdvanceError::Effect(error)) => error,
        };
        let fault = Fault::from_error(error.class(), error.reason(), &error, &error.next());
        let turns = journal.record().is_some_and(StaterootRecord::can_roll_back);
        if error.class() == FaultClass::Retry || !turns {
            journal.fault(fault.clone())?;
            return Ok(Some(fault));
        }
        journal.roll_back(Some(fault))?;
        Ok(None)
    }
}
