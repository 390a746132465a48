//! Objects that break one bound of a definition each, made from the schemas that a real kube-apiserver has: it refuses them, and
//! `validate` does. So nothing passes a check in a pipeline and fails on the cluster.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use kube::Client;
use serde_json::{Map, Value, json};

use crate::cluster::{Bench, Gates, call, key, real_only, within};
use crate::process::apply_file;

const GROUP: &str = "machineconfiguration.openshift.io/v1";
const OPERATOR: &str = "operator.openshift.io/v1";
const IMAGE: &str = "q.io/a/b@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// Places that `validate` leaves to the API server, with the cause: kind, field, keyword (all without one).
const LEFT: &[(&str, &str, &str, &str)] = &[
    ("ControllerConfig", "spec", "required", "a cluster without the operator has no program that sets them"),
    (
        "ControllerConfig",
        "spec.infra",
        "",
        "copied from the cluster's Infrastructure, whose definition has the rules",
    ),
    (
        "ControllerConfig",
        "spec.dns.spec",
        "",
        "copied from the cluster's DNS, whose definition has the rules",
    ),
    ("MachineConfigPool", "spec.configuration", "", "controllers write it"),
    ("MachineConfiguration", "", "rule", "about a status, and a new object has none"),
    (
        "PinnedImageSet",
        "spec.pinnedImages[].name",
        "rule",
        "nodes pull names that the operator's own rule refuses",
    ),
];

fn is_left(kind: &str, field: &str, keyword: &str) -> bool {
    LEFT.iter().any(|(of_kind, below, word, _)| {
        let rest = field.strip_prefix(below);
        let is_field = match *word {
            "" => rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '['])),
            _ => field == *below,
        };
        *of_kind == kind && is_field && (word.is_empty() || *word == keyword)
    })
}

fn object(group: &str, kind: &str, name: &str, spec: &Value) -> Value {
    let labels = json!({ key("role"): "worker" });
    json!({ "apiVersion": group, "kind": kind, "metadata": { "name": name, "labels": labels }, "spec": spec })
}

fn selector() -> Value {
    json!({ "matchLabels": { key("role"): "worker" },
        "matchExpressions": [{ "key": "a", "operator": "NotIn", "values": ["b"] }] })
}

fn policy() -> Value {
    let selection = json!({ "mode": "Partial", "partial": { "machineResourceSelector": selector() } });
    let machines =
        json!({ "apiGroup": "machine.openshift.io", "resource": "machinesets", "selection": selection });
    let service = |kind: &str, field: &str| json!({ "type": kind, field: { "serviceName": "a.service" } });
    let actions = json!([service("Reload", "reload"), service("Restart", "restart")]);
    json!({
        "managementState": "Managed", "logLevel": "Normal", "operatorLogLevel": "Normal",
        "failedRevisionLimit": 1, "succeededRevisionLimit": 1, "forceRedeploymentReason": "a",
        "observedConfig": {}, "unsupportedConfigOverrides": {},
        "managedBootImages": { "machineManagers": [machines] },
        "irreconcilableValidationOverrides": { "storage": ["Disks"] },
        "nodeDisruptionPolicy": {
            "files": [{ "path": "/etc/a", "actions": actions }],
            "units": [{ "name": "a.service", "actions": actions }],
            "sshkey": { "actions": actions },
        },
    })
}

fn cluster() -> Value {
    let bundle = json!([{ "file": "r.test", "data": "YQ==" }]);
    let change = json!({ "from": 1, "to": 2 });
    let group = "config.openshift.io/v1";
    let of_cluster = |kind: &str| json!({ "apiVersion": group, "kind": kind, "metadata": { "name": "cluster" }, "spec": {} });
    json!({
        "additionalTrustBundle": "YQ==", "baseOSContainerImage": "", "cloudProviderConfig": "", "clusterDNSIP": "",
        "dns": of_cluster("DNS"), "images": { "a": "b" }, "infra": of_cluster("Infrastructure"), "ipFamilies": "IPv4",
        "kubeAPIServerServingCAData": "YQ==", "cloudProviderCAData": "YQ==", "releaseImage": "", "rootCAData": "YQ==",
        "network": { "mtuMigration": { "machine": change, "network": change } },
        "proxy": { "httpProxy": "a", "httpsProxy": "a", "noProxy": "a" }, "bgpVIPPeersJSON": "[]",
        "imageRegistryBundleData": bundle, "imageRegistryBundleUserData": bundle, "internalRegistryPullSecret": "YQ==",
        "networkType": "a", "platform": "a", "pullSecret": { "name": "a" }, "etcdDiscoveryDomain": "",
    })
}

