//! Each input of an idle node has its own verdict, told at once; and a state has its own time, whatever process tells it.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::daemon_process::Daemon;
use crate::test_host::{Node, config, files, ignition};

/// A policy with which changes cost nothing.
const QUIET: &str = r#"{"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
    "metadata": {"name": "cluster"}, "spec": {"nodeDisruptionPolicy": {
    "files": [{"path": "/etc", "actions": [{"type": "None"}]}]}}}"#;
const PROXY_FILE: &str = "root/etc/mco/proxy.env";
const SETTINGS_FILE: &str = "root/etc/machine-config-agent/settings.toml";

fn put_config(daemon: &Daemon, file: &str, name: &str, text: &str) {
    daemon.put(&format!("machineconfigs/{file}.yaml"), &config(name, &files(&[("/etc/motd", text)])));
}

fn desire(daemon: &Daemon, config: &str) {
    daemon.put("target.yaml", &format!("config: {config}\n"));
}

async fn at_rest(node: Node) -> Daemon {
    let mut daemon = Daemon::start(node);
    daemon.put("policy.yaml", QUIET);
    put_config(&daemon, "rendered-worker-a", "rendered-worker-a", "a");
    desire(&daemon, "rendered-worker-a");
    daemon.until_done("rendered-worker-a").await;
    daemon
}

