//! Cost of the controller for a cluster, against a real API server: memory and requests at rest with 200 and with 5,000 nodes, the time
//! from a new MachineConfig to the first node that gets it and to the Job that builds its image, the time of one rendering, and the
//! CPU time of one change of a node with up to 20,000 of them.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    dead_code,
    unreachable_pub,
    missing_docs,
    missing_debug_implementations,
    reason = "a benchmark looks at processes from outside, reckons and prints, and ends at the first surprise"
)]

#[path = "../../tests/support/cluster/mod.rs"]
mod cluster;
#[path = "../../tests/support/plain_host.rs"]
mod plain_host;
#[path = "../tests/controllers/process.rs"]
mod process;
#[path = "../../tests/support/ran.rs"]
mod ran;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{Api, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::reflector;
use kube::runtime::watcher::{self, watcher};
use kube::{Client, Config, Resource};
use machine_config_controller::api::{MachineConfig, MachineConfigPool};
use machine_config_controller::render::{Release, render};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use cluster::{MachineConfigBuilder, Presence, annotation, changes, create_object, key, node_api, within};
use process::{Cluster, NAMESPACE, target};

/// Size of a cluster.
struct Scale {
    pools: usize,
    nodes: usize,
    configs: usize,
    /// Files of each MachineConfig.
    files: usize,
    what: &'static str,
    /// Limits of the RSS and of its peak, in MiB.
    rss: f64,
    peak: Option<f64>,
}

const SMALL: Scale = Scale {
    pools: 3,
    nodes: 200,
    configs: 50,
    files: FILES.0,
    what: "200 nodes, 3 pools, 50 MachineConfigs",
    rss: 20.0,
    peak: None,
};
/// What etcd takes of a rendered config is 1.5 MiB, so the MachineConfigs are those of many pools.
const HEAVY: Scale = Scale {
    pools: 16,
    nodes: 50,
    configs: 80,
    files: 128,
    what: "50 nodes, 16 pools, 80 MachineConfigs of 15 MB together",
    rss: 25.0,
    peak: Some(40.0),
};
const LARGE: Scale = Scale {
    pools: 10,
    nodes: 5000,
    configs: 200,
    files: FILES.0,
    what: "5,000 nodes, 10 pools, 200 MachineConfigs",
    rss: 120.0,
    peak: None,
};
/// Files of a MachineConfig, and bytes of each.
const FILES: (usize, usize) = (10, 1500);
/// Images that a node lists, as a kubelet does.
const IMAGES: usize = 50;
/// Time that a controller rests before its memory is read.
const REST: Duration = Duration::from_secs(5);
/// Minutes of the measurement of the idle controller, with the default Lease.
const IDLE_MINUTES: u64 = 2;
const LEASE: [&str; 2] = ["--lease-duration", "137"];
/// Kind that a process of this benchmark keeps in a store of kube's, and the way to the API server.
const STORE_OF: &str = "BENCH_STORE_OF";
const KUBECONFIG: &str = "KUBECONFIG";
/// Nodes of the second part, and its rounds.
const FEW_NODES: usize = 200;
const ROUNDS: usize = 9;
/// Sizes of a pool of which nodes become `NotReady` and Ready again: how many do, and the pause between two changes.
const FLIPPED_OF: [usize; 3] = [500, 5000, 20_000];
const FLIPPED: usize = 100;
const FLIP_PAUSE: Duration = Duration::from_millis(50);
/// MachineConfigs of one pool, and how often they are rendered.
const RENDERED: usize = 150;
/// Files of each of these: together they stay below the 1.5 MiB that etcd takes.
const RENDERED_FILES: usize = 4;
const RENDERINGS: usize = 51;
/// Milliseconds that the median of them may take.
const LONGEST_RENDERING: f64 = 15.0;

fn main() {
    // `cargo test --benches` runs this too: then it only has to compile and start.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    if let Ok(kind) = std::env::var(STORE_OF) {
        runtime.block_on(keep_in_store(&kind));
        return;
    }
    runtime.block_on(async {
        println!("\n| controller | target | value |\n|---|---|---|");
        // One part by its name: `-- job`.
        let named = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
        let is_wanted = |part: &str| named.as_ref().is_none_or(|named| named == part);
        if is_wanted("rendering") {
            rendering();
        }
        if is_wanted("patch") {
            first_patch().await;
        }
        if is_wanted("job") {
            first_job().await;
        }
        if is_wanted("small") {
            at_rest(&SMALL).await;
        }
        if is_wanted("heavy") {
            at_rest(&HEAVY).await;
        }
        if is_wanted("large") {
            at_rest(&LARGE).await;
        }
        if is_wanted("flips") {
            for nodes in FLIPPED_OF {
                flips(nodes).await;
            }
        }
    });
}