/// Objects without a fault: together they have each field with a bound.
fn samples() -> Vec<Value> {
    let skew = |mode: &str, field: &str, version: &str| json!({ "bootImageSkewEnforcement": { "mode": "Manual", "manual": { "mode": mode, field: version } } });
    let config = json!({
        "config": { "ignition": { "version": "3.4.0" } }, "extensions": ["usbguard"], "fips": false,
        "kernelArguments": ["a"], "kernelType": "default", "osImageURL": "", "baseOSExtensionsContainerImage": "",
    });
    let pool = json!({
        "machineConfigSelector": selector(), "nodeSelector": selector(), "maxUnavailable": 1, "paused": false,
        "osImageStream": { "name": "a" }, "pinnedImageSets": [{ "name": "a" }],
    });
    let build = json!({
        "machineConfigPool": { "name": "worker" }, "imageBuilder": { "imageBuilderType": "Job" },
        "baseImagePullSecret": { "name": "a" }, "renderedImagePushSecret": { "name": "a" },
        "renderedImagePushSpec": "r.test/os:1",
        "containerFile": [{ "content": "FROM configs AS final", "containerfileArch": "NoArch" }],
    });
    let images = json!({ "pinnedImages": [{ "name": IMAGE }] });
    let (release, os) =
        (skew("OCPVersion", "ocpVersion", "4.20.1"), skew("RHCOSVersion", "rhcosVersion", "9.6.20250523-0"));
    vec![
        object(GROUP, "MachineConfig", "50-a", &config),
        object(GROUP, "MachineConfigPool", "worker", &pool),
        object(GROUP, "MachineOSConfig", "worker", &build),
        object(GROUP, "PinnedImageSet", "a", &images),
        object(GROUP, "ControllerConfig", "machine-config-controller", &cluster()),
        object(OPERATOR, "MachineConfiguration", "cluster", &policy()),
        object(OPERATOR, "MachineConfiguration", "cluster", &release),
        object(OPERATOR, "MachineConfiguration", "cluster", &os),
    ]
}

/// Values that break a rule (CEL): of which sample, where, and what.
fn of_rules() -> Vec<(usize, &'static str, Value)> {
    let name = json!("A_b");
    let (reload, restart) = (json!({ "type": "Reload" }), json!({ "type": "Restart" }));
    let (none, reboot) = (
        json!([{ "type": "None" }, { "type": "Drain" }]),
        json!([{ "type": "Drain" }, { "type": "Reboot" }]),
    );
    let mut rows = vec![
        (1, "/spec/osImageStream/name", name.clone()),
        (2, "/spec/machineConfigPool/name", json!("infra")),
        (2, "/spec/machineConfigPool/name", name.clone()),
        (2, "/spec/baseImagePullSecret/name", name.clone()),
        (2, "/spec/renderedImagePushSecret/name", name),
        (2, "/spec/renderedImagePushSpec", json!("worker")),
        (3, "/spec/pinnedImages/0/name", json!("q.io/a:1")),
        (5, "/spec/managedBootImages/machineManagers/0/resource", json!("controlplanemachinesets")),
        (5, "/spec/managedBootImages/machineManagers/0/selection/mode", json!("All")),
        (6, "/spec/bootImageSkewEnforcement/mode", json!("None")),
        (6, "/spec/bootImageSkewEnforcement/manual/mode", json!("RHCOSVersion")),
        (7, "/spec/bootImageSkewEnforcement/manual/mode", json!("OCPVersion")),
        (6, "/spec/bootImageSkewEnforcement/manual/ocpVersion", json!("4.20.x")),
        (7, "/spec/bootImageSkewEnforcement/manual/rhcosVersion", json!("9.6.2025052-00")),
        (5, "/spec/nodeDisruptionPolicy/units/0/name", json!("a")),
        (5, "/spec/nodeDisruptionPolicy/units/0/name", json!("a/b.service")),
    ];
    for place in ["files/0", "units/0", "sshkey"] {
        for (part, value) in [
            ("", none.clone()),
            ("", reboot.clone()),
            ("/0", reload.clone()),
            ("/0", restart.clone()),
            ("/0/reload/serviceName", json!("a")),
            ("/0/reload/serviceName", json!("a/b.service")),
            ("/1/restart/serviceName", json!("a")),
            ("/1/restart/serviceName", json!("a/b.service")),
        ] {
            let pointer = format!("/spec/nodeDisruptionPolicy/{place}/actions{part}");
            rows.push((5, pointer.leak(), value));
        }
    }
    rows
}

