//! `plan --to desired` of a cluster's node: its plan, read with the agent's own access, without a write.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::cluster::scene::{DRAINED, Scene};
use crate::cluster::{Bench, create_node};

async fn run(scene: &Scene<'_>, more: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_machine-config-agent"));
    command.args(["plan", "--os-backend", "none", "--output", "json", "--root"]).arg(scene.host.path());
    command.args(more).env_remove("NODE_NAME").kill_on_drop(true).output().await.unwrap()
}

fn json(output: &Output) -> Value {
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{err}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Each file below a directory with its contents and when it was written.
fn files(directory: &Path) -> BTreeMap<String, (Vec<u8>, std::time::SystemTime)> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let (path, metadata) = (entry.path(), entry.metadata().unwrap());
        if metadata.is_dir() {
            found.extend(files(&path));
        } else if metadata.is_file() {
            let contents = std::fs::read(&path).unwrap();
            found.insert(path.display().to_string(), (contents, metadata.modified().unwrap()));
        }
    }
    found
}

/// Without a flag it asks what the agent of this host follows, also when that agent is gone; what the Node desires, the
/// config and the policy are one GET each, and nothing is written there or here.
#[tokio::test]
async fn plan_of_node_reads_three_objects_and_writes_nothing() {
    let scene = Scene::with_drained(Bench::shared(), "plan-desired", &[]).await;
    let agent = scene.agent(&[]);
    scene.done("a").await;
    agent.terminate().await;
    scene.want("b").await;
    let (mark, before) = (scene.bench.mark().await, files(scene.host.path()));
    let plan = json(&run(&scene, &[]).await);
    assert_eq!(plan["from"]["config"], scene.config("a").as_str());
    assert_eq!(plan["to"]["config"], scene.config("b").as_str());
    // The cluster's policy: MCD's defaults would reboot.
    assert_eq!((&plan["drain"], &plan["after"]["kind"]), (&Value::Bool(true), &"nothing".into()));
    let paths: Vec<&str> =
        plan["steps"].as_array().unwrap().iter().filter_map(|step| step["target"].as_str()).collect();
    assert!(paths.contains(&format!("{DRAINED}/{}", scene.name).as_str()), "{plan}");
    let lines: Vec<String> = scene.requests(mark).await.iter().map(crate::cluster::Request::line).collect();
    let expected = [
        format!("get nodes {}", scene.name),
        format!("get machineconfigs {}", scene.config("b")),
        "get machineconfigurations cluster".to_owned(),
    ];
    assert_eq!(lines, expected);
    assert_eq!(files(scene.host.path()), before);
}

/// On a host without an agent's report the flags name the API server; missing input is named, with the next step.
#[tokio::test]
async fn plan_of_new_node_names_missing_input() {
    let scene = Scene::set(Bench::shared(), "plan-new", &[]).await;
    let access = scene.kubeconfig.to_str().unwrap();
    let plan = json(&run(&scene, &["--kubeconfig", access]).await);
    assert_eq!(plan["to"]["config"], scene.config("a").as_str());
    let failed = async |more: &[&str]| {
        let output = run(&scene, more).await;
        let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(printed["refused"].as_array().map(Vec::len), Some(1), "{printed}");
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, text) = failed(&[]).await;
    assert!(code == 2 && text.contains("name --kubeconfig FILE or --directory DIR"), "{code} {text}");
    scene.want("none").await;
    let (code, text) = failed(&["--kubeconfig", access]).await;
    let missing = format!("MachineConfig {} is not in the cluster", scene.config("none"));
    assert!(code == 4 && text.contains(&missing) && text.contains("Next: "), "{code} {text}");
    // No server listens there.
    let away = scene.host.path().join("away");
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let kubeconfig =
        std::fs::read_to_string(access).unwrap().replace(&scene.bench.url(), &format!("https://{closed}"));
    std::fs::write(&away, kubeconfig).unwrap();
    let (code, text) = failed(&["--kubeconfig", away.to_str().unwrap()]).await;
    assert!(code == 4 && text.contains(&closed.to_string()) && text.contains("Next: "), "{code} {text}");
}

/// A Node that no controller has given a config yet desires nothing.
#[tokio::test]
async fn plan_names_missing_desired_config() {
    let bench = Bench::shared();
    let scene = Scene::set(bench, "plan-none", &[]).await;
    create_node(&scene.client, "plan-none-bare", &[]).await;
    let access = bench.kubeconfig(&crate::cluster::Identity::Kubelet("plan-none-bare".to_owned()));
    let output = run(&scene, &["--kubeconfig", access.to_str().unwrap()]).await;
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("Node plan-none-bare has no desiredConfig"), "{text}");
}
