//! The manifests of `dist/manifests` without a server: they parse, they belong together, and each permission in them is
//! in `docs/permissions.md` with its reason. `tests/cluster/permissions.rs` applies them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::rendered::{account, file, manifests, of_kind, render, text};
use crate::table;
use serde_json::{Value, json};

/// All directories that can be applied.
const APPLIED: [(&str, &[&str]); 5] = [
    ("base", &[]),
    ("overlays/kubernetes", &[]),
    ("overlays/openshift", &[]),
    ("base", &["monitoring", "self-drain", "kubelet-identity", "lifecycle"]),
    (
        "overlays/kubernetes",
        &["monitoring", "controller-monitoring", "server", "openshift-builds", "controller-delete-pods"],
    ),
];

/// The directories with a kustomization.
fn directories() -> Vec<PathBuf> {
    let mut found = vec![manifests().join("base")];
    for parent in ["components", "overlays"] {
        let entries = std::fs::read_dir(manifests().join(parent)).unwrap();
        found.extend(entries.map(|entry| entry.unwrap().path()));
    }
    found
}

/// The files with objects in a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| !path.ends_with("kustomization.yaml")).collect();
    files.sort();
    files
}

pub fn strings<'a>(value: &'a Value, pointer: &str) -> Vec<&'a str> {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|one| one.as_str().unwrap())
        .collect()
}

pub fn each<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

#[test]
fn every_file_parses_and_is_named_by_its_kustomization() {
    let mut count = 0;
    for directory in directories() {
        let documents = file(&directory.join("kustomization.yaml"));
        let kustomization = documents.first().unwrap();
        let patches = each(kustomization, "/patches").filter_map(|patch| patch.get("path")?.as_str());
        let named: BTreeSet<PathBuf> = strings(kustomization, "/resources")
            .into_iter()
            .filter(|name| !name.starts_with(".."))
            .chain(patches)
            .map(|name| directory.join(name))
            .collect();
        let there = files(&directory);
        let paths = |paths: &mut dyn Iterator<Item = &PathBuf>| -> Vec<String> {
            paths.map(|path| path.display().to_string()).collect()
        };
        let (named, files) = (paths(&mut named.iter()), paths(&mut there.iter()));
        let place = format!("{}/kustomization.yaml", directory.display());
        table::compare(&place, named, "the directory", files, "Name the file there.");
        for path in there {
            for document in file(&path) {
                for field in ["/apiVersion", "/kind", "/metadata/name"] {
                    assert!(!text(&document, field).is_empty(), "{} has no {field}", path.display());
                }
                count += 1;
            }
        }
    }
    assert!(count > 20, "{count} objects");
}

/// The rules of all roles, as the rows of the document begin: `| base | Role | resources | names | verbs |`.
fn granted() -> BTreeSet<String> {
    let mut rows = BTreeSet::new();
    for directory in directories() {
        let place = directory.file_name().unwrap().to_str().unwrap().to_owned();
        for document in files(&directory).iter().flat_map(|path| file(path)) {
            if !["Role", "ClusterRole"].contains(&text(&document, "/kind")) {
                continue;
            }
            let namespace = text(&document, "/metadata/namespace");
            let within = if namespace.is_empty() { "cluster".to_owned() } else { format!("`{namespace}`") };
            for rule in each(&document, "/rules") {
                let what =
                    [strings(rule, "/resources"), strings(rule, "/nonResourceURLs")].concat().join(", ");
                let names = strings(rule, "/resourceNames").join(", ");
                let what =
                    if names.is_empty() { format!("`{what}`") } else { format!("`{what}` named `{names}`") };
                let verbs = strings(rule, "/verbs").join(", ");
                let name = text(&document, "/metadata/name");
                assert!(
                    rows.insert(format!("| {place} | `{name}` | {within} | {what} | {verbs} |")),
                    "{rule} twice"
                );
            }
        }
    }
    assert!(rows.len() > 10, "{rows:?}");
    rows
}

#[test]
fn every_permission_is_in_document_with_its_reason() {
    let document = std::fs::read_to_string("docs/permissions.md").unwrap();
    let section = document.split("\n## ").find(|section| section.starts_with("Permissions")).unwrap();
    let mut explained = BTreeSet::new();
    for row in section.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| in |")) {
        let (rule, why) = row.trim_end_matches('|').rsplit_once('|').unwrap();
        assert!(why.trim().len() > 15, "no reason: {row}");
        assert!(explained.insert(format!("{rule}|")), "twice: {row}");
    }
    let update = "Copy the new row into it and write the reason into its last cell.";
    table::compare(
        "docs/permissions.md, section Permissions,",
        explained,
        "dist/kubernetes",
        granted(),
        update,
    );
}

