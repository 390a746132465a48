//! The rules (CEL) of our definitions, on a real kube-apiserver: each refuses what it is there for, and nothing else. The tests'
//! own server stores what it is given, whatever the rules say.

use std::collections::BTreeSet;

use kube::Client;
use serde_json::{Value, json};

use crate::cluster::{Bench, call, real_only, within};
use crate::process::{apply_file, document};

const DEFINITIONS: &str = "components/controller/crds.yaml";

const OTHERS: &str = "machineconfiguration.openshift.io/v1";
const OURS: &str = "machine-config-agent.io/v1alpha1";

const IMAGE: &str = "q.io/a@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// Names, as messages are long.
const DIGEST: &str = "the image must end with @sha256:<64 hexadecimal digits>";
const NAME: &str = "the name must be a lowercase RFC 1123 subdomain";
const PUSHED: &str =
    "the image must be HOST[:PORT]/NAME:TAG or SERVICE.NAMESPACE.svc:PORT/REPOSITORY/NAME:TAG";
const GENERATION: &str = "the generation must not fall";
const NODES: &str = "nodes must be at least 1, or 1%";
const SOAK: &str = "soak must be at most 720h";
const CONCURRENCY: &str = "concurrency must be at least 1, or 1%";
const LENGTH: &str = "length must be 1m to 168h";
const TIME: &str = "the time can't change once it is set";
const JOB: &str = "job must be set for the type Job, and for no other";

/// The objects of a kind, and what was refused there.
struct Kind {
    client: Client,
    plural: &'static str,
    path: String,
    /// The object that is there.
    name: &'static str,
    refused: BTreeSet<(&'static str, String)>,
}

impl Kind {
    /// Creates an object that breaks no rule.
    async fn new(client: &Client, group: &str, plural: &'static str, kind: &str, spec: Value) -> Self {
        let path = format!("/apis/{group}/{plural}");
        let name = if plural == "machineconfigurations" { "cluster" } else { "worker" };
        let object = json!({ "apiVersion": group, "kind": kind, "metadata": { "name": name }, "spec": spec });
        // A definition is served a moment after it is established, without an event.
        within("the kind is served", async {
            loop {
                match call(client, "POST", &path, Some(("application/json", object.clone()))).await {
                    (200, _) => return,
                    (404 | 429 | 503, _) => tokio::task::yield_now().await,
                    (code, answer) => panic!("{plural}: {code} {answer}"),
                }
            }
        })
        .await;
        let kind = Self { client: client.clone(), plural, path, name, refused: BTreeSet::new() };
        // Its name has to be that of what it is about, where there is a rule for that.
        let mut other = object;
        other["metadata"]["name"] = json!("other");
        let dry = format!("{}?dryRun=All", kind.path);
        let answer = call(client, "POST", &dry, Some(("application/json", other))).await;
        kind.named_otherwise(answer)
    }

    fn named_otherwise(mut self, (code, answer): (u16, Value)) -> Self {
        let message = match self.plural {
            "machineconfignodes" => "the name must equal the node's name",
            "machineconfigurations" => "the name must be cluster: there is one",
            "machineosconfigs" => "the name must equal the pool's name: a pool has one MachineOSConfig",
            _ => {
                assert_eq!(code, 200, "{}: {answer}", self.plural);
                return self;
            }
        };
        assert!(code == 422 && answer.to_string().contains(message), "{}: {code} {answer}", self.plural);
        self.refused.insert((self.plural, message.to_owned()));
        self
    }

    async fn patch(&self, part: &str, patch: &Value, query: &str) -> (u16, Value) {
        let place = if part == "status" { "/status" } else { "" };
        let path = format!("{}/{}{place}{query}", self.path, self.name);
        let patch = json!({ part: patch });
        call(&self.client, "PATCH", &path, Some(("application/merge-patch+json", patch))).await
    }

    async fn accepts(&self, part: &str, patches: Vec<Value>) {
        for patch in patches {
            let (code, answer) = self.patch(part, &patch, "?dryRun=All").await;
            assert_eq!(code, 200, "{} {part} {patch}: {answer}", self.plural);
        }
    }

