//! An exhaustive walk over a small world: two images, three configs, one node; the target changes, the agent dies, the
//! power fails, a person reboots, steps and answers fail, a file drifts, a deployment does not come up, at each
//! point, up to so many misfortunes. Each state is visited once; invariants hold in each, and from each the node comes to
//! rest by itself once the misfortunes are over.

mod firstboot;
mod idle;
mod loader;
mod moves;
mod picture;
mod world;

use std::collections::{BTreeSet, HashSet};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::action::{Action, Query};
use super::answer::DrainStatus;
use super::mode::{Reboots, RunMode};
use super::prefetch::Prefetch;
use crate::model::NodeSettings;
use crate::model::observation::BootCount;
use crate::model::policy::DisruptionPolicy;
use crate::plan::{Drain, PostActions};
use crate::update::ending::has_rebooted;
use crate::update::resume::{held, is_on_trial, is_unproven};
use crate::update::{Ending, Phase, Record, StagedOs};
use moves::{follow, misfortunes};
use picture::Edge;
use world::{Curse, Rules, World, image, spec};

/// So many actions lead to a rest, from anywhere.
const MAX_ACTIONS: usize = 400;

/// So many actions are one try of an update.
const MAX_TRY: usize = 40;

/// States of one walk: a key that distinguishes ever more times is found out.
const MAX_STATES: usize = 1_000_000;

/// Most reboots that the agent may request for one target.
const MAX_REBOOTS: u32 = 12;

fn holds(world: &World, action: &Action, rules: &Rules) {
    if world.is_first_boot() {
        firstboot::holds(world, action, rules);
    }
    if let Action::Prefetch(_) = action {
        assert!(world.record.is_none() && world.current == world.desired, "a prefetch comes last");
    }
    if world.memory.prefetch.is_running() {
        assert!(action.suits_prefetch(), "a prefetch disturbs nothing: {action:?}");
    }
    // After any reboot of the machine now, it comes up.
    let comes_up = world.first.is_none_or(|first| first.comes_up) || world.boots != BootCount::Off;
    assert!(comes_up, "the machine does not come up: {}", world.key());
    if let Action::DropRollback = action {
        let is_well = world.record.is_none() && world.there == world.current;
        // Only a daemon compares the next boot's deployment.
        let is_default = world.first.is_none() || !world.mode.is_service();
        assert!(is_well && is_default, "no deployment is given up on a node that is not well");
    }
    let Some(record) = &world.record else { return };
    let is_desired = world.desired_content().is_none_or(|desired| record.to == spec(desired).target());
    if let Action::Execute = action {
        let is_undo = matches!(record.phase, Phase::RollingBack { .. });
        assert!(is_undo || matches!(record.phase, Phase::Applying { .. }), "no effect without a record");
        assert!(is_undo || is_desired, "a superseded target wins");
    }
    if let Action::Query(Query::Drained) = action {
        assert!(
            record.drained && record.plan.drain() == Drain::Needed,
            "no drain without a plan that needs one"
        );
        assert!(!record.is_undone(), "no drain for an update that is undone");
    }
    if let Action::Query(Query::Staged) = action {
        assert!(is_desired, "a superseded target wins");
    }
    if matches!(action, Action::Commit) && record.drained {
        assert!(world.has_written || !world.is_cordoned, "drained for nothing: {}", world.key());
    }
    if let Action::Commit = action {
        assert!(world.is_content(), "no Done without content: {record:#?}");
    }
    // A new plan begins without a new deployment.
    if matches!(action, Action::Commit | Action::Replan(_)) {
        let proven = world.answers.trial == Some(Ok(()));
        assert!(proven || !is_on_trial(record), "no end without proof: {action:?}");
    }
    if let Action::Reboot = action {
        let planned = matches!(record.plan.after(), PostActions::Reboot { .. });
        let is_back = matches!(record.phase, Phase::FallingBack { .. });
        assert!(planned || is_back, "no reboot without a reason");
        assert!(is_desired || !matches!(record.phase, Phase::Applying { .. }), "a superseded target wins");
        assert!(world.reboots < MAX_REBOOTS, "bounded reboots: {:?} {}", record.fault, world.key());
        let has_left = world.answers.drained == Some(DrainStatus::Yes);
        assert!(has_left || !record.drained, "no reboot under a workload that came back");
        assert!(world.answers.is_armed, "no reboot without finalization");
        let leads_on = record.staged_os() == StagedOs::None
            || world.staged.or(world.first.map(|first| first.image)).is_some();
        assert!(leads_on || is_back || world.is_image(), "no reboot into the old deployment");
    }
}

