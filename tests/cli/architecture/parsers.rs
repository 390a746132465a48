//! The files that parse a document, and how often: it has one answer wherever it comes in.

use super::sources::{Source, all_sources, none};

/// Calls that make a value of a text or of a tree, or of what the API gives.
const PARSES: [&str; 8] = [
    "serde_json::from_",
    "serde_saphyr::from_",
    "::deserialize(",
    "yaml::strings(",
    "yaml::tree(",
    "type Object = ",
    "request::<",
    "request_events::<",
];

/// These files parse something themselves, and so often. The kinds of [`READ`] are none of it.
const PARSERS: [(&str, &[(&str, usize)]); 20] = [
    ("settings of a node, with the keys that are not known", &[("core/src/model/settings.rs", 1)]),
    (
        "the one entry: `document`, `reading`, Ignition's sections, YAML",
        &[
            ("core/src/model/reading/mod.rs", 2),
            ("core/src/model/ignition/mod.rs", 1),
            ("core/src/model/yaml.rs", 3),
            ("controller/src/reading/lenient.rs", 2),
        ],
    ),
    (
        "the text of a MachineConfig that the entry has read: digest, name, its readable parts, its digests of contents, its packed form",
        &[
            ("controller/src/controllers/stored_config.rs", 1),
            ("core/src/model/content.rs", 1),
            ("core/src/model/machineconfig.rs", 1),
            ("core/src/model/opaque.rs", 1),
            ("core/src/model/fixed.rs", 1),
            ("core/src/model/ignition/stale.rs", 1),
        ],
    ),
    (
        "credentials and pins of disks, in strings",
        &[
            ("core/src/model/registry_auth.rs", 1),
            ("core/src/model/ignition/rules/luks.rs", 1),
            ("controller/src/registry/credentials.rs", 2),
            ("controller/src/registry/session.rs", 1),
            ("controller/src/registry/secret.rs", 1),
            ("controller/src/bootstrap/credentials.rs", 2),
        ],
    ),
    (
        "members of a seed that are no MachineConfig",
        &[
            ("core/src/stateroot/cluster_config.rs", 3),
            ("core/src/stateroot/making.rs", 2),
            ("core/src/stateroot/members.rs", 2),
            ("core/src/stateroot/seed.rs", 1),
        ],
    ),
    (
        "files of the agent and of the kubelet: target, stage, kubeconfig",
        &[
            ("src/control/directory.rs", 1),
            ("src/control/stage_file.rs", 1),
            ("src/control/kube/bootstrap.rs", 1),
            ("src/control/kube/identity.rs", 1),
        ],
    ),
    (
        "kinds of Kubernetes and OpenShift: Node, Event, ConfigMap, Secret, Status, reviews, ClusterVersion",
        &[
            ("src/control/kube/node_watch.rs", 1),
            ("src/control/kube/node.rs", 1),
            ("src/control/kube/events.rs", 2),
            ("src/control/kube/server_ca.rs", 1),
            ("src/control/kube/request.rs", 1),
            ("src/control/kube/lifecycle/seed_cluster.rs", 3),
            ("controller/src/api/controller_config.rs", 1),
            ("controller/src/build/surroundings.rs", 1),
            ("controller/src/serve/kubeconfig.rs", 1),
        ],
    ),
    (
        "the ControllerConfig, by a type that never prints its secrets",
        &[("src/control/kube/controller_config.rs", 1)],
    ),
    (
        "the transport: one type for all kinds, and lists of metadata",
        &[
            ("src/control/kube/reflector.rs", 1),
            ("src/control/kube/pinned/mod.rs", 1),
            ("src/control/kube/lifecycle/mod.rs", 1),
        ],
    ),
    (
        "trees, which the entry reads then",
        &[
            ("src/control/kube/pinned/objects.rs", 1),
            ("controller/src/controllers/config.rs", 1),
            ("controller/src/controllers/untyped.rs", 1),
            ("controller/src/controllers/opt_in.rs", 1),
        ],
    ),
    (
        "the agent's own objects, conditions and annotations",
        &[
            ("src/control/kube/mcn.rs", 1),
            ("src/control/kube/mcn/stored.rs", 2),
            ("src/control/kube/lifecycle/seed_generator.rs", 1),
            ("src/control/kube/lifecycle/singleton.rs", 1),
            ("src/control/kube/lifecycle/upgrade.rs", 2),
            ("controller/src/rollout/node.rs", 1),
            ("controller/src/controllers/config_node.rs", 1),
        ],
    ),
    (
        "objects that the controller makes, and what is left of a policy that can't be read",
        &[
            ("controller/src/build/objects.rs", 1),
            ("controller/src/controllers/build/openshift.rs", 1),
            ("controller/src/controllers/build/write.rs", 1),
            ("controller/src/controllers/cached.rs", 1),
        ],
    ),
    ("settings of builds", &[("controller/src/cli/run.rs", 1)]),
    (
        "the agent's own state",
        &[
            ("core/src/update/reason.rs", 1),
            ("src/host/account_records.rs", 1),
            ("src/host/etc_merge.rs", 1),
            ("src/host/saved.rs", 1),
            ("src/journal/history.rs", 1),
            ("src/journal/kept.rs", 2),
            ("src/journal/machine.rs", 1),
            ("src/journal/originals.rs", 1),
            ("src/journal/stateroot.rs", 2),
            ("src/journal/stored.rs", 3),
            ("src/journal/version.rs", 3),
            ("src/observe/kernel.rs", 1),
        ],
    ),
    (
        "its reports and its log, for other verbs",
        &[
            ("core/src/report/irreconcilable.rs", 1),
            ("src/cli/collect/parts.rs", 1),
            ("src/cli/last_report.rs", 1),
        ],
    ),
    (
        "images, registries and their credentials",
        &[
            ("src/host/credentials.rs", 1),
            ("src/host/os/ostree/image.rs", 2),
            ("src/host/os/ostree/oci.rs", 1),
            ("src/host/os/rpmostree/extensions.rs", 1),
            ("src/host/registry.rs", 1),
        ],
    ),
    (
        "answers of bootc and rpm-ostree",
        &[
            ("src/host/os/bootc/progress.rs", 1),
            ("src/host/os/bootc/stage_record.rs", 1),
            ("src/host/os/bootc/status.rs", 1),
            ("src/host/os/rpmostree/deployments.rs", 1),
            ("src/host/os/rpmostree/mod.rs", 1),
            ("src/host/os/sysroot_cache.rs", 1),
        ],
    ),
    (
        "the worker and its requests",
        &[
            ("src/host/os/ostree/labels.rs", 1),
            ("src/host/os/ostree/serve.rs", 2),
            ("src/host/os/worker/exchange.rs", 1),
            ("src/host/os/worker/labels.rs", 1),
        ],
    ),
    (
        "stateroots and seeds",
        &[
            ("src/host/os/ostree/stateroot/activate.rs", 1),
            ("src/host/os/ostree/stateroot/fetch.rs", 1),
            ("src/host/os/ostree/stateroot/inspect.rs", 1),
            ("src/host/os/ostree/stateroot/make/image.rs", 1),
            ("src/host/os/ostree/stateroot/unpacking/mod.rs", 1),
            ("src/host/os/ostree/stateroot/unpacking/process.rs", 1),
        ],
    ),
    (
        "the demonstration host: its images, and what its agent prints",
        &[("src/sandbox/demo/node.rs", 2), ("src/sandbox/demo/scenes.rs", 1), ("src/sandbox/images.rs", 2)],
    ),
];

