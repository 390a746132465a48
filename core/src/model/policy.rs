//! The node disruption policy in force: the default table, overlaid by a `MachineConfiguration` object.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::disruption::Action;
use super::document::{self, Kind};
use super::error::ModelError;
use super::faults::{Causes, Faults};
use super::reading::{Found, Metadata, all_below};
use super::text::short;
use super::{NotApplied, UnitName};

/// A section whose changes the administrator allows although the agent can't carry them out (RC8 to RC10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StorageOverride {
    /// `storage.disks`.
    Disks,
    /// `storage.filesystems`.
    FileSystems,
    /// `storage.raid`.
    Raid,
}

/// Actions of each change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisruptionPolicy {
    /// Actions by file path, or by a directory above it; the longest match decides (MCD-099).
    pub files: BTreeMap<String, Vec<Action>>,
    /// Actions by unit name, exact (MCD-100).
    pub units: BTreeMap<UnitName, Vec<Action>>,
    /// Actions of a change of SSH keys or password (MCD-102).
    pub sshkey: Vec<Action>,
    /// Irreconcilable sections that are let pass.
    pub overrides: BTreeSet<StorageOverride>,
}

/// The largest document that is read: etcd's bound for an object, with room for YAML.
pub const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Fields of the spec that the operator reads, and nodes do not.
const OF_OPERATOR: [&str; 10] = [
    "bootImageSkewEnforcement",
    "failedRevisionLimit",
    "forceRedeploymentReason",
    "logLevel",
    "managedBootImages",
    "managementState",
    "observedConfig",
    "operatorLogLevel",
    "succeededRevisionLimit",
    "unsupportedConfigOverrides",
];

/// Names the policy's fields as such, among those of a config.
pub fn of_policy(fields: Vec<NotApplied>) -> impl Iterator<Item = NotApplied> {
    all_below(Kind::POLICY.kind, fields)
}

/// The API server's limit for one entry's list.
const MAX_ACTIONS: usize = 10;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(default, rename = "apiVersion")]
    _api_version: IgnoredAny,
    #[serde(default, rename = "kind")]
    _kind: IgnoredAny,
    #[serde(default, rename = "metadata")]
    _metadata: Option<Metadata>,
    #[serde(default)]
    spec: Option<Spec>,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    node_disruption_policy: Option<Policies>,
    #[serde(default)]
    irreconcilable_validation_overrides: Option<Overrides>,
}

#[derive(Deserialize)]
struct Overrides {
    #[serde(default)]
    storage: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    node_disruption_policy_status: Option<PolicyStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PolicyStatus {
    #[serde(default)]
    cluster_policies: Option<Policies>,
}

#[derive(Deserialize)]
struct Policies {
    #[serde(default)]
    files: Option<Vec<PathEntry>>,
    #[serde(default)]
    units: Option<Vec<UnitEntry>>,
    #[serde(default)]
    sshkey: Option<Actions>,
}

#[derive(Deserialize)]
struct PathEntry {
    path: String,
    #[serde(default)]
    actions: Option<Vec<RawAction>>,
}

#[derive(Deserialize)]
struct UnitEntry {
    name: String,
    #[serde(default)]
    actions: Option<Vec<RawAction>>,
}

#[derive(Deserialize)]
struct Actions {
    #[serde(default)]
    actions: Option<Vec<RawAction>>,
}

#[derive(Deserialize)]
struct RawAction {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    reload: Option<Service>,
    #[serde(default)]
    restart: Option<Service>,
}

#[derive(Deserialize)]
struct Service {
    #[serde(rename = "serviceName")]
    name: String,
}

/// Source of the entries: only the operator may set `Special`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Author {
    Administrator,
    Operator,
}