fn row(what: &str, target: &str, value: &str) {
    println!("| {what} | {target} | {value} |");
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A number of `/proc/PID/status`, in mebibytes.
fn mebibytes(pid: u32, field: &str) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1024.0
}

/// Texts of which files are made: a page has as much that repeats as files of settings with their comments.
const TEXTS: [&str; 5] = [
    include_str!("../../docs/differences-from-mcd.md"),
    include_str!("../../docs/operate.md"),
    include_str!("../../docs/reference.md"),
    include_str!("../../docs/stateroots.md"),
    include_str!("../../docs/troubleshoot.md"),
];

/// A MachineConfig as clusters have them: text files, no two of them the same.
fn config(name: &str, mark: usize) -> MachineConfigBuilder {
    config_of(name, mark, FILES.0)
}

/// Of ten files five are in base64, as by most controllers and `oc`, four URL-encoded, as by the Machine Config Operator's templates, and one
/// compressed, as by butane.
fn config_of(name: &str, mark: usize, files: usize) -> MachineConfigBuilder {
    let texts = TEXTS.concat();
    let seed = name.bytes().fold(mark, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte)));
    let mut bytes = texts.bytes().cycle().skip(seed * 7919 % texts.len());
    (0..files).fold(MachineConfigBuilder::new(name), |config, file| {
        let mut text = format!("# {name} {mark} {file}\n").into_bytes();
        text.extend(bytes.by_ref().take(FILES.1 - text.len()));
        let contents = match file % 10 {
            0..5 => {
                json!({ "source": format!("data:text/plain;charset=utf-8;base64,{}", STANDARD.encode(text)) })
            }
            5..9 => json!({ "source": format!("data:,{}", url_encoded(&text)) }),
            _ => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
                encoder.write_all(&text).unwrap();
                let packed = STANDARD.encode(encoder.finish().unwrap());
                json!({ "compression": "gzip", "source": format!("data:;base64,{packed}") })
            }
        };
        config.contents(&format!("/etc/lab/{name}-{file}.conf"), &contents)
    })
}

/// Encodes all but unreserved characters, as the templates' `dataurl` does.
fn url_encoded(text: &[u8]) -> String {
    let mut encoded = String::new();
    for byte in text {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(byte) {
            encoded.push(char::from(*byte));
        } else {
            encoded += &format!("%{byte:02X}");
        }
    }
    encoded
}

fn rendering() {
    let configs: Vec<MachineConfig> = (0..RENDERED)
        .map(|number| {
            let mut object = config_of(&format!("{number:03}-lab"), 0, RENDERED_FILES).object();
            object["metadata"]["labels"] = json!({ key("role"): "worker" });
            object["metadata"]["annotations"] = Value::Null;
            serde_json::from_value(object).unwrap()
        })
        .collect();
    let pool: MachineConfigPool = serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": { "name": "worker" },
        "spec": { "machineConfigSelector": { "matchLabels": { key("role"): "worker" } } },
    }))
    .unwrap();
    let mut times: Vec<f64> = (0..RENDERINGS)
        .map(|_| {
            let since = Instant::now();
            let rendered = render(&pool, &configs, &Release::default()).unwrap();
            let took = since.elapsed().as_secs_f64();
            assert_eq!(rendered.sources.len(), RENDERED);
            took * 1e3
        })
        .collect();
    let median = median(&mut times);
    row("one rendering of 150 MachineConfigs, 9 KiB each", "15 ms", &format!("{median:.1} ms"));
    assert!(
        median <= LONGEST_RENDERING,
        "one rendering takes {median:.1} ms, and not {LONGEST_RENDERING} ms"
    );
}

/// A node as a kubelet leaves it: with conditions and the images it has.
fn node(name: &str, pool: &str, config: &str) -> Node {
    let images: Vec<Value> = (0..IMAGES)
        .map(|number| {
            let digest = format!("{number:02x}").repeat(32);
            json!({ "names": [format!("registry.example/team/service-{number}@sha256:{digest}")], "sizeBytes": 100_000_000 })
        })
        .collect();
    let annotations =
        json!({ key("currentConfig"): config, key("desiredConfig"): config, key("state"): "Done" });
    let object = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "annotations": annotations,
            "labels": { format!("node-role.kubernetes.io/{pool}"): "", "kubernetes.io/hostname": name },
        },
        "status": { "images": images, "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    serde_json::from_value(object).unwrap()
}

