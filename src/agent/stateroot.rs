//! Work on stateroots: carried out step by step, each recorded before and after.

use tracing::info;

use super::AgentError;
use super::begin::update_id;
use super::boot_count::with_counter;
use crate::apply::apply_stateroot;
use crate::host::clock::Clock;
use crate::host::os::stateroots::Stateroots;
use crate::host::power::RebootKind;
use crate::host::{HostError, OsProgress, Power, Rebooting, Root};
use crate::journal::AdvanceError;
use crate::journal::stateroot::StaterootJournal;
use crate::model::{BootId, FaultClass, message};
use crate::stateroot::{Findings, Job, StaterootAction, StaterootRecord, StaterootStep, next_action};
use crate::update::Fault;

/// Result of work on a stateroot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StaterootEnd {
    /// It is done.
    Done(Findings),
    /// The machine goes down into the other stateroot.
    GoesDown(Rebooting),
    /// It was refused, and what was done is undone.
    Undone(Fault),
    /// It failed; requested again it goes on.
    Open(Fault),
}

/// Handles for the work.
#[derive(Debug)]
pub struct StaterootWorker<'a> {
    /// The host's files.
    pub root: &'a Root,
    /// The stateroots.
    pub stateroots: &'a Stateroots,
    /// The wall clock.
    pub clock: &'a Clock,
    /// The reboot.
    pub power: &'a dyn Power,
    /// The boot.
    pub boot_id: BootId,
}

impl StaterootWorker<'_> {
    /// Carries out the requested work; other work that was left open is undone or ended first.
    pub async fn execute(
        &self,
        journal: &mut StaterootJournal,
        requested: &Job,
        progress: &dyn Fn(OsProgress),
    ) -> Result<StaterootEnd, AgentError> {
        loop {
            match next_action(journal.record(), requested, &self.boot_id) {
                StaterootAction::Begin => self.begin(journal, requested)?,
                StaterootAction::Restart => journal.restart(self.boot_id.clone())?,
                StaterootAction::RollBack => journal.roll_back(None)?,
                StaterootAction::Step(StaterootStep::RequestReboot) => {
                    if let Some(end) = self.reboot(journal).await? {
                        return Ok(end);
                    }
                }
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

    /// Opens the record of a job, where none is open: from then on a boot shows whether it was cut short.
    pub fn begin(&self, journal: &mut StaterootJournal, requested: &Job) -> Result<(), AgentError> {
        if journal.record().is_some() {
            return Ok(());
        }
        let now = self.clock.now();
        let id = update_id(now)?;
        Ok(journal.begin(StaterootRecord::new(id, requested.clone(), self.boot_id.clone(), now))?)
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
        match work {
            Ok(()) => Ok(None),
            Err(AdvanceError::Journal(error)) => Err(error.into()),
            Err(AdvanceError::Effect(error)) => failed(journal, &error),
        }
    }

    /// Requests the reboot; the record stays, and the next boot closes it. Returns nothing when the work turned back.
    async fn reboot(&self, journal: &mut StaterootJournal) -> Result<Option<StaterootEnd>, AgentError> {
        let result = journal
            .attempt(async |intent| {
                let stateroot = intent.job().stateroot();
                let why = format!("Node will reboot into the stateroot {stateroot}");
                info!(MESSAGE_ID = message::STATEROOT_REBOOT, "{why}");
                let is_tried = matches!(intent.job(), Job::Activate { trial: Some(_), .. });
                if is_tried && with_counter(self.root, |counter| counter.arm()) {
                    info!("Boot loader counts the boots of the stateroot {stateroot}");
                }
                self.power.reboot(RebootKind::Whole, &why).await
            })
            .await;
        match result {
            Ok(how) => Ok(Some(StaterootEnd::GoesDown(how))),
            Err(AdvanceError::Journal(error)) => Err(error.into()),
            Err(AdvanceError::Effect(error)) => {
                // What runs stays for now.
                with_counter(self.root, |counter| counter.end());
                Ok(failed(journal, &error)?.map(StaterootEnd::Open))
            }
        }
    }
}

/// Takes the failure of a step. One that may pass by itself is returned; any other turns the work back.
fn failed(journal: &mut StaterootJournal, error: &HostError) -> Result<Option<Fault>, AgentError> {
    let fault = Fault::from_error(error.class(), error.reason(), error, &error.next());
    let turns = journal.record().is_some_and(StaterootRecord::can_roll_back);
    if error.class() == FaultClass::Retry || !turns {
        journal.fault(fault.clone())?;
        return Ok(Some(fault));
    }
    journal.roll_back(Some(fault))?;
    Ok(None)
}
