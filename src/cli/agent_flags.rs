//! The flags of the verbs that run the agent: the host, its settings, and the source of its reboots.

use std::path::{Path, PathBuf};

use super::CliError;
use super::host::{HostFlags, RebootBy};
use super::settings::{SettingsFile, SettingsFlags};
use crate::agent::LifecycleHost;
use crate::host::clock::Clock;
use crate::host::{ContainerHandles, Host};
use crate::model::text::chain;
use crate::settings::Environment;

/// The flags of each of these verbs.
#[derive(Debug, clap::Args)]
pub(super) struct AgentFlags {
    #[command(flatten)]
    host: HostFlags,
    #[command(flatten)]
    node_settings: SettingsFlags,
    /// Who reboots the host: logind, or a supervisor, when the agent exits with 133
    #[arg(long, value_enum, default_value_t = RebootBy::Logind)]
    reboot_by: RebootBy,
}

/// The flags of those that a container may run, too.
#[derive(Debug, clap::Args)]
pub(super) struct ContainerFlags {
    /// Mount point of the host's root in a container; the agent enters it at its start; --settings is still a file of the
    /// container
    #[arg(long, value_name = "DIR", conflicts_with = "root")]
    root_mount: Option<PathBuf>,
    #[command(flatten)]
    agent: AgentFlags,
}

impl AgentFlags {
    /// Returns the root of the host, as it was given.
    pub(super) fn root(&self) -> &Path {
        &self.host.root
    }

    /// Opens the host a second time, to read it alone.
    pub(super) fn observe(&self, environment: &Environment) -> Result<Host, CliError> {
        self.host.observe_through(environment.proxy.clone())
    }

    /// Finds the settings and opens the host.
    pub(super) fn open(&self, environment: &Environment) -> Result<(SettingsFile, Host), CliError> {
        self.open_entered(None, environment)
    }

    /// Opens the means of work on stateroots, beside the host that the loop owns.
    fn lifecycle_host(&self, host: &Host, node_settings: &SettingsFile) -> LifecycleHost {
        LifecycleHost {
            root: host.root.clone(),
            stateroots: self.host.stateroots(&host.proxies).within(node_settings.limits(&host.root)),
            systemd: host.systemd.clone(),
            proxies: host.proxies.clone(),
            clock: Clock::system(),
            power: self.reboot_by.power(&host.root),
            settings: node_settings.settings_loader(&host.root),
            fail_points: host.fail_points.clone(),
        }
    }

    fn open_entered(
        &self,
        root_mount: Option<&Path>,
        environment: &Environment,
    ) -> Result<(SettingsFile, Host), CliError> {
        // Found first: once the host is entered, the path would name another file.
        let node_settings = self.node_settings.open()?;
        let entered = root_mount.map(enter).transpose()?.unwrap_or_default();
        Ok((node_settings, self.host.open(self.reboot_by, environment, entered)?))
    }
}

impl ContainerFlags {
    /// Finds the settings, enters the host at its mount point, and opens it.
    pub(super) fn open(&self, environment: &Environment) -> Result<(SettingsFile, Host), CliError> {
        self.agent.open_entered(self.root_mount.as_deref(), environment)
    }

    /// Opens the means of work on stateroots.
    pub(super) fn lifecycle_host(&self, host: &Host, node_settings: &SettingsFile) -> LifecycleHost {
        self.agent.lifecycle_host(host, node_settings)
    }
}

/// Enters the host.
fn enter(directory: &Path) -> Result<ContainerHandles, CliError> {
    ContainerHandles::enter(directory).map_err(|error| {
        let (directory, cause) = (directory.display(), chain(&error));
        CliError::Usage(format!(
            "--root-mount {directory}: {cause}. Nothing was touched; mount the host's / there (hostPath, \
             HostToContainer) and run it as root with CAP_SYS_CHROOT, from an image with both executables"
        ))
    })
}
