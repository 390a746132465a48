//! Rollout of an OS image over a fleet: real controller, real agents on libostree hosts of the sandbox that boot, one registry
//! behind a link with a bound. Node after node as the Machine Config Operator does, with prefetch, and several at a time.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a benchmark looks at processes from outside, reckons and prints"
)]

#[path = "../../tests/support/cluster/mod.rs"]
mod cluster;
mod link;
mod node;
#[path = "../../tests/support/plain_host.rs"]
mod plain_host;
#[path = "../../tests/support/ran.rs"]
mod ran;
#[path = "../../tests/sandbox/registry/server.rs"]
#[allow(dead_code, unreachable_pub, clippy::panic, reason = "shared with tests")]
mod server;

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use machine_config_agent::model::ImageRef;
use serde_json::{Value, json};

use cluster::{
    Agent, Bench, Gates, Identity, MachineConfigBuilder, annotation, call, changes, create_node,
    create_object, key, node_api, object_api, object_until,
};
use link::Link;
use node::Fleet;
use server::Registry;

const NAMESPACE: &str = "openshift-machine-config-operator";
const LEASE: &str = "machine-config-agent-controller";

/// Bytes per second of the link between the registry and all nodes.
const RATE: u64 = 4 << 20;
/// Bytes of the layer that each image has of its own.
const LAYER: usize = 16 << 20;
/// The most time of one rollout.
const LIMIT: Duration = Duration::from_secs(1800);

/// A rollout to measure.
struct Way {
    name: &'static str,
    max_unavailable: usize,
    prefetch: bool,
}

/// What it took.
struct Outcome {
    elapsed: Duration,
    /// Sum over the nodes: from the cordon to the end of it.
    cordoned: Duration,
    /// Sum over the nodes: from the new target to `Done`.
    updating: Duration,
}

fn main() {
    // `cargo test --benches` runs this too: then it only has to compile and start.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let named: Vec<usize> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let sizes = if named.is_empty() { vec![6, 60] } else { named };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    for size in sizes {
        runtime.as_ref().unwrap().block_on(rollouts(size));
    }
}

async fn rollouts(size: usize) {
    let several = (size / 10).max(2);
    let ways = [
        Way { name: "MCO's: one at a time, no prefetch", max_unavailable: 1, prefetch: false },
        Way { name: "one at a time, prefetch", max_unavailable: 1, prefetch: true },
        Way { name: "several at a time, no prefetch", max_unavailable: several, prefetch: false },
        Way { name: "several at a time, prefetch", max_unavailable: several, prefetch: true },
    ];
    let bench = Bench::private(Gates::Default);
    let client = bench.client("fleet").await;
    let registry = Registry::start(false);
    let link = Link::start(&registry.address, RATE);
    prepare(&client, size).await;
    let _controller = controller(&bench);
    let fleet = Fleet::start(&bench, size, &link.address);
    let mut target = wait_for_target(&client, "").await;
    wait_for_nodes(&client, size, &target).await;
    println!(
        "\n`cargo bench --bench fleet`: {size} nodes, {several} are several, against {}\n",
        api_server()
    );
    println!("| rollout | elapsed | nodes cordoned | nodes updating |\n|---|---|---|---|");
    let mut first: Option<Outcome> = None;
    for (number, way) in ways.iter().enumerate() {
        let image = fleet.image(&registry, &link.address, number, LAYER);
        configure(&client, way).await;
        let outcome = rollout(&client, size, &image, &mut target).await;
        show(way, &outcome, first.as_ref().unwrap_or(&outcome));
        first.get_or_insert(outcome);
    }
    fleet.stop();
}

fn api_server() -> &'static str {
    if std::env::var_os("KUBEBUILDER_ASSETS").is_some() { "kube-apiserver" } else { "tests/apiserver" }
}

fn show(way: &Way, outcome: &Outcome, first: &Outcome) {
    let cell = |value: Duration, of: Duration| {
        let (value, of) = (value.as_secs_f64(), of.as_secs_f64());
        format!("{value:.0} s ({:.2})", value / of)
    };
    println!(
        "| {} | {} | {} | {} |",
        way.name,
        cell(outcome.elapsed, first.elapsed),
        cell(outcome.cordoned, first.cordoned),
        cell(outcome.updating, first.updating),
    );
}

/// The controller of the release, beside the agent.
fn controller(bench: &Bench) -> Agent {
    let agent = Path::new(env!("CARGO_BIN_EXE_machine-config-agent"));
    let program = agent.with_file_name("machine-config-controller");
    assert!(program.exists(), "cargo build --release --workspace makes {}", program.display());
    let mut command = Command::new(program);
    command.args(["run", "--name", "a", "--metrics-listen", "127.0.0.1:0", "--kubeconfig"]);
    command.arg(bench.kubeconfig(&Identity::Admin("controller".to_owned())));
    command.args(["--controllers", "render,node,drain"]);
    Agent::run("the controller", command)
}