impl DisruptionPolicy {
    /// Returns the table in force on a cluster without a policy of its own (docs/contract.md, "Disruption policy").
    pub fn defaults() -> Self {
        let unit = |name: &str| UnitName::new(name).ok();
        let reload = |name: &str| unit(name).map(Action::Reload);
        let restart = |name: &str| unit(name).map(Action::Restart);
        let (trust, crio) = (restart("coreos-update-ca-trust.service"), restart("crio.service"));
        let anchors = "/etc/pki/ca-trust/source/anchors";
        let provider = "/etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf";
        let registry = restart("iri-registry.service");
        let files: [(String, Vec<Option<Action>>); 13] = [
            ("/var/lib/kubelet/config.json".into(), vec![Some(Action::None)]),
            ("/etc/machine-config-daemon/no-reboot/containers-gpg.pub".into(), vec![reload("crio.service")]),
            ("/etc/containers/policy.json".into(), vec![reload("crio.service")]),
            ("/etc/containers/registries.conf".into(), vec![Some(Action::Special)]),
            ("/etc/containers/registries.d".into(), vec![reload("crio.service")]),
            ("/etc/crio/policies".into(), vec![reload("crio.service")]),
            ("/etc/nmstate/openshift".into(), vec![Some(Action::None)]),
            (format!("{anchors}/openshift-config-user-ca-bundle.crt"), vec![trust.clone(), crio]),
            ("/etc/kubernetes/credential-providers".into(), vec![restart("kubelet.service")]),
            (provider.into(), vec![Some(Action::DaemonReload), restart("kubelet.service")]),
            ("/etc/iri-registry".into(), vec![registry.clone()]),
            ("/usr/local/bin/load-registry-image.sh".into(), vec![registry.clone()]),
            (format!("{anchors}/iri-root-ca.crt"), vec![trust]),
        ];
        let units = unit("iri-registry.service")
            .map(|name| (name, vec![Action::DaemonReload].into_iter().chain(registry).collect()));
        Self {
            files: files
                .into_iter()
                .map(|(path, actions)| (path, actions.into_iter().flatten().collect()))
                .collect(),
            units: units.into_iter().collect(),
            sshkey: vec![Action::None],
            overrides: BTreeSet::new(),
        }
    }

    /// Reads a `MachineConfiguration` object, JSON or YAML, and leaves out the fields that nobody knows.
    pub fn parse(bytes: &[u8], document: &str) -> Result<Self, ModelError> {
        Self::of_document(&document::one(bytes, document, Kind::POLICY)?).map(|found| found.value)
    }

    /// Reads the one policy of a file, with the fields that nobody knows, and the other documents that are not read.
    pub fn of_file(bytes: &[u8], source: &str) -> Result<(Found<Self>, Vec<NotApplied>), ModelError> {
        let (document, others) = document::one_and_others(bytes, source, Kind::POLICY)?;
        Ok((Self::of_document(&document)?, others))
    }

    /// Reads one document of a file, with the fields that nobody knows.
    ///
    /// The operator's merged table in the status is used alone when it is there; else the administrator's entries
    /// overlay the defaults: one with the same path or name replaces, others are added.
    pub fn of_document(document: &document::Document) -> Result<Found<Self>, ModelError> {
        document.check(Kind::POLICY)?;
        let wrong = |cause: &str| document::refused(document.source(), cause);
        let Found { value: read, mut unknown } = document.read::<Document>()?;
        unknown.retain(|remark| !is_others(&remark.field));
        let spec = read.spec.unwrap_or_default();
        let merged = read.status.and_then(|status| status.node_disruption_policy_status?.cluster_policies);
        let (mut policy, entries, author) = match merged {
            Some(merged) => (Self::none(), Some(merged), Author::Operator),
            None => (Self::defaults(), spec.node_disruption_policy, Author::Administrator),
        };
        let mut causes = Causes::default();
        if let Some(entries) = entries {
            policy.overlay(entries, author, &mut causes);
        }
        let overrides = spec.irreconcilable_validation_overrides.and_then(|overrides| overrides.storage);
        for name in overrides.unwrap_or_default() {
            policy.overrides.extend(causes.take(storage_override(&name).map(Some)));
        }
        let mut faults = Faults::default();
        for cause in causes.into_list() {
            faults.add(wrong(&cause));
        }
        faults.into_result(Found { value: policy, unknown })
    }