/// An object with one broken bound.
struct Broken {
    /// The field of the bound, with `[]` for each item.
    field: String,
    keyword: &'static str,
    object: Value,
}

/// Makes the broken objects of a sample.
struct Breaker<'a> {
    sample: &'a Value,
    made: Vec<Broken>,
}

impl Breaker<'_> {
    fn put(&mut self, field: &str, pointer: &str, keyword: &'static str, value: Option<Value>) {
        let mut object = self.sample.clone();
        if let Some(value) = value {
            *object.pointer_mut(pointer).unwrap() = value;
        } else {
            let (above, name) = pointer.rsplit_once('/').unwrap();
            object.pointer_mut(above).unwrap().as_object_mut().unwrap().remove(name);
        }
        self.made.push(Broken { field: field.trim_start_matches('.').to_owned(), keyword, object });
    }

    fn walk(&mut self, schema: &Value, field: &str, pointer: &str) {
        let value = self.sample.pointer(pointer).unwrap().clone();
        if value.is_null() {
            return;
        }
        self.of_value(schema, &value, field, pointer);
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            let is_head =
                pointer.is_empty() && ["status", "metadata", "apiVersion", "kind"].contains(&&**name);
            if value.get(name).is_some() && !is_head {
                self.walk(schema, &format!("{field}.{name}"), &format!("{pointer}/{name}"));
            }
        }
        if schema["items"].is_object() && value.get(0).is_some() {
            for place in 0..value.as_array().unwrap().len() {
                self.walk(&schema["items"], &format!("{field}[]"), &format!("{pointer}/{place}"));
            }
        }
        if schema["additionalProperties"].is_object() {
            let name =
                value.as_object().unwrap().keys().next().unwrap().replace('~', "~0").replace('/', "~1");
            self.walk(&schema["additionalProperties"], &format!("{field}[]"), &format!("{pointer}/{name}"));
        }
    }

    fn of_value(&mut self, schema: &Value, value: &Value, field: &str, pointer: &str) {
        let number = |word: &str| schema[word].as_u64().and_then(|number| usize::try_from(number).ok());
        let letters = |count: usize| Some(json!("a".repeat(count)));
        let first = value.get(0).cloned().unwrap_or_default();
        let mut put = |keyword, value| self.put(field, pointer, keyword, value);
        match schema["type"].as_str() {
            Some("string") => put("type", Some(json!(5))),
            Some(_) if !pointer.is_empty() => put("type", Some(json!("x"))),
            _ if schema["x-kubernetes-int-or-string"] == true => put("type", Some(json!(true))),
            _ => {}
        }
        if schema["enum"].is_array() {
            put("enum", Some(json!("?")));
        }
        if schema["pattern"].is_string() {
            put("pattern", Some(json!("?")));
        }
        if let Some(least) = number("minLength").filter(|least| *least > 0) {
            put("minLength", letters(least - 1));
        }
        if let Some(most) = number("maxLength") {
            put("maxLength", letters(most + 1));
        }
        if number("minItems").is_some_and(|least| least > 0) {
            put("minItems", Some(json!([])));
        }
        if let Some(most) = number("maxItems") {
            put("maxItems", Some(json!(vec![first.clone(); most + 1])));
        }
        if let Some(least) = schema["minimum"].as_i64() {
            put("minimum", Some(json!(least - 1)));
        }
        if let Some(most) = schema["maximum"].as_i64() {
            put("maximum", Some(json!(most + 1)));
        }
        match schema["format"].as_str() {
            Some("int32") => put("format", Some(json!(1_u64 << 31))),
            Some("byte") => put("format", Some(json!("?"))),
            _ => {}
        }
        if number("minProperties").is_some() {
            put("minProperties", Some(json!({})));
        }
        if ["map", "set"].contains(&schema["x-kubernetes-list-type"].as_str().unwrap_or_default()) {
            put("x-kubernetes-list-type", Some(json!([first, first])));
        }
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let is_default = schema["properties"][name].get("default").is_some();
            if value.get(name).is_some() && !is_default {
                self.put(field, &format!("{pointer}/{name}"), "required", None);
            }
        }
    }
}