    async fn refuses(&mut self, part: &str, message: &str, patches: Vec<Value>) {
        for patch in patches {
            let (code, answer) = self.patch(part, &patch, "?dryRun=All").await;
            let causes: Vec<&str> = answer["details"]["causes"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|cause| cause["message"].as_str())
                .collect();
            let by_it = causes.iter().any(|cause| cause.contains(message));
            assert!(code == 422 && by_it, "{} {part} {patch}: {code} {causes:?}", self.plural);
            self.refused.insert((self.plural, message.to_owned()));
        }
    }

    async fn store(&self, patch: Value) {
        let (code, answer) = self.patch("status", &patch, "").await;
        assert_eq!(code, 200, "{} {patch}: {answer}", self.plural);
    }
}

async fn of_policies(client: &Client) -> Kind {
    let spec = json!({ "canary": { "nodes": 1, "soak": "720h" } });
    let mut kind = Kind::new(client, OURS, "rolloutpolicies", "RolloutPolicy", spec).await;
    let window = |length: &str| json!({ "windows": [{ "start": "22:00", "length": length }] });
    kind.accepts(
        "spec",
        vec![
            json!({ "canary": { "nodes": "1%", "soak": null } }),
            json!({ "waves": [{ "nodes": "100%" }, { "nodes": 3, "soak": "1h30m" }] }),
            json!({ "prefetch": {} }),
            json!({ "drain": { "timeout": "1h", "onTimeout": "DeletePods", "excludeFromLoadBalancers": {},
                "skip": { "podSelector": { "matchLabels": { "a": "b" } }, "terminatingLongerThan": "10m" } } }),
            json!({ "prefetch": { "concurrency": "10%" } }),
            window("1m"),
            window("168h"),
        ],
    )
    .await;
    kind.refuses(
        "spec",
        NODES,
        vec![
            json!({ "canary": { "nodes": 0 } }),
            json!({ "canary": { "nodes": "0%" } }),
            json!({ "waves": [{ "nodes": 0 }] }),
            json!({ "waves": [{ "nodes": 1 }, { "nodes": "0%" }] }),
        ],
    )
    .await;
    kind.refuses(
        "spec",
        SOAK,
        vec![json!({ "canary": { "soak": "721h" } }), json!({ "waves": [{ "nodes": 1, "soak": "720h1s" }] })],
    )
    .await;
    let concurrency = |value: Value| json!({ "prefetch": { "concurrency": value } });
    kind.refuses("spec", CONCURRENCY, vec![concurrency(json!(0)), concurrency(json!("0%"))]).await;
    kind.refuses("spec", LENGTH, vec![window("59s"), window("169h")]).await;
    kind
}

async fn of_nodes(client: &Client) -> Kind {
    let spec = json!({
        "node": { "name": "worker" }, "pool": { "name": "worker" },
        "configVersion": { "desired": "rendered-worker-0123456789abcdef0123456789abcdef" },
    });
    let mut kind = Kind::new(client, OTHERS, "machineconfignodes", "MachineConfigNode", spec).await;
    let name = json!({ "pool": { "name": "a_b" } });
    kind.refuses("spec", NAME, vec![name, json!({ "node": { "name": "Worker" } })]).await;
    kind.accepts("spec", vec![json!({ "configImage": { "desiredImage": IMAGE } })]).await;
    kind.refuses("spec", DIGEST, vec![json!({ "configImage": { "desiredImage": "q.io/a:1" } })]).await;
    let image = |field: &str, image: &str| json!({ "configImage": { field: image } });
    kind.accepts("status", vec![image("currentImage", IMAGE), image("desiredImage", IMAGE)]).await;
    let short = "q.io/a@sha256:aa";
    kind.refuses("status", DIGEST, vec![image("currentImage", short), image("desiredImage", short)]).await;
    let change = |path: &str| json!({ "irreconcilableChanges": [{ "fieldPath": path, "diff": "x" }] });
    kind.accepts("status", vec![change("spec.config.storage.disks")]).await;
    kind.refuses("status", "fieldPath must start with spec.", vec![change("config.storage")]).await;
    let set = |more: Value| {
        let mut set = json!({ "name": "a" });
        set.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "pinnedImageSets": [set] })
    };
    kind.accepts(
        "status",
        vec![
            set(json!({ "currentGeneration": 2, "desiredGeneration": 2 })),
            set(json!({ "lastFailedGeneration": 1, "lastFailedGenerationError": "no space" })),
        ],
    )
    .await;
    let fallen = set(json!({ "currentGeneration": 2, "desiredGeneration": 1 }));
    kind.refuses("status", "desiredGeneration must not be less than currentGeneration", vec![fallen]).await;
    let silent = set(json!({ "lastFailedGeneration": 1 }));
    let needed = "lastFailedGenerationError must be set with lastFailedGeneration";
    kind.refuses("status", needed, vec![silent]).await;
    generations(&mut kind).await;
    kind
}

