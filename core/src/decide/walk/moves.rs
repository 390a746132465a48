//! Successors of a state: each action as the agent carries it out, with each possible answer.

use std::time::Duration;

use super::firstboot::File;
use super::idle;
use super::world::{Content, Curse, Rules, TARGETS, World, fault, name, spec};
use crate::decide::action::{Action, Meanwhile, Query, Wait};
use crate::decide::answer::{DrainStatus, UncordonStatus};
use crate::decide::down::{Down, Shutdown};
use crate::decide::inputs::Answers;
use crate::model::node_settings::HealthRules;
use crate::model::observation::{BootCount, Finalization};
use crate::model::{Facts, FaultClass, Timestamp, UpdateId};
use crate::plan::differences::differences;
use crate::plan::plan;
use crate::update::ending::RetryTrigger;
use crate::update::resume::{BOOT_FAILED, runs_another, unproven};
use crate::update::{Begun, Fault, Phase, Record, StagedOs, Transition, Trial};

/// Returns the states after anything but the agent's own next action.
pub(super) fn misfortunes(world: &World, rules: &Rules) -> Vec<World> {
    let mut all = Vec::new();
    if world.first_boot.file == File::Renamed {
        return all;
    }
    if world.is_first_boot() {
        world.file_changes(&mut all);
    }
    if world.changes > 0 && world.first_boot.file == File::Good {
        for desired in TARGETS.into_iter().filter(|desired| *desired != world.desired) {
            let mut other =
                World { desired, changes: world.changes - 1, reboots: 0, wrong: 0, ..world.clone() };
            other.memory.backoff.reset();
            other.answers = Answers::default();
            other.first_boot.needed = u32::from(world.is_first_boot());
            all.push(other);
        }
    }
    // A person repairs the host.
    if world.there.files == 'x' && world.record.is_some() {
        let mut mended = World { answers: Answers::default(), ..world.clone() };
        mended.there.files = world.target().files;
        mended.memory.retry.request(RetryTrigger::Host);
        all.push(mended);
    }
    let Some(left) = world.misfortunes.checked_sub(1) else { return all };
    let world = World { misfortunes: left, ..world.clone() };
    // The agent dies.
    let mut started = world.clone();
    started.start();
    all.push(started);
    let is_idle = world.record.is_none() && !world.is_first_boot();
    if is_idle && world.there.files != 'x' && !rules.node_settings.repair.is_empty() {
        all.push(world.clone().drifts());
    }
    // The power fails; a person reboots.
    all.push(world.clone().boot(Some(Finalization::CutShort)));
    if world.staged.is_some() {
        // A person drops it (`rpm-ostree cleanup -p`), and the agent looks again. How often is a table of its own: here it is the last
        // misfortune, since the count of it would double the states of each walk.
        if left == 0 {
            all.push(World { staged: None, answers: Answers::default(), ..world.clone() });
        }
        // A person starts the user space alone again.
        all.push(world.clone().boot_softly_in_vain());
    }
    all.push(world.boot(None));
    all
}

/// Returns the states after an action: the good answer first. A curse follows each time, and costs nothing.
pub(super) fn follow(world: &World, action: &Action, rules: &Rules) -> Vec<World> {
    if let Some(curse) = rules.curse {
        let free = World { misfortunes: world.misfortunes + 1, ..world.clone() };
        let cursed =
            outcomes(&free, action.clone(), rules).into_iter().filter(|(why, _)| *why == Some(curse));
        let cursed: Vec<World> = cursed.map(|(_, world)| world).collect();
        if !cursed.is_empty() {
            return cursed;
        }
    }
    outcomes(world, action.clone(), rules).into_iter().map(|(_, world)| world).collect()
}

/// A world that may follow, and the curse that would always bring it about.
pub(super) type Outcome = (Option<Curse>, World);

impl World {
    fn archive(&mut self) {
        if !self.record.as_ref().unwrap().is_undone() {
            self.left = Some(self.target());
        } else if self.runs_another() {
            self.undone_runs = true;
        }
        self.record = None;
    }

    /// Returns true if another deployment runs than the one in which the open update began.
    pub(super) fn runs_another(&self) -> bool {
        self.record.as_ref().is_some_and(|record| runs_another(record, &self.observe()))
    }

    /// The node loses its workload.
    fn cordon(&mut self) {
        self.has_written &= self.is_cordoned;
        self.is_cordoned = true;
    }
}

