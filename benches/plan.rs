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

fn median<T>(work: impl Fn() -> T) -> f64 {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let since = Instant::now();
            let made = work();
            let took = since.elapsed();
            drop(made);
            took
        })
        .collect();
    times.sort();
    times.get(ROUNDS / 2).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
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
    let (read, checked, unchecked) =
        (median(|| parse(&new)), median(|| spec(&parsed)), median(|| committed(&parsed)));
    let planned = median(|| plan(&from, &to, &facts, &policy));
    println!(
        "a config of {:.2} MB with 180 files, all changed: parse {read:.2} ms, spec {checked:.2} ms, plan {planned:.2} ms",
        f64::from(u32::try_from(new.len()).unwrap_or(u32::MAX)) / 1e6,
    );
    println!(
        "Ignition's rules: spec without them {unchecked:.2} ms; they are {:.0} % of parse, spec and plan",
        100.0 * (checked - unchecked) / (read + checked + planned),
    );
}
