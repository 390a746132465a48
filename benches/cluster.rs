//! Cost of the agent for a cluster, against a real API server: requests, connections, memory, and the time from the
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

#[path = "../tests/support/cluster/mod.rs"]
mod cluster;
#[path = "../tests/support/containerd.rs"]
mod containerd;
#[path = "../tests/support/cri.rs"]
mod cri;
#[path = "cluster/pinned.rs"]
mod pinned;
#[path = "../tests/support/plain_host.rs"]
mod plain_host;
#[path = "../tests/support/ran.rs"]
mod ran;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use cluster::{
    Agent, AgentOptions, Bench, Gates, Identity, MachineConfigBuilder, annotation, create_node,
    grant_kubelets, node_until, object_api, retarget,
};
use futures_util::future::join_all;
use kube::api::{DeleteParams, PostParams};
use plain_host::{bare, boot};
use serde_json::json;

/// MCD's numbers: a file-only update without a reboot, and the node at rest.
const MCD_REQUESTS: f64 = 24.0;
const MCD_DONE: f64 = 12.25;
const MCD_RSS: f64 = 83.0;
const MCD_PEAK: f64 = 95.0;
const MCD_RECEIVED: f64 = 194.0;

/// MachineConfigs that lie around, of this size each: what MCD was measured with.
const OTHERS: usize = 48;
const OTHER_BYTES: usize = 245 * 1024;
/// Files and bytes of a MachineConfig of 1.5 MB, base64 included: etcd takes no larger one.
const LARGEST: (usize, usize) = (60, 18_000);

/// Environment of a pod: the host's root is a mount, with the kernel's own `/proc`. Arguments: the root, the command.
const CONTAINER: &str = r#"mount --bind "$1" "$1" && mount --rbind /proc "$1/proc" && shift && exec "$@""#;

/// Time that an agent rests before its memory is read.
const REST: Duration = Duration::from_secs(2);
/// Time of the measurement of the idle agent.
const IDLE: Duration = Duration::from_secs(60);
const ROUNDS: usize = 9;
/// Updates to MachineConfigs of `OTHER_BYTES`, with text as configuration files have it: what is received for one.
const LARGE_ROUNDS: usize = 3;

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
        policy(&bench.client("cluster-bench").await).await;
        // `-- pinned`: that alone.
        if std::env::args().any(|argument| argument == "pinned") {
            return pinned::pinned(&bench).await;
        }
        one(&bench).await;
        memory(&bench).await;
        pinned::pinned(&bench).await;
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
    grant_kubelets(client).await;
}

fn config(name: &str, contents: &str) -> MachineConfigBuilder {
    let filler = (0..60).fold(MachineConfigBuilder::new(name), |config, number| {
        config.file(&format!("/etc/lab/file-{number}.conf"), 0o644, format!("number {number}\n").repeat(50))
    });
    filler.file("/etc/lab/probe.conf", 0o644, contents)
}

/// A config of text that compresses about as real files do: words that repeat, numbers that do not.
fn text_config(name: &str, files: usize, bytes: usize, contents: &str) -> MachineConfigBuilder {
    let mut number = 0x2545_f491_4f6c_dd1d_u64;
    let mut line = || {
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        format!("option-{} = {:x} # of the service\n", number % 97, number >> 20)
    };
    let filler = (0..files).fold(MachineConfigBuilder::new(name), |config, file| {
        let mut text = String::new();
        while text.len() < bytes {
            text += &line();
        }
        config.file(&format!("/etc/lab/text-{file}.conf"), 0o644, &text)
    });
    filler.file("/etc/lab/probe.conf", 0o644, contents)
}

fn agent_of(bench: &Bench, node: &str, root: &Path) -> Agent {
    agent_in(bench, node, root, 1)
}

/// Makes a host, and the access of its kubelet.
fn host_in(bench: &Bench, node: &str, root: &Path, number: u32) -> std::path::PathBuf {
    bare(root);
    boot(root, number);
    fs::write(root.join("etc/os-release"), "ID=rhcos\nVERSION_ID=\"9.6\"\n").unwrap();
    let kubeconfig = root.join("kubeconfig");
    bench.write_kubeconfig(&kubeconfig, &Identity::Kubelet(node.to_owned()));
    kubeconfig
}