/// The controller updates and deletes what it makes alone.
fn writes_its_own(row: &str, what: &str, verbs: &str) {
    let writes = verbs.split(", ").any(|verb| ["update", "delete"].contains(&verb));
    let own = [
        "`machineconfigs`",
        "`machineosconfigs`",
        "`machineconfigpools/finalizers`",
        "`machineosbuilds`",
        "`machineosbuilds/finalizers, machineosconfigs/finalizers`",
        "`leases` named",
    ];
    assert!(!writes || own.iter().any(|own| what.starts_with(own)), "{row}");
}

/// Holds whatever the document has.
#[test]
fn no_permission_is_wide() {
    for row in granted() {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [place, role, within, what, verbs] = cells[..] else { panic!("{row}") };
        // Builds have inputs and credentials, in the one namespace where the controller itself is.
        if role == "`machine-config-controller-builds`" {
            assert_eq!((place, within), ("controller", "`machine-config-agent`"), "{row}");
            assert!(
                ["`jobs`", "`configmaps`", "`secrets`"].contains(&what) && !verbs.contains("update"),
                "{row}"
            );
            continue;
        }
        // Credentials of the push of a seed, and nothing else of their namespace.
        if place == "lifecycle" && what == "`secrets` named `seedgen`" {
            assert_eq!((within, verbs), ("`openshift-lifecycle-agent`", "get"), "{row}");
            continue;
        }
        for never in ["*", "secrets", "serviceaccounts", "roles", "`nodes/", "exec"] {
            assert!(!what.contains(never) && !verbs.contains(never), "{never}: {row}");
        }
        if what.contains("controllerconfigs") {
            assert!(what.contains("named `machine-config-controller`"), "it holds a secret: {row}");
        }
        // It has no business on a node: it writes rendered configs, its Lease and answers to agents.
        if place == "controller" {
            writes_its_own(&row, what, verbs);
            continue;
        }
        // It serves configs, so it reads them; it writes nothing.
        if place == "server" {
            assert!(verbs.split(", ").all(|verb| ["get", "list", "watch"].contains(&verb)), "{row}");
            assert!(what != "`machineconfigs`" || verbs == "get", "{row}");
            continue;
        }
        // It takes away the pods that a drain waits for, where an administrator says so.
        if place == "controller-delete-pods" {
            assert!(what == "`pods`" && verbs == "delete", "{row}");
            continue;
        }
        // It makes what builds images, beside the controller's Jobs.
        if place == "openshift-builds" {
            assert!(what.starts_with("`builds") && within == "`machine-config-agent`", "{row}");
            continue;
        }
        // It makes the one object of a node's upgrade again, after a reboot into a system that never had it.
        if place == "lifecycle" && what.starts_with("`imagebasedupgrades") {
            assert!(what.ends_with("named `upgrade`") || verbs == "create", "{row}");
            continue;
        }
        for never in ["delete", "update", "escalate", "bind", "impersonate"] {
            assert!(!verbs.split(", ").any(|verb| verb == never), "{never}: {row}");
        }
        if what.contains("configmaps") {
            assert!(what.ends_with("named `kubeconfig-data`") && verbs == "get", "{row}");
        }
        // Pools hold no secrets.
        if what.contains("machineconfig") && what != "`machineconfigpools`" {
            assert!(!verbs.contains("list") && !verbs.contains("watch"), "configs hold secrets: {row}");
        }
        if what.contains("`pods") {
            assert!(place == "self-drain" && within == "cluster", "{row}");
        }
    }
}

