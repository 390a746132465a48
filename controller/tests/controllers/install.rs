//! docs/pools.md, as a new user follows it: real kubectl, a real kube-apiserver, the accounts of the manifests, real agents.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use k8s_openapi::api::core::v1::Node;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::cluster::{
    Agent, AgentOptions, Bench, Identity, annotation, call, node_api, node_until, real_only, within,
};
use crate::plain_host::{bare, boot};
use crate::process::{Cluster, condition, target};

const NAMESPACE: &str = "machine-config-agent";

/// Exit code of an agent that asks its supervisor for a reboot.
const REBOOT: i32 = 133;

/// What a person types, with the administrator's kubeconfig.
struct Shell {
    kubectl: PathBuf,
    kubeconfig: PathBuf,
}

impl Shell {
    fn new(bench: &Bench) -> Self {
        let assets = PathBuf::from(std::env::var_os("KUBEBUILDER_ASSETS").unwrap());
        let kubeconfig = bench.kubeconfig(&Identity::Admin("administrator".to_owned()));
        Self { kubectl: assets.join("kubectl"), kubeconfig }
    }

    async fn run(&self, line: &str) -> Output {
        let mut command = Command::new(&self.kubectl);
        command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(line.split_whitespace());
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    /// Runs a command that succeeds; returns its standard output.
    async fn ok(&self, line: &str) -> String {
        let output = self.run(line).await;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {line}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }
}

/// The commands and the files of the page's first sections.
struct Page {
    commands: Vec<String>,
    pool: String,
    policy: String,
}

fn page() -> Page {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/pools.md");
    let text = std::fs::read_to_string(path).unwrap();
    let section = |name: &str| {
        let section = text.split(&format!("\n## {name}\n")).nth(1).unwrap().split("\n## ").next().unwrap();
        let blocks = section.split("\n\n").filter(|block| block.starts_with("    "));
        let plain = |block: &str| {
            let lines = block.lines().map(|line| line.strip_prefix("    ").unwrap_or(line));
            lines.collect::<Vec<_>>().join("\n")
        };
        blocks.map(plain).collect::<Vec<_>>()
    };
    let [commands, pool] = section("Quick start").try_into().unwrap();
    let [policy] = section("Changes without a reboot").try_into().unwrap();
    let commands = commands.lines().map(|line| line.strip_prefix("kubectl ").unwrap().to_owned()).collect();
    Page { commands, pool, policy }
}

/// A pod's token, as its kubelet gets it: the API server knows the node by it. A pod of the `DaemonSet` is drained by nobody.
async fn token(cluster: &Cluster, account: &str, node: &str, owner: Value) -> String {
    let pod = json!({
        "metadata": { "name": format!("{account}-{node}"), "ownerReferences": owner },
        "spec": {
            "nodeName": node, "serviceAccountName": account,
            "containers": [{ "name": "main", "image": "machine-config-agent" }],
        },
    });
    let client = &cluster.client;
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let (code, made) = call(client, "POST", &pods, Some(("application/json", pod))).await;
    assert_eq!(code, 200, "{made}");
    let metadata = &made["metadata"];
    let bound =
        json!({ "apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"] });
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "boundObjectRef": bound },
    });
    let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token");
    let (code, answer) = call(client, "POST", &path, Some(("application/json", request))).await;
    assert_eq!(code, 200, "{answer}");
    answer["status"]["token"].as_str().unwrap().to_owned()
}

