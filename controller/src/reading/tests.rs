//! A table of documents, read through every entry: offline and in the cluster, by the agent and by the controller, in each form.

use kube::CustomResourceExt as _;
use machine_config_core::model::fate::OF_SPEC;
use machine_config_core::model::installed_storage;
use machine_config_core::model::machineconfig::MachineConfig as Config;
use machine_config_core::model::pinned::{PinnedSet, PinningPool};
use machine_config_core::model::pool::PoolConfigs;
use machine_config_core::model::reading::refuse_unknown;
use serde_json::json;

use super::*;
use crate::manifests::{ManifestError, Manifests, UnknownFields};
use crate::ran;

/// Answer of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    Taken,
    /// Taken, but a field is named.
    Named(String),
    /// The field, and the exit code of a verb.
    Refused(String, u8),
}

/// Answer that a row expects.
#[derive(Debug, Clone, Copy)]
enum Expect {
    Taken,
    /// Refused in a file of a person, named in a cluster.
    Unknown(&'static str),
    Refused(&'static str),
}

use Expect::{Refused, Taken, Unknown};

type Row = (Expect, &'static str);

fn refused(error: &ModelError) -> Answer {
    Answer::Refused(error.field().unwrap_or_default().to_owned(), error.class().exit_code())
}

fn answer(read: Result<Vec<NotApplied>, ModelError>) -> Answer {
    match read {
        Ok(unknown) => unknown.first().map_or(Answer::Taken, |first| Answer::Named(first.field.clone())),
        Err(error) => refused(&error),
    }
}

/// The agent: `plan`, `apply`, `verify` and the control directory.
fn agent_file(text: &str) -> Answer {
    let read = Config::parse_or_wrap(text.as_bytes(), "f").and_then(|config| {
        config.refuse_unknown("f")?;
        Ok(Vec::new())
    });
    answer(read)
}

/// The agent in a cluster, at a first boot, and its import from MCD.
fn agent_cluster(tree: &Value) -> Answer {
    let config = Config::parse(tree.to_string().as_bytes(), "f");
    answer(config.and_then(|config| Ok(config.spec(None)?.remarks)))
}

/// The controller's verbs over files.
#[expect(clippy::disallowed_methods, reason = "a test: it writes the files that a person has")]
fn controller_file(text: &str) -> Answer {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("a.yaml"), text).unwrap();
    let (manifests, errors) = Manifests::collect(directory.path(), UnknownFields::Refused).unwrap();
    let Some(error) = errors.first() else {
        let read = [manifests.configs.len(), manifests.pools.len(), manifests.os_configs.len()];
        let others = manifests.rollout_policies.len()
            + usize::from(manifests.policy.is_some())
            + usize::from(manifests.controller_config.is_some());
        assert_eq!(read.iter().sum::<usize>() + others, 1, "{text}");
        return Answer::Taken;
    };
    match error {
        ManifestError::Refused { error, .. } => refused(error),
        other @ (ManifestError::Unread { .. }
        | ManifestError::Unreachable { .. }
        | ManifestError::More { .. }
        | ManifestError::Several(_)
        | ManifestError::Twice { .. }
        | ManifestError::TooMany { .. }) => panic!("{other}: {text}"),
    }
}

/// The watches and the gets of `run`, `serve`, `status` and the live `plan`: the same answer, without the object's name.
fn as_watched<K: Object>(tree: &Value) {
    let Ok(watched) = serde_json::from_value::<Lenient<K>>(tree.clone()) else {
        // Metadata that are none: no API server has such an object.
        assert!(of_tree::<K>(tree).is_err(), "{tree}");
        return;
    };
    match of_tree::<K>(tree) {
        Ok(found) => assert!(watched.object.is_ok() && watched.unknown == found.unknown, "{tree}"),
        Err(error) => {
            let cause = watched.object.err().unwrap_or_default();
            assert!(cause.starts_with(error.field().unwrap_or_default()), "{cause}: {error}: {tree}");
        }
    }
}

/// The agent's readers of a part of a kind: none refuses what is taken elsewhere, and each names the same field.
fn parts_of_agent(kind: Kind, tree: &Value) -> Vec<(&'static str, ModelError)> {
    let text = tree.to_string();
    let mut parts = Vec::new();
    if kind == Kind::POOL {
        let pool = document::one(text.as_bytes(), "f", kind);
        let configs = pool.and_then(|pool| PoolConfigs::of_document(&pool)).map(drop);
        parts.push(("agent, configs of a pool", configs));
        parts.push(("agent, pinned images of a pool", PinningPool::of_tree(tree).map(drop)));
    }
    if kind == Kind::MACHINE_CONFIG && tree.pointer("/spec/config/ignition").is_some() {
        let storage = installed_storage(text.as_bytes(), "f").map(drop);
        parts.push(("agent, storage of the installation", storage));
    }
    parts.into_iter().filter_map(|(entry, read)| Some((entry, read.err()?))).collect()
}

/// The controllers: what the API server gives, and the check that its controller makes.
fn controller_cluster(tree: &Value) -> Answer {
    fn read<K: Object>(tree: &Value) -> Answer {
        as_watched::<K>(tree);
        let checked = of_tree::<K>(tree).and_then(|found| match found.value.check().first() {
            Some(text) => Err(wrong("f", text)),
            None => Ok(found.unknown),
        });
        answer(checked)
    }
    match tree["kind"].as_str().unwrap_or_default() {
        "MachineConfigPool" => read::<MachineConfigPool>(tree),
        "MachineOSConfig" => read::<MachineOSConfig>(tree),
        "RolloutPolicy" => read::<RolloutPolicy>(tree),
        "ControllerConfig" => read::<ControllerConfig>(tree),
        "MachineConfiguration" => {
            let policy = document::one(tree.to_string().as_bytes(), "f", Kind::POLICY);
            answer(policy.and_then(|policy| Ok(DisruptionPolicy::of_document(&policy)?.unknown)))
        }
        _ => read::<MachineConfig>(tree),
    }
}

use machine_config_core::model::document;
use machine_config_core::model::policy::DisruptionPolicy;

/// The forms in which a person has a document.
fn forms(yaml: &str, tree: &Value) -> Vec<String> {
    let list =
        json!({ "apiVersion": "v1", "kind": "List", "items": [tree], "metadata": { "resourceVersion": "" } });
    vec![
        yaml.to_owned(),
        format!("---\n# a comment\n{yaml}\n---\n"),
        format!("\u{feff}{yaml}\n---\n# nothing more\n"),
        tree.to_string(),
        serde_json::to_string_pretty(tree).unwrap(),
        list.to_string(),
        serde_saphyr::to_string(&list).unwrap(),
    ]
}

fn check(kind: Kind, document: &str, expect: Expect) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut same = |entry: &str, found: &Answer, expected: &Answer, text: &str| {
        if found != expected {
            wrong.push(format!("{entry}: {found:?}, and not {expected:?}: {text}"));
        }
    };
    let tree = yaml::tree(document).unwrap();
    let parts = parts_of_agent(kind, &tree);
    let is_config = kind == Kind::MACHINE_CONFIG;
    // The document itself is wrong where its fields are named by their place; of an entry the first answer decides for the others.
    let is_document =
        |field: &str| ["spec", "metadata", "apiVersion", "sepc"].iter().any(|at| field.starts_with(at));
    let first = controller_cluster(&tree);
    let code = |field: &str| match &first {
        Answer::Refused(_, code) if !is_document(field) => *code,
        Answer::Taken | Answer::Named(_) | Answer::Refused(..) => 4,
    };
    let refused_with = |field: &str| Answer::Refused(field.to_owned(), code(field));
    let (file, cluster) = match expect {
        Taken => (Answer::Taken, Answer::Taken),
        Unknown(field) => (refused_with(field), Answer::Named(field.to_owned())),
        Refused(field) => (refused_with(field), refused_with(field)),
    };
    for text in forms(document, &tree) {
        same("controller, file", &controller_file(&text), &file, &text);
        if is_config {
            same("agent, file", &agent_file(&text), &file, &text);
        }
    }
    for (entry, error) in parts {
        same(entry, &refused(&error), &cluster, document);
    }
    same("controller, cluster", &controller_cluster(&tree), &cluster, document);
    if is_config {
        same("agent, cluster", &agent_cluster(&tree), &cluster, document);
    }
    wrong
}

fn all(kind: Kind, rows: &[Row], document: impl Fn(&str) -> String) -> (usize, Vec<String>) {
    let wrong = rows.iter().flat_map(|(expect, part)| check(kind, &document(part), *expect));
    (rows.len(), wrong.collect())
}

use machine_config_core::model::yaml;

/// Specs of a MachineConfig.
const SPECS: &[Row] = &[
    (Taken, "{}"),
    (Refused("spec"), "null"),
    (Taken, "{config: {}}"),
    (Taken, "{config: null}"),
    (Taken, "{config: {ignition: {version: 3.0.0}}}"),
    (Taken, "{config: {ignition: {version: 3.6.0}}}"),
    (Taken, "{kernelArguments: []}"),
    (Taken, "{kernelArguments: [quiet, 'a=b c=d']}"),
    (Taken, "{kernelArguments: null}"),
    (Taken, "{kernelType: ''}"),
    (Taken, "{kernelType: realtime}"),
    (Taken, "{kernelType: default}"),
    (Taken, "{extensions: [usbguard]}"),
    (Refused("spec.extensions \"\""), "{extensions: ['']}"),
    (Taken, "{fips: true}"),
    (Taken, "{fips: false}"),
    (Taken, "{osImageURL: ''}"),
    (
        Taken,
        "{osImageURL: 'r.test/os@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'}",
    ),
    (Refused("spec.kernelArguments"), "{kernelArguments: quiet}"),
    (Refused("spec.kernelArguments[1]"), "{kernelArguments: [a, 5]}"),
    (Refused("spec.kernelArguments[0]"), "{kernelArguments: [{a: b}]}"),
    (Refused("spec.kernelArguments \"a=\\\"b\""), "{kernelArguments: ['a=\"b']}"),
    (Refused("spec.kernelType"), "{kernelType: 5}"),
    (Refused("spec.kernelType"), "{kernelType: [realtime]}"),
    (Refused("spec.extensions"), "{extensions: usbguard}"),
    (Refused("spec.extensions[0]"), "{extensions: [1]}"),
    (Refused("spec.extensions \"Bad Name\""), "{extensions: [Bad Name]}"),
    (Refused("spec.fips"), "{fips: 'true'}"),
    (Refused("spec.fips"), "{fips: 1}"),
    (Refused("spec.osImageURL"), "{osImageURL: 5}"),
    (Refused("spec.config.ignition.version"), "{config: {ignition: {}}}"),
    (Refused("spec.config.ignition.version"), "{config: {storage: {}}}"),
    (Refused("spec.config.ignition.version"), "{config: {ignition: {version: 2.2.0}}}"),
    (Refused("spec.config.ignition.version"), "{config: {ignition: {version: 3.7.0}}}"),
    (Refused("spec.config.ignition.version"), "{config: {ignition: {version: 3.2.1}}}"),
    (Refused("spec.config.ignition.version"), "{config: {ignition: {version: 3.2.0-experimental}}}"),
    (Refused("spec.config.ignition.version"), "{config: {ignition: {version: 3.2}}}"),
    (Refused("spec.config"), "{config: text}"),
    (Refused("spec.config"), "{config: [text]}"),
    (Refused("spec.config"), "{config: 5}"),
    (Refused("spec.config"), "{config: true}"),
    (Refused("spec.config"), "{config: []}"),
    (Refused("spec"), "[]"),
    (Refused("spec"), "text"),
    (Refused("spec.kernelArguments \"ostree=/a\""), "{kernelArguments: ['a=b ostree=/a']}"),
    (Refused("spec.kernelArguments \"initrd=a\""), "{kernelArguments: [initrd=a]}"),
    (Refused("spec.kernelArguments \"\\\"ostree=a\\\"\""), "{kernelArguments: ['\"ostree=a\"']}"),
    (Taken, "{kernelArguments: [\"a\\nb\", ostree.a=b]}"),
    (Unknown("spec.kernelargs"), "{kernelargs: [quiet]}"),
    (Unknown("spec.kernelArgs"), "{kernelArgs: [quiet]}"),
    (Unknown("spec.osImageUrl"), "{osImageUrl: x}"),
    (Unknown("spec.kernel"), "{kernel: {type: realtime}}"),
    (Unknown("spec.extension"), "{extension: [usbguard]}"),
    (Unknown("spec.FIPS"), "{FIPS: true}"),
    (Unknown("spec.storage"), "{storage: {files: []}}"),
    (Unknown("spec.ignition"), "{ignition: {version: 3.2.0}}"),
];

/// Parts of an Ignition config of version 3.4.0.
const IGNITION: &[Row] = &[
    (Taken, "storage: {}"),
    (Taken, "storage: null"),
    (Taken, "storage: {files: []}"),
    (Taken, "storage: {files: [{path: /etc/a}]}"),
    (Taken, "storage: {files: [{path: /etc/a, mode: 0644}]}"),
    (Taken, "storage: {files: [{path: /etc/a, mode: 0o600}]}"),
    (Taken, "storage: {files: [{path: /etc/a, mode: 420}]}"),
    (Taken, "storage: {files: [{path: /etc/a, mode: 0}]}"),
    (Taken, "storage: {files: [{path: /etc/a, mode: null}]}"),
    (Taken, "storage: {files: [{path: /etc/a, mode: 0777}]}"),
    (Taken, "storage: {files: [{path: /etc/a, mode: 0x1ff}]}"),
    (Taken, "storage: {files: [{path: /etc/a, contents: {source: 'data:,a'}}]}"),
    (Taken, "storage: {files: [{path: /etc/a, contents: {source: null}}]}"),
    (Taken, "storage: {files: [{path: /etc/a, contents: {compression: '', source: 'data:;base64,YQ=='}}]}"),
    (Taken, "storage: {files: [{path: /etc/a, user: {name: core}, group: {id: 0}}]}"),
    (Taken, "storage: {files: [{path: /etc/a, overwrite: true, contents: {source: 'data:,x'}}]}"),
    (Refused("storage.files \"/etc/a\" overwrite"), "storage: {files: [{path: /etc/a, overwrite: true}]}"),
    (Taken, "systemd: {units: []}"),
    (Taken, "systemd: {units: [{name: a.service, contents: '[Unit]', enabled: true}]}"),
    (Taken, "systemd: {units: [{name: a.service, dropins: [{name: 1.conf, contents: '[Unit]'}]}]}"),
    (Taken, "systemd: {units: [{name: a.service, mask: true}]}"),
    (Taken, "passwd: {users: [{name: core, sshAuthorizedKeys: [ssh-ed25519 AAAA]}]}"),
    (Taken, "passwd: {users: [{name: core, passwordHash: $6$a}]}"),
    (Taken, "passwd: {users: []}"),
    (Refused("storage.files \"/etc/a\" mode"), "storage: {files: [{path: /etc/a, mode: 644}]}"),
    (Refused("storage.files \"/etc/a\" mode"), "storage: {files: [{path: /etc/a, mode: 755}]}"),
    (Refused("storage.directories \"/etc/a\" mode"), "storage: {directories: [{path: /etc/a, mode: 755}]}"),
    (Refused("storage.files \"/etc/a\" mode"), "storage: {files: [{path: /etc/a, mode: 600}]}"),
    (Refused("storage.files \"/etc/a\" mode"), "storage: {files: [{path: /etc/a, mode: -1}]}"),
    (Refused("storage.files \"/etc/a\" mode"), "storage: {files: [{path: /etc/a, mode: 04755}]}"),
    (Refused("spec.config.storage.files[0].mode"), "storage: {files: [{path: /etc/a, mode: '0644'}]}"),
    (Refused("spec.config.storage.files[0].mode"), "storage: {files: [{path: /etc/a, mode: 420.5}]}"),
    (Refused("spec.config.storage.files[0].mode"), "storage: {files: [{path: /etc/a, mode: true}]}"),
    (Refused("spec.config.storage.files[0].mode"), "storage: {files: [{path: /etc/a, mode: 0o}]}"),
    (Refused("spec.config.storage.files[0].path"), "storage: {files: [{mode: 420}]}"),
    (Refused("spec.config.storage.files[0].path"), "storage: {files: [{path: 5}]}"),
    (Refused("spec.config.storage.files[0].path"), "storage: {files: [{path: null}]}"),
    (Refused("spec.config.storage.files"), "storage: {files: {path: /etc/a}}"),
    (Refused("spec.config.storage.files[1]"), "storage: {files: [{path: /etc/a}, /etc/b]}"),
    (Refused("spec.config.storage"), "storage: 5"),
    (Refused("spec.config.storage"), "storage: text"),
    (Refused("spec.config.passwd"), "passwd: text"),
    (Refused("spec.config.passwd"), "passwd: []"),
    (Refused("spec.config.passwd.users"), "passwd: {users: text}"),
    (Refused("spec.config.passwd.users[0]"), "passwd: {users: [text]}"),
    (Refused("spec.config.passwd.groups[0]"), "passwd: {groups: [[text]]}"),
    (Refused("spec.config.systemd"), "systemd: text"),
    (Refused("spec.config.systemd.units[0]"), "systemd: {units: [text]}"),
    (Refused("spec.config.kernelArguments"), "kernelArguments: text"),
    (Refused("spec.config.storage.directories"), "storage: {directories: text}"),
    (Refused("spec.config.storage.links[0]"), "storage: {links: [5]}"),
    (Refused("spec.config.storage.files[0].user"), "storage: {files: [{path: /etc/a, user: root}]}"),
    (Refused("spec.config.storage.disks[0]"), "storage: {disks: [/dev/vda]}"),
    (Refused("spec.config.storage"), "storage: []"),
    (Refused("spec.config.storage.files[0]"), "storage: {files: [[/etc/a]]}"),
    (
        Refused("spec.config.systemd.units[0].dropins[0]"),
        "systemd: {units: [{name: a.service, dropins: [[a.conf]]}]}",
    ),
    (Refused("storage.files \"etc/a\""), "storage: {files: [{path: etc/a}]}"),
    (Refused("storage.files \"/etc/../a\""), "storage: {files: [{path: /etc/../a}]}"),
    (Refused("storage.files \"\""), "storage: {files: [{path: ''}]}"),
    (Refused("storage.files \"/etc/a\""), "storage: {files: [{path: /etc/a}, {path: /etc/a}]}"),
    (Refused("storage.files \"/etc/a/b\""), "storage: {files: [{path: /etc/a}, {path: /etc/a/b}]}"),
    (
        Refused("storage.files \"/etc/a\" contents"),
        "storage: {files: [{path: /etc/a, contents: {source: 'https://a.test'}}]}",
    ),
    (
        Refused("storage.files \"/etc/a\" contents"),
        "storage: {files: [{path: /etc/a, contents: {source: 'data:;base64,@'}}]}",
    ),
    (
        Refused("storage.files \"/etc/a\" contents"),
        "storage: {files: [{path: /etc/a, contents: {source: 'data:,a', compression: xz}}]}",
    ),
    (
        Refused("storage.files \"/etc/a\" contents"),
        "storage: {files: [{path: /etc/a, contents: {source: 'data:,a', verification: {hash: md5-1}}}]}",
    ),
    (Refused("spec.config.storage.files[0].contents"), "storage: {files: [{path: /etc/a, contents: text}]}"),
    (
        Refused("spec.config.storage.files[0].contents.source"),
        "storage: {files: [{path: /etc/a, contents: {source: 1}}]}",
    ),
    (
        Refused("storage.files \"/etc/a\" append"),
        "storage: {files: [{path: /etc/a, append: [{source: 'data:,a'}]}]}",
    ),
    (
        Refused("storage.files \"/etc/a\" user"),
        "storage: {files: [{path: /etc/a, user: {name: Not A User}}]}",
    ),
    (Refused("storage.files \"/etc/a\" user"), "storage: {files: [{path: /etc/a, user: {id: -1}}]}"),
    (Refused("spec.config.storage.files[0].user.id"), "storage: {files: [{path: /etc/a, user: {id: root}}]}"),
    (Refused("spec.config.systemd.units[0].name"), "systemd: {units: [{contents: a}]}"),
    (
        Refused("spec.config.systemd.units[0].enabled"),
        "systemd: {units: [{name: a.service, enabled: 'yes'}]}",
    ),
    (Refused("spec.config.systemd.units[0].enabled"), "systemd: {units: [{name: a.service, enabled: 1}]}"),
    (Refused("spec.config.systemd.units"), "systemd: {units: {a.service: {}}}"),
    (Refused("systemd.units \"a\""), "systemd: {units: [{name: a}]}"),
    (Refused("systemd.units \"../a.service\""), "systemd: {units: [{name: ../a.service}]}"),
    (Refused("systemd.units \"a.service\""), "systemd: {units: [{name: a.service}, {name: a.service}]}"),
    (
        Refused("systemd.units \"a.service\""),
        "systemd: {units: [{name: a.service, mask: true, enabled: true}]}",
    ),
    (
        Refused("systemd.units \"a.service\" dropins \"a\""),
        "systemd: {units: [{name: a.service, dropins: [{name: a, contents: b}]}]}",
    ),
    (
        Refused("spec.config.systemd.units[0].dropins[0].name"),
        "systemd: {units: [{name: a.service, dropins: [{contents: b}]}]}",
    ),
    (Refused("spec.config.passwd.users[0].name"), "passwd: {users: [{sshAuthorizedKeys: []}]}"),
    (
        Refused("spec.config.passwd.users[0].sshAuthorizedKeys"),
        "passwd: {users: [{name: core, sshAuthorizedKeys: ssh-rsa}]}",
    ),
    (Refused("spec.config.passwd.users[0].uid"), "passwd: {users: [{name: core, uid: '5'}]}"),
    (Refused("passwd.users \"core\""), "passwd: {users: [{name: core}, {name: core}]}"),
    (Unknown("spec.config.storge"), "storge: {files: []}"),
    (Unknown("spec.config.Storage"), "Storage: {files: []}"),
    (Unknown("spec.config.files"), "files: []"),
    (Unknown("spec.config.storage.file"), "storage: {file: []}"),
    (
        Unknown("spec.config.storage.files[0].content"),
        "storage: {files: [{path: /etc/a, content: {inline: a}}]}",
    ),
    (Unknown("spec.config.storage.files[0].mod"), "storage: {files: [{path: /etc/a, mod: 420}]}"),
    (
        Unknown("spec.config.storage.files[1].contents.inline"),
        "storage: {files: [{path: /etc/a}, {path: /etc/b, contents: {inline: a}}]}",
    ),
    (
        Unknown("spec.config.storage.files[0].contents.local"),
        "storage: {files: [{path: /etc/a, contents: {local: a}}]}",
    ),
    (
        Unknown("spec.config.storage.files[0].filesystem"),
        "storage: {files: [{path: /etc/a, filesystem: root}]}",
    ),
    (Unknown("spec.config.storage.files[0].user.uid"), "storage: {files: [{path: /etc/a, user: {uid: 5}}]}"),
    (Unknown("spec.config.storage.trees"), "storage: {trees: []}"),
    (Unknown("spec.config.systemd.unit"), "systemd: {unit: []}"),
    (Unknown("spec.config.systemd.units[0].enable"), "systemd: {units: [{name: a.service, enable: true}]}"),
    (Unknown("spec.config.systemd.units[0].content"), "systemd: {units: [{name: a.service, content: a}]}"),
    (
        Unknown("spec.config.systemd.units[0].contents_local"),
        "systemd: {units: [{name: a.service, contents_local: a}]}",
    ),
    (Unknown("spec.config.systemd.units[0].dropin"), "systemd: {units: [{name: a.service, dropin: []}]}"),
    (Unknown("spec.config.passwd.user"), "passwd: {user: []}"),
    (
        Unknown("spec.config.passwd.users[0].ssh_authorized_keys"),
        "passwd: {users: [{name: core, ssh_authorized_keys: []}]}",
    ),
    (
        Unknown("spec.config.passwd.users[0].password_hash"),
        "passwd: {users: [{name: core, password_hash: a}]}",
    ),
    (Unknown("spec.config.networkd"), "networkd: {units: []}"),
    (Unknown("spec.config.variant"), "variant: fcos"),
    (Unknown("spec.config.kernel_arguments"), "kernel_arguments: {}"),
];

/// Whole Ignition configs with fields of later versions.
const NEWER: &[Row] = &[
    (Refused("spec.config.ignition"), "{ignition: text}"),
    (Refused("spec.config.ignition"), "{ignition: []}"),
    (Refused("spec.config.ignition.version"), "{ignition: {version: 3}}"),
    (
        Unknown("spec.config.kernelArguments"),
        "{ignition: {version: 3.2.0}, kernelArguments: {shouldExist: [a]}}",
    ),
    (Taken, "{ignition: {version: 3.3.0}, kernelArguments: {}}"),
    (Unknown("spec.config.ignition.proxy"), "{ignition: {version: 3.0.0, proxy: {}}}"),
    (Unknown("spec.config.storage.luks"), "{ignition: {version: 3.1.0}, storage: {luks: []}}"),
    (Unknown("spec.config.ignition.versions"), "{ignition: {version: 3.1.0, versions: 3.2.0}}"),
];

const POOLS: &[Row] = &[
    (Taken, "{}"),
    (Taken, "{maxUnavailable: 1}"),
    (Taken, "{maxUnavailable: 0}"),
    (Taken, "{maxUnavailable: 10%}"),
    (Taken, "{maxUnavailable: 100%}"),
    (Taken, "{maxUnavailable: null}"),
    (Refused("spec"), "[]"),
    (Refused("spec.nodeSelector"), "{nodeSelector: []}"),
    (Taken, "{paused: true}"),
    (Taken, "{pinnedImageSets: [{name: a}]}"),
    (Taken, "{nodeSelector: {matchLabels: {a: b}}}"),
    (Refused("spec.maxUnavailable"), "{maxUnavailable: abc}"),
    (Refused("spec.maxUnavailable"), "{maxUnavailable: -1}"),
    (Refused("spec.maxUnavailable"), "{maxUnavailable: 101%}"),
    (Refused("spec.maxUnavailable"), "{maxUnavailable: '%'}"),
    (Refused("spec.maxUnavailable"), "{maxUnavailable: '5'}"),
    (Refused("spec.maxUnavailable"), "{maxUnavailable: '1.5%'}"),
    (Refused("spec.maxUnavailable"), "{maxUnavailable: [1]}"),
    (Refused("spec.paused"), "{paused: 'yes'}"),
    (Refused("spec.nodeSelector.matchLabels.a"), "{nodeSelector: {matchLabels: {a: 1}}}"),
    (Unknown("spec.maxUnavailible"), "{maxUnavailible: 1}"),
    (Unknown("spec.machineConfigSelectors"), "{machineConfigSelectors: {}}"),
    (Refused("spec.configuration.name"), "{configuration: {name: 5}}"),
    (Unknown("spec.nodeSelector.matchLabel"), "{nodeSelector: {matchLabel: {}}}"),
];

const ROLLOUTS: &[Row] = &[
    (Taken, "{}"),
    (Taken, "{canary: {nodes: 1, soak: 30m}}"),
    (Taken, "{windows: [{start: '22:00', length: 4h}]}"),
    (Taken, "{allowedFailures: 5%}"),
    (Refused("spec.windows[0]"), "{windows: [{start: '25:00', length: 4h}]}"),
    (Refused("spec.windows[0]"), "{windows: [{start: '22:60', length: 4h}]}"),
    (Refused("spec.windows[0]"), "{windows: [{start: '22:00', length: 0h}]}"),
    (Refused("spec.windows[0]"), "{windows: [{start: '22:00', length: long}]}"),
    (Refused("spec.windows[0]"), "{windows: [{start: '22:00', length: 4h, timeZone: Nowhere/City}]}"),
    (Refused("spec.windows"), "{windows: []}"),
    (Refused("spec.windows[0]"), "{windows: [['22:00', 4h]]}"),
    (Refused("spec.canary"), "{canary: []}"),
    (Refused("spec.windows[0].length"), "{windows: [{start: '22:00'}]}"),
    (Refused("spec.windows[0].days[0]"), "{windows: [{start: '22:00', length: 4h, days: [Someday]}]}"),
    (Refused("spec.canary.nodes"), "{canary: {nodes: few}}"),
    (Refused("spec.canary.nodes"), "{canary: {nodes: 200%}}"),
    (Refused("spec.canary.nodes"), "{canary: {soak: 1h}}"),
    (Refused("spec.nodeTimeout"), "{nodeTimeout: 0s}"),
    (Refused("spec.nodeTimeout"), "{nodeTimeout: soon}"),
    (Refused("spec.allowedFailures"), "{allowedFailures: -1}"),
    (Refused("spec.onFailure"), "{onFailure: Explode}"),
    (Unknown("spec.window"), "{window: []}"),
    (Unknown("spec.canary.node"), "{canary: {nodes: 1, node: 2}}"),
];

const OS_CONFIG: &str = "machineConfigPool: {name: a}, imageBuilder: {imageBuilderType: Job}, renderedImagePushSecret: \
    {name: a}, renderedImagePushSpec: 'r.test/os:1'";

const OS_CONFIGS: &[Row] = &[
    (Taken, ""),
    (Taken, ", containerFile: [{content: FROM configs}]"),
    (Refused("spec.containerFile[0].content"), ", containerFile: [{containerfileArch: NoArch}]"),
    (Refused("spec.containerFile"), ", containerFile: FROM configs"),
    (Refused("spec.baseImagePullSecret.name"), ", baseImagePullSecret: {}"),
    (Unknown("spec.containerfile"), ", containerfile: []"),
    (Unknown("spec.containerFile[0].contents"), ", containerFile: [{content: a, contents: b}]"),
];

const POLICIES: &[Row] = &[
    (Taken, "{}"),
    (Taken, "{logLevel: Normal, managedBootImages: {}}"),
    (Taken, "{nodeDisruptionPolicy: {files: [{path: /etc/a, actions: [{type: None}]}]}}"),
    (Refused("spec.nodeDisruptionPolicy.files[0].path"), "{nodeDisruptionPolicy: {files: [{actions: []}]}}"),
    (Unknown("spec.nodeDisruptionPolicy.file"), "{nodeDisruptionPolicy: {file: []}}"),
    (Unknown("spec.nodeDisruptionPolicys"), "{nodeDisruptionPolicys: {}}"),
];

/// The fields that the operator has and that are not read here pass.
const CONTROLLER_CONFIGS: &[Row] = &[
    (Taken, "{}"),
    (Taken, "{osImageURL: x, images: {a: b}, releaseImage: r.test/release:1, additionalTrustBundle: null}"),
    (
        Taken,
        "{infra: {anything: {}}, proxy: {httpProxy: 'http://p.test', noProxy: a}, kubeAPIServerServingCAData: YQ==}",
    ),
    (
        Taken,
        "{imageRegistryBundleUserData: [{file: r.test..5000, data: YQ==}], internalRegistryPullSecret: null}",
    ),
    (
        Taken,
        "{clusterDNSIP: 10.0.0.10, cloudProviderConfig: '', platform: None, etcdDiscoveryDomain: a.test, rootCAData: YQ==, \
          pullSecret: {name: a, namespace: b}, bgpVIPPeersJSON: '{}', dns: {spec: {baseDomain: a.test}}, ipFamilies: IPv4, \
          networkType: OVNKubernetes, network: {mtuMigration: null}}",
    ),
    (Unknown("spec.osImageUrl"), "{osImageUrl: x}"),
    (Unknown("spec.networkTypes"), "{networkTypes: x}"),
    (Unknown("spec.baseOSContainerImages"), "{baseOSContainerImages: x}"),
    (Unknown("spec.proxy.httpsProxies"), "{proxy: {httpsProxies: 'http://p.test'}}"),
    (
        Unknown("spec.imageRegistryBundleData[0].name"),
        "{imageRegistryBundleData: [{name: r.test, file: r.test, data: YQ==}]}",
    ),
    (Refused("spec"), "[]"),
    (Refused("spec.images.a"), "{images: {a: 5}}"),
    (Refused("spec.osImageURL"), "{osImageURL: [x]}"),
    (Refused("spec.imageRegistryBundleData"), "{imageRegistryBundleData: {file: r.test}}"),
];

/// Read by nodes alone: in a file the kind is named as one that is not read there.
const PINNED_SETS: &[(Option<&str>, &str)] = &[
    (None, "{}"),
    (None, "{pinnedImages: []}"),
    (None, "{pinnedImages: null}"),
    (
        None,
        "{pinnedImages: [{name: 'r.test/a@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'}]}",
    ),
    (Some("spec"), "[]"),
    (Some("spec.pinnedImages"), "{pinnedImages: {name: a}}"),
    (Some("spec.pinnedImages[0]"), "{pinnedImages: [r.test/a]}"),
    (Some("spec.pinnedImages[0].name"), "{pinnedImages: [{image: r.test/a}]}"),
    (Some("spec.pinnedImages[1].name"), "{pinnedImages: [{name: a}, {name: 5}]}"),
];

/// Heads of a MachineConfig.
const HEADS: &[Row] = &[
    (
        Taken,
        "{apiVersion: machineconfiguration.openshift.io/v1, kind: MachineConfig, metadata: {name: a}, spec: {}}",
    ),
    (Taken, "{kind: MachineConfig, metadata: {name: a, labels: {a: b}, uid: a, generation: 1}, spec: {}}"),
    (
        Refused("apiVersion"),
        "{apiVersion: machineconfiguration.openshift.io/v1beta1, kind: MachineConfig, metadata: {name: a}, spec: {}}",
    ),
    (Refused("apiVersion"), "{apiVersion: v1, kind: MachineConfig, metadata: {name: a}, spec: {}}"),
    (Refused("metadata.name"), "{kind: MachineConfig, metadata: {name: ../../etc/x}, spec: {}}"),
    (Refused("metadata.name"), "{kind: MachineConfig, metadata: {name: A_b}, spec: {}}"),
    (Refused("metadata.name"), "{kind: MachineConfig, metadata: {name: ''}, spec: {}}"),
    (Refused("metadata.name"), "{kind: MachineConfig, metadata: {name: 5}, spec: {}}"),
    (Refused("metadata.name"), "{kind: MachineConfig, metadata: {labels: {a: b}}, spec: {}}"),
    (Refused("spec"), "{kind: MachineConfig, metadata: {name: a}}"),
    (Unknown("sepc"), "{kind: MachineConfig, metadata: {name: a}, spec: {}, sepc: {}}"),
    (Unknown("metadata.lables"), "{kind: MachineConfig, metadata: {name: a, lables: {}}, spec: {}}"),
];

#[test]
fn documents_have_one_answer_in_every_entry() {
    let of = |kind: Kind, name: &'static str| {
        move |spec: &str| {
            let Kind { kind, group_version } = kind;
            format!("{{apiVersion: {group_version}, kind: {kind}, metadata: {{name: {name}}}, spec: {spec}}}")
        }
    };
    let config = of(Kind::MACHINE_CONFIG, "50-a");
    let ignition = |part: &str| config(&format!("{{config: {{ignition: {{version: 3.4.0}}, {part}}}}}"));
    let os_config = |part: &str| of(Kind::OS_CONFIG, "a")(&format!("{{{OS_CONFIG}{part}}}"));
    let found = [
        all(Kind::MACHINE_CONFIG, SPECS, config),
        all(Kind::MACHINE_CONFIG, IGNITION, ignition),
        all(Kind::MACHINE_CONFIG, NEWER, |part| config(&format!("{{config: {part}}}"))),
        all(Kind::MACHINE_CONFIG, HEADS, str::to_owned),
        all(Kind::POOL, POOLS, of(Kind::POOL, "a")),
        all(Kind::ROLLOUT_POLICY, ROLLOUTS, of(Kind::ROLLOUT_POLICY, "a")),
        all(Kind::OS_CONFIG, OS_CONFIGS, os_config),
        all(Kind::POLICY, POLICIES, of(Kind::POLICY, "cluster")),
        all(
            Kind::CONTROLLER_CONFIG,
            CONTROLLER_CONFIGS,
            of(Kind::CONTROLLER_CONFIG, "machine-config-controller"),
        ),
    ];
    let wrong: Vec<&str> = found.iter().flat_map(|(_, wrong)| wrong).map(String::as_str).collect();
    assert!(wrong.is_empty(), "{} answers:\n{}", wrong.len(), wrong.join("\n"));
    assert!(found.iter().map(|(count, _)| count).sum::<usize>() >= 150);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test: it writes the files that a person has")]
fn pinned_sets_are_read_by_nodes_and_named_in_files() {
    for (expected, spec) in PINNED_SETS {
        let Kind { kind, group_version } = Kind::PINNED_SET;
        let text =
            format!("{{apiVersion: {group_version}, kind: {kind}, metadata: {{name: a}}, spec: {spec}}}");
        let tree = yaml::tree(&text).unwrap();
        let cause = PinnedSet::of_tree(&tree).unread;
        let named =
            cause.as_deref().is_some_and(|cause| cause.contains(&format!("{}: ", expected.unwrap_or(" "))));
        assert_eq!((cause.is_some(), named), (expected.is_some(), expected.is_some()), "{cause:?}: {text}");
        for text in forms(&text, &tree) {
            let directory = tempfile::tempdir().unwrap();
            std::fs::write(directory.path().join("a.yaml"), &text).unwrap();
            let (manifests, errors) = Manifests::collect(directory.path(), UnknownFields::Refused).unwrap();
            let notes = &manifests.notes;
            assert!(
                errors.is_empty() && notes.len() == 1 && notes[0].contains("PinnedImageSet a"),
                "{notes:?}: {text}"
            );
        }
    }
}

/// The fields that are read and those that are listed as not read are the ones of the operator's own definition; those of a
/// MachineConfig have each their fate.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test: it reads the operator's definitions")]
fn fields_are_those_of_operators_definitions() {
    let module = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/apiserver/openshift-api");
    let Ok(module) = std::fs::read_to_string(module) else {
        return ran::not_run("fields_are_those_of_operators_definitions", "tests/apiserver/build");
    };
    let fields = |definition: &Value| {
        let spec = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let fields = spec["properties"].as_object().unwrap().keys();
        fields.map(|field| format!("spec.{field}")).collect::<std::collections::BTreeSet<_>>()
    };
    let of_operator = |file: &str| {
        let definitions = "machineconfiguration/v1/zz_generated.crd-manifests";
        let file = format!("{definitions}/0000_80_machine-config_01_{file}.crd.yaml");
        let text = std::fs::read_to_string(std::path::Path::new(module.trim()).join(file)).unwrap();
        fields(&yaml::tree(&text).unwrap())
    };
    let mut listed = fields(&json!(ControllerConfig::crd()));
    listed.extend(ControllerConfig::OF_OPERATOR.iter().map(|field| (*field).to_owned()));
    assert_eq!(listed, of_operator("controllerconfigs-SelfManagedHA-CustomNoUpgrade"));
    let fates = OF_SPEC.iter().map(|row| row.field.to_owned());
    assert_eq!(
        fates.chain(["spec.config".to_owned()]).collect::<std::collections::BTreeSet<_>>(),
        of_operator("machineconfigs")
    );
}

#[test]
fn unknown_fields_pass_where_they_are_allowed_and_are_named() {
    let text = "{kind: MachineConfig, metadata: {name: a}, spec: {kernelArgs: [a]}}";
    let read = |unknown| {
        let mut manifests = Manifests::default();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.yaml");
        #[expect(clippy::disallowed_methods, reason = "a test: it writes the files that a person has")]
        std::fs::write(&path, text).unwrap();
        manifests.replace_by_file(&path, unknown).map(|()| manifests.notes)
    };
    let error = read(UnknownFields::Refused).unwrap_err().to_string();
    assert!(error.contains("spec.kernelArgs") && error.contains("did you mean kernelArguments?"), "{error}");
    let notes = read(UnknownFields::Named).unwrap();
    assert!(notes.len() == 1 && notes[0].contains("MachineConfig a: spec.kernelArgs"), "{notes:?}");
    let config = Config::parse(text.as_bytes(), "f").unwrap();
    let refused = refuse_unknown(&config.spec(None).unwrap().remarks, "f").unwrap_err();
    assert_eq!(refused.field(), Some("spec.kernelArgs"));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test: it writes the files that a person has")]
fn kinds_and_roles_without_effect_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let text = "{kind: MachineConfigPool, metadata: {name: worker}, spec: {machineConfigSelector: {matchLabels: {a: b}}}}\n---\n\
        {kind: MachineConfig, metadata: {name: of-none, labels: {machineconfiguration.openshift.io/role: infra}}, spec: {}}\n---\n\
        {kind: MachineConfig, metadata: {name: of-worker, labels: {a: b}}, spec: {}}\n---\n\
        {apiVersion: config.openshift.io/v1, kind: ImageDigestMirrorSet, metadata: {name: mirrors}}\n---\n\
        {apiVersion: machineconfiguration.openshift.io/v1, kind: KubeletConfig, metadata: {name: big}}\n---\n\
        {apiVersion: apps/v1, kind: Deployment, metadata: {name: other}}\n";
    std::fs::write(directory.path().join("all.yaml"), text).unwrap();
    std::fs::write(directory.path().join("none.yaml"), "# nothing\n---\n").unwrap();
    let notes = Manifests::read(directory.path()).unwrap().notes;
    let expected = [
        "ImageDigestMirrorSet mirrors",
        "KubeletConfig big",
        "none.yaml is empty",
        "MachineConfig of-none: no pool selects it (its role is infra)",
    ];
    assert_eq!(notes.len(), expected.len(), "{notes:#?}");
    assert!(notes.iter().zip(expected).all(|(note, words)| note.contains(words)), "{notes:#?}");
}