/// Kinds that are read through the one entry alone: in the controller as `Lenient<KIND>`.
const READ: [&str; 7] = [
    "MachineConfig",
    "MachineConfigPool",
    "MachineConfigNode",
    "MachineOSBuild",
    "MachineOSConfig",
    "PinnedImageSet",
    "RolloutPolicy",
];

/// A document has one answer wherever it comes in (docs/reference.md, "Documents").
#[test]
fn documents_are_parsed_in_one_place() {
    let allowed = |file: &str| {
        let rows = PARSERS.iter().flat_map(|(_, rows)| rows.iter());
        rows.filter(|(name, _)| *name == file).map(|(_, count)| count).sum::<usize>()
    };
    let mut wrong = Vec::new();
    for source in all_sources().iter().filter(|source| !source.is_test()) {
        let file = source.to_string();
        // Texts of tests look like the end of an item.
        let text = source.text.split("\n#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
        let code = Source { base: source.base, path: source.path.clone(), text }.code();
        if file.ends_with("_tests.rs") {
            continue;
        }
        let found = PARSES.iter().map(|call| code.matches(call).count()).sum::<usize>();
        if found != allowed(&file) {
            let next = "read it by core's model::document or model::reading, the controller's reading; or say in PARSERS what it is";
            wrong.push(format!("{file} parses {found} times, and not {}: {next}", allowed(&file)));
        }
        for kind in READ {
            for typed in [format!("Api<{kind}>"), format!("Api::<{kind}>"), format!("from_value::<{kind}>")] {
                if code.contains(&typed) {
                    wrong.push(format!("{file} has {typed}: read it as Lenient<{kind}>"));
                }
            }
        }
    }
    none(&wrong);
}
