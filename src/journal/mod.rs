//! The record on disk: the only door to an effect, and the only memory of the agent.
//!
//! [`Journal::advance`] records, runs, records. The [`Intent`] that `apply` wants is made inside it, after the record
//! is on disk, and can't outlive it: an effect without a record does not compile. One task owns the journal by value;
//! a lock file keeps a second process out.
//!
//! Invariant: the memory equals the disk. A write that fails leaves the memory as it was, and the disk in doubt:
//! the new name may be there without being durable. So before the next change, and before an intent is lent, the record
//! is written again from memory (or removed, when there is none), as a new file: the kernel reports a failed sync
//! once, and syncing the same bytes again proves nothing.
//!
//! Below `/var/lib/machine-config-agent/`: `record.json` (the update in progress), `target.json` (the MachineConfig it
//! leads to), `from.json` (the one it comes from, when that is not the committed one, or when the deployment of an update that was undone
//! runs), `current.json` (the committed one), `machine.json` (on which machine), `kargs.json` (kernel arguments that configs have set), `history/`, `preimages/`, `lock`. Each
//! file is replaced whole: written, synced, renamed, directory synced.

pub mod history;
pub mod hosted;
pub mod intent;
pub mod lifecycle;
pub mod mcd;
pub mod origin;
pub mod originals;
pub mod place;
pub mod seed;
pub mod stateroot;
pub mod stored;

mod after_undo;
mod decoding;
mod error;
mod files;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod installation;
mod kargs;
mod kept;
mod machine;
mod record_file;
#[cfg(test)]
mod tests;
mod unapplied;
mod version;

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::host::account_records::AccountRecords;
use crate::host::durable;
use crate::host::failpoint::FailPoints;
use crate::host::root::{LockFile, Root};
use crate::model::ids::STATE_DIR;
use crate::model::{HostSpec, ModelError, Target, Timestamp};
use crate::plan::Undo;
use crate::update::{Fault, Phase, Record, Transition};

use decoding::{CURRENT, Decoding, Decodings, FROM, spec_or_unmanaged};
pub use error::{AdvanceError, JournalError};
pub(crate) use files::state;
use files::{STATE_DIR_MODE, STATE_MODE};
pub use history::{Entry, Outcome};
pub use installation::NotOwn;
pub use intent::{Intent, Numbers, Work};
pub use originals::{Original, Originals};
pub use stored::{Decoded, OpenUpdate, Stored};

/// The journal, open: its lock is held.
#[derive(Debug)]
pub struct Journal {
    root: Root,
    fail_points: FailPoints,
    record: Option<Open>,
    current: Option<Target>,
    /// Time at which the host came to rest before this process, if known.
    settled_at: Option<Timestamp>,
    /// Files decoded since the agent waited last, or changed a file of the state. None is kept while it waits.
    decoded: Decodings,
    /// Set while a change is written and after one that failed: the result of a power cut is unknown then.
    in_doubt: bool,
    /// Set if the host was looked at for directories and links that a config of the state lists and nobody applied.
    is_settled: bool,
    _lock: LockFile,
}

/// The update in progress with its specs, which live only as long as it does.
#[derive(Debug)]
struct Open {
    record: Record,
    /// The cause for which this version of the agent can't read its config: another one began it.
    unreadable: Option<ModelError>,
    from: Rc<HostSpec>,
    to: Rc<HostSpec>,
}