/// Creates nodes of one pool, some at a time.
async fn create_nodes(client: &Client, pool: &str, config: &str, count: usize) {
    let api = node_api(client);
    stream::iter(0..count)
        .for_each_concurrent(8, |number| {
            let (api, node) = (api.clone(), node(&format!("{pool}-{number:04}"), pool, config));
            async move { drop(api.create(&PostParams::default(), &node).await.unwrap()) }
        })
        .await;
}

async fn until_counted(cluster: &Cluster, pool: &str, count: usize) {
    let updated = |pool: &Value| {
        pool["status"]["machineCount"] == count && pool["status"]["updatedMachineCount"] == count
    };
    cluster.until_pool(pool, "all nodes counted", updated).await;
}

/// From a new MachineConfig to the first node whose target is another one.
async fn first_patch() {
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    cluster.config("worker", config("50-lab", 0)).await;
    let _controller = cluster.start("a", &[]);
    let mut last = cluster.until_target("worker", "").await;
    create_nodes(&cluster.client, "worker", &last, FEW_NODES).await;
    until_counted(&cluster, "worker", FEW_NODES).await;
    let watcher = node_api(&cluster.bench.client("watcher").await);
    let mut times = Vec::new();
    for round in 1..=ROUNDS {
        let mut nodes = Box::pin(changes(&watcher, &ListParams::default()).await.unwrap());
        let since = Instant::now();
        cluster.config("worker", config("50-lab", round)).await;
        let patched = within("a node is told", async {
            loop {
                let Some((node, Presence::There)) = nodes.next().await else { continue };
                let desired = annotation(&node, "desiredConfig").unwrap();
                if desired != last && Some(desired) != annotation(&node, "currentConfig") {
                    return node;
                }
            }
        });
        let patched = patched.await;
        times.push(since.elapsed().as_secs_f64() * 1e3);
        last = annotation(&patched, "desiredConfig").unwrap().to_owned();
        // The node reports its target as current, so that the next round starts equal.
        let name = patched.metadata.name.as_deref().unwrap();
        let patch =
            json!({ "metadata": { "annotations": { key("currentConfig"): last, key("state"): "Done" } } });
        let patch = kube::api::Patch::Merge(patch);
        watcher.patch(name, &kube::api::PatchParams::default(), &patch).await.unwrap();
    }
    let what = "new MachineConfig to the first of 200 nodes that is told (median)";
    row(what, "500 ms", &format!("{:.0} ms", median(&mut times)));
}

/// From a new kernel argument to the Job that builds the image with it.
async fn first_job() {
    let cluster = Cluster::new().await;
    let settings = tempfile::tempdir().unwrap();
    let path = settings.path().join("build.yaml");
    fs::write(&path, "builderImage: registry.test/buildah:1\nagentImage: registry.test/agent:1\n").unwrap();
    cluster.pool("worker").await;
    let image = format!("registry.test/os@sha256:{}", "b".repeat(64));
    cluster.config("worker", config("50-lab", 0).os_image_url(&image)).await;
    let _controller = cluster.start("a", &["--build-settings", path.to_str().unwrap()]);
    let target = cluster.until_target("worker", "").await;
    create_nodes(&cluster.client, "worker", &target, FEW_NODES).await;
    until_counted(&cluster, "worker", FEW_NODES).await;
    let secret = json!({
        "metadata": { "name": "push" }, "type": "kubernetes.io/dockerconfigjson",
        "data": { ".dockerconfigjson": "eyJhdXRocyI6e319" },
    });
    let secrets = Api::<Secret>::namespaced(cluster.client.clone(), NAMESPACE);
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    let spec = json!({
        "machineConfigPool": { "name": "worker" }, "imageBuilder": { "imageBuilderType": "Job" },
        "renderedImagePushSecret": { "name": "push" }, "renderedImagePushSpec": "registry.test/os/worker:latest",
    });
    let jobs = Api::<Job>::namespaced(cluster.bench.client("watcher").await, NAMESPACE);
    let mut jobs = Box::pin(changes(&jobs, &ListParams::default()).await.unwrap());
    create_object(&cluster.client, "machineosconfigs", "worker", json!({ "spec": spec })).await.unwrap();
    let mut known = BTreeSet::new();
    let mut times = Vec::new();
    for round in 0..=ROUNDS {
        let since = Instant::now();
        if round > 0 {
            let argument = MachineConfigBuilder::new("60-k").karg(&format!("round={round}"));
            cluster.config("worker", argument).await;
        }
        within("a Job is created", async {
            loop {
                let Some((job, Presence::There)) = jobs.next().await else { continue };
                if known.insert(job.metadata.name.unwrap()) {
                    return;
                }
            }
        })
        .await;
        // The first one waits for the Secret, too.
        if round > 0 {
            times.push(since.elapsed().as_secs_f64() * 1e3);
        }
    }
    row(
        "new kernel argument to the created Job (median)",
        "300 ms",
        &format!("{:.0} ms", median(&mut times)),
    );
}