    /// Returns the table in which nothing is covered: every change needs a reboot.
    pub fn none() -> Self {
        Self {
            files: BTreeMap::new(),
            units: BTreeMap::new(),
            sshkey: Vec::new(),
            overrides: BTreeSet::new(),
        }
    }

    fn overlay(&mut self, policies: Policies, author: Author, causes: &mut Causes) {
        for entry in policies.files.unwrap_or_default() {
            let field = format!("files {:?}", short(&entry.path, 200));
            let valid = entry.path.starts_with('/')
                && entry.path.len() <= 4095
                && !entry.path.chars().any(char::is_control)
                && entry.path.split('/').skip(1).all(|part| !matches!(part, "" | "." | ".."));
            if !valid {
                causes
                    .add(format!("{field}: the path must be absolute, without `.`, `..` and a trailing `/`"));
            }
            let actions = causes.take(actions(&field, entry.actions, author));
            self.files.insert(entry.path, actions);
        }
        for entry in policies.units.unwrap_or_default() {
            let field = format!("units {:?}", short(&entry.name, 100));
            let name = UnitName::new(entry.name).map_err(|error| format!("{field}: {error}"));
            let actions = causes.take(actions(&field, entry.actions, author));
            self.units.extend(causes.take(name.map(Some)).map(|name| (name, actions)));
        }
        if let Some(sshkey) = policies.sshkey {
            self.sshkey = causes.take(actions("sshkey", sshkey.actions, author));
        }
    }
}

/// Returns true if a field is the operator's: its status, and what it does beside the disruption policy.
fn is_others(field: &str) -> bool {
    let of_operator = field.strip_prefix("spec.").is_some_and(|name| OF_OPERATOR.contains(&name));
    of_operator || field.starts_with("status.")
}

fn storage_override(name: &str) -> Result<StorageOverride, String> {
    match name {
        "Disks" => Ok(StorageOverride::Disks),
        "FileSystems" => Ok(StorageOverride::FileSystems),
        "Raid" => Ok(StorageOverride::Raid),
        other => {
            let other = short(other, 40);
            Err(format!(
                "irreconcilableValidationOverrides.storage {other:?} is not Disks, FileSystems or Raid"
            ))
        }
    }
}

/// Go writes an empty list as null.
fn actions(field: &str, raw: Option<Vec<RawAction>>, author: Author) -> Result<Vec<Action>, String> {
    let raw = raw.unwrap_or_default();
    if raw.len() > MAX_ACTIONS {
        return Err(format!("{field}: it has {} actions, at most {MAX_ACTIONS} are allowed", raw.len()));
    }
    let actions: Vec<Action> = raw
        .into_iter()
        .map(|raw| action(raw, author).map_err(|cause| format!("{field}: {cause}")))
        .collect::<Result<_, _>>()?;
    let alone = |action: &Action| matches!(action, Action::Reboot | Action::None);
    if actions.len() > 1 && actions.iter().any(alone) {
        return Err(format!("{field}: Reboot and None must stand alone; remove them or the other actions"));
    }
    Ok(actions)
}

fn action(raw: RawAction, author: Author) -> Result<Action, String> {
    let service = |service: Option<Service>| {
        let name = service.ok_or_else(|| "a Reload or Restart needs its serviceName".to_owned())?.name;
        UnitName::new(name).map_err(|error| error.to_string())
    };
    match raw.kind.as_str() {
        "None" => Ok(Action::None),
        "Drain" => Ok(Action::Drain),
        "DaemonReload" => Ok(Action::DaemonReload),
        "Reload" => service(raw.reload).map(Action::Reload),
        "Restart" => service(raw.restart).map(Action::Restart),
        "Reboot" => Ok(Action::Reboot),
        "Special" if author == Author::Operator => Ok(Action::Special),
        other => {
            let other = short(other, 40);
            Err(format!("action {other:?} is not None, Drain, DaemonReload, Reload, Restart or Reboot"))
        }
    }
}
