//! A seed in the making: where it goes, its record, and the documents in it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    CLUSTER_INFO_LABEL, FORMAT, FORMAT_LABEL, HostTraits, Layout, SeedError, StaterootDeployment,
    USE_BOOTC_LABEL, Version,
};
use crate::model::{BootId, Reference, Timestamp, UnitName, UpdateId, short};

/// Version of the record that this agent writes.
pub const SEED_SCHEMA: u32 = 1;

/// The services that rest while `/etc` and `/var` are archived, in the order in which they are stopped.
pub const RESTING_SERVICES: [&str; 2] = ["kubelet.service", "crio.service"];

/// Key of the cluster's document: the seed has no identity, so a host keeps its own.
const IDENTITY_LEFT_OUT: &str = "identity_left_out";

/// Longest reference of an image.
const MAX_TARGET_BYTES: usize = 400;

/// The name under which a seed is pushed: a repository, and a tag if one is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct SeedTarget(String);

impl SeedTarget {
    /// Reads a reference, for instance `registry.example/seeds/sno:4.17.2`.
    pub fn new(text: &str) -> Result<Self, SeedError> {
        let is_target = |found: Reference<'_>| found.hex().is_none() && found.name().contains('/');
        if text.len() <= MAX_TARGET_BYTES && Reference::parse(text).is_ok_and(is_target) {
            return Ok(Self(text.to_owned()));
        }
        Err(SeedError::Target { target: short(text, 200) })
    }

    /// Returns the reference.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the reference of an image that was pushed there.
    pub fn with_digest(&self, digest: &str) -> String {
        let name = match self.0.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => name,
            Some(_) | None => &self.0,
        };
        format!("{name}@{digest}")
    }
}

impl fmt::Display for SeedTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for SeedTarget {
    type Error = SeedError;
    fn try_from(text: String) -> Result<Self, SeedError> {
        Self::new(&text)
    }
}

impl From<SeedTarget> for String {
    fn from(target: SeedTarget) -> Self {
        target.0
    }
}

/// One step of the making of a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SeedStep {
    /// The booted image is fetched, on which a bootc seed is built.
    FetchBase,
    /// The services and their containers are stopped.
    StopServices,
    /// `/etc` and `/var` are archived.
    ArchiveHost,
    /// The services are started.
    StartServices,
    /// The image is put together.
    AssembleImage,
    /// The image is pushed.
    PushImage,
    /// Starts what was stopped, and removes what was made.
    RestoreHost,
}

impl SeedStep {
    /// Returns the name, as in the plan.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FetchBase => "fetch-base",
            Self::StopServices => "stop-services",
            Self::ArchiveHost => "archive-host",
            Self::StartServices => "start-services",
            Self::AssembleImage => "assemble-image",
            Self::PushImage => "push-image",
            Self::RestoreHost => "restore-host",
        }
    }

    /// Returns the steps of a seed in order.
    pub fn all(layout: Layout, push: bool) -> Vec<Self> {
        let base = (layout == Layout::Bootc).then_some(Self::FetchBase);
        let host = [Self::StopServices, Self::ArchiveHost, Self::StartServices, Self::AssembleImage];
        base.into_iter().chain(host).chain(push.then_some(Self::PushImage)).collect()
    }
}

/// A seed in the making. One that was cut short is not continued: the host is restored, and another one begins anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SeedRecord {
    /// The version of this shape.
    pub schema: u32,
    /// Its id.
    pub id: UpdateId,
    /// The image.
    pub image: SeedTarget,
    /// Its layout.
    pub layout: Layout,
    /// The directory in which it is made. It is the agent's own, and removed with all that is in it.
    pub directory: String,
    /// The services that were active, in the order in which they are stopped.
    pub stopped: Vec<UnitName>,
    /// The step that is under way.
    pub step: Option<SeedStep>,
    /// The boot in which it began.
    pub boot_id: BootId,
    /// When it began.
    pub started: Timestamp,
}

/// Returns the document of the cluster: the label and `manifest.json`. A node knows no more of it.
pub fn cluster_info(version: &Version, host: &HostTraits) -> Map<String, Value> {
    let document = json!({
        "seed_cluster_ocp_version": version,
        "has_proxy": host.proxy,
        "has_fips": host.fips,
        "additionalTrustBundle": {"hasUserCaBundle": host.trust_bundle, "proxyConfigmapName": ""},
        "container_storage_mountpoint_target": host.container_storage,
        IDENTITY_LEFT_OUT: true,
    });
    document.as_object().cloned().unwrap_or_default()
}

/// Returns true if `manifest.json` is of a seed without identity.
pub fn is_without_identity(manifest: &[u8]) -> bool {
    let document: Option<Value> = serde_json::from_slice(manifest).ok();
    document.and_then(|document| document.get(IDENTITY_LEFT_OUT)?.as_bool()) == Some(true)
}

