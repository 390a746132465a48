//! `plan` against a cluster: the plan of the same objects in a directory, without a write.

use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::{Value, json};
use tokio::process::Command;

use crate::cluster::{Bench, Identity, MachineConfigBuilder, call, create_object, key, within};
use crate::process::Cluster;

async fn run(more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_machine-config-controller"));
    command.arg("plan").args(more).stdin(Stdio::null()).kill_on_drop(true);
    within("plan ends", command.output()).await.unwrap()
}

fn config(name: &str, contents: &str) -> Value {
    let mut object = MachineConfigBuilder::new(name).file("/etc/a.conf", 0o644, contents).object();
    object["metadata"]["labels"] = json!({ key("role"): "worker" });
    object["metadata"]["annotations"] = Value::Null;
    object
}

fn write(path: &Path, object: &Value) {
    std::fs::write(path, object.to_string()).unwrap();
}

/// Pools, configs and policy are the cluster's; what the file has comes in their place.
#[tokio::test]
async fn plan_of_cluster_is_plan_of_its_manifests() {
    let cluster = Cluster::new().await;
    let pool = cluster.pool("worker").await;
    let actions = json!([{ "type": "Reload", "reload": { "serviceName": "a.service" } }]);
    let policy = json!({
        "apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration", "metadata": { "name": "cluster" },
        "spec": { "managementState": "Managed", "nodeDisruptionPolicy": { "files": [{ "path": "/etc/a.conf", "actions": actions }] } },
    });
    create_object(&cluster.client, "machineconfigurations", "cluster", policy.clone()).await.unwrap();
    let builder = MachineConfigBuilder::new("50-a").file("/etc/a.conf", 0o644, "1");
    cluster.config("worker", builder).await;
    // A rendered config is there as well, and is not rendered again.
    let _controller = cluster.start("a", &["--controllers", "render"]);
    cluster.until_target("worker", "").await;

    let directory = tempfile::tempdir().unwrap();
    let file = tempfile::tempdir().unwrap();
    let file = file.path().join("new.json");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    write(&file, &config("50-a", "2"));
    let at = |name: &str| directory.path().join(name);
    write(&at("pool.json"), &serde_json::to_value(&pool).unwrap());
    write(&at("config.json"), &config("50-a", "1"));
    write(&at("policy.json"), &policy);
    let person = cluster.bench.kubeconfig(&Identity::Admin("person".to_owned()));
    let (file, directory) = (file.to_str().unwrap(), directory.path().to_str().unwrap());
    let person = person.to_str().unwrap();
    let mark = cluster.bench.mark().await;
    for output in ["text", "json"] {
        let live = run(&["--kubeconfig", person, "--pool", "worker", "-f", file, "-o", output]).await;
        let offline = run(&["--manifests", directory, "--pool", "worker", "-f", file, "-o", output]).await;
        let text = |output: &Output| {
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
        };
        assert_eq!(text(&live), text(&offline));
        assert!(live.status.success() && text(&live).contains("a.service"), "{}", text(&live));
    }
    let requests = cluster.bench.requests_since(mark).await;
    let requests: Vec<_> = requests.iter().filter(|one| one.user == "person").collect();
    assert!(!requests.is_empty());
    assert!(requests.iter().all(|one| ["get", "list"].contains(&&*one.verb)), "{requests:?}");
}

#[tokio::test]
async fn plan_of_cluster_names_what_it_cannot_read() {
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("new.json");
    write(&file, &config("50-a", "2"));
    let file = file.to_str().unwrap();
    let error = async |identity: &Identity, pool: &str, code: i32| {
        let kubeconfig = cluster.bench.kubeconfig(identity);
        let output = run(&["--kubeconfig", kubeconfig.to_str().unwrap(), "--pool", pool, "-f", file]).await;
        assert_eq!((output.status.code(), output.stdout.len()), (Some(code), 0));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let nobody = Identity::User { name: "guest".to_owned(), groups: vec![] };
    let denied = error(&nobody, "worker", 4).await;
    for part in [
        "machineconfigpools.machineconfiguration.openshift.io (list)",
        "(403)",
        "name a user with --kubeconfig",
    ] {
        assert!(denied.contains(part), "{part}: {denied}");
    }
    let missing = error(&Identity::Admin("person".to_owned()), "infra", 2).await;
    assert!(
        missing.contains("there is no MachineConfigPool infra in the cluster or the file; it has worker"),
        "{missing}"
    );
}

/// The pool is there, and its first MachineConfig comes by the file. A pool that can't be read, and one without the disruption policy's
/// definition, do not stop it.
#[tokio::test]
async fn first_config_of_pool_of_cluster_is_planned() {
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("new.json");
    write(&file, &config("50-a", "2"));
    let person = cluster.bench.kubeconfig(&Identity::Admin("person".to_owned()));
    let plan = async || {
        let words =
            ["--kubeconfig", person.to_str().unwrap(), "--pool", "worker", "-f", file.to_str().unwrap()];
        let output = run(&words).await;
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (code, text, said) = plan().await;
    assert_eq!((code, &*said), (Some(0), ""));
    assert!(
        text.contains("a node of pool worker that has no config yet:") && text.contains("/etc/a.conf"),
        "{text}"
    );
    let mut bad = serde_json::to_value(cluster.pool("infra").await).unwrap();
    bad["spec"]["maxUnavailable"] = json!("x");
    let path = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools/infra";
    let bad = json!({ "spec": { "maxUnavailable": "-1" } });
    let patch = ("application/merge-patch+json", bad);
    let (stored, answer) = call(&cluster.client, "PATCH", path, Some(patch)).await;
    assert_eq!(stored, 200, "{answer}");
    let (code, planned, said) = plan().await;
    assert_eq!((code, &planned), (Some(4), &text), "{said}");
    assert!(said.contains("MachineConfigPool infra") && said.contains("spec.maxUnavailable"), "{said}");
}

#[tokio::test]
async fn plan_of_cluster_without_disruption_policies_says_so() {
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    let path =
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/machineconfigurations.operator.openshift.io";
    let (code, answer) = call(&cluster.client, "DELETE", path, None).await;
    assert_eq!(code, 200, "{answer}");
    let kind = "/apis/operator.openshift.io/v1/machineconfigurations/cluster";
    within("the kind is gone", async {
        while call(&cluster.client, "GET", kind, None).await.1["details"]["name"] == "cluster" {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("new.json");
    write(&file, &config("50-a", "2"));
    let person = cluster.bench.kubeconfig(&Identity::Admin("person".to_owned()));
    let words = ["--kubeconfig", person.to_str().unwrap(), "--pool", "worker", "-f", file.to_str().unwrap()];
    let output = run(&words).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(said.matches("machineconfigurations.operator.openshift.io").count(), 1, "{said}");
    // Without pools there is nothing to plan.
    let bare = Bench::without_crds();
    let person = bare.kubeconfig(&Identity::Admin("person".to_owned()));
    let words = ["--kubeconfig", person.to_str().unwrap(), "--pool", "worker", "-f", file.to_str().unwrap()];
    let output = run(&words).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("machineconfigpools.machineconfiguration.openshift.io (list)"), "{said}");
    assert!(said.contains("the cluster has no such kind") && said.contains("crds"), "{said}");
}