async fn of_pinned_sets(client: &Client) -> Kind {
    let images = |image: &str| json!({ "pinnedImages": [{ "name": image }] });
    let mut kind = Kind::new(client, OTHERS, "pinnedimagesets", "PinnedImageSet", images(IMAGE)).await;
    kind.refuses("spec", DIGEST, vec![images("q.io/a:1"), images("q.io/a@sha256:aa")]).await;
    kind
}

/// The rules are those of the parser: no node gets to see what it would refuse.
async fn of_configuration(client: &Client) -> Kind {
    let file = |path: &str, actions: Value| json!({ "nodeDisruptionPolicy": { "files": [{ "path": path, "actions": actions }] } });
    let spec = file("/etc/motd", json!([{ "type": "None" }]));
    let group = "operator.openshift.io/v1";
    let mut kind = Kind::new(client, group, "machineconfigurations", "MachineConfiguration", spec).await;
    let unit = |name: &str| json!({ "nodeDisruptionPolicy": { "units": [{ "name": name, "actions": [] }] } });
    let of_service =
        |type_: &str, field: &str, name: &str| json!([{ "type": type_, field: { "serviceName": name } }]);
    let reload =
        json!([{ "type": "DaemonReload" }, { "type": "Reload", "reload": { "serviceName": "a@1.service" } }]);
    let keys = json!({ "nodeDisruptionPolicy": { "sshkey": { "actions": [{ "type": "Drain" }] } } });
    let accepted = vec![
        file("/etc/.a/..b", reload),
        file("/etc", of_service("Restart", "restart", "a-b\\x2d.mount")),
        unit("kubelet.service"),
        keys,
        json!({ "irreconcilableValidationOverrides": { "storage": ["Disks"] }, "managementState": "Managed" }),
    ];
    for spec in &accepted {
        let object = json!({ "apiVersion": group, "kind": "MachineConfiguration", "metadata": { "name": "cluster" }, "spec": spec });
        let bytes = serde_json::to_vec(&object).unwrap();
        machine_config_core::model::policy::DisruptionPolicy::parse(&bytes, "cluster").unwrap();
    }
    kind.accepts("spec", accepted).await;
    let path = "the path must be absolute, without `.`, `..` and a trailing `/`";
    let bad = ["etc/a", "/etc/", "/etc//a", "/etc/./a", "/etc/../a", "/", "/etc/.."];
    kind.refuses("spec", path, bad.map(|bad| file(bad, json!([]))).to_vec()).await;
    let named = "the unit must be named as systemd names it, as NAME.service";
    kind.refuses(
        "spec",
        named,
        vec![unit("kubelet"), file("/a", of_service("Reload", "reload", "a/b.service"))],
    )
    .await;
    let alone = json!([{ "type": "None" }, { "type": "Drain" }]);
    kind.refuses("spec", "None and Reboot must stand alone", vec![file("/a", alone)]).await;
    for (type_, field, other) in [("Reload", "reload", "Restart"), ("Restart", "restart", "Reload")] {
        let message = format!("{field} must be set for the type {type_}, and for no other");
        let bare = json!([{ "type": type_ }]);
        kind.refuses(
            "spec",
            &message,
            vec![file("/a", bare), file("/a", of_service(other, field, "a.service"))],
        )
        .await;
    }
    of_boot_images(&mut kind).await;
    kind
}