/// Lets the world continue without misfortunes until nothing happens by itself any more. Under a curse the agent may try again
/// and again: then a fault is reported meanwhile.
fn comes_to_rest(world: &World, rules: &Rules, known: &mut HashSet<String>) {
    let mut world = World { misfortunes: 0, changes: 0, ..world.clone() };
    let (mut path, mut actions, mut reported_at) = (Vec::new(), Vec::new(), None);
    for at in 0..MAX_ACTIONS {
        if world.record.as_ref().is_some_and(|record| record.fault.is_some()) {
            reported_at = Some(at);
        }
        let key = world.key();
        if known.contains(&key) {
            known.extend(path);
            return;
        }
        path.push(key);
        let action = world.decide(rules);
        holds(&world, &action, rules);
        let Some(next) = follow(&world, &action, rules).into_iter().next() else {
            assert!(matches!(&action, Action::Wait(wait) if wait.left.is_none()), "{actions:#?}");
            is_rest(&world, rules, &actions);
            known.extend(path);
            return;
        };
        actions.push(format!("{action:?}"));
        world = next;
    }
    let is_reported = reported_at.is_some_and(|at| at + MAX_TRY > MAX_ACTIONS);
    let waits = actions.iter().filter(|action| action.starts_with("Wait")).count();
    assert!(
        rules.curse.is_some() && is_reported && waits > 10,
        "it does not come to rest: {:#?}",
        &actions[..60]
    );
    known.extend(path);
}

/// Done, or held with a fault that names its ending.
fn is_rest(world: &World, rules: &Rules, actions: &[String]) {
    // A count that could not be ended is tried again at the next event.
    let is_counted = world.boots != BootCount::Off && !world.answers.is_count_over;
    assert!(!is_counted, "boots are counted for nobody: {actions:#?}");
    if world.is_first_boot() && firstboot::is_rest(world, actions) {
        return;
    }
    let is_before = world.record.as_ref().is_none_or(Record::is_undone);
    assert!(
        !(world.is_cordoned && is_before),
        "a node that nothing was changed on is cordoned: {actions:#?}"
    );
    assert!(world.has_written || !world.is_cordoned, "a drain without a write: {actions:#?}");
    let Some(record) = &world.record else {
        assert_eq!(world.current, world.desired, "{actions:#?}");
        // A difference from the current target is drift, which is reported.
        let is_left = world.left.is_some_and(|left| left != world.current);
        assert!(!is_left, "the effects of an update that ended wrong stay: {actions:#?}");
        assert_eq!(
            world.there.image, world.current.image,
            "the deployment of an update that was given up runs: {actions:#?}"
        );
        assert!(
            !world.undone_runs,
            "the deployment of an update that was given up counts as running: {actions:#?}"
        );
        let is_next = world.first.is_none_or(|first| first.image == world.current.image);
        assert!(is_next, "the deployment of an update that was given up boots next: {actions:#?}");
        let prefetched = Prefetch::Settled(rules.prefetch.clone().filter(|_| rules.mode.is_service()));
        assert_eq!(world.memory.prefetch, prefetched, "{actions:#?}");
        let mut again = world.clone();
        again.run_idle(rules);
        assert!(again.record.is_none(), "drift that is to be repaired stays: {actions:#?}");
        return;
    };
    let fault = record.fault.as_ref().unwrap_or_else(|| panic!("no fault: {record:#?} {actions:#?}"));
    assert!(held(record) || record.is_undone(), "{record:#?}");
    assert_eq!(record.to, spec(world.desired).target(), "held for a target that nobody wants: {actions:#?}");
    let ending = Ending::from_fault(fault);
    assert!(ending != Ending::Start, "{fault}");
    assert!(ending.longest().is_none() || has_rebooted(record), "nothing tries {fault} again: {actions:#?}");
    let is_mended = held(record) && !is_unproven(record) && world.is_content() && rules.curse.is_none();
    assert!(!is_mended, "held although it is as wanted: {actions:#?}");
}