impl Journal {
    /// Takes the lock and reads the state. A record that can't be read, or is newer than this agent, is an error
    /// and nothing is touched.
    pub fn open(root: Root, fail_points: FailPoints) -> Result<Self, JournalError> {
        origin::check(&root)?;
        root.create_dir(STATE_DIR, STATE_DIR_MODE)?;
        let lock = place::lock(&root, "lock")?.ok_or(JournalError::Locked { path: state("lock") })?;
        // The process before may have died between a new name and its sync: the files read are durable first.
        durable::sync_directory(&root, STATE_DIR)?;
        let record = stored::load_record(&root)?;
        kept::check(&root, record.as_ref().map(|record| &record.id))?;
        let current = Stored::load(&root, &state(CURRENT))?;
        let committed = current.as_ref().map(|stored| stored.at);
        // It is only told: an unreadable past is no reason against the work.
        let settled_at = history::settled_at(&root, committed).unwrap_or(committed);
        // Where the record tells contents apart, the committed one has to be known, too.
        let is_told = record.as_ref().is_some_and(|record| record.to.content.is_some());
        let current = current.map(|stored| if is_told { stored.identified() } else { stored });
        let current = current.map(|stored| stored.target);
        let record = record.map(|record| Self::reopen(&root, record)).transpose()?;
        if record.is_none() {
            collect(&root)?;
        }
        let decoded = Decodings::default();
        Ok(Self {
            root,
            fail_points,
            record,
            current,
            settled_at,
            decoded,
            in_doubt: false,
            is_settled: false,
            _lock: lock,
        })
    }

    fn reopen(root: &Root, record: Record) -> Result<Open, JournalError> {
        let OpenUpdate { record, to, unreadable } = stored::reopen(root, record)?;
        let from = match Decoding::load(root, FROM)? {
            Some(from) => Some(from),
            None => Decoding::load(root, CURRENT)?,
        };
        Ok(Open { from: spec_or_unmanaged(from)?, to, unreadable, record })
    }

    /// Returns why this version of the agent can't read the config of the update in progress.
    pub fn unreadable(&self) -> Option<&ModelError> {
        self.record.as_ref().and_then(|open| open.unreadable.as_ref())
    }

    /// Reads the digests of contents that an earlier version of the agent, or a source without contents, did not write down.
    pub fn identify(&mut self) -> Result<(), JournalError> {
        let content = |root: &Root, name: &str| -> Result<_, JournalError> {
            Ok(Stored::load(root, &state(name))?.and_then(|stored| stored.identified().target.content))
        };
        if let Some(current) = self.current.as_mut().filter(|current| current.content.is_none()) {
            current.content = content(&self.root, CURRENT)?;
        }
        if let Some(open) = self.record.as_mut().filter(|open| open.record.to.content.is_none()) {
            open.record.to.content = content(&self.root, "target.json")?;
        }
        Ok(())
    }

    /// Returns the update in progress.
    pub fn record(&self) -> Option<&Record> {
        self.record.as_ref().map(|open| &open.record)
    }

    /// Returns the committed pair.
    pub fn current(&self) -> Option<&Target> {
        self.current.as_ref()
    }

    /// Returns the time at which the host came to rest before this process, if known.
    pub fn settled_at(&self) -> Option<Timestamp> {
        self.settled_at
    }

    /// Returns the spec that the update in progress leads to.
    pub fn target_spec(&self) -> Option<&Rc<HostSpec>> {
        self.record.as_ref().map(|open| &open.to)
    }

    /// Returns the committed spec, or the unmanaged one.
    pub fn current_spec(&self) -> Result<Rc<HostSpec>, JournalError> {
        spec_or_unmanaged(self.decoded.of(&self.root, CURRENT)?)
    }

    /// Returns the spec that the next update comes from: the committed one, or that of an update which ended wrong and
    /// whose effects stayed.
    pub fn origin_spec(&self) -> Result<Rc<HostSpec>, JournalError> {
        self.decoded.of(&self.root, FROM)?.map_or_else(|| self.current_spec(), |from| Ok(from.spec))
    }

    /// Returns true if an update ended wrong and its effects stayed: the next one trusts only the observation.
    pub fn is_recovering(&self) -> Result<bool, JournalError> {
        Ok(self.decoded.of(&self.root, FROM)?.is_some())
    }