/// The two policies for Nodes know the same annotations as the controllers', and the same exceptions.
#[test]
fn policies_agree_on_controllers_annotations() {
    let all = render("base", &[]);
    let variable = |policy: &str, name: &str| {
        let policies = of_kind(&all, "ValidatingAdmissionPolicy");
        let policy = policies.into_iter().find(|one| text(one, "/metadata/name") == policy).unwrap();
        let variable = each(policy, "/spec/variables").find(|one| text(one, "/name") == name).unwrap();
        text(variable, "/expression").to_owned()
    };
    let (of_agent, of_kubelet) = ("machine-config-agent-node", "machine-config-agent-kubelet");
    for name in ["isNew", "stolen", "after"] {
        assert_eq!(variable(of_agent, name), variable(of_kubelet, name), "{name}");
    }
    let keys = |policy| {
        let list = variable(policy, "ofControllers");
        let list = list.split_once('[').unwrap().1.split_once(']').unwrap().0.to_owned();
        list.split(',').map(|key| key.trim().to_owned()).collect::<BTreeSet<_>>()
    };
    // A kubelet may cordon its Node, so it may say so.
    let by_kubelets = BTreeSet::from(["'machine-config-agent.io/cordoned-by'".to_owned()]);
    assert_eq!(keys(of_agent).difference(&keys(of_kubelet)).cloned().collect::<BTreeSet<_>>(), by_kubelets);
    assert!(keys(of_kubelet).is_subset(&keys(of_agent)));
    assert!(keys(of_agent).len() > 7);
    // Annotations of our own controllers at a Node are theirs, too; a person writes these two at RolloutPolicies and pools.
    let of_persons = ["machine-config-agent.io/resume", "machine-config-agent.io/take-over"];
    for name in annotations_of_our_controllers().iter().filter(|name| !of_persons.contains(&name.as_str())) {
        assert!(
            keys(of_agent).contains(&format!("'{name}'")),
            "{name} is in no list of controllers' annotations"
        );
    }
}

fn annotations_of_our_controllers() -> BTreeSet<String> {
    let grep = Command::new("grep")
        .args([
            "-rhoE",
            "--exclude-dir=build",
            "--exclude-dir=opt_in",
            "--exclude-dir=seed",
            r#"&str = "machine-config-agent\.io/[a-z-]+""#,
            "controller/src",
        ])
        .output()
        .unwrap();
    let found = String::from_utf8(grep.stdout).unwrap();
    let names: BTreeSet<String> =
        found.split('"').filter(|part| part.contains('/')).map(str::to_owned).collect();
    assert!(names.len() > 4, "{found}");
    names
}

/// The account of the DaemonSet, of the bindings and of the policies is the same, and everything is in its namespace.
#[test]
fn rendered_objects_are_consistent() {
    for (directory, components) in APPLIED {
        let all = render(directory, components);
        let (namespace, name) = account(&all);
        let user = format!("'system:serviceaccount:{namespace}:{name}'");
        let is_account = |one: &&Value| {
            text(one, "/metadata/namespace") == namespace && text(one, "/metadata/name") == name
        };
        assert_eq!(
            of_kind(&all, "ServiceAccount").iter().filter(|one| is_account(one)).count(),
            1,
            "{directory}"
        );
        let policies = of_kind(&all, "ValidatingAdmissionPolicy");
        assert_eq!(policies.len(), 3, "{directory}");
        let (of_kubelets, ours): (Vec<&Value>, Vec<&Value>) = policies
            .into_iter()
            .partition(|policy| text(policy, "/metadata/name") == "machine-config-agent-kubelet");
        // An error in what every kubelet passes must not stop them all.
        assert_eq!(text(of_kubelets[0], "/spec/failurePolicy"), "Ignore");
        for policy in ours {
            assert_eq!(text(policy, "/spec/failurePolicy"), "Fail");
            assert!(
                text(policy, "/spec/matchConditions/0/expression").contains(&user),
                "{directory}: {user}"
            );
        }
        for binding in of_kind(&all, "ValidatingAdmissionPolicyBinding") {
            assert_eq!(binding.pointer("/spec/validationActions"), Some(&json!(["Deny"])));
        }
        for binding in [of_kind(&all, "ClusterRoleBinding"), of_kind(&all, "RoleBinding")].concat() {
            for subject in each(binding, "/subjects").filter(|subject| text(subject, "/name") == name) {
                assert_eq!(text(subject, "/namespace"), namespace, "{directory}: {binding}");
            }
        }
        // Events of Nodes are in `default`, the credentials of seeds in lifecycle-agent's; all else is in one namespace.
        for other in all.iter().filter(|one| one.pointer("/metadata/namespace").is_some()) {
            let place = text(other, "/metadata/namespace");
            let is_known = [&*namespace, "default", "openshift-lifecycle-agent"].contains(&place);
            assert!(is_known, "{directory}: {other}");
        }
    }
}