/// Returns the labels of the image.
pub fn seed_labels(layout: Layout, info: &Map<String, Value>) -> BTreeMap<String, String> {
    let bootc = (layout == Layout::Bootc).then(|| (USE_BOOTC_LABEL.to_owned(), "true".to_owned()));
    let labels = [
        (FORMAT_LABEL.to_owned(), FORMAT.to_string()),
        (CLUSTER_INFO_LABEL.to_owned(), Value::Object(info.clone()).to_string()),
    ];
    labels.into_iter().chain(bootc).collect()
}

/// Stands in for `rpm-ostree status --json` on a host without rpm-ostree.
pub fn status_document(booted: &StaterootDeployment) -> String {
    let checksum =
        booted.id.rsplit_once('-').map_or("", |(_, rest)| rest).split('.').next().unwrap_or_default();
    let osname = booted.id.rsplit_once('-').map_or("", |(name, _)| name);
    let document = json!({"deployments": [{
        "booted": true, "id": booted.id, "checksum": checksum, "osname": osname,
        "container-image-reference": booted.image.as_ref().map(ToString::to_string),
    }]});
    document.to_string()
}

/// Reads `crictl images --output json`: each image by its first tag, else by its digest. What is no such list has none.
pub fn container_images(json: &str) -> Vec<String> {
    let list: Value = serde_json::from_str(json).unwrap_or_default();
    let images = list.get("images").and_then(Value::as_array).into_iter().flatten();
    let first = |image: &Value, key: &str| Some(image.get(key)?.get(0)?.as_str()?.to_owned());
    let mut found: Vec<String> =
        images.filter_map(|image| first(image, "repoTags").or_else(|| first(image, "repoDigests"))).collect();
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stateroot::{Seed, booted_deployment};

    #[test]
    fn targets_are_names_of_images() {
        for good in
            ["registry.test/seed", "Registry.test/seed", "registry.test:5000/a/b:4.17.2", "[::1]:5000/seed:x"]
        {
            assert_eq!(SeedTarget::new(good).unwrap().as_str(), good);
        }
        for bad in [
            "",
            "seed",
            "/seed",
            "a//b",
            "a/b c",
            "-a/b",
            "a/b@sha256:0",
            "a/$(id)",
            "a/b\n",
            "r.test/A",
            "r.test/a:x:y",
            "r.test/a..b",
        ] {
            assert!(SeedTarget::new(bad).is_err(), "{bad:?}");
        }
        let named = |text: &str| SeedTarget::new(text).unwrap().with_digest("sha256:1");
        assert_eq!(named("registry.test:5000/a:4.17"), "registry.test:5000/a@sha256:1");
        assert_eq!(named("registry.test:5000/a"), "registry.test:5000/a@sha256:1");
    }

    /// Labels that are written are those that `stateroot inspect` reads.
    #[test]
    fn labels_are_those_of_a_seed() {
        let host = HostTraits {
            fips: true,
            container_storage: "/var/lib/containers".to_owned(),
            ..HostTraits::default()
        };
        let version = Version::new("4.17.2").unwrap();
        let info = cluster_info(&version, &host);
        for layout in [Layout::Classic, Layout::Bootc] {
            let seed = Seed::from_labels(&seed_labels(layout, &info)).unwrap();
            assert_eq!((seed.layout, &seed.version), (layout, &version));
            assert_eq!(crate::stateroot::refusals(&seed, Some(&version), &host), []);
        }
        assert!(is_without_identity(Value::Object(info).to_string().as_bytes()));
        assert!(!is_without_identity(b"{}") && !is_without_identity(b"x"));
    }

    #[test]
    fn images_are_read_from_the_list_of_the_engine() {
        let list = r#"{"images": [{"repoTags": [], "repoDigests": ["r.test/b@sha256:1"]}, {"repoTags": ["r.test/a:1"]},
            {"repoTags": ["r.test/a:1"]}, {}]}"#;
        assert_eq!(container_images(list), ["r.test/a:1", "r.test/b@sha256:1"]);
        assert_eq!((container_images(""), container_images("[]")), (Vec::<String>::new(), Vec::new()));
    }

    #[test]
    fn status_names_the_booted_commit() {
        let commit = "a".repeat(64);
        let booted = StaterootDeployment {
            id: format!("my-os-{commit}.3"),
            image: None,
            booted: true,
            boots_next: true,
            staged: false,
            kernel_arguments: Vec::new(),
        };
        let status = status_document(&booted);
        assert_eq!(booted_deployment(status.as_bytes()).unwrap().commit, commit);
        assert!(status.contains("\"osname\":\"my-os\""));
    }

    #[test]
    fn steps_stop_and_start_the_services_around_the_archives() {
        let names =
            |layout, push| SeedStep::all(layout, push).into_iter().map(SeedStep::as_str).collect::<Vec<_>>();
        let classic = ["stop-services", "archive-host", "start-services", "assemble-image"];
        assert_eq!(names(Layout::Classic, false), classic);
        assert_eq!(names(Layout::Bootc, true), [&["fetch-base"], &classic[..], &["push-image"]].concat());
    }
}