/// The Lease without a holder, our definition, the pool, its first config and the nodes.
async fn prepare(client: &Client, size: usize) {
    let lease = json!({ "metadata": { "name": LEASE }, "spec": { "leaseDurationSeconds": 1 } });
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("dist/manifests/components/controller/crds.yaml");
    let definitions: Vec<Value> =
        serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap();
    for object in definitions.into_iter().filter(|object| object["spec"]["names"]["kind"] == "RolloutPolicy")
    {
        let place = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let (code, answer) = call(client, "POST", place, Some(("application/json", object))).await;
        assert!(matches!(code, 200 | 201), "{answer}");
    }
    let spec = json!({
        "machineConfigSelector": { "matchLabels": { key("role"): "worker" } },
        "nodeSelector": { "matchLabels": { "node-role.kubernetes.io/worker": "" } },
        "maxUnavailable": size,
    });
    create_object(client, "machineconfigpools", "worker", json!({ "spec": spec })).await.unwrap();
    put_config(client, MachineConfigBuilder::new("50-lab").file("/etc/lab.conf", 0o644, "a")).await;
    for name in node::names(size) {
        create_node(client, &name, &[]).await;
        let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
        node_api(client).patch_status(&name, &PatchParams::default(), &Patch::Merge(ready)).await.unwrap();
    }
}

async fn put_config(client: &Client, config: MachineConfigBuilder) {
    let mut object = config.object();
    object["metadata"]["labels"] = json!({ key("role"): "worker" });
    object["metadata"]["annotations"] = Value::Null;
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let configs = object_api(client, "machineconfigs");
    configs
        .patch(&object.name_any(), &PatchParams::apply("fleet").force(), &Patch::Apply(&object))
        .await
        .unwrap();
}

/// The pool and the policy of a way.
async fn configure(client: &Client, way: &Way) {
    let pools = object_api(client, "machineconfigpools");
    let patch = Patch::Merge(json!({ "spec": { "maxUnavailable": way.max_unavailable } }));
    pools.patch("worker", &PatchParams::default(), &patch).await.unwrap();
    let path = "/apis/machine-config-agent.io/v1alpha1/rolloutpolicies/worker";
    if !way.prefetch {
        let (code, answer) = call(client, "DELETE", path, None).await;
        assert!(matches!(code, 200 | 404), "{answer}");
        return;
    }
    let policy = json!({
        "apiVersion": "machine-config-agent.io/v1alpha1", "kind": "RolloutPolicy", "metadata": { "name": "worker" },
        "spec": { "prefetch": { "concurrency": 10 } },
    });
    let path = format!("{path}?fieldManager=fleet&force=true");
    let (code, answer) = call(client, "PATCH", &path, Some(("application/apply-patch+yaml", policy))).await;
    assert!(matches!(code, 200 | 201), "{answer}");
}

async fn wait_for_target(client: &Client, other_than: &str) -> String {
    let name = |pool: &DynamicObject| {
        pool.data["spec"]["configuration"]["name"].as_str().unwrap_or_default().to_owned()
    };
    let pools = object_api(client, "machineconfigpools");
    let is_new = |pool: &DynamicObject| !name(pool).is_empty() && name(pool) != other_than;
    name(&object_until(&pools, "worker", "another target", is_new).await)
}

/// State of a node, and when it began.
#[derive(Default, Clone, Copy)]
struct Course {
    cordoned: Option<Instant>,
    updating: Option<Instant>,
    done: bool,
}

async fn wait_for_nodes(client: &Client, size: usize, target: &str) -> (Duration, Duration) {
    let (mut cordoned, mut updating) = (Duration::ZERO, Duration::ZERO);
    let mut courses: BTreeMap<String, Course> = BTreeMap::new();
    let watched = async {
        loop {
            let mut nodes = pin!(changes(&node_api(client), &ListParams::default()).await.unwrap());
            while let Some((node, _)) = nodes.next().await {
                let course = courses.entry(node.name_any()).or_default();
                follow(course, &node, target, (&mut cordoned, &mut updating));
                if courses.values().filter(|course| course.done).count() == size {
                    return;
                }
            }
        }
    };
    tokio::time::timeout(LIMIT, watched).await.unwrap();
    (cordoned, updating)
}

/// Adds what has ended.
fn follow(course: &mut Course, node: &Node, target: &str, sums: (&mut Duration, &mut Duration)) {
    let is_cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
    let is_done =
        annotation(node, "currentConfig") == Some(target) && annotation(node, "state") == Some("Done");
    let is_updating = annotation(node, "desiredConfig") == Some(target) && !is_done;
    for (is_now, since, sum) in
        [(is_cordoned, &mut course.cordoned, sums.0), (is_updating, &mut course.updating, sums.1)]
    {
        if is_now {
            since.get_or_insert_with(Instant::now);
        } else if let Some(since) = since.take() {
            *sum += since.elapsed();
        }
    }
    course.done = is_done && !is_cordoned;
}

async fn rollout(client: &Client, size: usize, image: &ImageRef, target: &mut String) -> Outcome {
    let config = MachineConfigBuilder::new("50-lab").file("/etc/lab.conf", 0o644, "a");
    let began = Instant::now();
    put_config(client, config.os_image_url(&image.to_string())).await;
    *target = wait_for_target(client, target).await;
    let (cordoned, updating) = wait_for_nodes(client, size, target).await;
    Outcome { elapsed: began.elapsed(), cordoned, updating }
}
