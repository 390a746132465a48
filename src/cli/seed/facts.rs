//! The facts of this host that go into a seed. They are gathered before anything is changed.

use std::path::Path;
use std::time::Duration;

use super::super::CliError;
use super::super::stateroot::machine::Machine;
use crate::host::os::stateroots::SeedToMake;
use crate::host::{HostError, Systemd, command, containers};
use crate::model::machineconfig;
use crate::model::{ImageRef, UnitName};
use crate::observe::host_traits;
use crate::stateroot::{
    Exclusion, Layout, RESTING_SERVICES, StaterootDeployment, Version, booted_deployment, cluster_info,
    config_of_seed, container_images, seed_labels, status_document,
};

/// The config that the agent, or machine-config-daemon, has committed.
const CURRENT_CONFIG: &str = "/etc/machine-config-daemon/currentconfig";

/// rpm-ostree's client.
const RPM_OSTREE: &str = "/usr/bin/rpm-ostree";

/// Time for an answer of rpm-ostree, whose daemon may have to start.
const RPM_OSTREE_TIMEOUT: Duration = Duration::from_secs(120);

/// Facts of a seed.
#[derive(Debug)]
pub(super) struct Facts {
    /// The services that are active, in the order in which they are stopped.
    pub(super) services: Vec<UnitName>,
    /// The booted image, of a bootc seed.
    pub(super) base: Option<ImageRef>,
    /// The contents.
    pub(super) seed: SeedToMake,
}

/// Gathers them.
pub(super) async fn gather(
    machine: &Machine,
    systemd: &Systemd,
    layout: Layout,
    version: &Version,
    exclusions: Vec<Exclusion>,
) -> Result<Facts, CliError> {
    let root = &machine.root;
    let booted = booted(machine).await?;
    let base = match (layout, &booted.image) {
        (Layout::Classic, _) => None,
        (Layout::Bootc, Some(image)) => Some(image.clone()),
        (Layout::Bootc, None) => {
            let cause =
                "the running deployment was not made from an image; make a classic seed (--form classic)";
            return Err(CliError::Usage(format!("{}: {cause}", booted.id)));
        }
    };
    let config = config(machine)?;
    let services = active_services(systemd).await?;
    let images = containers::images(root).await?.unwrap_or_default();
    let info = cluster_info(version, &host_traits(root)?);
    let seed = SeedToMake {
        layout,
        exclusions,
        labels: seed_labels(layout, &info),
        status: status(machine, &booted).await?,
        config,
        containers: container_images(&images)
            .into_iter()
            .flat_map(|image| [image, "\n".to_owned()])
            .collect(),
        manifest: serde_json::Value::Object(info).to_string(),
    };
    Ok(Facts { services, base, seed })
}

async fn booted(machine: &Machine) -> Result<StaterootDeployment, CliError> {
    let boots = machine.stateroots.boots().await?;
    let mut all = boots.all.into_iter().flat_map(|stateroot| stateroot.deployments);
    let booted = all.find(|deployment| deployment.booted);
    booted.ok_or_else(|| CliError::Usage("this machine was not booted from libostree".to_owned()))
}

fn config(machine: &Machine) -> Result<String, CliError> {
    let malformed = |cause: String| HostError::Malformed {
        path: CURRENT_CONFIG.to_owned(),
        format: "the MachineConfig of this host",
        cause,
    };
    let bytes = machine.root.read_at_most(CURRENT_CONFIG, machineconfig::MAX_BYTES)?;
    let missing =
        || malformed("there is no such file, so no config is committed here; apply one first".to_owned());
    let json = config_of_seed(&bytes.ok_or_else(missing)?).map_err(malformed)?;
    Ok(String::from_utf8(json).map_err(|_| malformed("it is no text in UTF-8".to_owned()))?)
}

/// Returns what rpm-ostree says of the deployments; without it, what libostree says.
async fn status(machine: &Machine, booted: &StaterootDeployment) -> Result<String, CliError> {
    if !machine.root.exists(RPM_OSTREE)? {
        return Ok(status_document(booted));
    }
    let text = command::output(RPM_OSTREE, &["status", "--json"], RPM_OSTREE_TIMEOUT).await?;
    booted_deployment(text.as_bytes())?;
    Ok(text)
}

/// Returns the services of the list that are active.
pub(super) async fn active_services(systemd: &Systemd) -> Result<Vec<UnitName>, CliError> {
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

/// Returns an absolute path without links on the way, so that it is left out of the seed.
pub(super) fn real_directory(machine: &Machine, path: &str) -> Result<String, CliError> {
    if !Path::new(path).is_absolute() {
        return Err(CliError::Usage(format!("--directory {path}: give an absolute path")));
    }
    Ok(machine.root.real_path(path)?)
}
