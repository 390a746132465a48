//! The files of a seed: which it needs, and what the small ones say.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Layout, SeedError, Version};
use crate::model::document::{self, Kind};
use crate::model::yaml::redacted;
use crate::model::{Karg, Sha256, short};

/// Added and changed files of `/etc`.
pub const ETC: &str = "etc.tgz";
/// The names of deleted files of `/etc`.
pub const DELETIONS: &str = "etc.deletions";
/// The contents of `/var`.
pub const VAR: &str = "var.tgz";
/// The repository with the system.
pub const REPOSITORY: &str = "ostree.tgz";
/// Output of `rpm-ostree status --json`.
pub const STATUS: &str = "rpm-ostree.json";
/// The MachineConfig of the seed.
pub const SEED_CONFIG: &str = "mco-currentconfig.json";
/// The images that its containers ran.
pub const CONTAINERS: &str = "containers.list";
/// Traits of the cluster.
pub const MANIFEST: &str = "manifest.json";
/// The origin of the booted deployment, `ostree-<deployment>.origin`.
pub const ORIGIN: &str = "ostree-*.origin";

/// Treatment of a file of a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Member {
    /// A compressed archive, unpacked as it arrives.
    Archive(&'static str),
    /// A file that is kept as it is, of so many bytes at most.
    File(&'static str, u64),
}

impl Member {
    /// Returns the name, as in errors.
    pub fn name(self) -> &'static str {
        match self {
            Self::Archive(name) | Self::File(name, _) => name,
        }
    }
}

const MEBIBYTE: u64 = 1024 * 1024;

/// All of them.
const MEMBERS: [Member; 8] = [
    // It is read twice: before anything is made, and when it is unpacked.
    Member::File(ETC, 4096 * MEBIBYTE),
    Member::File(DELETIONS, 16 * MEBIBYTE),
    Member::Archive(VAR),
    Member::Archive(REPOSITORY),
    Member::File(STATUS, 8 * MEBIBYTE),
    Member::File(SEED_CONFIG, 8 * MEBIBYTE),
    Member::File(CONTAINERS, 8 * MEBIBYTE),
    Member::File(MANIFEST, MEBIBYTE),
];

/// Returns how a file of a seed's directory is treated; `None` for one that a seed does not have.
pub fn member(name: &str) -> Option<Member> {
    if name.strip_prefix("ostree-").is_some_and(|rest| rest.ends_with(".origin")) {
        return Some(Member::File(ORIGIN, MEBIBYTE));
    }
    MEMBERS.into_iter().find(|member| member.name() == name)
}

/// Returns what a seed lacks. In an image that boots the system is the image.
pub fn missing(layout: Layout, found: &BTreeSet<&str>) -> Vec<&'static str> {
    let of_system = [REPOSITORY, STATUS, ORIGIN];
    let needed = MEMBERS.into_iter().map(Member::name).chain([ORIGIN]);
    needed
        .filter(|name| layout == Layout::Classic || !of_system.contains(name))
        .filter(|name| !found.contains(name))
        .collect()
}

/// Containers that the seed ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootedDeployment {
    /// Its commit.
    pub commit: String,
}

/// Finds the booted deployment in `rpm-ostree.json`: its id is `<stateroot>-<commit>.<serial>`.
pub fn booted_deployment(json: &[u8]) -> Result<BootedDeployment, SeedError> {
    #[derive(Deserialize)]
    struct Status {
        deployments: Vec<Deployment>,
    }
    #[derive(Deserialize)]
    struct Deployment {
        #[serde(default)]
        booted: bool,
        #[serde(default)]
        id: String,
    }
    let refused = |cause: String| SeedError::Member { member: STATUS, cause };
    let status: Status =
        serde_json::from_slice(json).map_err(|error| refused(redacted(&error.to_string())))?;
    let booted = status.deployments.into_iter().find(|deployment| deployment.booted);
    let booted = booted.ok_or_else(|| refused("no deployment is booted".to_owned()))?;
    let commit = booted.id.rsplit_once('-').and_then(|(_, checkout)| checkout.split('.').next());
    match commit.filter(|commit| Sha256::parse(commit).is_ok()) {
        Some(commit) => Ok(BootedDeployment { commit: commit.to_owned() }),
        None => Err(refused(format!("{:?} is not the id of a deployment", short(&booted.id, 100)))),
    }
}

/// System as a seed's MachineConfig describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeedConfig {
    /// Its kernel arguments.
    pub kargs: Vec<Karg>,
    /// It is in FIPS mode.
    pub fips: bool,
}

/// Reads `mco-currentconfig.json`. The rest of the config is in the seed's files already.
pub fn seed_config(json: &[u8]) -> Result<SeedConfig, SeedError> {
    #[derive(Deserialize)]
    struct Object {
        spec: Spec,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        #[serde(default)]
        kernel_arguments: Option<Vec<String>>,
        #[serde(default)]
        fips: Option<bool>,
    }
    let refused = |cause: String| SeedError::Member { member: SEED_CONFIG, cause };
    let object =
        document::one(json, SEED_CONFIG, Kind::MACHINE_CONFIG).and_then(|object| object.read::<Object>());
    let spec = object.map_err(|error| refused(error.to_string()))?.value.spec;
    let lines = spec.kernel_arguments.unwrap_or_default();
    if let Some(line) = lines.iter().find(|line| line.contains('\0') || line.matches('"').count() % 2 == 1) {
        return Err(refused(format!(
            "the kernel argument {:?} has a quote without its other",
            short(line, 100)
        )));
    }
    let kargs = lines.iter().flat_map(|line| Karg::split(line)).collect();
    Ok(SeedConfig { kargs, fips: spec.fips.unwrap_or_default() })
}