/// As the operator's own rules.
async fn of_boot_images(kind: &mut Kind) {
    let managers = |resource: &str, selection: Value| {
        json!({ "managedBootImages": { "machineManagers":
            [{ "apiGroup": "machine.openshift.io", "resource": resource, "selection": selection }] } })
    };
    let partial = json!({ "mode": "Partial", "partial": { "machineResourceSelector": {} } });
    let skew = |skew: Value| json!({ "bootImageSkewEnforcement": skew });
    let manual = |manual: Value| skew(json!({ "mode": "Manual", "manual": manual }));
    let release = json!({ "mode": "OCPVersion", "ocpVersion": "4.20.1" });
    let os = json!({ "mode": "RHCOSVersion", "rhcosVersion": "9.6.20250523-0" });
    kind.accepts(
        "spec",
        vec![
            managers("machinesets", partial.clone()),
            managers("controlplanemachinesets", json!({ "mode": "All" })),
            skew(json!({ "mode": "None" })),
            manual(release.clone()),
            manual(os.clone()),
        ],
    )
    .await;
    let alone = |field: &str, key: &str| format!("{field} must be set for the mode {key}, and for no other");
    let no_partial = managers("machinesets", json!({ "mode": "Partial" }));
    let surplus =
        managers("machinesets", json!({ "mode": "All", "partial": { "machineResourceSelector": {} } }));
    kind.refuses("spec", &alone("partial", "Partial"), vec![no_partial, surplus]).await;
    let of_control_plane = "the mode must be All or None for controlplanemachinesets";
    kind.refuses("spec", of_control_plane, vec![managers("controlplanemachinesets", partial)]).await;
    let none = skew(json!({ "mode": "None", "manual": release }));
    kind.refuses("spec", &alone("manual", "Manual"), vec![skew(json!({ "mode": "Manual" })), none]).await;
    for (field, mode, other) in
        [("ocpVersion", "OCPVersion", "RHCOSVersion"), ("rhcosVersion", "RHCOSVersion", "OCPVersion")]
    {
        let version = if mode == "OCPVersion" { "4.20.1" } else { "9.6.20250523-0" };
        let wrong = vec![manual(json!({ "mode": mode })), manual(json!({ "mode": other, field: version }))];
        kind.refuses("spec", &alone(field, mode), wrong).await;
    }
}

async fn of_pools(client: &Client) -> Kind {
    let spec = json!({ "osImageStream": { "name": "rhel-9" } });
    let mut kind = Kind::new(client, OTHERS, "machineconfigpools", "MachineConfigPool", spec).await;
    kind.refuses("spec", NAME, vec![json!({ "osImageStream": { "name": "Rhel" } })]).await;
    kind
}

async fn generations(kind: &mut Kind) {
    kind.store(json!({ "observedGeneration": 3 })).await;
    kind.accepts("status", vec![json!({ "observedGeneration": 3 }), json!({ "observedGeneration": 4 })])
        .await;
    kind.refuses("status", GENERATION, vec![json!({ "observedGeneration": 2 })]).await;
}

