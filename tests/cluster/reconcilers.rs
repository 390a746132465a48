//! The cluster's trust on its nodes, against a real API server: certificates, registries' CAs and the merged pull secret
//! follow the `ControllerConfig` whatever an update does, and an idle node makes no request for it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::cluster::scene::{DRAINED, QUIET, Scene};
use crate::cluster::{
    Behaviour, Bench, Connections, DrainController, Fault, Gates, Request, annotation, call, create_object,
    key, object_api, own_only,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

const NAME: &str = "machine-config-controller";
const KUBELET_CA: &str = "/etc/kubernetes/kubelet-ca.crt";
const CLOUD_CA: &str = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem";
const SECRET: &str = "/etc/mco/internal-registry-pull-secret.json";
const CERTS: &str = "/etc/docker/certs.d";
const SYNCED: &str = "lastSyncedControllerConfigResourceVersion";

fn base64(text: &str) -> String {
    STANDARD.encode(text)
}

fn bundles(registries: &[(&str, &str)]) -> Value {
    registries.iter().map(|(file, data)| json!({ "file": file, "data": base64(data) })).collect()
}

/// The operator's spec, as far as it concerns trust.
fn said(letter: &str, registries: &[(&str, &str)]) -> Value {
    json!({
        "kubeAPIServerServingCAData": base64(&format!("kubelet CA {letter}")),
        "cloudProviderCAData": base64(&format!("cloud CA {letter}\n")),
        "imageRegistryBundleData": bundles(registries),
        "internalRegistryPullSecret": base64(&secret(letter)),
    })
}

fn secret(letter: &str) -> String {
    json!({ "auths": { "reg.test": { "auth": format!("geheim-{letter}") } } }).to_string()
}

/// The node with the cluster's trust: a server of its own, since the object has one name.
struct Trusting<'b> {
    scene: Scene<'b>,
}

impl<'b> Trusting<'b> {
    async fn set(bench: &'b Bench, name: &str, annotations: &[(&str, &str)]) -> Self {
        let scene = Scene::with_drained(bench, name, annotations).await;
        std::fs::create_dir_all(scene.path(CERTS)).unwrap();
        Self { scene }
    }

    /// Creates the object.
    async fn create(&self, letter: &str, registries: &[(&str, &str)]) -> String {
        let mut spec = json!({
            "additionalTrustBundle": null, "baseOSContainerImage": "", "cloudProviderConfig": "", "clusterDNSIP": "",
            "dns": null, "images": { "machineConfigOperator": "reg.test/mco" }, "infra": null, "ipFamilies": "IPv4",
            "network": null, "proxy": null, "releaseImage": "", "rootCAData": base64("root"),
        });
        spec.as_object_mut().unwrap().extend(said(letter, registries).as_object().unwrap().clone());
        let made =
            create_object(&self.scene.client, "controllerconfigs", NAME, json!({ "spec": spec })).await;
        made.unwrap().metadata.resource_version.unwrap()
    }

    /// Changes it; returns its new version.
    async fn say(&self, patch: Value) -> String {
        let api = object_api(&self.scene.client, "controllerconfigs");
        let patched = api.patch(NAME, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        patched.metadata.resource_version.unwrap()
    }

    async fn change(&self, letter: &str, registries: &[(&str, &str)]) -> String {
        self.say(json!({ "spec": said(letter, registries) })).await
    }

    async fn synced(&self, version: &str) -> Node {
        self.scene.until("the version is synced", |node| annotation(node, SYNCED) == Some(version)).await
    }

    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.scene.path(path)).ok()
    }

    fn registries(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.scene.path(CERTS)).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn mode(&self, path: &str) -> u32 {
        std::fs::metadata(self.scene.path(path)).unwrap().permissions().mode() & 0o7777
    }

    /// All that was said with a letter is on the host.
    fn holds(&self, letter: &str) {
        assert_eq!(self.read(KUBELET_CA), Some(format!("kubelet CA {letter}\n")));
        assert_eq!(self.read(CLOUD_CA), Some(format!("cloud CA {letter}\n")));
        assert_eq!(self.read(SECRET), Some(secret(letter) + "\n"));
        assert_eq!(self.mode(SECRET), 0o600);
    }
}