/// A node that its kubelet has registered.
async fn register(cluster: &Cluster, name: &str) {
    let node = json!({
        "metadata": { "name": name, "labels": { "kubernetes.io/os": "linux" } },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    let node: Node = serde_json::from_value(node).unwrap();
    node_api(&cluster.client).create(&PostParams::default(), &node).await.unwrap();
}

/// Applies the manifests twice: the second time changes nothing.
async fn install(shell: &Shell, command: &str) {
    let installed = shell.ok(command).await;
    for object in ["daemonset.apps/machine-config-agent", "deployment.apps/machine-config-controller"] {
        assert!(installed.contains(&format!("{object} created")), "{installed}");
    }
    let again = shell.ok(command).await;
    assert!(
        again.lines().all(|line| line.ends_with(" unchanged") || line.ends_with(" configured")),
        "{again}"
    );
}

/// Applies the pool once the API server serves its kind, as the page says.
async fn apply_pool(shell: &Shell, command: &str) {
    within("pool.yaml is accepted", async {
        loop {
            let output = shell.run(command).await;
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            if output.status.success() {
                return;
            }
            assert!(stderr.contains("no matches for kind"), "{stderr}");
        }
    })
    .await;
}

/// Starts an agent with the token of a pod of the `DaemonSet`. It reboots for its first config: no policy says that less is enough.
async fn first_config(cluster: &Cluster, shell: &Shell, host: &Path) -> Agent {
    let uid = "get daemonset machine-config-agent -o jsonpath={.metadata.uid}";
    let uid = shell.ok(&format!("-n {NAMESPACE} {uid}")).await;
    let owner = json!([{
        "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "machine-config-agent", "uid": uid, "controller": true,
    }]);
    let token = token(cluster, "machine-config-agent", "n1", owner).await;
    let kubeconfig = cluster.bench.kubeconfig(&Identity::Token(token));
    bare(host);
    let options = AgentOptions::new(&kubeconfig, "n1", host);
    let before = Agent::start(&options);
    assert_eq!(before.end().await.code(), Some(REBOOT), "{:#?}", before.lines());
    boot(host, 2);
    Agent::start(&options)
}

/// Waits until the node and its pool are at a config of the pool other than this one; returns the pool.
async fn until_done(cluster: &Cluster, other_than: &str) -> Value {
    let desired = cluster.until_target("worker", other_than).await;
    let is_done = |node: &Node| {
        annotation(node, "state") == Some("Done") && annotation(node, "currentConfig") == Some(&desired)
    };
    node_until(&cluster.client, "n1", "Done", is_done).await;
    let updated = |pool: &Value| {
        condition(pool, "Updated")["status"] == "True"
            && pool["status"]["configuration"]["name"] == desired.as_str()
    };
    cluster.until_pool("worker", "updated", updated).await
}

/// Item "Operate" of issue 13: one `kubectl apply -k` and the commands of the page bring a config to a node.
#[tokio::test]
async fn documented_commands_bring_config_to_node() {
    if !real_only("install::documented_commands_bring_config_to_node") {
        return;
    }
    let mut cluster = Cluster::on(Bench::without_crds()).await;
    let shell = Shell::new(&cluster.bench);
    let page = page();
    let [apply_all, apply, watch] = page.commands.as_slice() else { panic!("{:?}", page.commands) };
    let files = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = files.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    for name in ["control-plane", "n1"] {
        register(&cluster, name).await;
    }
    install(&shell, apply_all).await;
    apply_pool(&shell, &apply.replace("pool.yaml", &write("pool.yaml", &page.pool))).await;
    shell.ok("label node n1 node-role.kubernetes.io/worker=").await;
    let controller_token = token(&cluster, "machine-config-controller", "control-plane", json!([])).await;
    cluster.kubeconfig = cluster.bench.kubeconfig(&Identity::Token(controller_token));
    let controller = cluster.start("a", &["--namespace", NAMESPACE]);
    let host = tempfile::tempdir().unwrap();
    let agent = first_config(&cluster, &shell, host.path()).await;
    let pool = until_done(&cluster, "").await;
    let motd = host.path().join("etc/motd");
    assert_eq!(std::fs::read_to_string(&motd).unwrap(), "hello\n");
    let shown = shell.ok(&watch.replace(" --watch", "")).await;
    let row = shown.lines().find(|line| line.starts_with("machineconfigpool")).unwrap();
    assert!(row.contains("rendered-worker-") && row.contains("True"), "{shown}");

    // With the policy of the page, the same agent is done without a reboot.
    shell.ok(&format!("apply -f {}", write("policy.yaml", &page.policy))).await;
    shell.ok(&format!("apply -f {}", write("next.yaml", &page.pool.replace("hello", "again")))).await;
    until_done(&cluster, target(&pool)).await;
    assert_eq!(std::fs::read_to_string(&motd).unwrap(), "again\n");
    assert!(agent.terminate().await.success(), "{:#?}", agent.lines());
    assert!(controller.terminate().await.success(), "{:#?}", controller.lines());
    let refused = |line: &String| line.contains("orbidden");
    assert!(!agent.lines().iter().any(refused), "{:#?}", agent.lines());
    assert!(!controller.lines().iter().any(refused), "{:#?}", controller.lines());
}
