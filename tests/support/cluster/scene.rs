//! A node with its host in a directory, its configs and its agent's access: the start of most cluster tests.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::io::AsyncBufReadExt as _;

use crate::plain_host::{bare, boot};

use super::{
    Agent, AgentOptions, Bench, Identity, MachineConfigBuilder, Request, annotation, call, create_node,
    create_object, grant_kubelets, key, node_api, node_until, object_api, object_until, retarget,
};

/// Files here are changed with nothing else, after a drain, or (by MCD's default) with a drain and a reboot.
pub const QUIET: &str = "/etc/mca-quiet";
pub const DRAINED: &str = "/etc/mca-drained";
pub const REBOOTED: &str = "/etc/mca-rebooted";

/// A node. Its configs are named `rendered-NODE-LETTER`; `a` is desired at first, and the host matches it.
pub struct Scene<'b> {
    pub bench: &'b Bench,
    pub client: Client,
    pub name: String,
    pub host: tempfile::TempDir,
    pub kubeconfig: PathBuf,
}

impl<'b> Scene<'b> {
    /// Sets a node up, with the config `a`: one file in `QUIET`, one in `DRAINED`.
    pub async fn set(bench: &'b Bench, name: &str, annotations: &[(&str, &str)]) -> Self {
        let client = bench.client(&format!("test-{name}")).await;
        let host = tempfile::tempdir().unwrap();
        let kubeconfig = bench.kubeconfig(&Identity::Kubelet(name.to_owned()));
        let scene = Self { bench, client, name: name.to_owned(), host, kubeconfig };
        bare(scene.host.path());
        for directory in [QUIET, DRAINED] {
            std::fs::create_dir_all(scene.path(directory)).unwrap();
            scene.write(&format!("{directory}/{name}"), "a");
        }
        policy(bench, &scene.client).await;
        scene.builder("a", "a", "a").create(&scene.client).await;
        let first = scene.config("a");
        create_node(&scene.client, name, &[annotations, &[("desiredConfig", &first)]].concat()).await;
        scene
    }

    /// As [`Scene::set`], with `b` and `c`: from `a` to these a drain is needed, between them nothing is.
    pub async fn with_drained(bench: &'b Bench, name: &str, annotations: &[(&str, &str)]) -> Self {
        let scene = Self::set(bench, name, annotations).await;
        for letter in ["b", "c"] {
            scene.builder(letter, letter, "later").create(&scene.client).await;
        }
        scene
    }

    /// Begins a config with the contents of the two files that the host has.
    pub fn builder(&self, letter: &str, quiet: &str, drained: &str) -> MachineConfigBuilder {
        let config = MachineConfigBuilder::new(&self.config(letter));
        let config = config.file(&format!("{QUIET}/{}", self.name), 0o644, quiet);
        config.file(&format!("{DRAINED}/{}", self.name), 0o644, drained)
    }

    /// Returns the real path of a path of the host.
    pub fn path(&self, path: &str) -> PathBuf {
        self.host.path().join(path.trim_start_matches('/'))
    }

    pub fn write(&self, path: &str, text: &str) {
        std::fs::write(self.path(path), text).unwrap();
    }

    /// Returns the content of the node's file in a directory.
    pub fn on_disk(&self, directory: &str) -> Option<String> {
        std::fs::read_to_string(self.path(&format!("{directory}/{}", self.name))).ok()
    }

    /// Plays a boot: it has another id.
    pub fn boot(&self, number: u32) {
        boot(self.host.path(), number);
    }

    pub fn config(&self, letter: &str) -> String {
        format!("rendered-{}-{letter}", self.name)
    }

    pub fn agent(&self, more: &[&str]) -> Agent {
        let options = AgentOptions::new(&self.kubeconfig, &self.name, self.host.path());
        Agent::start(&more.iter().fold(options, |options, word| options.arg(word)))
    }