/// Reads files over and over: each of them is there, whole, at every moment.
struct Reader {
    end: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Reader {
    fn start(files: Vec<(PathBuf, &'static str)>) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&end);
        let thread = std::thread::spawn(move || {
            let mut reads = 0;
            while !ended.load(Ordering::Relaxed) {
                for (path, begin) in &files {
                    let text = std::fs::read_to_string(path)
                        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                    assert!(
                        text.starts_with(begin) && text.len() > begin.len(),
                        "{} holds {text:?}",
                        path.display()
                    );
                    reads += 1;
                }
            }
            reads
        });
        Self { end, thread }
    }

    fn end(self) {
        self.end.store(true, Ordering::Relaxed);
        assert!(self.thread.join().unwrap() > 100);
    }
}

fn no_secret(lines: &[String], requests: &[Request]) {
    let told = lines.join("\n");
    for word in ["geheim", &base64("geheim")[..7], "auths"] {
        assert!(!told.contains(word), "{told}");
        assert!(!format!("{requests:?}").contains(word), "a request tells it");
    }
}

/// FIL-012, MCD-235, MCD-236, MCD-237, MCD-241, W-6, W-15: written while the pool is paused, while an update waits for
/// its drain and while the node is Degraded by drift; no reboot; a CA is there at every moment; a stale registry goes;
/// the secret is root's alone and logged nowhere.
#[tokio::test]
async fn trust_follows_cluster_in_any_state_of_node() {
    let bench = Bench::private(Gates::Default);
    let node = Trusting::set(&bench, "duties", &[]).await;
    let drains = DrainController::start(&bench, "duties", Behaviour::Delay).await;
    let version = node.create("a", &[("reg.test..5000", "CA a"), ("old.test", "CA old")]).await;
    let agent = node.scene.agent(&[]);
    node.scene.settled("a").await;
    let synced = node.synced(&version).await;
    assert_eq!(annotation(&synced, "lastObservedServerCAAnnotation"), Some("false"));
    node.holds("a");
    assert_eq!(node.registries(), ["old.test", "reg.test:5000"]);
    assert_eq!((node.mode(KUBELET_CA), node.mode(&format!("{CERTS}/old.test"))), (0o644, 0o755));
    let registry = format!("{CERTS}/reg.test:5000/ca.crt");
    let files = [(KUBELET_CA, "kubelet CA "), (CLOUD_CA, "cloud CA "), (&*registry, "CA ")];
    let reader = Reader::start(files.map(|(path, begin)| (node.scene.path(path), begin)).to_vec());

    // A paused pool: nothing but the object changes.
    let mark = bench.mark().await;
    let version = node.change("b", &[("reg.test..5000", "CA b")]).await;
    node.synced(&version).await;
    node.holds("b");
    assert_eq!(node.read(&registry).as_deref(), Some("CA b"));
    assert_eq!(node.registries(), ["reg.test:5000"]);
    let paused = node.scene.requests(mark).await;
    assert_eq!(paused.iter().map(Request::line).collect::<Vec<_>>(), ["patch nodes duties"]);

    // An update that waits for its drain.
    node.scene.want("b").await;
    node.scene.until("the drain is asked for", |node| annotation(node, "desiredDrain").is_some()).await;
    let version = node.change("c", &[("reg.test..5000", "CA c"), ("new.test", "CA new")]).await;
    let waiting = node.synced(&version).await;
    assert_eq!(annotation(&waiting, "state"), Some("Working"));
    assert_eq!(node.scene.on_disk(DRAINED).as_deref(), Some("a"), "the update went on without its drain");
    node.holds("c");
    assert_eq!(node.registries(), ["new.test", "reg.test:5000"]);
    drains.release();
    node.scene.settled("b").await;

    // A node that drifted.
    node.scene.write(&format!("{QUIET}/duties"), "drifted");
    node.scene.until("Degraded", |node| annotation(node, "state") == Some("Degraded")).await;
    let version = node.change("d", &[("reg.test..5000", "CA d")]).await;
    let drifted = node.synced(&version).await;
    assert!(annotation(&drifted, "reason").unwrap().contains("ConfigDrift"));
    node.holds("d");
    assert_eq!(node.registries(), ["reg.test:5000"]);
    node.scene.write(&format!("{QUIET}/duties"), "b");
    node.scene.settled("b").await;
    reader.end();

    assert_eq!(agent.lines().iter().filter(|line| line.contains("reboot into")).count(), 0);
    no_secret(&agent.lines(), &node.scene.requests(0).await);
}

/// W-21: a failing reconciler is reported as a fault of its own, blocks no update and no other write, and recovers by
/// itself.
#[tokio::test]
async fn failed_reconciler_blocks_nothing_else() {
    let bench = Bench::private(Gates::Default);
    let node = Trusting::set(&bench, "fails", &[("controlPlaneTopology", "SingleReplica")]).await;
    let open = node.scene.path(&format!("{CERTS}/open.test"));
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    node.create("a", &[("open.test", "CA"), ("reg.test", "CA a"), ("../../outside", "CA")]).await;
    let _agent = node.scene.agent(&[]);
    let reason = |node: &Node| annotation(node, "reason").unwrap_or_default().to_owned();
    let failed = |word: &'static str| move |node: &Node| reason(node).starts_with(word);
    let told = node.scene.until("the fault", failed("CertificatesNotWritten")).await;
    assert_eq!(annotation(&told, "state"), Some("Degraded"));
    assert!(reason(&told).contains("/etc/docker/certs.d/open.test"), "{}", reason(&told));
    assert_eq!(annotation(&told, SYNCED), None);
    node.holds("a");
    assert_eq!(node.read(&format!("{CERTS}/reg.test/ca.crt")).as_deref(), Some("CA a"));
    // The update completes, and its end is visible in the cluster.
    node.scene.want("b").await;
    let b = node.scene.config("b");
    let reached = |node: &Node| annotation(node, "currentConfig") == Some(b.as_str());
    let updated = node.scene.until("the config in spite of the fault", reached).await;
    assert_eq!(annotation(&updated, "state"), Some("Degraded"));
    assert_eq!(node.scene.on_disk(DRAINED).as_deref(), Some("later"));
    // Mended on the host: nothing has to be said to the agent.
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).unwrap();
    node.scene.until("the next fault", failed("RegistryNameRefused")).await;
    assert_eq!(node.read(&format!("{CERTS}/open.test/ca.crt")).as_deref(), Some("CA"));
    assert!(!node.scene.path("/etc/outside").exists());
    let version = node.change("b", &[("reg.test", "CA b")]).await;
    let healed = node.synced(&version).await;
    assert_eq!(node.registries(), ["open.test", "reg.test"].map(str::to_owned)[1..]);
    assert_eq!(reason(&healed), "");
    node.scene.settled("b").await;
}

/// MCD-241, MCD-242: silence leaves a secret that can be used; a file that others could read is root's alone again, and
/// an object that is deleted takes nothing with it.
#[tokio::test]
async fn empty_controllerconfig_keeps_files() {
    let bench = Bench::private(Gates::Default);
    let node = Trusting::set(&bench, "silence", &[]).await;
    std::fs::create_dir_all(node.scene.path("/etc/mco")).unwrap();
    node.scene.write(SECRET, &(secret("a") + "\n"));
    std::fs::set_permissions(node.scene.path(SECRET), std::fs::Permissions::from_mode(0o644)).unwrap();
    let _agent = node.scene.agent(&[]);
    node.scene.settled("a").await;
    // The watch is there before the object is.
    let version = node.create("a", &[("reg.test", "CA a")]).await;
    node.synced(&version).await;
    node.holds("a");
    let nothing = json!({ "kubeAPIServerServingCAData": base64("\n"), "cloudProviderCAData": base64("\n"),
        "internalRegistryPullSecret": null, "imageRegistryBundleData": null });
    let version = node.say(json!({ "spec": nothing })).await;
    node.synced(&version).await;
    assert_eq!(node.read(KUBELET_CA).as_deref(), Some("kubelet CA a\n"));
    assert_eq!(node.read(CLOUD_CA).as_deref(), Some("\n"));
    assert_eq!(node.read(SECRET), Some(secret("a") + "\n"));
    assert_eq!(node.registries(), Vec::<String>::new());
    let rotated =
        node.say(json!({ "metadata": { "annotations": { key("service-ca-rotate"): "true" } } })).await;
    let told = node.synced(&rotated).await;
    // Not done here, so not reported as done.
    assert_eq!(annotation(&told, "lastObservedServerCAAnnotation"), Some("false"));
    object_api(&node.scene.client, "controllerconfigs").delete(NAME, &DeleteParams::default()).await.unwrap();
    let version = node.create("b", &[]).await;
    node.synced(&version).await;
    node.holds("b");
}

/// The certificate of a CA.
fn authority() -> String {
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
}

/// MCD-238: while the cluster rotates the API server's CA it comes from its `ConfigMap`, also when that is late; the Node
/// says when the kubeconfig has it.
#[tokio::test]
async fn server_ca_comes_from_its_config_map() {
    if !own_only("server_ca_comes_from_its_config_map") {
        return;
    }
    let bench = Bench::private(Gates::Default);
    let node = Trusting::set(&bench, "server-ca", &[]).await;
    let (old, new) = (authority(), authority());
    let kubeconfig =
        |pem: &str| format!("clusters: [{{cluster: {{certificate-authority-data: {}}}}}]\n", base64(pem));
    let path = "/var/lib/kubelet/kubeconfig";
    std::fs::create_dir_all(node.scene.path("/var/lib/kubelet")).unwrap();
    node.scene.write(path, &kubeconfig(&old));
    let _agent = node.scene.agent(&[]);
    let version = node.create("a", &[]).await;
    node.synced(&version).await;
    let rotates = json!({ "metadata": { "annotations": { key("service-ca-rotate"): "true" } } });
    let version = node.say(rotates).await;
    node.synced(&version).await;
    assert_eq!(node.read(path), Some(kubeconfig(&old)));

    let bundle = old.clone() + &new;
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "kubeconfig-data" },
        "data": { "ca-bundle.crt": base64(&bundle) } });
    let maps = "/api/v1/namespaces/openshift-machine-config-operator/configmaps";
    let (code, answer) = call(&node.scene.client, "POST", maps, Some(("application/json", map))).await;
    assert!((200..300).contains(&code), "{answer}");
    let observed = |node: &Node| annotation(node, "lastObservedServerCAAnnotation") == Some("true");
    node.scene.until("the rotation is done", observed).await;
    let text = node.read(path).unwrap();
    let data = text.rsplit(' ').next().unwrap().trim_end_matches(['}', ']', '\n']);
    let trusted = String::from_utf8(STANDARD.decode(data).unwrap()).unwrap();
    let without_space = |text: &str| text.split_ascii_whitespace().collect::<String>();
    assert_eq!(without_space(&trusted), without_space(&bundle));

    let over = json!({ "metadata": { "annotations": { key("service-ca-rotate"): "false" } } });
    let version = node.say(over).await;
    let told = node.synced(&version).await;
    assert_eq!(annotation(&told, "lastObservedServerCAAnnotation"), Some("false"));
    assert_eq!(node.read(path), Some(text));
}