    /// Returns true if an update to another target than the current one ended wrong and its effects stayed, or it was undone and
    /// its deployment runs.
    pub fn has_left_effects(&self) -> Result<bool, JournalError> {
        let left = self.decoded.of(&self.root, FROM)?;
        let current = self.current.as_ref();
        Ok(left.is_some_and(|left| stored::is_left_beside(&left.target, left.undone_runs, current)))
    }

    /// Frees the memory of decoded files. They are read again when needed.
    pub fn release_decoded(&self) {
        self.decoded.clear();
    }

    /// Counts the entries at the end of the history in which this target was given up with its effects in place. The
    /// order is that of writing: a clock that jumps changes nothing.
    pub fn wrong_boots(&self, target: &Target) -> Result<u32, JournalError> {
        let entries = history::load(&self.root)?.entries;
        let wrong = |entry: &&Entry| entry.to == *target && entry.outcome == Outcome::Faulted;
        Ok(u32::try_from(entries.iter().rev().take_while(wrong).count()).unwrap_or(u32::MAX))
    }

    /// Opens an update: the target first, the record last.
    pub fn begin(&mut self, record: Record, target: Decoded) -> Result<(), JournalError> {
        let Decoded { stored, spec } = target;
        self.open_update(record, Rc::new(spec), |root| stored.save(root, &state("target.json")))
    }

    /// Opens an update to the current target: a repair.
    pub fn begin_repair(&mut self, record: Record) -> Result<(), JournalError> {
        let to = self.current_spec()?;
        self.open_update(record, to, |root| {
            let bytes = root.read(&state(CURRENT))?.unwrap_or_default();
            Ok(root.replace(&state("target.json"), &bytes, STATE_MODE)?)
        })
    }

    /// Opens an update to the current target that applies entries which were never applied; these stay so.
    pub fn begin_late(&mut self, record: Record, stay: BTreeSet<String>) -> Result<(), JournalError> {
        let mut to = self.current_spec()?;
        Rc::make_mut(&mut to).never_applied = Some(stay.clone());
        let current = self.current_stored()?;
        self.open_update(record, to, |root| {
            current.with_never_applied(Some(stay)).save(root, &state("target.json"))
        })
    }

    /// Notes the entries of the committed config that were never applied to this host.
    pub fn note_never_applied(&mut self, fields: BTreeSet<String>) -> Result<(), JournalError> {
        let current = self.current_stored()?;
        self.change(|journal| current.with_never_applied(Some(fields)).save(&journal.root, &state(CURRENT)))
    }

    fn current_stored(&self) -> Result<Stored, JournalError> {
        let config = self.current.as_ref().map(|current| current.config.clone());
        let lost = || JournalError::NoUpdate { what: "a config that is not committed" };
        let config = config.ok_or_else(lost)?;
        let path = state(CURRENT);
        Stored::load(&self.root, &path)?.ok_or(JournalError::Lost { path, config })
    }

    fn open_update(
        &mut self,
        record: Record,
        to: Rc<HostSpec>,
        save: impl FnOnce(&Root) -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        self.change(|journal| {
            machine::note(&journal.root)?;
            save(&journal.root)?;
            journal.fail_points.hit("target-saved");
            let from = journal.origin_spec()?;
            journal.store(Open { record, from, to, unreadable: None })
        })
    }

    /// Moves the phase along an edge.
    pub fn step(&mut self, event: &Transition, now: Timestamp) -> Result<(), JournalError> {
        self.step_with(event, now, |_| {})
    }

    /// Writes a fault down and, where one is given, moves the phase along an edge: both, or neither.
    pub fn fail(
        &mut self,
        fault: Fault,
        event: Option<&Transition>,
        now: Timestamp,
    ) -> Result<(), JournalError> {
        match event {
            Some(event) => self.step_with(event, now, |record| record.blame(fault, now)),
            None => self.fault(fault, now),
        }
    }