    /// Waits until `status` is as desired; returns its text.
    pub async fn status(&self, desired: impl Fn(&str) -> bool) -> String {
        let command = |more: &[&str]| {
            let mut command = tokio::process::Command::new(super::agent::program());
            command.args(["status", "--os-backend", "none", "--root"]).arg(self.host.path()).args(more);
            command.kill_on_drop(true);
            command
        };
        let mut child = command(&["--watch"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = tokio::io::BufReader::new(child.stdout.take().unwrap()).lines();
        let found = async {
            let mut text = String::new();
            while let Some(line) = lines.next_line().await.unwrap() {
                // Each begins with its node.
                if line.starts_with("Node ") {
                    let output = command(&[]).output().await.unwrap();
                    text = String::from_utf8(output.stdout).unwrap();
                    if desired(&text) {
                        return text;
                    }
                }
            }
            panic!("`status --watch` ended: {text}")
        };
        super::within("a status", found).await
    }

    pub async fn want(&self, letter: &str) {
        retarget(&self.client, &self.name, &self.config(letter), None).await;
    }

    pub async fn patch(&self, patch: Value) {
        let params = PatchParams::default();
        node_api(&self.client).patch(&self.name, &params, &Patch::Merge(patch)).await.unwrap();
    }

    pub async fn until(&self, what: &str, desired: impl FnMut(&Node) -> bool) -> Node {
        node_until(&self.client, &self.name, what, desired).await
    }

    pub async fn done(&self, letter: &str) -> Node {
        let config = self.config(letter);
        let is = |node: &Node| {
            annotation(node, "state") == Some("Done")
                && annotation(node, "currentConfig") == Some(config.as_str())
        };
        self.until(&format!("Done with {config}"), is).await
    }

    /// Waits for the last word of an update: the MachineConfigNode's, after the Node's and the Events.
    pub async fn settled(&self, letter: &str) -> Node {
        let node = self.done(letter).await;
        self.updated(letter).await;
        node
    }

    pub fn mcns(&self) -> Api<DynamicObject> {
        object_api(&self.client, "machineconfignodes")
    }

    /// Waits until the MachineConfigNode is as desired.
    pub async fn mcn(&self, what: &str, desired: impl Fn(&Value) -> bool) -> Value {
        let read = |object: &DynamicObject| serde_json::to_value(object).unwrap();
        read(&object_until(&self.mcns(), &self.name, what, |object| desired(&read(object))).await)
    }

    /// Waits until the MachineConfigNode reports the node as updated to a config.
    pub async fn updated(&self, letter: &str) -> Value {
        let config = self.config(letter);
        let is = |mcn: &Value| {
            status(mcn, "Updated") == "True" && mcn["status"]["configVersion"]["current"] == config.as_str()
        };
        self.mcn(&format!("updated to {config}"), is).await
    }

    /// The agent's requests since a mark.
    pub async fn requests(&self, mark: usize) -> Vec<Request> {
        let user = format!("system:node:{}", self.name);
        let mut all = self.bench.requests_since(mark).await;
        all.retain(|request| request.user == user);
        all
    }

    /// Returns the agent's patches of the Node's annotations since a mark, keys without their prefix.
    pub async fn written(&self, mark: usize) -> Vec<serde_json::Map<String, Value>> {
        let requests = self.requests(mark).await;
        let patches =
            requests.iter().filter(|request| request.verb == "patch" && request.resource == "nodes");
        // Nothing was written by one whose connection went before the server had read it: it has no body there.
        let annotations = patches.filter_map(|patch| patch.body.as_ref());
        let annotations =
            annotations.map(|body| body["metadata"]["annotations"].as_object().unwrap().clone());
        let short = |key_: String| key_.strip_prefix(&key("")).unwrap().to_owned();
        annotations.map(|all| all.into_iter().map(|(key, value)| (short(key), value)).collect()).collect()
    }
}

/// A condition of a MachineConfigNode.
pub fn condition<'a>(mcn: &'a Value, kind: &str) -> &'a Value {
    let all = mcn["status"]["conditions"].as_array();
    all.and_then(|all| all.iter().find(|one| one["type"] == kind)).unwrap_or(&Value::Null)
}

/// Its status; empty when it is not there.
pub fn status(mcn: &Value, kind: &str) -> String {
    condition(mcn, kind)["status"].as_str().unwrap_or_default().to_owned()
}

/// The policy of all tests on one server.
async fn policy(bench: &Bench, client: &Client) {
    static DONE: OnceLock<tokio::sync::Mutex<Vec<String>>> = OnceLock::new();
    let mut done = DONE.get_or_init(|| tokio::sync::Mutex::new(Vec::new())).lock().await;
    if done.contains(&bench.url()) {
        return;
    }
    create_policy(client).await;
    done.push(bench.url());
}

/// Creates the policy, so that `QUIET` and `DRAINED` are what their names say, and what agents are allowed.
pub async fn create_policy(client: &Client) {
    let entry = |path: &str, action: &str| json!({ "path": path, "actions": [{ "type": action }] });
    let policy = json!({ "files": [entry(QUIET, "None"), entry(DRAINED, "Drain")] });
    let spec = json!({ "managementState": "Managed", "nodeDisruptionPolicy": policy });
    create_object(client, "machineconfigurations", "cluster", json!({ "spec": spec })).await.unwrap();
    grant_kubelets(client).await;
}
