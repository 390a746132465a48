//! Cost of one decision over 5,000 nodes.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and ends at the first surprise"
)]

use std::collections::BTreeMap;
use std::time::Instant;

use machine_config_controller::api::RolloutPolicySpec;
use machine_config_controller::api::pool::Configuration;
use machine_config_controller::rollout::{
    AgentState, Census, Clock, Node, NodeWrites, Pair, Policy, Pool, RolloutInput, rollout,
};
use serde_json::json;

const ROUNDS: usize = 101;

fn main() {
    // `cargo test --benches` runs this too: then it only has to compile and start.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let node = |number: usize| {
        let pair = Pair::new("rendered-worker-0123456789abcdef0123456789abcdef", None);
        Node {
            name: format!("node-{number:05}"),
            zone: Some(format!("zone-{}", number % 3)),
            ready: true,
            current: pair.clone(),
            desired: pair,
            state: AgentState::Done,
            ..Node::default()
        }
    };
    let nodes: Vec<Node> = (0..5000).map(node).collect();
    let name = Some("rendered-worker-fedcba9876543210fedcba9876543210".to_owned());
    let plain = Pool { configuration: Configuration { name, source: None }, ..Pool::default() };
    let spec: RolloutPolicySpec =
        serde_json::from_value(json!({"canary": {"nodes": "1%"}, "nodeTimeout": "2h"})).unwrap();
    let policy = Policy { spec, ..Policy::default() };
    let with_policy = Pool { policies: vec![policy], ..plain.clone() };
    for (name, pool) in [("without a policy", &plain), ("with a policy", &with_policy)] {
        let now = "2026-11-23T12:00:00Z".parse().unwrap();
        let input = RolloutInput {
            pool,
            conflicts: &[],
            costs: &BTreeMap::new(),
            now,
            clock: &Clock::default(),
            writes: &NodeWrites::default(),
        };
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let since = Instant::now();
            let decided = rollout(&input, &mut Census::new(&nodes));
            times.push(since.elapsed());
            drop(decided);
        }
        times.sort_unstable();
        let median = times.get(ROUNDS / 2).unwrap().as_secs_f64() * 1000.0;
        println!("5,000 nodes, {name}: {median:.2} ms");
    }
}
