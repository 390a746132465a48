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
const PARSERS: [(&str, &[(&str, usize)]); 21] = [
    ("schemas of our own definitions", &[("controller/src/api/definitions.rs", 1)]),
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

/// Ways around the one entry: an object without its type, and fields of a tree by their names.
const UNTYPED: [&str; 5] = ["Untyped<", "\"/spec", "get(\"spec\")", "get_mut(\"spec\")", "[\"spec\"]"];

/// These files go one of these ways, and so often.
const UNTYPED_READERS: [(&str, &[(&str, usize)]); 8] = [
    (
        "an object that the entry reads then: a part of it that can't be read does not hide its name and status",
        &[
            ("controller/src/controllers/follow.rs", 1),
            ("controller/src/controllers/untyped.rs", 7),
            ("controller/src/controllers/layering.rs", 2),
        ],
    ),
    (
        "a build, which this program makes; its definition checks it",
        &[("controller/src/controllers/layering.rs", 3)],
    ),
    (
        "what is left of an object that the entry refused: its faults are told, and these name those that it hides",
        &[
            ("controller/src/controllers/cached.rs", 1),
            ("controller/src/reading/lenient.rs", 1),
            ("controller/src/manifests.rs", 3),
            ("core/src/model/opaque.rs", 1),
        ],
    ),
    ("the whole of an object that the entry took", &[("controller/src/manifests.rs", 1)]),
    (
        "parts of the config that a seed leaves out: the entry has read it",
        &[("core/src/stateroot/config_of_seed.rs", 6)],
    ),
    (
        "definitions, and their rules",
        &[
            ("controller/src/api/definitions.rs", 2),
            ("controller/src/api/operator.rs", 1),
            ("controller/src/api/check.rs", 2),
        ],
    ),
    ("fields that the operator has, by name", &[("controller/src/reading.rs", 2)]),
    (
        "the agent's own objects and patches",
        &[
            ("src/control/kube/evict.rs", 1),
            ("src/control/kube/mcn.rs", 1),
            ("src/control/kube/mcn/stored.rs", 3),
            ("src/control/kube/lifecycle/upgrade.rs", 1),
        ],
    ),
];

/// No field of a document is taken from a tree, beside the entry that would have refused it.
#[test]
fn fields_are_read_by_their_types() {
    let mut wrong = Vec::new();
    for (file, code) in code_of_programs() {
        let found = UNTYPED.iter().map(|text| code.matches(text).count()).sum::<usize>();
        let expected = allowed(&UNTYPED_READERS, &file);
        if found != expected {
            let next =
                "read it as Lenient<KIND> or by core's model::document; or say in UNTYPED_READERS why not";
            wrong.push(format!(
                "{file} reads fields without a type {found} times, and not {expected}: {next}"
            ));
        }
    }
    none(&wrong);
}

/// Returns how often a file may, by a table.
fn allowed(table: &[(&str, &[(&str, usize)])], file: &str) -> usize {
    let rows = table.iter().flat_map(|(_, rows)| rows.iter());
    rows.filter(|(name, _)| *name == file).map(|(_, count)| count).sum()
}

/// Returns the code of each file, without tests.
fn code_of_programs() -> Vec<(String, String)> {
    let sources = all_sources().into_iter().filter(|source| !source.is_test());
    let code = sources.map(|source| {
        // Texts of tests look like the end of an item.
        let text = source.text.split("\n#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
        (source.to_string(), Source { base: source.base, path: source.path.clone(), text }.code())
    });
    code.filter(|(file, _)| !file.ends_with("_tests.rs")).collect()
}

/// A document has one answer wherever it comes in (docs/reference.md, "Documents").
#[test]
fn documents_are_parsed_in_one_place() {
    let mut wrong = Vec::new();
    for (file, code) in code_of_programs() {
        let (found, expected) =
            (PARSES.iter().map(|call| code.matches(call).count()).sum::<usize>(), allowed(&PARSERS, &file));
        if found != expected {
            let next = "read it by core's model::document or model::reading, the controller's reading; or say in PARSERS what it is";
            wrong.push(format!("{file} parses {found} times, and not {expected}: {next}"));
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
