//! The decision: one action for the observed state, with all waits, limits and modes.

use std::time::Duration;

use super::action::{Action, Meanwhile, Query, Wait};
use super::answer::{DrainStatus, Unanswered, UncordonStatus, WorkloadRequest};
use super::down::{Down, Shutdown, ShutdownProgress};
use super::hold::Next;
use super::inputs::{Inputs, Memory};
use super::mode::{Reboots, RunMode};
use super::prefetch::Due;
use super::retention;
use super::unreadable::unreadable;
use crate::model::observation::BootCount;
use crate::plan::{Drain, PostActions};
use crate::update::ending::{SOON, is_retried_on_change};
use crate::update::resume::{
    always_dropped, held, is_dropped, is_on_trial, is_unproven, os_in_place, recovery_transition,
    was_rebooted,
};
use crate::update::{Decision, Fault, Phase, Record, Transition, after_verification, not_finalized, resume};

/// Between the fault that began a roll-back and the one that stands in its way.
const UNDOING: &str = "; undoing it failed too: ";

/// Returns the next action. A question is answered in [`Inputs::answers`] and `decide` called again; after any other
/// action the next pass begins with no answers.
pub fn decide(inputs: &Inputs<'_>, memory: &mut Memory) -> Action {
    let mut action = next(inputs, memory);
    // The next action may need the repository, or the line.
    if memory.prefetch.is_running() && !action.suits_prefetch() {
        action = Action::EndPrefetch;
    }
    action.fit(inputs.mode, inputs.is_unwatched);
    action
}

impl Wait {
    /// Waits for nothing in particular.
    pub(super) fn plain(left: Option<Duration>) -> Self {
        Self { left, meanwhile: Meanwhile::Nothing, ends: false }
    }
}

impl Action {
    /// Fits a wait to the way the agent is run, and to a host that can't be watched.
    pub(super) fn fit(&mut self, mode: RunMode, is_unwatched: bool) {
        let Self::Wait(wait) = self else { return };
        wait.ends |= !mode.is_service();
        if is_unwatched {
            wait.left = sooner(wait.left, Some(SOON));
        }
    }
}

fn next(inputs: &Inputs<'_>, memory: &mut Memory) -> Action {
    if let (Some(fault), Some(record)) = (&inputs.answers.failed, inputs.record) {
        return failed_deed(inputs, memory, record, fault);
    }
    let decision = resume(inputs.record, inputs.current, inputs.observed, inputs.desired);
    if !matches!(decision, Decision::Reboot | Decision::FallBack | Decision::Continue) {
        memory.down = Down::Up;
    }
    if counts_for_nobody(&decision, inputs.observed.boots) && !inputs.answers.is_count_over {
        return Action::Query(Query::CountOver);
    }
    let Some(record) = inputs.record else {
        let begins = decision == Decision::Begin && !inputs.is_refused;
        return if begins { Action::Begin } else { run_idle(inputs, memory) };
    };
    if decision != Decision::Hold {
        // An uncordon after an update is another request.
        memory.uncordon_since = None;
    }
    if !memory.prefetch.is_running() {
        memory.prefetch.interrupt();
    }
    if let Some(fault) = unreadable(inputs, record, &decision) {
        return fail(inputs, memory, record, fault.clone());
    }
    match decision {
        Decision::Idle => run_idle(inputs, memory),
        // The valid target before it is the older one.
        Decision::Begin if inputs.is_refused => wait(None),
        Decision::Begin => Action::Begin,
        Decision::Continue if record.boot_id != inputs.observed.boot_id => Action::Resume,
        Decision::Continue => continue_update(inputs, memory, record),
        Decision::Supersede => {
            memory.retry.end();
            Action::Supersede
        }
        Decision::Restage => Action::Restage,
        Decision::Inquire => inquire(inputs, memory, record),
        Decision::Reboot => reboot(inputs, memory, record),
        Decision::Verify => verify(inputs, memory, record),
        Decision::FallBack => fall_back(inputs, memory, record),
        Decision::UndoAfterFallback => Action::TakeBack,
        Decision::Replan(fault) => Action::Replan(fault),
        Decision::Fault(fault) => fail(inputs, memory, record, fault),
        Decision::Hold => hold(inputs, memory, record),
        Decision::Archive => {
            memory.retry.end();
            Action::Archive
        }
        Decision::Commit => Action::Commit,
    }
}

fn wait(left: Option<Duration>) -> Action {
    Action::Wait(Wait::plain(left))
}

/// The shorter of two waits.
pub(super) fn sooner(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}

