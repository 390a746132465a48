//! The whole agent dies at every fail point, one after the other, by a real SIGKILL, on real file systems and a real
//! libostree sysroot; it is started again, and the host has to come to exactly what was asked for.
//!
//! What is checked is read from the disk by the test, not asked of the agent.

#![cfg(feature = "backend-ostree")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    unreachable_pub,
    reason = "a test looks at the machine from outside, and tells what it played"
)]

mod sweep;

use std::io::Write as _;
use std::time::Instant;

use sweep::play::{Played, Scenario};

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
#[test]
fn dying_anywhere_does_no_harm() {
    let home = sweep::scratch();
    let begun = Instant::now();
    let (mut all, mut wrong) = (Played::default(), Vec::new());
    let only = std::env::var("SWEEP").unwrap_or_default();
    let mut play = |scenario: &Scenario| {
        if !scenario.name.contains(&only) {
            return;
        }
        let since = Instant::now();
        let played = scenario.sweep(begun).unwrap_or_else(|error| {
            wrong.push(error);
            Played::default()
        });
        let seconds = since.elapsed().as_secs_f64();
        tell!("{:<44} {:>5} points {:>6} runs {seconds:>6.1} s", scenario.name, played.points, played.runs);
        all.points += played.points;
        all.runs += played.runs;
    };
    for scenario in sweep::plain::scenarios(home.path()) {
        play(&scenario);
    }
    match sweep::real::scenarios(home.path()) {
        Ok(scenarios) => scenarios.iter().for_each(&mut play),
        // A place without namespaces, ostree or skopeo; where everything is built, that is a failure.
        Err(why) if std::env::var_os("CI").is_none() => tell!("NOT PLAYED on a real sysroot: {why}"),
        Err(why) => panic!("no real sysroot can be played here: {why}"),
    }
    tell!("in total {} points, {} runs, {:.1} s", all.points, all.runs, begun.elapsed().as_secs_f64());
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    assert!(!only.is_empty() || all.points >= LEAST, "only {} points", all.points);
}
