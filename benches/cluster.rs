//! What the agent costs a cluster, against a real API server: requests, connections, memory, and the time from the
//! target's annotation to `Done`. MCD's numbers stand beside it; they were measured the same way, once
//! (`docs/figures.md` says where). Then a rollout over many agents against one API server.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    clippy::indexing_slicing,
    reason = "a benchmark looks at processes from outside, reckons and prints"
)]

#[path = "../tests/cluster/mod.rs"]
mod cluster;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use cluster::plain_host::{bare, boot};
use cluster::{
    Agent, AgentOptions, Bench, Gates, Identity, MachineConfigBuilder, annotation, create_node, key,
    node_until, object_api, retarget,
};
use futures_util::future::join_all;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

/// MCD's numbers: a file-only update without a reboot, and the node at rest.
const MCD_REQUESTS: f64 = 24.0;
const MCD_DONE: f64 = 12.25;
const MCD_RSS: f64 = 83.0;
const MCD_PEAK: f64 = 95.0;

/// MachineConfigs that lie around, of this size each: what MCD was measured with.
const OTHERS: usize = 48;
const OTHER_BYTES: usize = 245 * 1024;

/// How long the idle agent is looked at.
const IDLE: Duration = Duration::from_secs(60);
const ROUNDS: usize = 9;

/// Agents of the rollout; `MCA_FLEET` sets another number.
const FLEET: usize = 200;

fn main() {
    // `cargo test --benches` runs this too: then it only has to compile and start.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let bench = Bench::private(Gates::Default);
        println!("\n`cargo bench --bench cluster`, against {}", server());
        one(&bench).await;
        fleet(&bench).await;
    });
}

fn server() -> &'static str {
    if std::env::var_os("KUBEBUILDER_ASSETS").is_some() { "kube-apiserver" } else { "tests/apiserver" }
}

/// A number of `/proc/PID/status`, in mebibytes.
fn mebibytes(pid: u32, field: &str) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    line.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0) / 1024.0
}

/// Established TCP connections of a process.
fn connections(pid: u32) -> usize {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let sockets: Vec<String> = links
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap();
    let rows = table.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row[3] == "01" && sockets.iter().any(|socket| socket == row[9])).count()
}