/// Reads `etc.deletions`: paths below `/etc`, one a line. They are returned relative to it.
pub fn deletions(text: &str) -> Result<Vec<String>, SeedError> {
    let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let below = line.trim_start_matches('/').strip_prefix("etc/").unwrap_or_default();
            let names = below.split('/').all(|name| !matches!(name, "" | "." | "..") && !name.contains('\0'));
            if names && !below.is_empty() {
                return Ok(below.to_owned());
            }
            let cause = format!("{:?} is not a path below /etc", short(line, 200));
            Err(SeedError::Member { member: DELETIONS, cause })
        })
        .collect()
}

/// Reads the version of the cluster in `manifest.json`, which may have none.
pub fn manifest_version(json: &[u8]) -> Result<Option<Version>, SeedError> {
    const KEY: &str = "seed_cluster_ocp_version";
    let refused = |cause: String| SeedError::Member { member: MANIFEST, cause };
    let document: Map<String, Value> =
        serde_json::from_slice(json).map_err(|error| refused(redacted(&error.to_string())))?;
    let Some(version) = document.get(KEY) else { return Ok(None) };
    let version = version.as_str().ok_or_else(|| refused(format!("{KEY} is not text")))?;
    if version.is_empty() {
        return Ok(None);
    }
    Version::new(version).map(Some).map_err(|error| refused(error.to_string()))
}

/// Reads `containers.list`: the images to have before the new system runs, each once.
pub fn containers(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LCA-019: each member that a classic seed lacks is named; a bootc seed needs no second copy of its system.
    #[test]
    fn missing_members_are_named() {
        let all = BTreeSet::from([
            ETC,
            DELETIONS,
            VAR,
            REPOSITORY,
            STATUS,
            SEED_CONFIG,
            CONTAINERS,
            MANIFEST,
            ORIGIN,
        ]);
        assert_eq!(missing(Layout::Classic, &all), [""; 0]);
        for name in &all {
            let mut rest = all.clone();
            rest.remove(name);
            assert_eq!(missing(Layout::Classic, &rest), [*name]);
        }
        let own = BTreeSet::from([ETC, DELETIONS, VAR, SEED_CONFIG, CONTAINERS, MANIFEST]);
        assert_eq!(missing(Layout::Bootc, &own), [""; 0]);
        assert_eq!(missing(Layout::Bootc, &BTreeSet::new()).len(), 6);
    }

    #[test]
    fn members_are_known_by_name() {
        assert_eq!(member("ostree-rhcos-abc.0.origin"), Some(Member::File(ORIGIN, MEBIBYTE)));
        assert_eq!(member("var.tgz"), Some(Member::Archive(VAR)));
        for other in ["etc", "x", "ostree-x", "Containerfile", "../etc.tgz"] {
            assert_eq!(member(other), None, "{other}");
        }
    }

    #[test]
    fn booted_deployment_is_found() {
        let commit = "ab".repeat(32);
        let json = format!(
            r#"{{"deployments":[{{"booted":false,"id":"x-{0}.0"}},{{"booted":true,"id":"my-os-{commit}.12"}}]}}"#,
            "cd".repeat(32)
        );
        assert_eq!(booted_deployment(json.as_bytes()).unwrap().commit, commit);
        for bad in ["", "{}", r#"{"deployments":[]}"#, r#"{"deployments":[{"booted":true,"id":"a-b.0"}]}"#] {
            let error = booted_deployment(bad.as_bytes()).unwrap_err();
            assert!(error.to_string().contains("rpm-ostree.json"), "{error}");
        }
    }

    #[test]
    fn config_gives_arguments_and_fips() {
        let json =
            br#"{"metadata":{"name":"x"},"spec":{"kernelArguments":["a=\"b c\" d","e=$f"],"fips":true}}"#;
        let config = seed_config(json).unwrap();
        assert_eq!(config.kargs, Karg::split("a=\"b c\" d e=$f"));
        assert!(config.fips);
        assert_eq!(seed_config(br#"{"spec":{}}"#).unwrap(), SeedConfig { kargs: Vec::new(), fips: false });
        seed_config(b"{}").unwrap_err();
        seed_config(br#"{"spec":{"kernelArguments":["a=\"b"]}}"#).unwrap_err();
    }

    #[test]
    fn deletions_stay_below_etc() {
        assert_eq!(deletions("/etc/a\netc/b/c\n\n").unwrap(), ["a", "b/c"]);
        for bad in ["/usr/x", "/etc/../x", "/etc/", "/etc", "/etc/a/./b", "x", "/etc//a"] {
            deletions(bad).unwrap_err();
        }
    }

    #[test]
    fn manifest_gives_version_where_it_has_one() {
        let version = |json: &str| manifest_version(json.as_bytes()).map(|found| found.map(String::from));
        assert_eq!(version(r#"{"seed_cluster_ocp_version":"4.17.2","x":1}"#), Ok(Some("4.17.2".to_owned())));
        for none in ["{}", r#"{"seed_cluster_ocp_version":""}"#] {
            assert_eq!(version(none), Ok(None), "{none}");
        }
        for bad in ["", "[]", r#"{"seed_cluster_ocp_version":"../x"}"#, r#"{"seed_cluster_ocp_version":4}"#] {
            let error = version(bad).unwrap_err().to_string();
            assert!(error.starts_with("manifest.json of the seed can't be read"), "{error}");
        }
    }

    #[test]
    fn containers_are_listed_once() {
        assert_eq!(containers("b\na\n\nb \n"), ["a", "b"]);
        assert_eq!(containers(""), [""; 0]);
    }
}