fn outcomes(world: &World, action: Action, rules: &Rules) -> Vec<Outcome> {
    let mut good = world.clone();
    // Without a drain it means nothing, and would only make more states.
    good.has_written |= good.is_cordoned && matches!(action, Action::Execute | Action::Reboot);
    let world = &good.clone();
    let bad = world.misfortunes.checked_sub(1).map(|misfortunes| World { misfortunes, ..world.clone() });
    match action {
        Action::Query(query) => {
            let ill = bad.map(|bad| ill_answered(bad, query)).unwrap_or_default();
            return std::iter::once((None, answered(good, query, rules))).chain(ill).collect();
        }
        Action::Begin => {
            return either((None, begin(good, rules)), bad.map(|bad| (None, bad.handle_error())));
        }
        Action::Execute => return execute(good, bad),
        Action::Reboot => return reboot(good, bad, rules),
        Action::Wait(how) if how.ends && world.is_first_boot() => {
            let ended = (world.first_boot.file != File::Renamed).then(|| good.completed());
            return ended.map(|world| (None, world)).into_iter().collect();
        }
        Action::Wait(how) => return wait(good, bad, how),
        Action::Resume => good.record.as_mut().unwrap().boot_id = world.boot_id(),
        Action::Move(event) => good.moved(&event),
        Action::Supersede | Action::TakeBack => good.moved(&Transition::RollBack),
        Action::Restage => {
            good.record.as_mut().unwrap().boot_id = world.boot_id();
            good.moved(&Transition::Stage);
        }
        Action::RestageDropped => {
            good.record.as_mut().unwrap().dropped += 1;
            good.moved(&Transition::Stage);
        }
        Action::Fail(fault, way) if fault.reason == BOOT_FAILED => {
            return boot_failed(&good, bad, &fault, way.as_ref());
        }
        Action::Fail(fault, way) => good.fail(fault, way.as_ref()),
        Action::Replan(_) => {
            good.left = Some(good.target());
            good.wrong += 1;
            good.record = None;
        }
        Action::Commit => return commit(good, bad),
        Action::Archive => good.archive(),
        Action::Forgive => good.record.as_mut().unwrap().fault = None,
        Action::RebootInVain { .. } | Action::Requeue => {}
        Action::Prefetch(image) => good.memory.prefetch.begin(image),
        Action::EndPrefetch => good.memory.prefetch.interrupt(),
        Action::LeaveReboot(event) => {
            if let Some(event) = event {
                good.moved(&event);
            }
            good.record.as_mut().unwrap().reboot_left = Some(world.boot_id());
        }
        Action::EndForReboot => good = good.boot(None),
        Action::LeaveDrift => good.leave_drift(),
        Action::DropRollback => return idle::drop_rollback(good, bad),
    }
    good.answers = Answers::default();
    vec![(None, good)]
}

fn commit(mut good: World, bad: Option<World>) -> Vec<Outcome> {
    let record = good.record.as_ref().unwrap();
    let is_repair = record.is_repair();
    if record.staged_os() != StagedOs::None {
        good.boots = BootCount::Off;
    }
    (good.current, good.left, good.wrong) = (good.target(), None, 0);
    good.undone_runs = false;
    good.first_boot.provisioned = good.is_first_boot().then_some(good.current);
    good.record = None;
    good.memory.backoff.reset();
    let good = good.without_question();
    if is_repair { idle::repair_done(good, bad) } else { vec![(None, good)] }
}

/// The deployment that runs is made the first of the menu, which may fail; or the agent dies in between.
fn boot_failed(good: &World, bad: Option<World>, fault: &Fault, way: Option<&Transition>) -> Vec<Outcome> {
    let failed = |world: &World, does: fn(&mut World)| {
        let mut world = world.clone();
        does(&mut world);
        world.fail(fault.clone(), way);
        world
    };
    let mut all = vec![(None, failed(good, World::stay))];
    if let Some(mut bad) = bad {
        all.push((Some(Curse::NoWayBack), failed(&bad, World::arm_count)));
        bad.stay();
        bad.start();
        all.push((None, bad));
    }
    all
}

fn either(good: Outcome, bad: Option<Outcome>) -> Vec<Outcome> {
    std::iter::once(good).chain(bad).collect()
}

/// Plans from the current target, or from the contents after an update that ended wrong.
fn begin(mut world: World, rules: &Rules) -> World {
    if world.record.take().is_some() {
        world.left = Some(world.there);
    }
    if world.is_first_boot() {
        // No agent has committed the present state.
        (world.current, world.left) = (world.there, None);
    }
    let is_trusted = world.left.is_none() && !world.undone_runs;
    let (from, to) = (spec(if is_trusted { world.current } else { world.there }), spec(world.desired));
    let facts = Facts { observed: world.observe(), ..Facts::assumed(&from, &to).unwrap() };
    let plan = plan(&from, &to, &facts, &rules.policy).unwrap();
    world.answers = Answers::default();
    if plan.is_empty() {
        (world.current, world.left, world.undone_runs) = (world.desired, None, false);
        world.first_boot.provisioned = world.is_first_boot().then_some(world.desired);
        return world;
    }
    let origin = Some(name(world.deployment));
    let id = UpdateId::new("1").unwrap();
    let mut record = Record::new(id, plan, world.boot_id(), origin, Timestamp::default());
    record.attempts = world.wrong;
    record.forced = world.current == world.desired;
    record.provisioning = world.is_first_boot();
    world.record = Some(record);
    world
}