/// States and actions of a walk.
#[derive(Debug, Default)]
struct Walk {
    states: usize,
    /// Updates that were given up in their own deployment, which had booted early.
    booted_early: usize,
    edges: BTreeSet<Edge>,
}

impl Walk {
    fn and(mut self, other: Self) -> Self {
        self.states += other.states;
        self.booted_early += other.booted_early;
        self.edges.extend(other.edges);
        self
    }
}

fn walk(rules: &Rules, unlucky: u32, changes: u32) -> Walk {
    let (mut observed, mut known, mut edges) = (HashSet::new(), HashSet::new(), BTreeSet::new());
    let mut booted_early = 0;
    let mut open = match rules.mode {
        RunMode::FirstBoot => World::provisioned(unlucky, changes).into(),
        mode @ (RunMode::Daemon | RunMode::OneShot) => vec![World::new(mode, unlucky, changes)],
    };
    while let Some(mut world) = open.pop() {
        if !observed.insert(world.key()) {
            continue;
        }
        assert!(observed.len() < MAX_STATES, "the world is not small: {}", world.key());
        comes_to_rest(&world, rules, &mut known);
        open.extend(misfortunes(&world, rules));
        let action = world.decide(rules);
        holds(&world, &action, rules);
        booted_early += usize::from(action == Action::Supersede && world.runs_another());
        let (from, by) = (picture::state(&world), picture::name(&action));
        let next = follow(&world, &action, rules);
        edges.extend(next.iter().map(|next| (from, picture::state(next), by)));
        open.extend(next);
    }
    Walk { states: observed.len(), booted_early, edges }
}

const NO_REBOOT: &str = r#"{"apiVersion":"operator.openshift.io/v1","kind":"MachineConfiguration","metadata":{"name":"cluster"},
    "spec":{"nodeDisruptionPolicy":{"files":[{"path":"/etc/motd","actions":[{"type":"None"}]}]}}}"#;

/// State of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    /// No more than it needs.
    Plain,
    /// A boot loader that counts, files that are repaired when they drift, and a deployment before that is given up.
    Rich,
}

impl Node {
    fn settings(self) -> NodeSettings {
        match self {
            Self::Plain => NodeSettings::default(),
            Self::Rich => NodeSettings {
                repair: [idle::repaired()].into(),
                keep_rollback: Some(idle::KEEP_ROLLBACK),
                ..NodeSettings::default()
            },
        }
    }
}

/// All ways to run the agent, with so many misfortunes and changes of the target; prints the number of states.
#[expect(clippy::print_stdout, reason = "the number of states is for who runs the test")]
fn walk_all(node: Node, curse: Option<Curse>, misfortunes: u32, changes: u32) -> Walk {
    let modes = [
        (RunMode::Daemon, Reboots::Requested),
        (RunMode::OneShot, Reboots::Requested),
        (RunMode::OneShot, Reboots::Left),
    ];
    let defaults = DisruptionPolicy::defaults();
    let no_reboot = DisruptionPolicy::parse(NO_REBOOT.as_bytes(), "the policy").unwrap();
    let runs = modes.iter().flat_map(|mode| [&defaults, &no_reboot].map(|policy| (*mode, policy.clone())));
    let first = ((RunMode::FirstBoot, Reboots::Requested), DisruptionPolicy::none());
    let walks = runs.chain([first]).map(|((mode, reboots), policy)| {
        let counts = node == Node::Rich;
        let (node_settings, prefetch) = (node.settings(), None);
        let rules = Rules { mode, reboots, policy, node_settings, counts, curse, prefetch };
        walk(&rules, misfortunes, changes)
    });
    let all = walks.fold(Walk::default(), Walk::and);
    println!(
        "{} states of a {node:?} node: {misfortunes} misfortunes, {changes} changes of the target, always {curse:?}",
        all.states
    );
    all
}