/// Returns true if the boot loader counts boots that no update needs counted any more.
fn counts_for_nobody(decision: &Decision, boots: BootCount) -> bool {
    match decision {
        Decision::Idle | Decision::Begin | Decision::Supersede | Decision::Archive => boots != BootCount::Off,
        // The boot loader's own fallback is reported by its traces.
        Decision::Hold => matches!(boots, BootCount::Left(_)),
        Decision::Continue
        | Decision::Restage
        | Decision::Inquire
        | Decision::Reboot
        | Decision::Verify
        | Decision::Replan(_)
        | Decision::FallBack
        | Decision::UndoAfterFallback
        | Decision::Fault(_)
        | Decision::Commit => false,
    }
}

fn fail(inputs: &Inputs<'_>, memory: &mut Memory, record: &Record, fault: Fault) -> Action {
    // A wait that ended before is not the pause after this fault.
    memory.retry.end();
    let way = recovery_transition(record, inputs.observed, inputs.node_settings.health.roll_back);
    Action::Fail(fault, way)
}

/// Decides after a failed action. An undo is tried again, and reported with the fault that began it.
fn failed_deed(inputs: &Inputs<'_>, memory: &mut Memory, record: &Record, fault: &Fault) -> Action {
    let mut fault = fault.clone();
    if !matches!(record.phase, Phase::RollingBack { .. }) {
        return fail(inputs, memory, record, fault);
    }
    // The first one stays the first, however often the undoing fails.
    if let Some(first) = record.fault.as_ref().and_then(|first| first.message.split(UNDOING).next()) {
        fault.message = format!("{first}{UNDOING}{}", fault.message);
    }
    let left = Some(memory.backoff.next_wait());
    Action::Wait(Wait { left, meanwhile: Meanwhile::Undoing(fault), ends: false })
}

/// Waits for an answer that was requested at `since`.
fn unanswered(answer: WorkloadRequest, since: Duration, now: Duration, why: &str) -> Wait {
    match answer.unanswered(since, now, why) {
        Unanswered::Pending(left) => Wait::plain(Some(left)),
        Unanswered::Late(fault) => {
            Wait { left: None, meanwhile: Meanwhile::Late(answer, fault), ends: false }
        }
    }
}

/// Progress of an uncordon.
pub(super) enum Uncordoned {
    /// It is to be requested.
    Ask,
    /// The node takes workload.
    Yes,
    /// It does not yet.
    Wait(Wait),
}

/// Judges the answer to an uncordon.
pub(super) fn uncordoned(answer: Option<&UncordonStatus>, memory: &mut Memory, now: Duration) -> Uncordoned {
    match answer {
        None => Uncordoned::Ask,
        Some(UncordonStatus::Yes | UncordonStatus::Again) => {
            memory.uncordon_since = None;
            Uncordoned::Yes
        }
        Some(UncordonStatus::Waiting { why }) => {
            let since = *memory.uncordon_since.get_or_insert(now);
            Uncordoned::Wait(unanswered(WorkloadRequest::Uncordon, since, now, why))
        }
    }
}

/// The idle node: its workload comes back, it is watched over, and the previous deployment is given up in time.
fn run_idle(inputs: &Inputs<'_>, memory: &mut Memory) -> Action {
    if inputs.mode == RunMode::FirstBoot {
        // The file can't be used yet, or all is done: the idle host is the daemon's.
        return Action::Wait(Wait { ends: !inputs.is_refused, ..Wait::plain(None) });
    }
    if inputs.desired.is_some() && inputs.is_forced && !inputs.is_refused {
        return Action::Begin;
    }
    let mut waits = Wait::plain(None);
    if inputs.current.is_some() && !inputs.is_refused {
        match uncordoned(inputs.answers.uncordoned.as_ref(), memory, inputs.now) {
            Uncordoned::Ask => return Action::Query(Query::Uncordoned),
            Uncordoned::Yes => {}
            Uncordoned::Wait(wait) => waits = wait,
        }
    }
    let Some(rest) = inputs.answers.rest else { return Action::Query(Query::Rest) };
    if rest.is_repaired {
        return Action::Requeue;
    }
    let is_healthy = rest.is_as_desired && !inputs.is_refused && waits.meanwhile == Meanwhile::Nothing;
    let kept = match memory.kept.due(inputs.node_settings.keep_rollback, is_healthy, inputs.now) {
        retention::Due::Now => return Action::DropRollback,
        retention::Due::In(left) => Some(left),
        retention::Due::Nothing => None,
    };
    waits.left = sooner(waits.left, sooner(rest.again, kept));
    prefetch(inputs, memory, waits)
}

/// Downloads the requested image ahead, when there is nothing else to do.
fn prefetch(inputs: &Inputs<'_>, memory: &Memory, mut waits: Wait) -> Action {
    let is_free = waits.meanwhile == Meanwhile::Nothing && inputs.mode.is_service();
    match memory.prefetch.due(inputs.prefetch, inputs.now) {
        Due::End => return Action::EndPrefetch,
        Due::Now if is_free => return Action::Prefetch(inputs.prefetch.cloned()),
        Due::In(left) if is_free => waits.left = sooner(waits.left, Some(left)),
        Due::Now | Due::In(_) | Due::Nothing => {}
    }
    Action::Wait(waits)
}