fn execute(mut good: World, bad: Option<World>) -> Vec<Outcome> {
    let (from, to) = (good.left.unwrap_or(good.current), good.target());
    let record = good.record.as_ref().unwrap();
    let is_undo = matches!(record.phase, Phase::RollingBack { .. });
    if is_undo {
        good.moved(&Transition::UndoDone);
        let record = good.record.as_ref().unwrap();
        if record.is_undone() {
            // A repair's undo restores the drifted state.
            let files = if record.is_repair() { 'x' } else { from.files };
            (good.there.files, good.staged) = (files, None);
            if record.staged_os() != StagedOs::None {
                // One that was finalized, and did not boot, comes behind the one that runs.
                good.first = None;
            }
        }
    } else {
        good.there.files = to.files;
        good.moved(&Transition::BatchDone);
    }
    good.answers = Answers::default();
    let mut all = vec![(None, good)];
    let Some(mut bad) = bad else { return all };
    bad.there.files = 'x';
    if is_undo {
        all.push((Some(Curse::Undo), bad.failed(fault(FaultClass::Degraded, "Io"))));
        return all;
    }
    for reason in ["Io", "InvalidPath"] {
        all.push((Some(Curse::Step), bad.clone().failed(fault(FaultClass::Degraded, reason))));
    }
    all
}

/// The machine goes down and comes up; or its staged deployment is not finalized; or the shutdown is canceled.
fn reboot(mut good: World, bad: Option<World>, rules: &Rules) -> Vec<Outcome> {
    let requested = |world: &mut World| {
        let boot_id = world.boot_id();
        let record = world.record.as_ref().unwrap();
        let is_new =
            record.staged_os() != StagedOs::None && !matches!(record.phase, Phase::FallingBack { .. });
        if rules.counts && is_new {
            world.arm_count();
        }
        world.record.as_mut().unwrap().reboot_left = None;
        world.moved(&Transition::Reboot { boot_id });
        world.memory.down = Down::requested(world.now);
        world.answers = Answers::default();
    };
    requested(&mut good);
    good.reboots += 1;
    let mut all = vec![(None, good.boot(None))];
    if let Some(mut bad) = bad {
        requested(&mut bad);
        let failed = Finalization::Failed { said: "s".to_owned() };
        all.push((Some(Curse::TakenBack), bad.clone()));
        bad.reboots += 1;
        if bad.staged.is_some() && bad.record.as_ref().is_some_and(|record| record.reboots == 1) {
            all.push((None, bad.clone().boot_softly_in_vain()));
        }
        all.push((Some(Curse::CutShort), bad.clone().boot(Some(Finalization::CutShort))));
        all.push((Some(Curse::NotFinalized), bad.clone().boot(Some(failed))));
        if rules.counts && bad.staged.is_some() {
            all.push((Some(Curse::NeverUp), bad.clone().boot_into_broken()));
        }
        // It comes up otherwise than the config.
        let mut other = bad.boot(None);
        other.there.files = 'x';
        all.push((Some(Curse::Otherwise), other));
    }
    all
}

/// Time passes; a person or an event requests another try meanwhile.
fn wait(mut good: World, mut bad: Option<World>, how: Wait) -> Vec<Outcome> {
    let mut all = Vec::new();
    if let Meanwhile::Undoing(fault) = how.meanwhile {
        for world in bad.iter_mut().chain([&mut good]) {
            world.record.as_mut().unwrap().blame(fault.clone(), Timestamp::default());
        }
    }
    let Answers { drained, uncordoned, is_blocked, .. } = &good.answers;
    let pending = matches!(drained, Some(DrainStatus::Waiting { .. }))
        || matches!(uncordoned, Some(UncordonStatus::Waiting { .. }))
        || *is_blocked == Some(true);
    good.memory.retry.answered();
    good.answers = Answers::default();
    if good.memory.prefetch.is_running() {
        all.extend(bad.clone().map(|mut world| {
            world.memory.prefetch.fail(world.now);
            world.answers = Answers::default();
            (None, world)
        }));
        good.memory.prefetch.succeed();
        all.insert(0, (None, good));
    } else if let Some(left) = how.left {
        good.now += left.max(Duration::from_millis(1));
        all.push((None, good));
    } else if pending {
        // The awaited event happens.
        all.push((None, good));
    }
    for trigger in [RetryTrigger::Host, RetryTrigger::Rewritten, RetryTrigger::Person] {
        all.extend(bad.clone().map(|mut world| {
            world.answers = Answers::default();
            world.memory.retry.answered();
            world.memory.retry.request(trigger);
            (None, world)
        }));
    }
    all
}