fn status(daemon: &Daemon) -> Value {
    let ran = daemon.node.run(&["status", "--root", "root", "--os-backend", "none", "--output", "json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    serde_json::from_str(&ran.out).unwrap()
}

fn reasons(document: &Value) -> Vec<&str> {
    let faults = document["faults"].as_array().into_iter().flatten();
    faults.map(|fault| fault["reason"].as_str().unwrap()).collect()
}

/// The policy of an idle node was read by the next update only.
#[tokio::test(flavor = "current_thread")]
async fn invalid_policy_is_told_on_idle_node() {
    let mut daemon = at_rest(Node::new()).await;
    daemon.put("policy.yaml", "kind: Machine");
    daemon.until_fault("InvalidDocument", &["policy.yaml is not valid", "Next: Correct "]).await;
    // A target that is not valid beside it is the worse one: it is what the node is to be.
    daemon.put("target.yaml", "config: a, image: [\n");
    let both = daemon.until("both", |report| reasons(report).len() == 2).await;
    assert!(both["fault"]["message"].as_str().unwrap().contains("target.yaml"), "{both}");
    let text = daemon.node.run(&["status", "--root", "root", "--os-backend", "none"]).out;
    let told: Vec<&str> = text.lines().filter(|line| line.starts_with("  why ")).collect();
    assert!(told.len() == 2 && told[0].contains("target.yaml") && told[1].contains("policy.yaml"), "{text}");
    daemon.put("policy.yaml", QUIET);
    daemon.until("the target alone", |report| reasons(report).len() == 1).await;
    desire(&daemon, "rendered-worker-a");
    daemon.until_done("rendered-worker-a").await;
    assert_eq!(daemon.log().matches("policy.yaml is not valid").count(), 1, "{}", daemon.log());
    // Without the agent `status` reads the inputs itself.
    daemon.put("policy.yaml", "kind: Machine");
    daemon.signal(Signal::TERM);
    daemon.end(Duration::from_secs(60));
    assert_eq!(reasons(&status(&daemon)), ["InvalidDocument"]);
}

/// Nobody knows what such a node is to be; it was Done.
#[tokio::test(flavor = "current_thread")]
async fn node_without_target_any_more_waits_for_it() {
    let mut daemon = at_rest(Node::new()).await;
    std::fs::remove_file(daemon.node.path("control/target.yaml")).unwrap();
    let waits = |report: &Value| {
        let what = report["waiting"].as_str().unwrap_or_default();
        report["state"] == "Working" && what.ends_with("control/target.yaml, which does not exist")
    };
    daemon.until("the target", waits).await;
    let ran =
        daemon.node.run(&["status", "--root", "root", "--os-backend", "none", "--exit-code", "-o", "json"]);
    assert!(ran.code == 1 && ran.out.contains("\"waiting\""), "{}: {}", ran.code, ran.out);
    desire(&daemon, "rendered-worker-a");
    daemon.until_done("rendered-worker-a").await;
    // The same is told without an agent.
    daemon.signal(Signal::TERM);
    daemon.end(Duration::from_secs(60));
    assert_eq!(status(&daemon)["state"], "Done");
    std::fs::remove_file(daemon.node.path("control/target.yaml")).unwrap();
    assert!(waits(&status(&daemon)), "{}", status(&daemon));
}

/// The target is told as it is named, also where the file behind the name is another config.
#[tokio::test(flavor = "current_thread")]
async fn target_with_misnamed_config_is_the_desired_one() {
    let mut daemon = at_rest(Node::new()).await;
    put_config(&daemon, "rendered-worker-b", "rendered-worker-c", "b");
    desire(&daemon, "rendered-worker-b");
    daemon
        .until_fault("ConfigMisnamed", &["rendered-worker-b.yaml holds MachineConfig rendered-worker-c"])
        .await;
    assert_eq!(daemon.report().unwrap()["desiredConfig"], "rendered-worker-b");
    assert_eq!(status(&daemon)["desired"]["config"], "rendered-worker-b");
    daemon.signal(Signal::TERM);
    daemon.end(Duration::from_secs(60));
    let alone = status(&daemon);
    assert_eq!(alone["desired"]["config"], "rendered-worker-b", "{alone}");
    assert_eq!(reasons(&alone), ["ConfigMisnamed"]);
}

/// A line of the file of the proxies that nobody reads is named; one that stops each pull is a fault before there is a pull.
#[tokio::test(flavor = "current_thread")]
async fn lines_of_proxy_file_without_effect_are_named() {
    let node = Node::new();
    node.put(PROXY_FILE, "# ours\nHTTPS_PROXY http://proxy.test:3128\n");
    let daemon = at_rest(node).await;
    let line = "/etc/mco/proxy.env line 2";
    let named = |document: &Value| document["notApplied"].to_string().contains(line);
    assert!(named(&daemon.report().unwrap()) && named(&status(&daemon)), "{}", daemon.log());
    assert!(daemon.log().contains(&format!("Not applied: {line}")), "{}", daemon.log());
    let node = Node::new();
    node.put(PROXY_FILE, "HTTPS_PROXY=http://a\u{7}b\n");
    let mut daemon = Daemon::start(node);
    put_config(&daemon, "rendered-worker-a", "rendered-worker-a", "a");
    daemon.put("policy.yaml", QUIET);
    desire(&daemon, "rendered-worker-a");
    daemon.until_fault("ProxyFileUnusable", &["/etc/mco/proxy.env, line 1"]).await;
    // No file waits for a pull.
    daemon.until("the config", |report| report["currentConfig"] == "rendered-worker-a").await;
}

/// Nobody has to reload an idle agent to learn that a file beside the target is wrong, and right again.
#[tokio::test(flavor = "current_thread")]
async fn proxies_and_settings_of_idle_node_are_judged_at_once() {
    let node = Node::new();
    node.put(PROXY_FILE, "HTTPS_PROXY=http://proxy.test:3128\n");
    node.put(SETTINGS_FILE, "[os]\nstall = \"10m\"\n");
    let mut daemon = at_rest(node).await;
    daemon.node.put(PROXY_FILE, "HTTPS_PROXY=http://a\u{7}b\n");
    daemon.until_fault("ProxyFileUnusable", &["/etc/mco/proxy.env, line 1"]).await;
    daemon.node.put(PROXY_FILE, "");
    daemon.until_done("rendered-worker-a").await;
    daemon.node.put(SETTINGS_FILE, "[os\n");
    daemon.until_fault("SettingsInvalid", &["settings.toml is invalid: line 1"]).await;
    let said = status(&daemon);
    assert_eq!((&said["state"], reasons(&said)), (&json!("Degraded"), vec!["SettingsInvalid"]), "{said}");
    daemon.node.put(SETTINGS_FILE, "[os]\nstall = \"12m\"\n");
    daemon.until_done("rendered-worker-a").await;
    let told = |words: &str| daemon.log().matches(words).count();
    assert_eq!((told("SettingsInvalid: "), told("ProxyFileUnusable: ")), (1, 1), "{}", daemon.log());
}

/// A program of the OS that does not answer hides nothing that the agent said, and is named.
#[tokio::test(flavor = "current_thread")]
async fn agents_word_is_shown_where_another_look_at_host_fails() {
    let mut daemon = at_rest(Node::new()).await;
    // There is no system bus for it here.
    let look = ["status", "--root", "root", "--os-backend", "rpm-ostree", "--output", "json"];
    let seen = daemon.node.run(&look);
    assert_eq!(seen.code, 0, "{}", seen.err);
    let seen: Value = serde_json::from_str(&seen.out).unwrap();
    assert_eq!((&seen["state"], &seen["current"]["config"]), (&json!("Done"), &json!("rendered-worker-a")));
    assert!(seen["unread"][0].as_str().unwrap().starts_with("the host: can't inspect the OS: "), "{seen}");
    daemon.signal(Signal::TERM);
    daemon.end(Duration::from_secs(60));
    let alone = daemon.node.run(&look);
    assert!(alone.code == 4 && alone.out.contains("\"refused\""), "{}: {}", alone.code, alone.out);
}

/// A start of the agent is no new state, and the end of a fault is one.
#[tokio::test(flavor = "current_thread")]
async fn since_is_time_of_state_and_not_of_process() {
    let mut daemon = at_rest(Node::new()).await;
    let since = |daemon: &Daemon| daemon.report().unwrap()["since"].as_str().unwrap().to_owned();
    let pause = || tokio::time::sleep(Duration::from_millis(1100));
    let committed = since(&daemon);
    pause().await;
    daemon.restart();
    daemon.until_logged(&["Config Drift Monitor started"]).await;
    daemon.until_done("rendered-worker-a").await;
    assert_eq!(since(&daemon), committed, "of the process");
    daemon.node.put("root/etc/motd", "by hand");
    daemon.until_fault("ConfigDrift", &[]).await;
    let drifted = since(&daemon);
    assert!(drifted > committed, "{drifted}");
    pause().await;
    daemon.node.put("root/etc/motd", "a");
    daemon.until_done("rendered-worker-a").await;
    let mended = since(&daemon);
    assert!(mended > drifted, "{mended}");
    pause().await;
    daemon.restart();
    daemon.until_logged(&["Config Drift Monitor started"]).await;
    daemon.until_done("rendered-worker-a").await;
    assert_eq!(since(&daemon), mended, "of the commit");
    // The same is read without an agent.
    daemon.signal(Signal::TERM);
    daemon.end(Duration::from_secs(60));
    assert_eq!(status(&daemon)["since"], json!(mended));
}

/// What a host does not get is named where its config needs no step: it is not "in sync".
#[tokio::test(flavor = "current_thread")]
async fn adopted_config_names_what_is_not_applied() {
    let node = Node::new();
    node.put("root/etc/passwd", "root:x:0:0::/root:/bin/sh\n");
    let mut daemon = Daemon::start(node);
    daemon.put("policy.yaml", QUIET);
    let keys = json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA a"]}]}});
    daemon.put("machineconfigs/rendered-worker-a.yaml", &config("rendered-worker-a", &ignition(keys)));
    desire(&daemon, "rendered-worker-a");
    daemon.until("the config", |report| report["currentConfig"] == "rendered-worker-a").await;
    let log = daemon.log();
    assert!(!log.contains("is in sync"), "{log}");
    let line = "rendered-worker-a needs no step, but this host does not get all of it. Not applied: passwd.users \"core\"";
    assert!(log.contains(line), "{log}");
    put_config(&daemon, "rendered-worker-b", "rendered-worker-b", "b");
    daemon.node.put("root/etc/motd", "b");
    desire(&daemon, "rendered-worker-b");
    daemon.until_done("rendered-worker-b").await;
}

/// A root that is none is named by every verb in one sentence, with what to do about it; nothing is written there.
#[test]
fn root_that_is_none_is_refused_by_every_verb() {
    let node = Node::new();
    node.put("file", "x");
    node.put("empty/.keep", "");
    node.put("control/.keep", "");
    node.put("b.json", config("rendered-worker-b", &ignition(json!({"storage": {"files": []}}))));
    let before = node.listing(".");
    let no_backend = ["--os-backend", "none"];
    let verbs: [(&[&str], i32); 9] = [
        (&["status"], 4),
        (&["status", "--watch"], 4),
        (&["plan", "--to", "b.json"], 4),
        (&["verify"], 4),
        (&["verify", "--config", "b.json"], 4),
        (&["apply", "--to", "b.json", "--yes"], 4),
        (&["collect", "--file", "-"], 4),
        (&["daemon", "--directory", "control"], 104),
        (&["firstboot"], 104),
    ];
    let next = "Name the root directory of a host, with its /proc, with --root.";
    for (root, cause) in [
        ("file", "can't open the root file: Not a directory"),
        ("nowhere", "can't open the root nowhere: No such file or directory"),
        ("empty", "can't find a host in the root empty: it has no /proc/sys/kernel/random/boot_id"),
    ] {
        let told = format!("error: {cause}\nNext: {next}\n");
        for (words, code) in verbs {
            let ran = node.run(&[words, &no_backend, &["--root", root]].concat());
            assert_eq!((ran.code, &*ran.out), (code, ""), "{root}: {words:?}: {}", ran.err);
            if code < 100 {
                assert_eq!(ran.err, told, "{root}: {words:?}");
            } else {
                let line = format!("Io: {cause}. Next: {next}\n");
                assert!(
                    ran.err.lines().count() == 1 && ran.err.ends_with(&line),
                    "{root}: {words:?}: {}",
                    ran.err
                );
            }
        }
        let history = node.run(&["history", "--root", root]);
        assert_eq!((history.code, history.err), (4, told), "{root}");
    }
    assert_eq!(node.listing("."), before);
}

/// The disk of a host that does not run, without its /proc, still has its history.
#[test]
fn history_of_disk_without_proc_is_read() {
    let node = Node::new();
    std::fs::remove_dir_all(node.path("root/proc")).unwrap();
    let history = node.run(&["history", "--root", "root"]);
    assert_eq!((history.code, &*history.out), (0, "no updates yet\n"), "{}", history.err);
}