fn trust_requests(requests: &[Request]) -> Vec<String> {
    let of_trust = requests.iter().filter(|request| request.uri.contains("/controllerconfigs"));
    of_trust.map(|request| request.verb.clone()).collect()
}

/// FIL-012: a list and a watch are all that it costs; a change costs the Node's patch, and the same change again
/// writes no file.
#[tokio::test]
async fn following_costs_watch() {
    let bench = Bench::private(Gates::Default);
    let node = Trusting::set(&bench, "cost", &[]).await;
    let version = node.create("a", &[("reg.test", "CA a")]).await;
    let _agent = node.scene.agent(&[]);
    node.scene.settled("a").await;
    node.synced(&version).await;
    assert_eq!(trust_requests(&node.scene.requests(0).await), ["list", "watch"]);
    let inode = || {
        use std::os::unix::fs::MetadataExt as _;
        [KUBELET_CA, SECRET].map(|path| std::fs::metadata(node.scene.path(path)).unwrap().ino())
    };
    let (before, mark) = (inode(), bench.mark().await);
    // The operator writes the object's other fields now and then.
    let version = node.say(json!({ "spec": { "releaseImage": "another" } })).await;
    node.synced(&version).await;
    for beat in 0..3 {
        node.scene
            .patch(json!({ "metadata": { "annotations": { "node.alpha/beat": beat.to_string() } } }))
            .await;
    }
    let version = node.say(json!({ "spec": { "releaseImage": "a third one" } })).await;
    node.synced(&version).await;
    let requests = node.scene.requests(mark).await;
    let lines: Vec<String> = requests.iter().map(Request::line).collect();
    assert_eq!(lines, ["patch nodes cost", "patch nodes cost"]);
    assert_eq!(inode(), before, "what was right was written again");
}