/// Beside the agent on OpenShift: the operator's own objects and kinds are not touched.
#[test]
fn controller_on_openshift_takes_no_name_of_operator() {
    let all = render("overlays/openshift-controller", &[]);
    let definitions = of_kind(&all, "CustomResourceDefinition");
    let names: Vec<&str> = definitions.iter().map(|one| text(one, "/metadata/name")).collect();
    assert_eq!(names, ["rolloutpolicies.machine-config-agent.io"]);
    for one in all.iter().filter(|one| text(one, "/kind") != "CustomResourceDefinition") {
        assert!(text(one, "/metadata/name").starts_with("agent-machine-config-controller"), "{one}");
    }
    let account = "agent-machine-config-controller";
    let deployment = of_kind(&all, "Deployment").into_iter().next().unwrap();
    assert_eq!(text(deployment, "/spec/template/spec/serviceAccountName"), account);
    let bindings = [of_kind(&all, "RoleBinding"), of_kind(&all, "ClusterRoleBinding")].concat();
    assert_eq!(bindings.len(), 5);
    for binding in bindings {
        let bound = [text(binding, "/subjects/0/name"), text(binding, "/subjects/0/namespace")];
        assert_eq!(bound, [account, "openshift-machine-config-operator"], "{binding}");
        let role = text(binding, "/roleRef/name");
        let is_there = all.iter().any(|one| {
            text(one, "/kind") == text(binding, "/roleRef/kind") && text(one, "/metadata/name") == role
        });
        assert!(is_there || role == "system:openshift:scc:nonroot-v2", "{binding}");
    }
    let places: BTreeSet<&str> =
        all.iter().map(|one| text(one, "/metadata/namespace")).filter(|place| !place.is_empty()).collect();
    assert_eq!(places, BTreeSet::from(["default", "openshift-machine-config-operator"]));
}

/// A second replica would run on the same node, where the budget keeps one of them from each drain.
#[test]
fn single_node_runs_one_replica_of_each() {
    let replicas = |components: &[&str]| -> Vec<Value> {
        let all = render("overlays/kubernetes", components);
        of_kind(&all, "Deployment")
            .into_iter()
            .map(|one| one.pointer("/spec/replicas").cloned().unwrap())
            .collect()
    };
    assert_eq!(replicas(&["server"]), [2, 2]);
    assert_eq!(replicas(&["single-node"]), [1]);
    assert_eq!(replicas(&["server", "single-node"]), [1, 1]);
    let all = render("overlays/kubernetes", &["server", "single-node"]);
    for budget in of_kind(&all, "PodDisruptionBudget") {
        assert_eq!(budget.pointer("/spec/maxUnavailable"), Some(&json!(1)), "it lets the one go");
    }
}

#[test]
fn base_needs_no_crd() {
    let served = ["v1", "apps/v1", "rbac.authorization.k8s.io/v1", "admissionregistration.k8s.io/v1"];
    // With the controller come its own definitions, and no object of them.
    let of_controller = ["apiextensions.k8s.io/v1", "networking.k8s.io/v1", "policy/v1"];
    for (directory, more) in [("base", &[][..]), ("overlays/kubernetes", &of_controller[..])] {
        for object in render(directory, &["metrics", "kubelet-identity"]) {
            let version = text(&object, "/apiVersion");
            assert!(served.contains(&version) || more.contains(&version), "{directory}: {object}");
        }
    }
    assert_eq!(of_kind(&render("overlays/openshift", &[]), "Namespace"), Vec::<&Value>::new());
}

#[test]
fn daemonset_is_as_contract_has_it() {
    for (directory, components) in APPLIED {
        let all = render(directory, components);
        let set = of_kind(&all, "DaemonSet").into_iter().next().unwrap();
        let pod = |pointer: &str| {
            set.pointer(&format!("/spec/template/spec{pointer}")).cloned().unwrap_or_default()
        };
        let desired = [
            ("/hostPID", json!(true)),
            ("/hostNetwork", json!(true)),
            ("/priorityClassName", json!("system-node-critical")),
            ("/terminationGracePeriodSeconds", json!(600)),
            ("/nodeSelector", json!({ "kubernetes.io/os": "linux" })),
            ("/tolerations", json!([{ "operator": "Exists" }])),
            ("/automountServiceAccountToken", json!(false)),
            ("/containers/0/securityContext/privileged", json!(true)),
            ("/containers/0/resources", json!({ "requests": { "cpu": "20m", "memory": "20Mi" } })),
            ("/containers/0/terminationMessagePolicy", json!("FallbackToLogsOnError")),
            ("/containers/0/livenessProbe/httpGet/path", json!("/healthz")),
            ("/containers/0/readinessProbe/httpGet/path", json!("/readyz")),
            ("/containers/1", Value::Null),
        ];
        for (pointer, value) in desired {
            assert_eq!(pod(pointer), value, "{directory}: {pointer}");
        }
        let mounts = pod("/containers/0/volumeMounts");
        let root =
            mounts.as_array().unwrap().iter().find(|one| text(one, "/mountPath") == "/rootfs").unwrap();
        assert_eq!(text(root, "/mountPropagation"), "HostToContainer");
        assert_eq!(set.pointer("/spec/updateStrategy/rollingUpdate/maxUnavailable"), Some(&json!("10%")));
    }
}

