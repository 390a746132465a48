//! The facts of this host that go into a seed, for the verb and for the SeedGenerator. They are gathered before anything is
//! changed.

use std::time::Duration;

use super::AgentError;
use crate::host::os::stateroots::{SeedToMake, Stateroots};
use crate::host::{HostError, Root, Systemd, command, containers};
use crate::journal::{mcd, state};
use crate::model::machineconfig;
use crate::model::{ImageRef, UnitName};
use crate::observe::host_traits;
use crate::stateroot::{
    Layout, PortableConfig, RESTING_SERVICES, SeedEntry, SeedError, SeedPaths, SeedRules,
    StaterootDeployment, Version, booted_deployment, cluster_info, config_of_seed, container_images,
    refuse_secrets, seed_labels, status_document,
};

/// The agent's own directory in that of a person: it is removed with all that is in it.
const OWN_DIRECTORY: &str = "machine-config-agent-seed";

/// The config that the agent, or machine-config-daemon, has committed.
const CURRENT_CONFIG: &str = "/etc/machine-config-daemon/currentconfig";

/// rpm-ostree's client.
const RPM_OSTREE: &str = "/usr/bin/rpm-ostree";

/// Time for an answer of rpm-ostree, whose daemon may have to start.
const RPM_OSTREE_TIMEOUT: Duration = Duration::from_secs(120);

/// Facts of a seed.
#[derive(Debug)]
pub struct SeedFacts {
    /// The services that are active, in the order in which they are stopped.
    pub services: Vec<UnitName>,
    /// The booted image, of a bootc seed.
    pub base: Option<ImageRef>,
    /// The contents.
    pub seed: SeedToMake,
}

/// Gathers them.
pub async fn seed_facts(
    root: &Root,
    stateroots: &Stateroots,
    systemd: &Systemd,
    layout: Layout,
    version: &Version,
    paths: SeedPaths,
) -> Result<SeedFacts, AgentError> {
    let booted = booted(stateroots).await?;
    let base = match (layout, &booted.image) {
        (Layout::Classic, _) => None,
        (Layout::Bootc, Some(image)) => Some(image.clone()),
        (Layout::Bootc, None) => return Err(SeedError::NoBase { deployment: booted.id }.into()),
    };
    let (config, rules) = portable(root, paths)?;
    refuse_secrets(&list_seed(stateroots, &config, &rules, true).await?)?;
    let services = active_services(systemd).await?;
    let images = containers::images(root).await?.unwrap_or_default();
    let info = cluster_info(version, &host_traits(root)?);
    let seed = SeedToMake {
        layout,
        rules,
        labels: seed_labels(layout, &info),
        status: status(root, &booted).await?,
        config: config.json,
        containers: container_images(&images)
            .into_iter()
            .flat_map(|image| [image, "\n".to_owned()])
            .collect(),
        manifest: serde_json::Value::Object(info).to_string(),
    };
    Ok(SeedFacts { services, base, seed })
}

async fn booted(stateroots: &Stateroots) -> Result<StaterootDeployment, AgentError> {
    let boots = stateroots.boots().await?;
    let mut all = boots.all.into_iter().flat_map(|stateroot| stateroot.deployments);
    let booted = all.find(|deployment| deployment.booted);
    booted.ok_or_else(|| SeedError::NoBase { deployment: boots.booted }.into())
}

/// Returns the config as a seed has it, and what is portable on this host.
pub fn portable(root: &Root, paths: SeedPaths) -> Result<(PortableConfig, SeedRules), AgentError> {
    let malformed = |cause: String| HostError::Malformed {
        path: CURRENT_CONFIG.to_owned(),
        format: "the MachineConfig of this host",
        cause,
    };
    let missing =
        || malformed("there is no such file, so no config is committed here; apply one first".to_owned());
    let bytes = root.read_at_most(CURRENT_CONFIG, machineconfig::MAX_BYTES)?.ok_or_else(missing)?;
    if !mcd::is_committed(root)? && !root.exists(&state("current.json"))? {
        let cause = "it came with the image, so no config is committed here; apply one first";
        return Err(malformed(cause.to_owned()).into());
    }
    let config = config_of_seed(&bytes).map_err(malformed)?;
    let rules = SeedRules::new(&config, paths);
    Ok((config, rules))
}

/// Lists what a seed has and leaves out, or only what refuses it, in the order of paths.
pub async fn list_seed(
    stateroots: &Stateroots,
    config: &PortableConfig,
    rules: &SeedRules,
    refusals_only: bool,
) -> Result<Vec<SeedEntry>, AgentError> {
    let mut entries = stateroots.list_files(rules, refusals_only).await?;
    entries.extend(rules.of_config(config));
    entries.sort();
    Ok(entries)
}

/// Returns what rpm-ostree says of the deployments; without it, what libostree says.
async fn status(root: &Root, booted: &StaterootDeployment) -> Result<String, AgentError> {
    if !root.exists(RPM_OSTREE)? {
        return Ok(status_document(booted));
    }
    let text = command::output(RPM_OSTREE, &["status", "--json"], RPM_OSTREE_TIMEOUT).await?;
    booted_deployment(text.as_bytes())?;
    Ok(text)
}

/// Returns the services of the list that are active.
pub async fn active_services(systemd: &Systemd) -> Result<Vec<UnitName>, AgentError> {
    let mut found = Vec::new();
    for name in RESTING_SERVICES {
        let unit = UnitName::new(name)?;
        let state = systemd.service(&unit).await?.unwrap_or_default();
        if ["active", "activating", "reloading"].contains(&state.active.as_str()) {
            found.push(unit);
        }
    }
    Ok(found)
}

/// Returns the agent's own directory in a directory, without links on the way, so that it is left out of the seed.
pub fn seed_directory(root: &Root, path: &str) -> Result<String, AgentError> {
    let real = root.real_path(path)?;
    Ok(format!("{}/{OWN_DIRECTORY}", real.trim_end_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::FileMode;
    use crate::model::text::chain;

    /// A config that is not there, or that only the image has, is none of this host; one that was committed is, whatever the image has.
    #[test]
    fn seed_needs_a_committed_config() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        let told = || match portable(&root, SeedPaths::default()) {
            Ok(_) => "a config".to_owned(),
            Err(error) => chain(&error),
        };
        assert!(told().contains("there is no such file, so no config is committed here"), "{}", told());
        let config = br#"{"kind":"MachineConfig","metadata":{"name":"rendered-a"},"spec":{"config":{"ignition":{"version":"3.4.0"}}}}"#;
        for path in [CURRENT_CONFIG.to_owned(), format!("/usr{CURRENT_CONFIG}")] {
            root.replace(&path, config, FileMode::DEFAULT).unwrap();
        }
        assert!(told().contains("it came with the image"), "{}", told());
        root.replace(&state("current.json"), b"{}", FileMode::DEFAULT).unwrap();
        assert_eq!(told(), "a config");
    }
}