/// Decides the next action of an open update by its phase.
fn continue_update(inputs: &Inputs<'_>, memory: &mut Memory, record: &Record) -> Action {
    match &record.phase {
        Phase::Planned if record.first_applied() > 0 => Action::Move(Transition::Stage),
        Phase::Planned => leave_staging(inputs, record),
        Phase::Staging => {
            let nothing = record.first_applied() == 0 || os_in_place(record, inputs.observed);
            if nothing || inputs.answers.is_staged {
                leave_staging(inputs, record)
            } else {
                Action::Query(Query::Staged)
            }
        }
        Phase::Draining => match drained(inputs, record) {
            Some(action) => action,
            None => Action::Move(Transition::Apply { first: record.first_applied() }),
        },
        Phase::Applying { next } if record.plan.batch(*next).is_some() => Action::Execute,
        Phase::Applying { .. } => match record.plan.after() {
            PostActions::Reboot { .. } => reboot(inputs, memory, record),
            PostActions::Nothing | PostActions::Services { .. } => Action::Move(Transition::Verify),
        },
        Phase::RollingBack { .. } => Action::Execute,
        // `resume` has an answer for these.
        Phase::Rebooting { .. } | Phase::Verifying | Phase::FallingBack { .. } => wait(None),
    }
}

/// Moves to the drain if the plan needs one, the control plane can drain and something is left to do, else to the steps.
fn leave_staging(inputs: &Inputs<'_>, record: &Record) -> Action {
    let is_needless = record.plan.drain() == Drain::NotNeeded || was_rebooted(record, inputs.observed);
    if is_needless || !inputs.can_drain {
        return Action::Move(Transition::Apply { first: record.first_applied() });
    }
    Action::Move(Transition::Drain)
}

/// Decides the wait for a workload that has not left yet, or has come back.
fn drained(inputs: &Inputs<'_>, record: &Record) -> Option<Action> {
    if !record.drained {
        return None;
    }
    match &inputs.answers.drained {
        None => Some(Action::Query(Query::Drained)),
        Some(DrainStatus::Yes | DrainStatus::NotRequested) => None,
        Some(DrainStatus::Waiting { why }) => {
            let begun = record.draining.as_ref().filter(|begun| begun.boot_id == inputs.observed.boot_id);
            let since = begun.map_or(inputs.now, |begun| Duration::from_micros(begun.since));
            Some(Action::Wait(unanswered(WorkloadRequest::Drain, since, inputs.now, why)))
        }
    }
}

/// Decides the wait, or the fault, of a requested end of this boot.
pub(super) fn on_its_way(answer: Option<Shutdown>, memory: &mut Memory, now: Duration) -> Option<Action> {
    let shutdown = match answer {
        Some(shutdown) => shutdown,
        None if memory.down.is_requested() => return Some(Action::Query(Query::Shutdown)),
        None => Shutdown { preparing: false, was_begun: false },
    };
    match memory.down.progress(shutdown, now) {
        ShutdownProgress::Free => None,
        ShutdownProgress::Wait(left) => Some(wait(Some(left))),
        ShutdownProgress::InVain(how) => Some(Action::RebootInVain { how, again: memory.later(now) }),
    }
}

/// Decides about a staged deployment that is gone: the reboot would lead into the old one.
fn dropped(inputs: &Inputs<'_>, memory: &mut Memory, record: &Record) -> Option<Action> {
    // The way back has its own question.
    if matches!(record.phase, Phase::FallingBack { .. }) || !is_dropped(record, inputs.observed) {
        return None;
    }
    Some(match always_dropped(record) {
        Some(fault) => fail(inputs, memory, record, fault),
        None => Action::RestageDropped,
    })
}

/// The way to the reboot.
fn reboot(inputs: &Inputs<'_>, memory: &mut Memory, record: &Record) -> Action {
    let Some(shutdown) = inputs.answers.shutdown else { return Action::Query(Query::Shutdown) };
    memory.down.join(shutdown, inputs.now);
    if let Some(action) = on_its_way(inputs.answers.shutdown, memory, inputs.now)
        .or_else(|| dropped(inputs, memory, record))
        .or_else(|| drained(inputs, record))
    {
        return action;
    }
    if !inputs.answers.is_armed {
        return Action::Query(Query::Armed);
    }
    let is_left = record.reboot_left.as_ref() == Some(&inputs.observed.boot_id);
    match inputs.reboots {
        // A person has left it to no process but `apply`.
        Reboots::Requested if is_left && inputs.mode == RunMode::Daemon => {
            Action::Wait(Wait { left: None, meanwhile: Meanwhile::LeftToPerson, ends: false })
        }
        Reboots::Requested => match inputs.answers.is_blocked {
            None => Action::Query(Query::Blocks),
            Some(true) => wait(None),
            Some(false) => Action::Reboot,
        },
        Reboots::Left => {
            let is_asked = matches!(record.phase, Phase::Rebooting { .. }) || record.fallbacks > 0;
            if is_left && is_asked {
                return Action::EndForReboot;
            }
            let boot_id = inputs.observed.boot_id.clone();
            Action::LeaveReboot((!is_asked).then_some(Transition::Reboot { boot_id }))
        }
    }
}