/// A cluster without the kind, and one that does not permit it: asked once, and once more after a reconnect; only the
/// refusal is reported.
#[tokio::test]
async fn absent_controllerconfig_kind_is_not_polled() {
    if !own_only("reconcilers::absent_controllerconfig_kind_is_not_polled") {
        return;
    }
    for (name, code, told) in [("duties-plain", 404, 0), ("duties-refused", 403, 1)] {
        let bench = Bench::private(Gates::Default);
        let node = Trusting::set(&bench, name, &[]).await;
        bench
            .fault(&Fault::status(code).path("/apis/machineconfiguration.openshift.io/v1/controllerconfigs"));
        let mut agent = node.scene.agent(&[]);
        node.scene.settled("a").await;
        let looks = trust_requests(&node.scene.requests(0).await);
        assert!(looks.iter().all(|verb| *verb == "list") && (code == 404 || looks.len() == 1), "{looks:?}");
        let mark = bench.mark().await;
        for beat in 0..3 {
            node.scene
                .patch(json!({ "metadata": { "annotations": { "node.alpha/beat": beat.to_string() } } }))
                .await;
        }
        let mut more = node.scene.requests(mark).await;
        // A kind that is absent is looked for ever less often, and for nothing that happens here.
        more.retain(|request| code == 403 || !request.uri.contains("/controllerconfigs"));
        assert_eq!(more.len(), 0);
        let lines = agent.lines();
        let warned = lines.iter().filter(|line| line.contains("are not watched")).count();
        assert_eq!(warned, told, "{lines:?}");
        bench.clear_faults();
        // A kind that comes later is found without a lost connection; a refusal is looked into with the next one.
        if code == 403 {
            bench.connections(Connections::Dropped);
        }
        let version = node.create("a", &[]).await;
        node.synced(&version).await;
        node.holds("a");
        agent.line("the way back", |line| line.contains("Connected to the API server")).await;
        assert!(agent.terminate().await.success());
    }
}