fn agent_in(bench: &Bench, node: &str, root: &Path, number: u32) -> Agent {
    let kubeconfig = host_in(bench, node, root, number);
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

/// Cost of one update, medians: seconds, requests, kilobytes received.
struct Update {
    done: f64,
    requests: f64,
    received: Option<f64>,
}

/// Cost of one node.
struct One {
    connected: f64,
    update: Update,
    large: Update,
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
    let first = settle(bench, &client, dir.path(), ("worker-0", "rendered-worker-0")).await;
    let restarted = bench.mark().await;
    assert!(first.terminate().await.success());
    let began = Instant::now();
    let mut agent = agent_of(bench, "worker-0", dir.path());
    agent.line("connected", |line| line.contains("Connected to the API server")).await;
    let connected = began.elapsed().as_secs_f64();
    let small: Vec<String> = (1..=ROUNDS).map(|number| format!("rendered-worker-{number}")).collect();
    let update = updates(bench, &client, agent.pid(), &small).await;
    let large: Vec<String> = (0..LARGE_ROUNDS).map(|number| format!("rendered-large-{number}")).collect();
    // The way to the first of them changes every file.
    let large = updates(bench, &client, agent.pid(), &large).await;
    let sent = own(&bench.requests_since(restarted).await);
    let mark = bench.mark().await;
    let foreign = MachineConfigBuilder::new("rendered-infra-1").file("/etc/other", 0o644, &big);
    foreign.create(&client).await;
    tokio::time::sleep(IDLE).await;
    show(&One {
        connected,
        update,
        large,
        watches: sent.iter().filter(|line| line.starts_with("watch")).count(),
        idle: own(&bench.requests_since(mark).await).len(),
        pid: agent.pid(),
    });
    assert!(agent.terminate().await.success());
    cluster::node_api(&client).delete("worker-0", &DeleteParams::default()).await.unwrap();
}

async fn prepare(client: &kube::Client, big: &str) {
    for number in 0..OTHERS {
        let name = format!("other-{number}");
        MachineConfigBuilder::new(&name).file("/etc/other", 0o644, big).create(client).await;
    }
    for number in 0..=ROUNDS {
        config(&format!("rendered-worker-{number}"), &format!("round {number}\n")).create(client).await;
    }
    for number in 0..LARGE_ROUNDS {
        let (name, contents) = (format!("rendered-large-{number}"), format!("round {number}\n"));
        text_config(&name, 60, OTHER_BYTES / 60 * 3 / 4, &contents).create(client).await;
    }
    create_node(client, "worker-0", &[("desiredConfig", "rendered-worker-0")]).await;
}

/// Changes one file, config after config; returns the medians.
async fn updates(bench: &Bench, client: &kube::Client, pid: u32, configs: &[String]) -> Update {
    let (mut times, mut requests, mut received) = (Vec::new(), Vec::new(), Vec::new());
    for (number, name) in configs.iter().enumerate() {
        let mark = bench.mark().await;
        let before = bytes(&[pid]);
        let began = Instant::now();
        retarget(client, "worker-0", name, None).await;
        done(client, "worker-0", name).await;
        times.push(began.elapsed().as_secs_f64());
        // The last writes may follow `Done`.
        object_until_updated(client, "worker-0", name).await;
        let sent = own(&bench.requests_since(mark).await);
        if let (Some(before), Some(after)) = (before, bytes(&[pid])) {
            received.push((after.1 - before.1) / 1e3);
        }
        if number + 1 == configs.len() {
            println!("\nThe requests of one update:\n\n    {}", sent.join("\n    "));
        }
        requests.push(sent.len() as f64);
    }
    let received = (!received.is_empty()).then(|| median(&mut received));
    Update { done: median(&mut times), requests: median(&mut requests), received }
}

fn show(one: &One) {
    println!("\n| one node, {OTHERS} MachineConfigs of 245 KiB | here | MCD | ratio |\n|---|---|---|---|");
    let row = |what: &str, ours: String, mcd: &str, ratio: Option<f64>| {
        let ratio = ratio.map(|ratio| format!("{ratio:.1}x")).unwrap_or_default();
        println!("| {what} | {ours} | {mcd} | {ratio} |");
    };
    let (done, sent) = (one.update.done, one.update.requests);
    let (rss, peak) = (mebibytes(one.pid, "VmRSS:"), mebibytes(one.pid, "VmHWM:"));
    let connected = format!("{:.0}", one.connected * 1e3);
    row(
        "target to `Done`, one file, no reboot, ms (median)",
        format!("{:.0}", done * 1e3),
        "12250",
        Some(MCD_DONE / done),
    );
    row("requests for it (median)", sent.to_string(), "24 to 32", Some(MCD_REQUESTS / sent));
    let kilobytes =
        |update: &Update| update.received.map_or("no ss".to_owned(), |number| format!("{number:.0}"));
    row("kB received for it, its MachineConfig of 45 kB included", kilobytes(&one.update), "", None);
    let ratio = one.large.received.map(|received| MCD_RECEIVED / received);
    row("kB received for one with a MachineConfig of 245 KiB", kilobytes(&one.large), "194", ratio);
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

/// The agent as the pod of `dist/manifests` runs it: inside the host's root, with its metrics and its allocator.
async fn memory(bench: &Bench) {
    if !rustix::process::geteuid().is_root() {
        println!("\nThe memory of the agent as a pod is read by root only.");
        return;
    }
    let client = bench.client("cluster-bench").await;
    let dir = tempfile::tempdir_in("target").unwrap();
    config("rendered-pod-a", "a\n").create(&client).await;
    text_config("rendered-pod-b", LARGEST.0, LARGEST.1, "b\n").create(&client).await;
    create_node(&client, "pod-0", &[("desiredConfig", "rendered-pod-a")]).await;
    host_in(bench, "pod-0", dir.path(), 1);
    let root = fs::canonicalize(dir.path()).unwrap();
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", CONTAINER, "sh"]).arg(&root);
    command.args([env!("CARGO_BIN_EXE_machine-config-agent"), "daemon", "--metrics-listen=127.0.0.1:0"]);
    command.args(["--os-backend=none", "--reboot-by=supervisor"]);
    command.arg("--kubeconfig").arg(root.join("kubeconfig")).arg("--root-mount").arg(&root);
    command.env("NODE_NAME", "pod-0").env("MALLOC_ARENA_MAX", "1").env("MALLOC_TRIM_THRESHOLD_", "131072");
    let agent = Agent::run("pod-0", command);
    done(&client, "pod-0", "rendered-pod-a").await;
    tokio::time::sleep(REST).await;
    let idle = mebibytes(agent.pid(), "VmRSS:");
    retarget(&client, "pod-0", "rendered-pod-b", None).await;
    done(&client, "pod-0", "rendered-pod-b").await;
    tokio::time::sleep(REST).await;
    let (after, peak) = (mebibytes(agent.pid(), "VmRSS:"), mebibytes(agent.pid(), "VmHWM:"));
    println!("\n| the agent as a pod, MiB | target | here |\n|---|---|---|");
    println!("| RSS connected, idle | 12 | {idle:.1} |\n| peak | - | {peak:.1} |");
    println!("| RSS after a MachineConfig of 1.5 MB | 16 | {after:.1} |");
    assert!(agent.terminate().await.success());
}

/// Waits until the MachineConfigNode matches the Node.
async fn object_until_updated(client: &kube::Client, node: &str, config: &str) {
    let api = object_api(client, "machineconfignodes");
    cluster::object_until(&api, node, "Updated", |object| {
        let conditions = object.data.pointer("/status/conditions").and_then(|value| value.as_array());
        let current = object.data.pointer("/status/configVersion/current");
        current.and_then(|value| value.as_str()) == Some(config)
            && conditions
                .is_some_and(|all| all.iter().any(|one| one["type"] == "Updated" && one["status"] == "True"))
    })
    .await;
}

/// Starts the agent of a node, again after the reboot that its first config takes, until the node is done.
async fn settle(bench: &Bench, client: &kube::Client, root: &Path, (node, config): (&str, &str)) -> Agent {
    let agent = agent_of(bench, node, root);
    let ended = tokio::select! {
        () = done(client, node, config) => false,
        status = agent.end() => {
            assert_eq!(status.code(), Some(133), "{:?}", agent.lines());
            true
        }
    };
    if !ended {
        return agent;
    }
    let again = agent_in(bench, node, root, 2);
    done(client, node, config).await;
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

/// A rollout over many agents, all at once: the worst case, as a controller would spread it.
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
    for node in names(count) {
        let root = dir.path().join(&node);
        fs::create_dir_all(&root).unwrap();
        create_node(&client, &node, &[("desiredConfig", "rendered-fleet-a")]).await;
        agents.push(agent_of(bench, &node, &root));
    }
    fleet_settled(&client, count, "rendered-fleet-a").await;
    let connected = mebibytes(bench.pid(), "VmRSS:");
    let pids: Vec<u32> = agents.iter().map(Agent::pid).collect();
    let quiet = bytes(&pids);
    let mark = bench.mark().await;
    let began = Instant::now();
    for node in names(count) {
        retarget(&client, &node, "rendered-fleet-b", None).await;
    }
    join_all(names(count).iter().map(|node| done(&client, node, "rendered-fleet-b"))).await;
    let took = began.elapsed().as_secs_f64();
    fleet_settled(&client, count, "rendered-fleet-b").await;
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

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("fleet-{number}")).collect()
}

/// Waits for the last writes of an update, which follow `Done`.
async fn fleet_settled(client: &kube::Client, count: usize, config: &str) {
    join_all(names(count).iter().map(|node| object_until_updated(client, node, config))).await;
}