/// Returns each bound of a schema outside of the status: its field and its keyword; a rule has its message in place of the field.
fn bounds(kind: &str, schema: &Value, field: &str, into: &mut BTreeSet<(String, &'static str)>) {
    const KEYWORDS: [&str; 12] = [
        "enum",
        "format",
        "maxItems",
        "maxLength",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "pattern",
        "required",
        "x-kubernetes-list-type",
    ];
    let name = field.trim_start_matches('.');
    for keyword in KEYWORDS {
        let has = match keyword {
            "x-kubernetes-list-type" => schema[keyword] == "map" || schema[keyword] == "set",
            "format" => schema[keyword] == "int32" || schema[keyword] == "byte",
            "minItems" | "minLength" => schema[keyword].as_u64().is_some_and(|least| least > 0),
            _ => !schema[keyword].is_null(),
        };
        // Of the object itself nothing but the spec is required, and each reader says so.
        if has && !name.is_empty() && !is_left(kind, name, keyword) {
            into.insert((name.to_owned(), keyword));
        }
    }
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        if !is_left(kind, name, "rule") {
            into.insert((rule["message"].as_str().unwrap().to_owned(), "rule"));
        }
    }
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        if !(field.is_empty() && ["status", "metadata"].contains(&&**name)) {
            bounds(kind, schema, &format!("{field}.{name}"), into);
        }
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            bounds(kind, &schema[inner], &format!("{field}[]"), into);
        }
    }
}

/// Returns the plural of a kind.
fn plural(object: &Value) -> String {
    object["kind"].as_str().unwrap().to_lowercase() + "s"
}

