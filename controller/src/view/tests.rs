//! The screen, from the objects to the text.

use machine_config_cli::screen::Screen;
use serde_json::{Value, json};

use super::*;
use crate::api::{MachineConfigNode, MachineConfigPool, RolloutPolicy};
use crate::drain::NodeView;
use crate::rollout::{Node, Policy, Selectors};

const NOW: &str = "2026-11-23T12:00:00Z";
const KEEPS: &str =
    "pod shop/cart-0 is kept by PodDisruptionBudget shop/cart: needs 1 healthy pods and has 1";

/// Objects of a cluster.
#[derive(Default)]
struct Cluster {
    pools: Vec<MachineConfigPool>,
    policies: Vec<Policy>,
    nodes: Vec<(Node, BTreeMap<String, String>)>,
    progress: BTreeMap<String, Progress>,
    stale: Vec<String>,
    builds: Vec<ObservedBuild>,
}

impl Cluster {
    fn pool(&mut self, name: &str, more: Value) -> &mut Self {
        let mut pool = json!({
            "metadata": { "name": name, "generation": 2 },
            "spec": {
                "configuration": { "name": format!("rendered-{name}-b") },
                "nodeSelector": { "matchLabels": { "pool": name } },
            },
        });
        merge(&mut pool, more);
        self.pools.push(serde_json::from_value(pool).unwrap());
        self
    }

    fn state(&mut self, name: &str, reason: &str, message: &str, more: &Value) -> &mut Self {
        let progress =
            json!({ "type": "RolloutProgressing", "status": "True", "reason": reason, "message": message });
        let mut conditions = vec![progress];
        conditions.extend(more.as_array().cloned().unwrap_or_default());
        self.pool(name, json!({ "status": { "observedGeneration": 2, "conditions": conditions } }))
    }

    /// A node with its current and its desired config, by letter, and these annotations.
    fn node(&mut self, name: &str, pool: &str, configs: [&str; 2], annotations: Value) -> &mut Self {
        let full = |config: &str| format!("rendered-{pool}-{config}");
        let mut all = json!({
            "machineconfiguration.openshift.io/currentConfig": full(configs[0]),
            "machineconfiguration.openshift.io/desiredConfig": full(configs[1]),
            "machineconfiguration.openshift.io/state": "Done",
        });
        merge(&mut all, annotations);
        let object = json!({
            "metadata": { "name": name, "labels": { "pool": pool }, "annotations": all },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        });
        let node = Node::from_node(serde_json::from_value(object).unwrap());
        self.nodes.push((node, serde_json::from_value(all).unwrap()));
        self
    }

    fn config_node(&mut self, name: &str, pool: &str, conditions: &Value) -> &mut Self {
        let object = json!({
            "metadata": { "name": name },
            "spec": {
                "node": { "name": name }, "pool": { "name": pool },
                "configVersion": { "desired": format!("rendered-{pool}-b") },
            },
            "status": { "conditions": conditions },
        });
        let object: MachineConfigNode = serde_json::from_value(object).unwrap();
        self.progress.insert(name.to_owned(), Progress::from_node(&object));
        self
    }

    fn view(&self, limit: usize) -> View {
        let pools = self.pools.iter().map(|object| {
            let policies =
                self.policies.iter().filter(|policy| Some(&policy.name) == object.metadata.name.as_ref());
            let pool = Pool { policies: policies.cloned().collect(), ..Pool::from_pool(object) };
            (object.metadata.name.as_deref().unwrap(), Ok(pool))
        });
        let nodes = self.nodes.iter().map(|(node, annotations)| ObservedNode {
            node,
            drain: NodeView::new(annotations, node.unschedulable),
            progress: self.progress.get(&node.name),
        });
        view(&ViewInput {
            pools: pools.collect(),
            selectors: Selectors::new(&self.pools),
            nodes: nodes.collect(),
            builds: self.builds.clone(),
            stale: self.stale.clone(),
            limit,
            now: NOW.parse().unwrap(),
        })
    }
}

fn merge(to: &mut Value, from: Value) {
    match (to.as_object_mut(), from) {
        (Some(to), Value::Object(from)) => {
            from.into_iter().for_each(|(key, value)| merge(to.entry(key).or_insert(Value::Null), value));
        }
        (_, from) => *to = from,
    }
}

fn condition(kind: &str, status: &str, since: &str) -> Value {
    let time = format!("2026-11-23T{since}:00Z");
    json!({ "type": kind, "status": status, "reason": kind, "message": "-", "lastTransitionTime": time })
}