async fn of_os_configs(client: &Client) -> Kind {
    let spec = json!({
        "machineConfigPool": { "name": "worker" },
        "imageBuilder": { "imageBuilderType": "Job" },
        "renderedImagePushSecret": { "name": "push" },
        "renderedImagePushSpec": "registry.example.com:5000/os/worker:latest",
    });
    let mut kind = Kind::new(client, OTHERS, "machineosconfigs", "MachineOSConfig", spec).await;
    let spec = |image: &str| json!({ "renderedImagePushSpec": image });
    kind.accepts("spec", vec![spec("image-registry.openshift-image-registry.svc:5000/os/worker:latest")])
        .await;
    kind.refuses("spec", PUSHED, vec![spec("registry.example.com/os/worker"), spec("worker:latest")]).await;
    kind.refuses(
        "spec",
        NAME,
        vec![
            json!({ "baseImagePullSecret": { "name": "A" } }),
            json!({ "renderedImagePushSecret": { "name": "a_b" } }),
            json!({ "machineConfigPool": { "name": "Worker" } }),
        ],
    )
    .await;
    kind.accepts("status", vec![json!({ "currentImagePullSpec": IMAGE })]).await;
    kind.refuses("status", DIGEST, vec![json!({ "currentImagePullSpec": "q.io/a:1" })]).await;
    generations(&mut kind).await;
    kind
}

async fn of_os_builds(client: &Client) -> Kind {
    let spec = json!({
        "machineConfig": { "name": "rendered-worker-0123456789abcdef0123456789abcdef" },
        "machineOSConfig": { "name": "worker" },
        "renderedImagePushSpec": "registry.example.com/os/worker:latest",
    });
    let mut kind = Kind::new(client, OTHERS, "machineosbuilds", "MachineOSBuild", spec).await;
    let changed = json!({ "renderedImagePushSpec": "registry.example.com/os/worker:next" });
    kind.refuses("spec", "the spec of a build can't change", vec![changed]).await;
    kind.refuses("spec", PUSHED, vec![json!({ "renderedImagePushSpec": "worker" })]).await;
    let names =
        vec![json!({ "machineConfig": { "name": "A" } }), json!({ "machineOSConfig": { "name": "a_b" } })];
    kind.refuses("spec", NAME, names).await;
    let job = json!({ "group": "batch", "resource": "jobs", "namespace": "a", "name": "b" });
    let builder = |kind: &str, job: &Value| json!({ "builder": { "imageBuilderType": kind, "job": job } });
    kind.accepts("status", vec![builder("Job", &job), builder("Other", &Value::Null)]).await;
    kind.refuses("status", JOB, vec![builder("Job", &Value::Null), builder("Other", &job)]).await;
    kind.refuses("status", DIGEST, vec![json!({ "digestedImagePushSpec": "q.io/a:1" })]).await;
    kind.accepts("status", vec![json!({ "digestedImagePushSpec": IMAGE })]).await;
    let (one, two, three) = ("2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z");
    let times = |start: &str, end: &str| json!({ "buildStart": start, "buildEnd": end });
    kind.accepts("status", vec![times(one, two), json!({ "buildStart": one })]).await;
    let after = "buildEnd must be after buildStart";
    kind.refuses("status", after, vec![times(two, one), times(one, one), json!({ "buildEnd": one })]).await;
    kind.store(times(one, two)).await;
    kind.refuses(
        "status",
        TIME,
        vec![json!({ "buildStart": "2025-01-01T00:00:00Z" }), json!({ "buildEnd": three })],
    )
    .await;
    final_conditions(&mut kind).await;
    kind
}

/// A build that has ended stays as it ended.
async fn final_conditions(kind: &mut Kind) {
    let condition = |name: &str, status: &str| {
        let at = "2026-01-01T00:00:00Z";
        json!({ "conditions": [{ "type": name, "status": status, "reason": "A", "message": "", "lastTransitionTime": at }] })
    };
    for name in ["Failed", "Interrupted", "Succeeded"] {
        kind.store(json!({ "conditions": null })).await;
        kind.store(condition(name, "False")).await;
        kind.accepts("status", vec![condition(name, "True")]).await;
        let fresh = format!("final-{}", name.to_lowercase());
        kind.copy(&fresh).await;
        kind.final_at(&fresh, condition(name, "True"), condition(name, "False"), name).await;
    }
}

impl Kind {
    /// Creates another object with the same spec.
    async fn copy(&self, name: &str) {
        let (_, object) = call(&self.client, "GET", &format!("{}/worker", self.path), None).await;
        let copy = json!({
            "apiVersion": object["apiVersion"], "kind": object["kind"],
            "metadata": { "name": name }, "spec": object["spec"],
        });
        let (code, answer) = call(&self.client, "POST", &self.path, Some(("application/json", copy))).await;
        assert_eq!(code, 200, "{answer}");
    }

