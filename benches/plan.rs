//! Cost of deciding: reading a config of 1.5 MB, its spec, and the plan to it.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a benchmark prints, and ends at the first surprise"
)]

#[path = "../core/tests/support/model_host.rs"]
mod model_host;
#[path = "../tests/support/plain_host.rs"]
mod plain_host;

use std::time::{Duration, Instant};

use machine_config_agent::model::observation::EmbeddedConfig;
use machine_config_agent::model::{DisruptionPolicy, HostSpec, MachineConfig};
use machine_config_agent::plan::plan;

const ROUNDS: usize = 21;

/// Most of a plan that Ignition's rules may cost, in percent.
const RULES: f64 = 20.0;

fn timed<T>(work: impl Fn() -> T) -> Duration {
    let since = Instant::now();
    let made = work();
    let took = since.elapsed();
    drop(made);
    took
}

/// Milliseconds of the middle one.
fn middle(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
}

fn median<T>(work: impl Fn() -> T) -> f64 {
    middle((0..ROUNDS).map(|_| timed(&work)).collect())
}

fn main() {
    // `cargo test --benches` runs this too: then it only has to compile and start.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    println!("\n`cargo bench --bench plan`, medians of {ROUNDS}");
    let config = |name: &str| plain_host::config(name, 180, 7000);
    let (old, new) = (config("rendered-a"), config("rendered-b"));
    let parse = |text: &str| MachineConfig::parse(text.as_bytes(), "bench").expect("the config is valid");
    let (old, parsed) = (parse(&old), parse(&new));
    let spec = |config: &MachineConfig| config.spec(None).expect("the config has a spec");
    let (from, to): (HostSpec, HostSpec) = (spec(&old), spec(&parsed));
    // A committed config is read without Ignition's rules.
    let committed = |config: &MachineConfig| config.committed_spec(None).expect("the config has a spec");
    let facts = model_host::ModelHost::holding(&from).facts(&from, &to, EmbeddedConfig::Unknown);
    let policy = DisruptionPolicy::defaults();
    assert_eq!(plan(&from, &to, &facts, &policy).expect("there is a plan").steps().len(), 180);
    let read = median(|| parse(&new));
    // In turns: what else the machine does meets both.
    let turns = (0..ROUNDS).map(|_| (timed(|| spec(&parsed)), timed(|| committed(&parsed))));
    let (checked, unchecked): (Vec<_>, Vec<_>) = turns.unzip();
    let (checked, unchecked) = (middle(checked), middle(unchecked));
    let planned = median(|| plan(&from, &to, &facts, &policy));
    println!(
        "a config of {:.2} MB with 180 files, all changed: parse {read:.2} ms, spec {checked:.2} ms, plan {planned:.2} ms",
        f64::from(u32::try_from(new.len()).unwrap_or(u32::MAX)) / 1e6,
    );
    let share = 100.0 * (checked - unchecked) / (read + checked + planned);
    println!(
        "Ignition's rules: spec without them {unchecked:.2} ms; they are {share:.0} % of parse, spec and plan (limit: {RULES:.0} %)"
    );
    assert!(share <= RULES, "Ignition's rules cost more than {RULES:.0} % of a plan");
}