    /// Moves the phase along an edge and changes fields beside it, in one write.
    pub(crate) fn step_with(
        &mut self,
        event: &Transition,
        now: Timestamp,
        change: impl FnOnce(&mut Record),
    ) -> Result<(), JournalError> {
        let open = self.record.as_ref().ok_or(JournalError::NoUpdate { what: event.as_str() })?;
        let mut record = open.record.moved(event, now)?;
        change(&mut record);
        self.update(record)
    }

    /// Changes the fields beside the phase: a fault, the boot, the counters.
    pub fn note(&mut self, change: impl FnOnce(&mut Record)) -> Result<(), JournalError> {
        let Some(open) = &self.record else { return Ok(()) };
        let mut record = open.record.clone();
        change(&mut record);
        if open.record == record {
            return Ok(());
        }
        self.update(record)
    }

    /// Writes a fault into the record.
    pub fn fault(&mut self, fault: Fault, now: Timestamp) -> Result<(), JournalError> {
        self.note(|record| record.blame(fault, now))
    }

    /// Writes the next version of the record; the memory follows the disk.
    fn update(&mut self, record: Record) -> Result<(), JournalError> {
        self.change(|journal| {
            stored::save_record(&journal.root, &record)?;
            if let Some(open) = &mut journal.record {
                open.record = record;
            }
            journal.fail_points.hit("recorded");
            Ok(())
        })
    }

    fn store(&mut self, open: Open) -> Result<(), JournalError> {
        stored::save_record(&self.root, &open.record)?;
        self.record = Some(open);
        self.fail_points.hit("recorded");
        Ok(())
    }

    /// Makes one change of the state; when it fails, the next one begins with the memory's record.
    fn change(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        self.settle()?;
        self.in_doubt = true;
        let done = work(self);
        self.release_decoded();
        done?;
        self.in_doubt = false;
        Ok(())
    }

    /// After a change that failed, brings the disk in line with the memory.
    fn settle(&mut self) -> Result<(), JournalError> {
        if !self.in_doubt {
            return Ok(());
        }
        if let Some(open) = &self.record {
            stored::rewrite_record(&self.root, &open.record)?;
        } else {
            self.root.remove_again(&state("record.json"))?;
            collect(&self.root)?;
        }
        self.in_doubt = false;
        Ok(())
    }