/// CPU time of a process, all its threads.
fn cpu(pid: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let nanoseconds = threads.map(|thread| {
        let text = fs::read_to_string(thread.unwrap().path().join("schedstat")).unwrap();
        text.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    });
    Duration::from_nanos(nanoseconds.sum())
}

/// Prints a figure, and ends the benchmark where it is over its limit. Limits are those of a release build.
fn limited(what: &str, unit: &str, limit: f64, measured: f64) {
    row(what, &format!("{limit} {unit}"), &format!("{measured:.2} {unit}"));
    assert!(cfg!(debug_assertions) || measured <= limit, "{what}: {measured:.2} {unit}, and not {limit}");
}

/// One pool in which nodes become `NotReady` and Ready again, one after another.
async fn flips(nodes: usize) {
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    cluster.config("worker", config("50-lab", 0)).await;
    let first = cluster.start("first", &["--lease-duration", "15"]);
    let config = cluster.until_target("worker", "").await;
    tokio::time::sleep(REST).await;
    let without = mebibytes(first.0.pid(), "VmRSS:");
    assert!(first.terminate().await.success());
    create_nodes(&cluster.client, "worker", &config, nodes).await;
    let controller = cluster.start("second", &["--lease-duration", "15"]);
    let pid = controller.0.pid();
    until_counted(&cluster, "worker", nodes).await;
    tokio::time::sleep(REST).await;
    let (rss, before) = (mebibytes(pid, "VmRSS:"), cpu(pid));
    let api = node_api(&cluster.client);
    for change in 0..2 * FLIPPED {
        let (number, ready) = (change % FLIPPED * nodes / FLIPPED, change >= FLIPPED);
        let status = if ready { "True" } else { "False" };
        let patch = json!({ "status": { "conditions": [{ "type": "Ready", "status": status }] } });
        let patch = kube::api::Patch::Merge(patch);
        let name = format!("worker-{number:04}");
        api.patch_status(&name, &kube::api::PatchParams::default(), &patch).await.unwrap();
        tokio::time::sleep(FLIP_PAUSE).await;
    }
    let is_ready = |pool: &Value| pool["status"]["readyMachineCount"] == nodes;
    cluster.until_pool("worker", "all nodes Ready", is_ready).await;
    let one = cpu(pid).saturating_sub(before).as_secs_f64() * 1e3 / (2 * FLIPPED) as f64;
    limited(&format!("CPU time of one Ready flip, {nodes} nodes"), "ms", 1.0, one);
    let kibibytes = (rss - without) * 1024.0 / nodes as f64;
    limited(&format!("RSS of one node, of {nodes} ({rss:.0} MiB in all)"), "KiB", 20.0, kibibytes);
    assert!(controller.terminate().await.success());
}

/// Keeps all objects of a kind in kube's store, as `kube::runtime::reflector` fills it, and prints the memory of this process.
async fn keep_in_store(kind: &str) {
    let path = std::env::var(KUBECONFIG).unwrap();
    let file = Kubeconfig::read_from(path).unwrap();
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    let client = Client::try_from(config).unwrap();
    match kind {
        "MachineConfigs" => fill::<MachineConfig>(client).await,
        "Nodes" => fill::<Node>(client).await,
        _ => {
            drop(client.apiserver_version().await.unwrap());
            print_memory(0);
        }
    }
}

fn print_memory(objects: usize) {
    let pid = std::process::id();
    println!("{objects} {} {}", mebibytes(pid, "VmRSS:"), mebibytes(pid, "VmHWM:"));
}