/// Bytes that went over the processes' connections so far, out and in (`ss`, of iproute2).
fn bytes(pids: &[u32]) -> Option<(f64, f64)> {
    let output = std::process::Command::new("ss").args(["-tinHp", "state", "established"]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let (mut sent, mut received) = (0.0, 0.0);
    for pair in lines.windows(2) {
        if !pids.iter().any(|pid| pair[0].contains(&format!("pid={pid},"))) {
            continue;
        }
        let number = |name: &str| {
            let word = pair[1].split_whitespace().find_map(|word| word.strip_prefix(name));
            word.and_then(|word| word.parse().ok()).unwrap_or(0.0)
        };
        sent += number("bytes_sent:");
        received += number("bytes_received:");
    }
    Some((sent, received))
}

async fn policy(client: &kube::Client) {
    let policy = json!({
        "apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
        "metadata": { "name": "cluster" },
        "spec": { "managementState": "Managed", "nodeDisruptionPolicy": {
            "files": [{ "path": "/etc/lab", "actions": [{ "type": "None" }] }] } },
    });
    let api = object_api(client, "machineconfigurations");
    api.create(&PostParams::default(), &serde_json::from_value(policy).unwrap()).await.unwrap();
}

fn config(name: &str, contents: &str) -> MachineConfigBuilder {
    let filler = (0..60).fold(MachineConfigBuilder::new(name), |config, number| {
        config.file(&format!("/etc/lab/file-{number}.conf"), 0o644, &format!("number {number}\n").repeat(50))
    });
    filler.file("/etc/lab/probe.conf", 0o644, contents)
}

fn agent_of(bench: &Bench, node: &str, root: &Path) -> Agent {
    agent_in(bench, node, root, 1)
}

fn agent_in(bench: &Bench, node: &str, root: &Path, number: u32) -> Agent {
    bare(root);
    boot(root, number);
    fs::write(root.join("etc/os-release"), "ID=rhcos\nVERSION_ID=\"9.6\"\n").unwrap();
    let kubeconfig = root.join("kubeconfig");
    bench.write_kubeconfig(&kubeconfig, &Identity::Kubelet(node.to_owned()));
    let options = AgentOptions::new(&kubeconfig, node, root)
        .env("MALLOC_ARENA_MAX", "1")
        .env("MALLOC_TRIM_THRESHOLD_", "131072");
    Agent::start(&options)
}

async fn done(client: &kube::Client, node: &str, config: &str) {
    node_until(client, node, "Done", |node| {
        annotation(node, "state") == Some("Done") && annotation(node, "currentConfig") == Some(config)
    })
    .await;
}

/// What one node costs.
struct One {
    connected: f64,
    done: f64,
    requests: f64,
    watches: usize,
    idle: usize,
    pid: u32,
}

async fn one(bench: &Bench) {
    let client = bench.client("cluster-bench").await;
    let dir = tempfile::tempdir_in("target").unwrap();
    let big = "x".repeat(OTHER_BYTES * 3 / 4);
    prepare(&client, &big).await;
    // The first config on a host that was never managed is brought like any other.
    let first = settle(bench, agent_of(bench, "worker-0", dir.path()), dir.path(), &client).await;
    let restarted = bench.mark().await;
    assert!(first.terminate().await.success());
    let began = Instant::now();
    let mut agent = agent_of(bench, "worker-0", dir.path());
    agent.line("connected", |line| line.contains("connected to the API server")).await;
    let connected = began.elapsed().as_secs_f64();
    let (done, requests) = updates(bench, &client).await;
    let sent = own(&bench.requests_since(restarted).await);
    let mark = bench.mark().await;
    let foreign = MachineConfigBuilder::new("rendered-infra-1").file("/etc/other", 0o644, &big);
    foreign.create(&client).await;
    tokio::time::sleep(IDLE).await;
    show(&One {
        connected,
        done,
        requests,
        watches: sent.iter().filter(|line| line.starts_with("watch")).count(),
        idle: own(&bench.requests_since(mark).await).len(),
        pid: agent.pid(),
    });
    assert!(agent.terminate().await.success());
    cluster::node_api(&client).delete("worker-0", &DeleteParams::default()).await.unwrap();
}

async fn prepare(client: &kube::Client, big: &str) {
    policy(client).await;
    for number in 0..OTHERS {
        let name = format!("other-{number}");
        MachineConfigBuilder::new(&name).file("/etc/other", 0o644, big).create(client).await;
    }
    for number in 0..=ROUNDS {
        config(&format!("rendered-worker-{number}"), &format!("round {number}\n")).create(client).await;
    }
    create_node(client, "worker-0", &[("desiredConfig", "rendered-worker-0")]).await;
}

/// Changes one file, round after round; returns the median time to `Done` in seconds, and of the requests.
async fn updates(bench: &Bench, client: &kube::Client) -> (f64, f64) {
    let (mut times, mut requests) = (Vec::new(), Vec::new());
    for number in 1..=ROUNDS {
        let mark = bench.mark().await;
        let name = format!("rendered-worker-{number}");
        let began = Instant::now();
        retarget(client, "worker-0", &name, None).await;
        done(client, "worker-0", &name).await;
        times.push(began.elapsed().as_secs_f64());
        // The last writes may follow `Done`.
        object_until_updated(client, "worker-0").await;
        let sent = own(&bench.requests_since(mark).await);
        if number == ROUNDS {
            println!("\nThe requests of one update:\n\n    {}", sent.join("\n    "));
        }
        requests.push(sent.len() as f64);
    }
    (median(&mut times), median(&mut requests))
}

fn show(one: &One) {
    println!("\n| one node, {OTHERS} MachineConfigs of 245 KiB | here | MCD | ratio |\n|---|---|---|---|");
    let row = |what: &str, ours: String, mcd: &str, ratio: Option<f64>| {
        let ratio = ratio.map(|ratio| format!("{ratio:.1}x")).unwrap_or_default();
        println!("| {what} | {ours} | {mcd} | {ratio} |");
    };
    let (done, sent) = (one.done, one.requests);
    let (rss, peak) = (mebibytes(one.pid, "VmRSS:"), mebibytes(one.pid, "VmHWM:"));
    let connected = format!("{:.0}", one.connected * 1e3);
    row(
        "target to `Done`, one file, no reboot, ms (median)",
        format!("{:.0}", done * 1e3),
        "12250",
        Some(MCD_DONE / done),
    );
    row("requests for it (median)", sent.to_string(), "24 to 32", Some(MCD_REQUESTS / sent));
    row("RSS connected, idle, MiB", format!("{rss:.1}"), "83", Some(MCD_RSS / rss));
    row("peak RSS, MiB", format!("{peak:.1}"), "95", Some(MCD_PEAK / peak));
    row("start to connected, ms", connected, "11200 to Done", None);
    row("watches that were begun", one.watches.to_string(), "11", None);
    row("open connections", connections(one.pid).to_string(), "2", None);
    row(
        "requests in an idle minute, with a new MachineConfig of another pool",
        one.idle.to_string(),
        "1.2 to 1.4",
        None,
    );
}

/// Waits for the MachineConfigNode to say what the Node says.
async fn object_until_updated(client: &kube::Client, node: &str) {
    let api = object_api(client, "machineconfignodes");
    cluster::object_until(&api, node, "Updated", |object| {
        let conditions = object.data.pointer("/status/conditions").and_then(|value| value.as_array());
        conditions
            .is_some_and(|all| all.iter().any(|one| one["type"] == "Updated" && one["status"] == "True"))
    })
    .await;
}

/// Plays the reboots of an agent until its node is done.
async fn settle(bench: &Bench, agent: Agent, root: &Path, client: &kube::Client) -> Agent {
    let ended = tokio::select! {
        () = done(client, "worker-0", "rendered-worker-0") => false,
        status = agent.end() => {
            assert_eq!(status.code(), Some(133), "{:?}", agent.lines());
            true
        }
    };
    if !ended {
        return agent;
    }
    let again = agent_in(bench, "worker-0", root, 2);
    done(client, "worker-0", "rendered-worker-0").await;
    again
}

fn own(requests: &[cluster::Request]) -> Vec<String> {
    let ours = requests.iter().filter(|request| request.agent.starts_with("machine-config-agent"));
    ours.map(cluster::Request::line).collect()
}

fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// A rollout over many agents, all at once: what a controller would spread is here the worst case.
async fn fleet(bench: &Bench) {
    // Each agent is a node's only one, but here they share a kernel, whose default is 128 watchers for each user.
    let limit = "/proc/sys/fs/inotify/max_user_instances";
    if fs::write(limit, "4096").is_err() {
        println!("\n{limit} can't be raised: more than about 100 agents will not all come up");
    }
    let count = std::env::var("MCA_FLEET").ok().and_then(|text| text.parse().ok()).unwrap_or(FLEET);
    let client = bench.client("cluster-bench").await;
    let dir = tempfile::tempdir_in("target").unwrap();
    for name in ["rendered-fleet-a", "rendered-fleet-b"] {
        MachineConfigBuilder::new(name).file("/etc/lab/probe.conf", 0o644, name).create(&client).await;
    }
    let before = mebibytes(bench.pid(), "VmRSS:");
    let mut agents = Vec::new();
    for number in 0..count {
        let (node, root) = (format!("fleet-{number}"), dir.path().join(number.to_string()));
        fs::create_dir_all(&root).unwrap();
        create_node(&client, &node, &[("desiredConfig", "rendered-fleet-a")]).await;
        agents.push(agent_of(bench, &node, &root));
    }
    join_all((0..count).map(|number| fleet_done(&client, number, "rendered-fleet-a"))).await;
    let connected = mebibytes(bench.pid(), "VmRSS:");
    let pids: Vec<u32> = agents.iter().map(Agent::pid).collect();
    let quiet = bytes(&pids);
    let mark = bench.mark().await;
    let began = Instant::now();
    let patch = json!({ "metadata": { "annotations": { key("desiredConfig"): "rendered-fleet-b" } } });
    for number in 0..count {
        let api = cluster::node_api(&client);
        api.patch(&format!("fleet-{number}"), &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }
    join_all((0..count).map(|number| fleet_done(&client, number, "rendered-fleet-b"))).await;
    let took = began.elapsed().as_secs_f64();
    let sent = own(&bench.requests_since(mark).await).len() as f64;
    let (mut idle, mut resident) = (0.0, 0.0);
    for agent in &agents {
        resident += mebibytes(agent.pid(), "VmRSS:");
        idle += connections(agent.pid()) as f64;
    }
    let nodes = count as f64;
    println!("\n| {count} agents, one API server, one file, all at once | |\n|---|---|");
    println!("| rollout, s | {took:.1} |");
    println!("| requests a node | {:.1} |", sent / nodes);
    if let (Some(before), Some(after)) = (quiet, bytes(&pids)) {
        let kilobytes = |before: f64, after: f64| (after - before) / nodes / 1e3;
        let (out, back) = (kilobytes(before.0, after.0), kilobytes(before.1, after.1));
        println!("| kilobytes a node, sent and received, TLS included | {out:.1}, {back:.1} |");
    }
    println!("| connections a node | {:.2} |", idle / nodes);
    println!("| RSS of an agent, MiB (mean) | {:.1} |", resident / nodes);
    println!(
        "| RSS of the API server: alone, connected, after, MiB | {before:.0}, {connected:.0}, {:.0} |",
        mebibytes(bench.pid(), "VmRSS:")
    );
    for agent in &agents {
        assert!(agent.terminate().await.success());
    }
}

async fn fleet_done(client: &kube::Client, number: usize, config: &str) {
    done(client, &format!("fleet-{number}"), config).await;
}