async fn schema(client: &Client, object: &Value) -> Value {
    let group = object["apiVersion"].as_str().unwrap().split('/').next().unwrap();
    let name = format!("{}.{group}", plural(object));
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
    let (code, definition) = call(client, "GET", &path, None).await;
    assert_eq!(code, 200, "{name}: {definition}");
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// Returns the causes of the API server against an object; none if it takes it.
async fn refused_by_server(client: &Client, object: &Value) -> Vec<String> {
    let path = format!("/apis/{}/{}?dryRun=All", object["apiVersion"].as_str().unwrap(), plural(object));
    // A definition is served a moment after it is established, without an event.
    let answered = async {
        loop {
            match call(client, "POST", &path, Some(("application/json", object.clone()))).await {
                (0 | 404 | 429 | 503, _) => tokio::task::yield_now().await,
                (code, answer) => return (code, answer),
            }
        }
    };
    let (code, answer) = within("an answer", answered).await;
    assert!(matches!(code, 200 | 400 | 422), "{code}: {answer}");
    let causes = answer["details"]["causes"].as_array().into_iter().flatten();
    let causes: Vec<String> = causes.map(|cause| cause["message"].as_str().unwrap().to_owned()).collect();
    if code != 200 && causes.is_empty() { vec![answer["message"].to_string()] } else { causes }
}

/// Returns what `validate` says of an object; none if it takes it.
fn refused_offline(place: &Path, object: &Value) -> Option<String> {
    std::fs::write(place.join("a.json"), object.to_string()).unwrap();
    let is_pool = object["kind"] == "MachineConfigPool";
    let pool = object_of_pool();
    std::fs::write(place.join("pool.json"), if is_pool { String::new() } else { pool.to_string() }).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_machine-config-controller"));
    command.args(["validate", "--manifests"]).arg(place);
    if object["kind"] == "MachineOSConfig" {
        command.args(["--leave-to-cluster", "worker"]);
    }
    let ran = command.output().unwrap();
    (!ran.status.success()).then(|| String::from_utf8(ran.stderr).unwrap())
}

fn object_of_pool() -> Value {
    let selector = json!({ "matchLabels": { key("role"): "worker" } });
    object(GROUP, "MachineConfigPool", "worker", &json!({ "machineConfigSelector": selector }))
}

/// Sends the broken objects of the samples to an API server and to `validate`; returns where they differ.
async fn compare(client: &Client, rules: &[(usize, &str, Value)]) -> Vec<String> {
    let place = tempfile::tempdir().unwrap();
    let base = object(GROUP, "MachineConfig", "00-base", &json!({}));
    std::fs::write(place.path().join("base.json"), base.to_string()).unwrap();
    let mut wrong = Vec::new();
    let (mut wanted, mut met) = (Map::new(), BTreeSet::new());
    let mut tried = 0;
    for (number, sample) in samples().iter().enumerate() {
        let kind = sample["kind"].as_str().unwrap();
        assert_eq!(refused_by_server(client, sample).await, Vec::<String>::new(), "{sample}");
        assert_eq!(refused_offline(place.path(), sample), None, "{sample}");
        let schema = schema(client, sample).await;
        let mut breaker = Breaker { sample, made: Vec::new() };
        breaker.walk(&schema, "", "");
        for (_, pointer, value) in rules.iter().filter(|(of, _, _)| *of == number) {
            breaker.put("", pointer, "rule", Some(value.clone()));
        }
        for Broken { field, keyword, object } in breaker.made {
            let causes = refused_by_server(client, &object).await;
            met.insert(format!("{kind} {field} {keyword}"));
            met.extend(causes.iter().map(|cause| format!("{kind} {cause} rule")));
            if is_left(kind, &field, keyword) {
                continue;
            }
            tried += 1;
            let said = refused_offline(place.path(), &object);
            if causes.is_empty() || said.is_none() {
                wrong.push(format!("{kind} {field} {keyword}: {object}: {causes:?}: {said:?}"));
            }
        }
        let mut all = BTreeSet::new();
        bounds(kind, &schema, "", &mut all);
        wanted.insert(kind.to_owned(), json!(all));
    }
    for (kind, all) in wanted {
        for bound in all.as_array().unwrap() {
            let (field, keyword) = (bound[0].as_str().unwrap(), bound[1].as_str().unwrap());
            let is_met = met.iter().any(|met| {
                met.strip_prefix(&format!("{kind} "))
                    .is_some_and(|met| met.contains(field) && met.ends_with(keyword))
            });
            if !is_met {
                wrong.push(format!("{kind}: no sample breaks {keyword} of {field}"));
            }
        }
    }
    assert!(tried > 200, "{tried}");
    wrong
}

/// With the operator's definitions.
#[tokio::test]
async fn what_operators_definitions_refuse_validate_refuses() {
    if !real_only("broken::what_operators_definitions_refuse_validate_refuses") {
        return;
    }
    let bench = Bench::private(Gates::TechPreview);
    let client = bench.client("administrator").await;
    let wrong = compare(&client, &of_rules()).await;
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// With those that `crds` prints.
#[tokio::test]
async fn what_own_definitions_refuse_validate_refuses() {
    if !real_only("broken::what_own_definitions_refuse_validate_refuses") {
        return;
    }
    let bench = Bench::without_crds();
    let client = bench.client("administrator").await;
    apply_file(&client, "components/controller/crds.yaml").await;
    let wrong = compare(&client, &of_rules()).await;
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}