async fn fill<K>(client: Client)
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (reader, writer) = reflector::store::<K>();
    // Pages as large as the controller's of MachineConfigs were.
    let events = reflector(writer, watcher(Api::<K>::all(client), watcher::Config::default().page_size(8)));
    let filling = tokio::spawn(events.for_each(|event| async { drop(event.unwrap()) }));
    reader.wait_until_ready().await.unwrap();
    tokio::time::sleep(REST).await;
    print_memory(reader.len());
    filling.abort();
}

/// Has another process keep objects in kube's store; returns their number, its RSS and its peak.
fn store(cluster: &Cluster, kind: &str) -> (f64, f64, f64) {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.arg("--bench").env(STORE_OF, kind).env(KUBECONFIG, &cluster.kubeconfig).envs(process::MALLOC);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let numbers: Vec<f64> = text.split_whitespace().map(|number| number.parse().unwrap()).collect();
    (numbers[0], numbers[1], numbers[2])
}

async fn at_rest(scale: &Scale) {
    let cluster = Cluster::new().await;
    let empty = cluster.start("empty", &LEASE);
    tokio::time::sleep(REST).await;
    let without = mebibytes(empty.0.pid(), "VmRSS:");
    assert!(empty.terminate().await.success());
    let names: Vec<String> = (0..scale.pools).map(|number| format!("pool-{number}")).collect();
    for name in &names {
        cluster.pool(name).await;
    }
    for number in 0..scale.configs {
        let config = config_of(&format!("{number:03}-lab"), 0, scale.files);
        cluster.config(&names[number % scale.pools], config).await;
    }
    // The nodes are there first, as on a cluster that gets a controller.
    let first = cluster.start("first", &["--controllers", "render", "--lease-duration", "15"]);
    for name in &names {
        cluster.until_target(name, "").await;
    }
    // Every config has been there when the last of them was rendered: the pools say it.
    let mut targets = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let of_pool = (0..scale.configs).filter(|config| config % scale.pools == number).count();
        let all = |pool: &Value| {
            pool["spec"]["configuration"]["source"].as_array().is_some_and(|all| all.len() == of_pool)
        };
        targets.push(target(&cluster.until_pool(name, "all its configs", all).await).to_owned());
    }
    assert!(first.terminate().await.success());
    for (name, config) in names.iter().zip(&targets) {
        create_nodes(&cluster.client, name, config, scale.nodes.div_ceil(scale.pools)).await;
    }
    let controller = cluster.start("second", &LEASE);
    for name in &names {
        until_counted(&cluster, name, scale.nodes.div_ceil(scale.pools)).await;
    }
    report(scale, &cluster, controller.0.pid(), without).await;
    assert!(controller.terminate().await.success());
    for kind in ["nothing", "MachineConfigs", "Nodes"] {
        let (count, rss, peak) = store(&cluster, kind);
        row(
            &format!("RSS of kube's store with {count} {kind}"),
            "-",
            &format!("{rss:.1} MiB, peak {peak:.0} MiB"),
        );
    }
}

/// Prints memory and requests of an idle controller.
async fn report(scale: &Scale, cluster: &Cluster, pid: u32, without: f64) {
    tokio::time::sleep(REST).await;
    let mark = cluster.bench.mark().await;
    tokio::time::sleep(Duration::from_secs(60 * IDLE_MINUTES)).await;
    let requests = cluster.bench.requests_since(mark).await;
    let own = requests.iter().filter(|one| one.user == "controller");
    let (leases, others): (Vec<_>, Vec<_>) = own.partition(|one| one.resource == "leases");
    let (rss, peak) = (mebibytes(pid, "VmRSS:"), mebibytes(pid, "VmHWM:"));
    limited(&format!("RSS, {}, idle", scale.what), "MiB", scale.rss, rss);
    row("of it anonymous", "-", &format!("{:.1} MiB", mebibytes(pid, "RssAnon:")));
    row("RSS without objects", "-", &format!("{without:.1} MiB"));
    match scale.peak {
        Some(limit) => limited("peak RSS of the start", "MiB", limit, peak),
        None => row("peak RSS of the start", "-", &format!("{peak:.0} MiB")),
    }
    let minute = |count: usize| count as f64 / IDLE_MINUTES as f64;
    limited("requests in an idle minute, without the Lease", "requests", 0.0, minute(others.len()));
    limited("requests in an idle minute", "requests", 3.0, minute(leases.len() + others.len()));
    if cluster::own_only("connections of the controller") {
        let connected = cluster.bench.connected();
        let own = connected.values().filter(|agent| agent.starts_with("machine-config-controller/"));
        limited("connections", "connections", 2.0, own.count() as f64);
    }
}