/// The answer as it is when all goes well, with the effect of the question.
fn answered(mut world: World, query: Query, rules: &Rules) -> World {
    match query {
        Query::Shutdown => world.answers.shutdown = Some(Shutdown { preparing: false, was_begun: true }),
        Query::Blocks => world.answers.is_blocked = Some(false),
        Query::Drained => {
            world.answers.drained = Some(DrainStatus::Yes);
            world.cordon();
            world.record.as_mut().unwrap().draining = None;
        }
        Query::Uncordoned => {
            world.answers.uncordoned = Some(UncordonStatus::Yes);
            (world.is_cordoned, world.has_written) = (false, false);
        }
        Query::WatchSet => world.answers.is_watched = true,
        Query::CountOver => {
            world.stay();
            world.answers.is_count_over = true;
        }
        Query::Staged => {
            world.staged = Some(world.target().image);
            world.answers.is_staged = true;
        }
        Query::Armed => world.answers.is_armed = true,
        Query::Finalization => {
            let ended = world.finalization.clone().unwrap_or(Finalization::CutShort);
            let boot_id = world.boot_id();
            world.record.as_mut().unwrap().came_back(&ended, &boot_id);
            world.answers.finalization = Some(ended);
        }
        Query::Differences => {
            world.answers.differences = Some(differences(&spec(world.target()), &world.observe()));
        }
        Query::Trial => {
            world.begin_trial();
            world.answers.trial = Some(Ok(()));
        }
        Query::FallenBack => {
            let before = world.before.expect("the deployment before was given up too early");
            assert_eq!(world.record.as_ref().unwrap().origin, Some(name(before.number)));
            (world.first, world.boots) = (Some(before), BootCount::Off);
            world.answers.has_fallen_back = true;
        }
        Query::Rest => {
            world.run_idle(rules);
        }
    }
    world
}

/// The answers when something goes wrong.
fn ill_answered(mut world: World, query: Query) -> Vec<Outcome> {
    let why = || "w".to_owned();
    match query {
        Query::Shutdown => {
            world.answers.shutdown = Some(Shutdown { preparing: false, was_begun: false });
        }
        Query::Blocks => world.answers.is_blocked = Some(true),
        Query::Drained => {
            let begun = Begun { boot_id: world.boot_id(), since: micros(world.now) };
            world.answers.drained = Some(DrainStatus::Waiting { why: why() });
            world.cordon();
            world.record.as_mut().unwrap().draining.get_or_insert(begun);
        }
        Query::Uncordoned => world.answers.uncordoned = Some(UncordonStatus::Waiting { why: why() }),
        Query::Staged => {
            let faults = [(FaultClass::Retry, "ImagePullFailed"), (FaultClass::Degraded, "ImageNotBootable")];
            let failed = |(class, reason)| world.clone().failed(fault(class, reason));
            return faults.map(|fault| (Some(Curse::Pull), failed(fault))).into();
        }
        Query::Finalization => return Vec::new(),
        Query::CountOver => {
            // The action that ends the count comes after the one that makes it needless.
            world.answers.is_count_over = true;
            return vec![(Some(Curse::NoWayBack), world)];
        }
        Query::Armed | Query::Differences | Query::WatchSet | Query::Rest => {
            world = world.handle_error();
        }
        Query::Trial => {
            world.begin_trial();
            let record = world.record.as_ref().unwrap();
            let fault = unproven(record, &world.observe(), &["u".to_owned()], &HealthRules::default());
            world.answers.trial = Some(Err(fault));
            return vec![(Some(Curse::Ill), world)];
        }
        Query::FallenBack => {
            world.record.as_mut().unwrap().fallbacks += 1;
            world.memory.later(world.now);
            world.answers = Answers::default();
            return vec![(Some(Curse::NoWayBack), world)];
        }
    }
    vec![(None, world)]
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap()
}

impl World {
    fn begin_trial(&mut self) {
        let trial = Trial { boot_id: self.boot_id(), since: micros(self.now) };
        self.record.as_mut().unwrap().trial = Some(trial);
    }

    /// Returns the contents that the open update leads to.
    pub(super) fn target(&self) -> Content {
        let record = self.record.as_ref().unwrap();
        let to = TARGETS.into_iter().find(|target| spec(*target).target() == record.to);
        to.expect("one of the targets")
    }

    /// Returns true if the image of the open update runs.
    pub(super) fn is_image(&self) -> bool {
        self.there.image == self.target().image
    }

    /// Returns true if the host is as the open update's spec.
    pub(super) fn is_content(&self) -> bool {
        let record = self.record.as_ref().unwrap();
        let image = record.staged_os() == StagedOs::None || self.there.image == self.target().image;
        image && self.there.files == self.target().files
    }
}
