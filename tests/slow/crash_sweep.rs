//! The whole agent dies at every fail point, one after the other, by a real SIGKILL, on real file systems and a real
//! libostree sysroot; it is started again, and the host has to come to exactly what was asked for.
//!
//! The checks read the disk themselves, and ask the agent nothing.
#![allow(clippy::explicit_write, reason = "past the test runner, which would keep it to itself")]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Instant;

use crate::sweep;
use crate::sweep::play::{Pass, Played, Scenario};
use crate::sweep::random::{self, Counts};
use crate::sweep::ways;

/// Writes a line past the test runner, which would keep it to itself: the points are counted in the open.
macro_rules! tell {
    ($($text:tt)*) => { writeln!(std::io::stderr(), $($text)*).unwrap() };
}

/// So many points are played at least: fewer means that fail points got lost.
const LEAST: u32 = 1000;

/// CRA-001, CRA-002, CRA-009: SIGKILL at every fail point, and machines that go down there, orderly or at once; what follows
/// ends in exactly what was asked for.
/// CRA-005, MCD-221: `current.json` and MCD's `currentconfig` hold the config only then, and as it was given.
/// MCD-214: a failure is taken back to what was there.
///
/// `SWEEP=word` plays only the scenarios with that word in their name. `SWEEP_KILLS=10000` plays on until so many
/// processes were killed: at each point, and the recovery at a point drawn from `SWEEP_SEED`.
#[test]
fn recovers_from_kill_at_every_fail_point() {
    let home = sweep::scratch();
    let begun = Instant::now();
    let only = std::env::var("SWEEP").unwrap_or_default();
    let kills: u32 = number("SWEEP_KILLS", 0).try_into().unwrap();
    let seed = number("SWEEP_SEED", 1);
    let mut scenarios = sweep::plain::scenarios(home.path());
    match sweep::real::scenarios(home.path()) {
        Ok(real) => scenarios.extend(real),
        // A place without namespaces, ostree or skopeo; where everything is built, that is a failure.
        Err(why) if std::env::var_os("CI").is_none() => tell!("NOT PLAYED on a real sysroot: {why}"),
        Err(why) => panic!("no real sysroot can be played here: {why}"),
    }
    scenarios.retain(|scenario| scenario.name.contains(&only));
    assert!(!scenarios.is_empty(), "no scenario has {only:?} in its name");
    let (mut all, mut wrong) = (Played::default(), Vec::new());
    let passes = (0..).map(|number| if kills == 0 { Pass::Each } else { Pass::Twice { seed, number } });
    for (pass, scenario) in passes.flat_map(|pass| scenarios.iter().map(move |scenario| (pass, scenario))) {
        play(scenario, pass, &mut all, &mut wrong);
        let enough =
            if kills == 0 { scenario.name == scenarios.last().unwrap().name } else { all.kills >= kills };
        if enough || (kills > 0 && !wrong.is_empty()) {
            break;
        }
    }
    tell!(
        "in total {} points, {} kills, {} runs, {} wrong, seed {seed}, {:.1} s",
        all.points,
        all.kills,
        all.runs,
        wrong.len(),
        begun.elapsed().as_secs_f64()
    );
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    assert!(!only.is_empty() || all.points >= LEAST, "only {} points", all.points);
}

/// Plays one pass over a scenario and prints a line.
fn play(scenario: &Scenario, pass: Pass, all: &mut Played, wrong: &mut Vec<String>) {
    let since = Instant::now();
    let played = scenario.sweep(pass).unwrap_or_else(|error| {
        wrong.push(error);
        Played::default()
    });
    let again = if pass == Pass::Each { "" } else { ", killed twice" };
    let name = format!("{}{again}", scenario.name);
    tell!(
        "{name:<58} {:>5} points {:>5} kills {:>6} runs {:>6.1} s",
        played.points,
        played.kills,
        played.runs,
        since.elapsed().as_secs_f64()
    );
    all.points += played.points;
    all.kills += played.kills;
    all.runs += played.runs;
}

/// MCD-148, MCD-154: a unit that is masked, given contents, or loses its `[Install]` leaves nothing behind when it goes.
#[test]
fn units_leave_no_trace() {
    let home = sweep::scratch();
    let ways = [ways::units(), ways::companions()].concat();
    let wrong: Vec<String> = [false, true]
        .iter()
        .flat_map(|forced| ways.iter().map(|(name, way)| random::along(home.path(), name, way, *forced)))
        .filter_map(Result::err)
        .collect();
    assert!(wrong.is_empty(), "{} of {} twice\n{}", wrong.len(), ways.len(), wrong.join("\n"));
}

/// The state of a host is a function of its installation and of the config in force: no earlier config, no kill and no user
/// of the host can be seen in it. See `sweep::model`.
///
/// `MODEL_CONFIGS=100000` plays so many configs (500 otherwise, 2,000 in `./test all`); `MODEL_SEED` draws others; a user attacks each fourth host, with
/// `MODEL_ATTACKED=1` each one, with `MODEL_ATTACKED=0` none.
#[test]
fn host_state_depends_on_config_alone() {
    let home = sweep::scratch();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let begun = Instant::now();
    let configs = usize::try_from(number("MODEL_CONFIGS", 500)).unwrap();
    let seed = number("MODEL_SEED", 1);
    let attacked = number("MODEL_ATTACKED", 4);
    let mut all = Counts::default();
    let mut wrong = Vec::new();
    std::thread::scope(|scope| {
        let play = |seed| random::play(home.path(), seed, configs.div_ceil(2), attacked);
        let players = [2 * seed, 2 * seed + 1].map(|seed| scope.spawn(move || play(seed)));
        for player in players {
            let (counts, failed) = player.join().unwrap();
            all += counts;
            wrong.extend(failed);
        }
    });
    tell!("{all:?}, {} wrong, seed {seed}, {:.1} s", wrong.len(), begun.elapsed().as_secs_f64());
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    assert!(all.configs >= configs && all.kills > 0 && all.superseded > 0 && all.reboots > 0, "{all:?}");
    assert!(attacked == 0 || (all.attacked > 0 && all.moves > 0 && all.forced > 0), "{all:?}");
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// What an administrator had before the config stays known when a config that leaves it dies on its way and is superseded: his
/// mask, and his file.
#[test]
fn originals_survive_superseded_config_that_left_them() {
    let home = sweep::scratch();
    let ways = ways::units();
    let (_, way) = ways.iter().find(|(name, _)| *name == "held-masked").unwrap();
    let [none, masked] = [&way[0], &way[1]].map(Clone::clone);
    let file = sweep::model::Wish { files: [("etc/motd", (0o600, false, "one\n"))].into(), ..none.clone() };
    let ways = [("mask", masked, 4), ("file", file, 30)];
    let played = ways.map(|(name, one, points)| {
        let way = [none.clone(), one.clone(), none.clone(), one, none.clone()];
        random::killed(home.path(), name, &way, 2, points)
    });
    let wrong: Vec<String> = played.into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