/// A node that came up in its old deployment.
fn inquire(inputs: &Inputs<'_>, memory: &mut Memory, record: &Record) -> Action {
    let Some(ended) = &inputs.answers.finalization else { return Action::Query(Query::Finalization) };
    if let Decision::Fault(fault) = not_finalized(record, ended) {
        return fail(inputs, memory, record, fault);
    }
    Action::Restage
}

/// The end of an update: the host is compared, and a new deployment proves itself.
fn verify(inputs: &Inputs<'_>, memory: &mut Memory, record: &Record) -> Action {
    if matches!(record.phase, Phase::Applying { .. }) {
        // Another program rebooted the machine, as planned.
        return Action::Move(Transition::Reboot { boot_id: record.boot_id.clone() });
    }
    if record.phase != Phase::Verifying {
        return Action::Move(Transition::Verify);
    }
    let Some(differences) = &inputs.answers.differences else { return Action::Query(Query::Differences) };
    let decision = after_verification(record, differences);
    if let Decision::Fault(fault) = decision {
        return fail(inputs, memory, record, fault);
    }
    // Before a new plan, too: its target has no new deployment any more.
    match (&inputs.answers.trial, decision) {
        (None, _) if is_on_trial(record) => Action::Query(Query::Trial),
        (Some(Err(fault)), _) => fail(inputs, memory, record, fault.clone()),
        (_, Decision::Replan(fault)) => Action::Replan(fault),
        _ => Action::Commit,
    }
}

/// The way back to the previous deployment.
fn fall_back(inputs: &Inputs<'_>, memory: &mut Memory, record: &Record) -> Action {
    if let Some(action) = on_its_way(inputs.answers.shutdown, memory, inputs.now) {
        return action;
    }
    if !inputs.answers.has_fallen_back {
        return Action::Query(Query::FallenBack);
    }
    reboot(inputs, memory, record)
}

/// A target that failed: it waits for another one, for a repaired host, or for the next try.
fn hold(inputs: &Inputs<'_>, memory: &mut Memory, record: &Record) -> Action {
    if inputs.mode == RunMode::FirstBoot && inputs.desired.is_none() && !inputs.is_refused {
        // A person has removed its file: the next start would find nothing to do, either.
        return Action::Wait(Wait { ends: true, ..Wait::plain(None) });
    }
    if held(record) {
        return hold_as_it_came_up(inputs, record);
    }
    if record.is_repair() {
        return Action::LeaveDrift;
    }
    if inputs.is_refused {
        return hold_undone(inputs, memory, None);
    }
    if is_retried_on_change(record) && !inputs.answers.is_watched {
        return Action::Query(Query::WatchSet);
    }
    let Memory { retry, backoff, .. } = memory;
    match retry.next(record, inputs.mode, backoff, inputs.now) {
        Next::Try => {
            retry.end();
            Action::Archive
        }
        Next::Wait(left) => hold_undone(inputs, memory, left),
    }
}

/// The host is as before the update, so its workload comes back meanwhile.
fn hold_undone(inputs: &Inputs<'_>, memory: &mut Memory, left: Option<Duration>) -> Action {
    if inputs.current.is_none() || !inputs.can_drain {
        return wait(left);
    }
    match uncordoned(inputs.answers.uncordoned.as_ref(), memory, inputs.now) {
        Uncordoned::Ask => Action::Query(Query::Uncordoned),
        Uncordoned::Yes => wait(left),
        Uncordoned::Wait(wait) => Action::Wait(Wait { left: sooner(wait.left, left), ..wait }),
    }
}

/// A node that came up wrong is looked at again whenever something changes there.
fn hold_as_it_came_up(inputs: &Inputs<'_>, record: &Record) -> Action {
    if inputs.desired.is_some() && inputs.is_forced && !inputs.is_refused {
        return Action::Begin;
    }
    if is_unproven(record) {
        return wait(None);
    }
    if !inputs.answers.is_watched {
        return Action::Query(Query::WatchSet);
    }
    match &inputs.answers.differences {
        None => Action::Query(Query::Differences),
        Some(differences) if differences.is_empty() => Action::Forgive,
        Some(_) => wait(None),
    }
}