    async fn final_at(&mut self, name: &str, last: Value, other: Value, condition: &str) {
        let path = format!("{}/{name}/status", self.path);
        let put = |status: Value| {
            let patch = json!({ "status": status });
            call(&self.client, "PATCH", &path, Some(("application/merge-patch+json", patch)))
        };
        let (code, answer) = put(last).await;
        assert_eq!(code, 200, "{answer}");
        let (code, answer) = put(other).await;
        let message = format!("the conditions can't change once {condition} is True");
        assert!(code == 422 && answer.to_string().contains(&message), "{code} {answer}");
        self.refused.insert((self.plural, message));
    }
}

/// All messages of the rules of a schema.
fn messages<'a>(schema: &'a Value, into: &mut BTreeSet<&'a str>) {
    match schema {
        Value::Object(fields) => {
            let rules = fields.get("x-kubernetes-validations").and_then(Value::as_array);
            into.extend(rules.into_iter().flatten().filter_map(|rule| rule["message"].as_str()));
            fields.values().for_each(|field| messages(field, into));
        }
        Value::Array(items) => items.iter().for_each(|item| messages(item, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A rule without a case here fails this, so no rule is untried.
#[tokio::test]
async fn every_rule_refuses_only_its_case() {
    if !real_only("definitions::every_rule_refuses_only_its_case") {
        return;
    }
    let bench = Bench::without_crds();
    let client = bench.client("administrator").await;
    apply_file(&client, DEFINITIONS).await;
    let kinds = [
        of_policies(&client).await,
        of_pools(&client).await,
        of_nodes(&client).await,
        of_pinned_sets(&client).await,
        of_configuration(&client).await,
        of_os_configs(&client).await,
        of_os_builds(&client).await,
    ];
    let refused: BTreeSet<(&str, &str)> =
        kinds.iter().flat_map(|kind| &kind.refused).map(|(plural, message)| (*plural, &**message)).collect();
    let definitions = document(DEFINITIONS);
    let mut all = BTreeSet::new();
    for definition in &definitions {
        let mut of_kind = BTreeSet::new();
        messages(definition, &mut of_kind);
        let plural = definition["spec"]["names"]["plural"].as_str().unwrap();
        all.extend(of_kind.into_iter().map(|message| (plural, message)));
    }
    assert!(all.len() > 20, "{all:?}");
    assert_eq!(refused, all);
}

/// What `validate` says offline is what the server says: the table is that of `controller/src/api/check_tests.rs`.
#[tokio::test]
async fn server_gives_verdicts_of_validate() {
    if !real_only("definitions::server_gives_verdicts_of_validate") {
        return;
    }
    let bench = Bench::without_crds();
    let client = bench.client("administrator").await;
    apply_file(&client, DEFINITIONS).await;
    let mut different = Vec::new();
    for row in include_str!("../../src/api/objects.tsv").lines() {
        let (fields, object) = row.split_once('\t').unwrap();
        let object: Value = serde_json::from_str(object).unwrap();
        let kind = object["kind"].as_str().unwrap().to_lowercase();
        let plural = kind.strip_suffix('y').map_or_else(|| format!("{kind}s"), |stem| format!("{stem}ies"));
        let path = format!("/apis/{}/{plural}?dryRun=All", object["apiVersion"].as_str().unwrap());
        // A definition is served a moment after it is established, without an event.
        let answered = async {
            loop {
                match call(&client, "POST", &path, Some(("application/json", object.clone()))).await {
                    (404 | 429 | 503, _) => tokio::task::yield_now().await,
                    (code, answer) => return (code, answer),
                }
            }
        };
        let (code, answer) = within("an answer", answered).await;
        if code != if fields == "[]" { 200 } else { 422 } {
            different.push(format!("{code} {object}: {}", answer["message"]));
        }
    }
    assert!(different.is_empty(), "{different:#?}");
}