    /// Carries out the work of the phase: the record is on disk before, and moves on disk after.
    pub async fn advance<E>(
        &mut self,
        now: impl Fn() -> Timestamp,
        run: impl AsyncFnOnce(&Intent<'_>) -> Result<(), E>,
    ) -> Result<(), AdvanceError<E>> {
        self.settle()?;
        let open = self.record.as_ref().ok_or(JournalError::NoUpdate { what: "advance" })?;
        let intent = open.intent()?;
        run(&intent).await.map_err(AdvanceError::Effect)?;
        self.fail_points.hit("ran");
        let event = match open.record.phase {
            Phase::Applying { .. } => Transition::BatchDone,
            Phase::RollingBack { .. } => Transition::UndoDone,
            Phase::Planned
            | Phase::Staging
            | Phase::Draining
            | Phase::Rebooting { .. }
            | Phase::Verifying
            | Phase::FallingBack { .. } => return Ok(()),
        };
        Ok(self.step(&event, now())?)
    }

    /// Makes the update's spec the committed one, archives the record and collects the files that it left.
    pub fn commit(&mut self, now: Timestamp) -> Result<(), JournalError> {
        self.change(|journal| journal.commit_open(now))
    }

    fn commit_open(&mut self, now: Timestamp) -> Result<(), JournalError> {
        let Some(open) = &self.record else { return Ok(()) };
        let (record, from, to) = (&open.record, &open.from, &open.to);
        let target = Stored::load(&self.root, &state("target.json"))?.ok_or_else(|| JournalError::Lost {
            path: state("target.json"),
            config: record.to.config.clone(),
        })?;
        originals::promote(&self.root, Some(&record.id), from, to)?;
        self.fail_points.hit("originals-kept");
        let target = kept::note(&self.root, from, to, target.committed(now))?;
        if record.provisioning {
            // The next update, to the whole config, comes from the observation.
            target.save(&self.root, &state("from.json"))?;
            self.fail_points.hit("from-saved");
            originals::drop_left(&self.root, from, to)?;
            return self.end(Outcome::Committed, None, now);
        }
        machine::note(&self.root)?;
        target.save(&self.root, &state("current.json"))?;
        self.current = Some(target.target.clone());
        self.fail_points.hit("committed");
        originals::drop_left(&self.root, from, to)?;
        mcd::write(&self.root, &target)?;
        self.root.remove(&state("from.json"))?;
        self.end(Outcome::Committed, None, now)
    }

    /// Keeps the originals of the paths that the target manages from now on, on a host that is as the target already, and notes
    /// which it has; [`Journal::adopt`] and [`Journal::drop_originals`] follow.
    pub fn keep_originals(
        &self,
        from: &HostSpec,
        to: &HostSpec,
        target: Stored,
    ) -> Result<Stored, JournalError> {
        originals::promote(&self.root, None, from, to)?;
        Ok(kept::note(&self.root, from, to, target)?)
    }

    /// Ends the work on the root of an image: what its base has at the paths of the config stays in the image, the state does not.
    pub fn leave_image(&self) -> Result<(), JournalError> {
        if let Some(Open { record, from, to, .. }) = &self.record {
            originals::promote(&self.root, Some(&record.id), from, to)?;
        }
        originals::keep_in_image(&self.root)?;
        AccountRecords::keep_in_image(&self.root)?;
        mcd::leave_image(&self.root)?;
        Ok(self.root.remove_tree(STATE_DIR)?)
    }

    /// Drops the originals of the paths that the adopted target no longer manages.
    pub fn drop_originals(&self, from: &HostSpec, to: &HostSpec) -> Result<(), JournalError> {
        Ok(originals::drop_left(&self.root, from, to)?)
    }

    /// Records a host that is as the target already: nothing was done, so there is no update.
    pub fn adopt(&mut self, target: Stored, now: Timestamp) -> Result<(), JournalError> {
        let recovering = self.is_recovering()?;
        self.change(|journal| {
            // MCD's files first: once it is committed, nothing would come back to write them.
            mcd::write(&journal.root, &target)?;
            journal.fail_points.hit("adopting");
            let target = target.committed(now);
            if recovering {
                // The host is as this one. Cut off before its removal, it equals the current one.
                target.save(&journal.root, &state("from.json"))?;
            }
            machine::note(&journal.root)?;
            target.save(&journal.root, &state("current.json"))?;
            journal.is_settled &= target.is_settled();
            journal.current = Some(target.target);
            Ok(journal.root.remove(&state("from.json"))?)
        })
    }

    /// Archives an update that ended without a commit. When its effects stay (the node runs them), the next update
    /// comes from its target, not from the committed one.
    pub fn archive(&mut self, outcome: Outcome, now: Timestamp) -> Result<(), JournalError> {
        self.change(|journal| journal.archive_open(outcome, None, now))
    }

    /// Archives an update that was undone, and whose own deployment runs: no undo ends that. The next update comes from what is
    /// observed, also where it leads to the committed target, and knows what the update wanted of the OS.
    pub fn archive_booted(&mut self, outcome: Outcome, now: Timestamp) -> Result<(), JournalError> {
        self.change(|journal| {
            let (root, Some(open)) = (&journal.root, &journal.record) else { return Ok(()) };
            let origin = match Stored::load(root, &state(FROM))? {
                Some(noted) => Some(noted),
                None => Stored::load(root, &state(CURRENT))?,
            };
            if let Some(origin) = origin {
                let (layers, before) = (open.to.host_layers(), open.record.origin_image.clone());
                origin.with_undone_deployment(layers, before).save(root, &state(FROM))?;
                journal.fail_points.hit("from-saved");
            }
            journal.archive_open(outcome, None, now)
        })
    }

    fn archive_open(
        &mut self,
        outcome: Outcome,
        fault: Option<Fault>,
        now: Timestamp,
    ) -> Result<(), JournalError> {
        let Some(open) = &self.record else { return Ok(()) };
        if !open.record.is_undone()
            && let Some(target) = Stored::load(&self.root, &state("target.json"))?
        {
            // The distribution's originals outlive this update, as its effects do.
            originals::promote(&self.root, Some(&open.record.id), &open.from, &open.to)?;
            self.fail_points.hit("originals-kept");
            kept::note(&self.root, &open.from, &open.to, target)?.save(&self.root, &state("from.json"))?;
            self.fail_points.hit("from-saved");
            originals::drop_left(&self.root, &open.from, &open.to)?;
        }
        self.end(outcome, fault, now)
    }

    /// Archives an update whose effects stay although they are not as planned. The fault goes into the history alone:
    /// in the record, after a crash in between, it would hold the target.
    pub fn archive_faulted(&mut self, fault: Fault, now: Timestamp) -> Result<(), JournalError> {
        self.change(|journal| journal.archive_open(Outcome::Faulted, Some(fault), now))
    }

    /// The archive first, the record's end last: a crash in between repeats the end.
    fn end(&mut self, outcome: Outcome, fault: Option<Fault>, now: Timestamp) -> Result<(), JournalError> {
        let Some(open) = &self.record else { return Ok(()) };
        let mut entry = Entry::new(&open.record, outcome, now);
        entry.fault = fault.or(entry.fault);
        entry.save(&self.root)?;
        self.fail_points.hit("archived");
        self.root.remove(&state("record.json"))?;
        self.fail_points.hit("record-removed");
        self.record = None;
        collect(&self.root)
    }
}

impl Open {
    fn intent(&self) -> Result<Intent<'_>, JournalError> {
        let plan = &self.record.plan;
        let (work, batch) = match &self.record.phase {
            Phase::Staging => (apply_work(plan, 0), 0),
            Phase::Applying { next } => (apply_work(plan, *next), *next),
            Phase::RollingBack { next } => self.take_back(*next),
            Phase::Planned
            | Phase::Draining
            | Phase::Rebooting { .. }
            | Phase::Verifying
            | Phase::FallingBack { .. } => (None, 0),
        };
        let work = work.ok_or(JournalError::NoUpdate { what: self.record.phase.as_str() })?;
        let before = plan.batches().iter().take(batch).map(|batch| batch.len()).sum();
        let numbers = Numbers { before, of: plan.steps().len() };
        Ok(Intent::new(work, &self.from, &self.to, Originals::new(self.record.id.clone(), batch), numbers))
    }

    fn take_back(&self, next: usize) -> (Option<Work<'_>>, usize) {
        let Some(undo) = self.record.undo.get(next) else { return (None, 0) };
        let batch = match undo {
            Undo::UnstageOs => 0,
            Undo::RestoreOriginals { batch } | Undo::RepeatServices { batch } => *batch,
        };
        (Some(Work::Undo { undo, steps: self.record.plan.batch(batch).unwrap_or_default() }), batch)
    }
}

/// Removes the files of an update whose record does not exist yet, or any more, and drafts of a process that died.
fn collect(root: &Root) -> Result<(), JournalError> {
    let left = |name: &String| name == "target.json" || name.ends_with(durable::DRAFT_SUFFIX);
    for name in root.list(STATE_DIR)?.into_iter().filter(left) {
        root.remove(&state(&name))?;
    }
    Ok(originals::discard_all(root)?)
}

fn apply_work(plan: &crate::plan::Plan, index: usize) -> Option<Work<'_>> {
    let steps = plan.batch(index)?;
    steps.first().map(|step| Work::Apply { batch: step.op.batch(), steps })
}