fn working(drain: &str) -> Value {
    json!({
        "machineconfiguration.openshift.io/state": "Working",
        "machineconfiguration.openshift.io/desiredDrain": drain,
        "machine-config-agent.io/desired-since": "2026-11-23T11:30:00Z",
    })
}

fn policy(name: &str, status: &Value) -> Policy {
    let object = json!({ "metadata": { "name": name }, "spec": {}, "status": status });
    Policy::from_policy(&serde_json::from_value::<RolloutPolicy>(object).unwrap())
}

/// A cluster in the middle of it.
fn cluster() -> Cluster {
    let mut cluster = Cluster::default();
    cluster.state("infra", "Complete", "all 1 nodes have rendered-infra-b", &json!([]));
    let message = "wave 2 of 3: 3 of 9 nodes have rendered-worker-b; waiting for nodes w4 (failing)";
    cluster.state("worker", "Updating", message, &json!([]));
    cluster.pools[1].spec.max_unavailable = Some(serde_json::from_value(json!("50%")).unwrap());
    let soak = json!({ "seconds": 240, "seen": NOW });
    let status = json!({ "wave": 2, "waves": 3, "soak": soak, "nextWindow": "2026-11-24T22:00:00Z" });
    cluster.policies.push(policy("worker", &status));
    cluster.node("i1", "infra", ["b", "b"], json!({}));
    for (name, done) in [("w1", "11:08"), ("w2", "11:10"), ("w3", "11:12")] {
        let since = json!({ "machine-config-agent.io/desired-since": "2026-11-23T11:00:00Z" });
        cluster.node(name, "worker", ["b", "b"], since);
        cluster.config_node(name, "worker", &json!([condition("Updated", "True", done)]));
    }
    let failed = json!({
        "machineconfiguration.openshift.io/state": "Degraded",
        "machineconfiguration.openshift.io/reason": "disk is full\n\u{1b}[2Jgone",
    });
    cluster.node("w4", "worker", ["a", "b"], failed);
    cluster.config_node("w4", "worker", &json!([condition("NodeDegraded", "True", "11:48")]));
    let mut blocked = working("drain-rendered-worker-b");
    let since = "drain-rendered-worker-b 2026-11-23T10:55:00Z";
    merge(
        &mut blocked,
        json!({ "machine-config-agent.io/drain-blocked": KEEPS, "machine-config-agent.io/drain-since": since }),
    );
    cluster.node("w5", "worker", ["a", "b"], blocked);
    cluster.node("w6", "worker", ["a", "b"], working("uncordon-rendered-worker-a"));
    cluster
        .nodes
        .last_mut()
        .unwrap()
        .1
        .insert(crate::drain::LAST_APPLIED.to_owned(), "uncordon-rendered-worker-a".to_owned());
    let rebooting =
        json!([condition("UpdateExecuted", "True", "11:40"), condition("RebootedNode", "Unknown", "11:59")]);
    cluster.config_node("w6", "worker", &rebooting);
    cluster.node("w7", "worker", ["a", "a"], json!({})).node("w8", "worker", ["a", "a"], json!({}));
    cluster.node("w9", "worker", ["a", "b"], json!({})).node("x", "none", ["a", "a"], json!({}));
    cluster
}