#[test]
fn every_flag_of_daemonset_exists() {
    let help =
        Command::new(env!("CARGO_BIN_EXE_machine-config-agent")).args(["daemon", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for (directory, components) in APPLIED {
        let all = render(directory, components);
        let set = of_kind(&all, "DaemonSet").into_iter().next().unwrap();
        let args = strings(set, "/spec/template/spec/containers/0/args");
        assert_eq!(args.first(), Some(&"daemon"));
        for flag in args.iter().skip(1).map(|arg| arg.split('=').next().unwrap()) {
            assert!(help.contains(flag), "{directory}: `daemon` has no {flag}");
        }
    }
}

/// The controller as least privilege has it: no root, nothing of the host, and a replica more than one.
#[test]
fn controller_is_unprivileged_and_redundant() {
    let all = render("overlays/kubernetes", &[]);
    let deployment = of_kind(&all, "Deployment").into_iter().next().unwrap();
    // Nothing of the host, and no Secret.
    let settings = json!({ "name": "machine-config-build-settings", "optional": true });
    let desired = [
        ("/spec/replicas", json!(2)),
        ("/spec/template/spec/securityContext/runAsNonRoot", json!(true)),
        ("/spec/template/spec/containers/0/securityContext/readOnlyRootFilesystem", json!(true)),
        ("/spec/template/spec/containers/0/securityContext/allowPrivilegeEscalation", json!(false)),
        ("/spec/template/spec/containers/0/securityContext/capabilities", json!({ "drop": ["ALL"] })),
        ("/spec/template/spec/hostNetwork", Value::Null),
        ("/spec/template/spec/volumes", json!([{ "name": "build-settings", "configMap": settings }])),
    ];
    for (pointer, value) in desired {
        assert_eq!(deployment.pointer(pointer).cloned().unwrap_or_default(), value, "{pointer}");
    }
    let labels = deployment.pointer("/spec/template/metadata/labels").unwrap();
    for (kind, pointer) in [
        ("PodDisruptionBudget", "/spec/selector/matchLabels"),
        ("NetworkPolicy", "/spec/podSelector/matchLabels"),
    ] {
        let object = of_kind(&all, kind).into_iter().next().unwrap();
        assert_eq!(object.pointer(pointer), Some(labels), "{kind}");
    }
    let lease = of_kind(&all, "Role")
        .into_iter()
        .find(|role| text(role, "/metadata/name") == "machine-config-controller");
    let named = strings(lease.unwrap(), "/rules/1/resourceNames");
    let flags = std::fs::read_to_string("controller/src/cli/run.rs").unwrap();
    assert!(flags.contains(&format!("default_value = \"{}\"", named[0])), "the Lease is {named:?}");
    for flag in strings(deployment, "/spec/template/spec/containers/0/args").into_iter().skip(1) {
        let name = flag.trim_start_matches("--").split('=').next().unwrap().replace('-', "_");
        assert!(flags.contains(&format!("    {name}: ")), "`run` has no {flag}");
    }
}

/// The agent costs as little memory in a pod as in the unit.
#[test]
fn allocator_is_set_as_in_unit() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/machine-config-agent.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    let set: Vec<(&str, &str)> = unit
        .lines()
        .filter_map(|line| line.strip_prefix("Environment="))
        .flat_map(str::split_whitespace)
        .filter_map(|variable| variable.split_once('='))
        .filter(|(name, _)| name.starts_with("MALLOC_"))
        .collect();
    assert_eq!(set.len(), 2, "{set:?}");
    for (overlay, components) in APPLIED {
        let objects = render(overlay, components);
        let daemon_set = of_kind(&objects, "DaemonSet").into_iter().next().unwrap();
        let container = each(daemon_set, "/spec/template/spec/containers").next().unwrap();
        for (name, value) in &set {
            let given = each(container, "/env").find(|variable| variable["name"] == *name);
            assert_eq!(given.map(|variable| &variable["value"]), Some(&json!(value)), "{overlay}: {name}");
        }
    }
}