const CURSES: [Curse; 11] = [
    Curse::Pull,
    Curse::Step,
    Curse::Undo,
    Curse::TakenBack,
    Curse::CutShort,
    Curse::NotFinalized,
    Curse::Otherwise,
    Curse::Ill,
    Curse::NoWayBack,
    Curse::NeverUp,
    Curse::Drifts,
];

/// The node, its permanent misfortune, misfortunes and changes of the target.
type Part = (Node, Option<Curse>, u32, u32);

fn walk_fortunes() -> Walk {
    in_parallel(&[
        (Node::Plain, None, 2, 1),
        (Node::Rich, None, 2, 0),
        (Node::Rich, None, 1, 1),
        (Node::Plain, None, 1, 2),
    ])
}

fn walk_under_curses() -> Walk {
    in_parallel(&CURSES.map(|curse| (Node::Rich, Some(curse), 1, 1)))
}

/// Walks on all processors.
#[expect(clippy::disallowed_methods, reason = "a test: its walks have nothing in common")]
fn in_parallel(parts: &[Part]) -> Walk {
    let next = AtomicUsize::new(0);
    let some = || {
        let part = || parts.get(next.fetch_add(1, Ordering::Relaxed));
        let walks = std::iter::from_fn(part);
        walks.fold(Walk::default(), |all, (node, curse, misfortunes, changes)| {
            all.and(walk_all(*node, *curse, *misfortunes, *changes))
        })
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..workers).map(|_| scope.spawn(some)).collect();
        all.into_iter().fold(Walk::default(), |all, one| all.and(one.join().unwrap()))
    })
}

/// Walk with success, and with misfortunes now and then.
static FORTUNES: LazyLock<Walk> = LazyLock::new(walk_fortunes);

/// Walk with permanent misfortunes.
static CURSED: LazyLock<Walk> = LazyLock::new(walk_under_curses);

#[test]
fn every_state_keeps_its_invariants_and_leads_to_rest() {
    assert!(FORTUNES.states > 10_000);
    assert!(FORTUNES.booted_early > 100, "{}", FORTUNES.booted_early);
}

#[test]
fn permanent_failure_is_bounded_and_reported() {
    assert!(CURSED.states > 10_000);
}

/// `UPDATE_GOLDENS=1` writes it.
#[test]
fn picture_of_states_is_walks() {
    picture::compare(&FORTUNES.edges.union(&CURSED.edges).copied().collect());
}

/// An image is downloaded ahead when the node is idle, and never beside an update.
#[test]
fn prefetch_gives_way_to_every_update() {
    let rules = Rules {
        mode: RunMode::Daemon,
        reboots: Reboots::Requested,
        policy: DisruptionPolicy::defaults(),
        node_settings: NodeSettings::default(),
        counts: false,
        curse: None,
        prefetch: Some(image('2')),
    };
    assert!(walk(&rules, 1, 1).states > 1000);
}

/// `cargo test -p machine-config-core larger_world -- --ignored --nocapture`
#[test]
#[ignore = "minutes"]
fn every_state_of_larger_world_holds_invariants() {
    assert!(walk_all(Node::Plain, None, 3, 2).states > 100_000);
    assert!(walk_all(Node::Rich, None, 2, 2).states > 100_000);
}