#[test]
fn screen_shows_pools_waves_steps_and_blocked_drains() {
    let expected = "\
2026-11-23T12:00:00Z

POOL    TARGET             NODES  UPDATED  AT WORK  WAITING  DEGRADED  OUT  STATE
infra   rendered-infra-b       1        1        0        0         0    0  Complete
worker  rendered-worker-b      9        3        3        2         1    0  Updating

worker: wave 2 of 3: 3 of 9 nodes have rendered-worker-b; waiting for nodes w4 (failing)
  wave 2 of 3, watched for 4m
  next window: 2026-11-24T22:00:00Z
  blocked drains: 1
  about 20m more: 5 nodes are left, 3 at a time; the 3 measured took 10m, at most 12m; waits of waves and windows not counted

nodes of no pool, or of two: 1

NODE  POOL    STEP          FOR    DETAIL
w4    worker  Degraded      12m    disk is full  [2Jgone
w5    worker  DrainBlocked  1h 5m  pod shop/cart-0 is kept by PodDisruptionBudget shop/cart: needs 1 healthy pods and has 1
w6    worker  Rebooting     1m
w9    worker  Starting
";
    assert_eq!(text(&cluster().view(20)), expected);
}

/// On a terminal of 80 columns no word is broken, a digest is short, and the words of states have colors.
#[test]
fn screen_fits_terminal() {
    let mut cluster = cluster();
    let digest = "a".repeat(64);
    let target = format!("rendered-worker-{}", "b".repeat(32));
    cluster.pools[1].spec.configuration.as_mut().unwrap().name = Some(target.clone());
    let message =
        format!("the image of the pool is registry.test/team/os@sha256:{digest}, which no node can pull");
    let degraded =
        json!([{ "type": "ImageBuildDegraded", "status": "True", "reason": "A", "message": message }]);
    cluster.state("gpu", "Halted", "node g1 failed", &degraded);
    let view = cluster.view(20);
    let (piped, narrow) = (text(&view), text_on(&view, Screen { width: Some(80), colors: false }));
    assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
    assert!(piped.lines().any(|line| line.chars().count() > 80), "it proves nothing:\n{piped}");
    let words = |text: &str| {
        let mut words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
        // Their columns are rows there.
        words.retain(|word| !["TARGET", "DETAIL"].contains(&word.as_str()));
        words.sort();
        words
    };
    assert_eq!(words(&narrow), words(&piped), "a word is broken:\n{narrow}");
    assert!(narrow.contains(&format!("\n    {target}\n")), "{narrow}");
    assert!(piped.contains("os@sha256:aaaaaaaaaaaa,") && !piped.contains(&"a".repeat(13)), "{piped}");
    assert!(!narrow.contains('\x1b') && !piped.contains('\x1b'), "{narrow}");
    let colored = text_on(&view, Screen { width: Some(80), colors: true });
    for word in ["\x1b[1;31mHalted\x1b[0m", "\x1b[32mComplete\x1b[0m", "\x1b[1;31mDrainBlocked\x1b[0m"] {
        assert!(colored.contains(word), "{colored}");
    }
    let plain = colored.replace("\x1b[1;31m", "").replace("\x1b[32m", "").replace("\x1b[36m", "");
    assert_eq!(plain.replace("\x1b[0m", ""), narrow, "colors move a column");
    // Names that are longer than a terminal has room for.
    cluster.node(&"n".repeat(63), "worker", ["a", "b"], json!({}));
    let ragged = text_on(&cluster.view(20), Screen { width: Some(80), colors: true });
    let row = ragged.lines().find(|line| line.starts_with("nnn")).unwrap();
    assert_eq!(row, format!("{}  worker", "n".repeat(63)), "{ragged}");
}

#[test]
fn json_has_same_content() {
    let json = serde_json::to_value(cluster().view(2)).unwrap();
    assert_eq!((&json["moreNodes"], &json["nodesWithoutPool"]), (&json!(2), &json!(1)));
    assert_eq!(
        json["nodes"][1],
        json!({ "name": "w5", "pool": "worker", "step": "DrainBlocked", "since": "2026-11-23T10:55:00Z", "detail": KEEPS })
    );
    let pool = &json["pools"][1];
    assert_eq!(pool["wave"], json!({ "number": 2, "of": 3, "watchedSeconds": 240 }));
    assert_eq!(
        (&pool["atWork"], &pool["drainsBlocked"], &pool["estimate"]["seconds"]),
        (&json!(3), &json!(1), &json!(1200))
    );
    assert!(pool.get("halted").is_none() && json["pools"][0].get("estimate").is_none());
}

/// A node that left its pool during its update, and one that two pools claim: no pool counts them, and they are shown all the same.
#[test]
fn nodes_of_no_pool_are_shown_with_their_updates() {
    let mut cluster = Cluster::default();
    for pool in ["gpu", "infra"] {
        cluster.state(pool, "Complete", "all 0 nodes have it", &json!([]));
    }
    cluster.pools[1].spec.node_selector =
        Some(serde_json::from_value(json!({ "matchLabels": { "second": "" } })).unwrap());
    cluster.node("done", "none", ["a", "a"], json!({})).node("left", "none", ["a", "b"], json!({}));
    cluster.node("both", "gpu", ["a", "b"], working("uncordon-rendered-gpu-a"));
    cluster.nodes.last_mut().unwrap().0.labels.insert("second".to_owned(), String::new());
    let text = text(&cluster.view(20));
    let rows: Vec<Vec<&str>> = text
        .lines()
        .skip_while(|line| !line.starts_with("NODE "))
        .map(|row| row.split_whitespace().collect())
        .collect();
    assert_eq!(rows.len(), 3, "{text}");
    assert_eq!((rows[1][0], rows[1][1]), ("both", "gpu,infra"), "{text}");
    assert_eq!((rows[2][0], rows[2][1]), ("left", "-"), "{text}");
    assert!(text.contains("nodes of no pool, or of two: 3"), "{text}");
}

/// Each word of a step in JSON is the one of the table.
#[test]
fn steps_have_one_word() {
    for row in cluster().view(20).nodes {
        assert_eq!(serde_json::to_value(row.step).unwrap(), row.step.as_str());
    }
}

#[test]
fn halt_pause_and_faults_are_shown() {
    let mut cluster = Cluster::default();
    let why = "2 failed nodes, 1 allowed; first node w1: no space; correct the MachineConfig, or resume";
    let render = json!([{ "type": "RenderDegraded", "status": "True", "message": "50-a: fips" }]);
    cluster.state("halted", "Halted", why, &render);
    let halt = json!({ "halt": { "at": NOW, "node": "w1", "cause": "no space", "failed": 2, "allowed": 1 } });
    cluster.policies.push(policy("halted", &halt));
    cluster.state("paused", "Paused", "pool paused is paused; set spec.paused to false to go on", &json!([]));
    cluster.pools[1].spec.paused = Some(true);
    cluster.pools[1].metadata.generation = Some(3);
    cluster.pool("quiet", json!({}));
    cluster.stale.push("nodes can't be read: connection refused".to_owned());
    let view = cluster.view(20);
    assert_eq!(view.pools[0].halted.as_ref().map(|halted| (&*halted.node, halted.failed)), Some(("w1", 2)));
    let expected = "\
2026-11-23T12:00:00Z
NOT CURRENT: nodes can't be read: connection refused; what was read before is shown

POOL    TARGET             NODES  UPDATED  AT WORK  WAITING  DEGRADED  OUT  STATE
halted  rendered-halted-b      0        0        0        0         0    0  Halted
paused  rendered-paused-b      0        0        0        0         0    0  Paused
quiet   rendered-quiet-b       0        0        0        0         0    0  Unknown

halted: 2 failed nodes, 1 allowed; first node w1: no space; correct the MachineConfig, or resume
  RenderDegraded: 50-a: fips

paused: pool paused is paused; set spec.paused to false to go on
  the controller has not acted on the last change of the pool yet

quiet: no controller has written the pool's status yet; see that machine-config-controller runs and leads
";
    assert_eq!(text(&view), expected);
    assert_eq!(
        text(&Cluster::default().view(20)),
        "2026-11-23T12:00:00Z\n\nThere is no MachineConfigPool; apply one that selects MachineConfigs and nodes\n"
    );
}

/// Two measured nodes, or a pool without free capacity, give no estimate.
#[test]
fn estimate_needs_measured_nodes() {
    let mut few = cluster();
    few.progress.remove("w3");
    assert_eq!(few.view(20).pools[1].estimate, None);
    // Times on the way to another config do not count.
    let mut other = cluster();
    other.progress.get_mut("w3").unwrap().desired = "rendered-worker-a".to_owned();
    assert_eq!(other.view(20).pools[1].estimate, None);
    let mut full = cluster();
    full.pools[1].spec.max_unavailable = None;
    assert_eq!(full.view(20).pools[1].estimate, None);
    let mut paused = cluster();
    paused.pools[1].spec.paused = Some(true);
    assert_eq!(paused.view(20).pools[1].estimate, None);
}

/// 5,000 nodes: the screen stays one, and counts all of them.
#[test]
fn screen_of_5000_nodes_is_bounded() {
    let mut cluster = Cluster::default();
    cluster.state("worker", "Updating", "", &json!([]));
    for number in 0..5000 {
        let config = if number < 3000 { "b" } else { "a" };
        cluster.node(&format!("n{number:04}"), "worker", ["a", config], json!({}));
    }
    let view = cluster.view(20);
    assert_eq!((view.nodes.len(), view.more_nodes), (20, 2980));
    assert_eq!((view.pools[0].nodes, view.pools[0].at_work, view.pools[0].waiting), (5000, 3000, 2000));
    let text = text(&view);
    assert!(text.ends_with("and 2980 more nodes that are not done\n") && text.lines().count() < 40, "{text}");
}

/// A build with its step, its duration and its last line; the cause of one that failed.
#[test]
fn builds_show_step_duration_and_last_line() {
    let mut cluster = Cluster::default();
    cluster.state("worker", "Building", "the image is built", &json!([]));
    let time = |text: &str| Some(format!("2026-11-23T{text}:00Z").parse().unwrap());
    let build = |name: &str, state, config: &str| ObservedBuild {
        name: name.to_owned(),
        pool: "worker".to_owned(),
        config: format!("rendered-worker-{config}"),
        state,
        began: time("11:30"),
        since: time("11:50"),
        message: "RUN false\nended with 1".to_owned(),
        last_line: Some("STEP 5/9: RUN dnf install strace\u{1b}[2J".to_owned()),
    };
    cluster.builds = vec![
        build("worker-1", Some("Building"), "b"),
        build("worker-2", Some("Failed"), "b"),
        // Neither waited for nor to be corrected any more.
        build("worker-3", Some("Failed"), "a"),
        build("worker-4", Some("Succeeded"), "b"),
        ObservedBuild { last_line: None, message: String::new(), ..build("worker-5", None, "a") },
    ];
    let view = cluster.view(20);
    let screen = text(&view);
    let expected = "
BUILD     POOL    STEP      FOR  DETAIL
worker-2  worker  Failed    10m  RUN false ended with 1
worker-1  worker  Building  30m  STEP 5/9: RUN dnf install strace [2J
worker-5  worker  Created   30m
";
    assert!(screen.ends_with(expected), "{screen}");
    for row in &view.builds {
        assert_eq!(serde_json::to_value(row.step).unwrap(), row.step.as_str());
    }
}

/// Fields that nobody knows are not in the rendered config: the pool alone can name them.
#[test]
fn unknown_fields_are_named() {
    let mut cluster = Cluster::default();
    let unknown = "MachineConfig 50-a: spec.kernelargs is not known (did you mean kernelArguments?)";
    let condition = json!([{ "type": "UnknownFields", "status": "True", "message": unknown }]);
    cluster.state("worker", "Complete", "", &condition);
    let view = cluster.view(20);
    assert_eq!(view.pools[0].problems, [format!("UnknownFields: {unknown}")]);
    assert!(text(&view).contains(unknown));
}

/// The API server's words about nodes that are not written to.
#[test]
fn unwritten_nodes_are_named() {
    let words = "node w0 can't be written: a webhook says no (403); they take no place of maxUnavailable";
    let unwritten = json!([{ "type": "RolloutNodesNotWritten", "status": "True", "reason": "NodeWriteRefused", "message": words }]);
    let mut cluster = Cluster::default();
    cluster.state(
        "worker",
        "Updating",
        "0 of 1 nodes have rendered-worker-b; waiting for nodes w0 (not written)",
        &unwritten,
    );
    cluster.state("infra", "Complete", "all 1 nodes have rendered-infra-b", &unwritten);
    let text = text(&cluster.view(9));
    assert_eq!(text.matches(&format!("  RolloutNodesNotWritten: {words}")).count(), 2, "{text}");
}

/// A node that was provisioned for a custom pool and refuses its labels is of no pool, as the pools say themselves.
#[test]
fn node_without_labels_of_its_pool_is_of_no_pool() {
    let words = "node i2 can't be written: labeling for pool infra is refused: no (403); they take no place of maxUnavailable";
    let unwritten = json!([{ "type": "RolloutNodesNotWritten", "status": "True", "message": words }]);
    for (conditions, nodes) in [(unwritten, 1), (json!([]), 2)] {
        let mut cluster = Cluster::default();
        cluster.state("infra", "NoNodes", "pool infra selects no node", &conditions);
        cluster.state("worker", "Complete", "all 1 nodes have rendered-worker-b", &json!([]));
        cluster.node("w0", "worker", ["b", "b"], json!({})).node("i2", "worker", ["b", "b"], json!({}));
        let config = Some("rendered-infra-a".to_owned());
        let new = &mut cluster.nodes.last_mut().unwrap().0;
        (new.first_pivot, new.current.config, new.desired.config) = (config.clone(), config.clone(), config);
        let view = cluster.view(9);
        assert_eq!((view.pools[1].nodes, view.pools[1].waiting), (nodes, nodes - 1));
        assert_eq!(view.nodes_without_pool, 2 - nodes);
    }
}
