//! Desired config of this host's control plane, for `plan` and `collect`: read once, without a write.

use std::path::PathBuf;

use super::CliError;
use super::daemon::service_account;
use super::input::Unknown;
use super::last_report::{self, Follows, SavedReport};
use crate::control::directory::{Directory, pool_file};
use crate::control::kube::{Identity, desired};
use crate::control::{ControlError, ControlPlane as _};
use crate::host::{Proxies, Root, machine_name};
use crate::model::ConfigName;
use crate::settings::Environment;

pub(super) use crate::control::kube::Desired;

/// Source of `desired`. Without any flag it is read from the source of this host's agent.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct Flags {
    /// Control directory to read `desired` and the policy from (default: the agent's)
    #[arg(long, value_name = "DIR", conflicts_with_all = ["kubeconfig", "node_name"])]
    pub(super) directory: Option<PathBuf>,
    /// Read DIR as bootstrap output, and `desired` as this pool's
    #[arg(long, value_name = "NAME", requires = "directory", value_parser = |name: &str| ConfigName::new(name))]
    pool: Option<ConfigName>,
    /// Kubeconfig to read `desired` and the policy with (default: the agent's)
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Name of this node in the cluster (default: as the agent finds it)
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,
}

/// A control plane that was found.
#[derive(Debug)]
pub(super) enum Source {
    /// A directory, and the pool whose config counts where a bootstrap has rendered it.
    Directory(PathBuf, Option<ConfigName>),
    /// A cluster, and the node's name in it.
    Cluster(Identity, String),
}

/// Finds the control plane: that of the flags, else that of this host's agent, else this pod's cluster.
pub(super) fn source(flags: &Flags, root: &Root, environment: &Environment) -> Result<Source, CliError> {
    let left = SavedReport::load(root)?;
    if let Some(path) = &flags.directory {
        return Ok(Source::Directory(path.clone(), flags.pool.clone()));
    }
    let followed = left.as_ref().map(|left| &left.follows);
    let identity = match (&flags.kubeconfig, followed) {
        (Some(path), _) => {
            Some(Identity::kubeconfig(std::slice::from_ref(path)).map_err(ControlError::from)?)
        }
        (None, Some(Follows::Directory(path))) => return Ok(Source::Directory(PathBuf::from(path), None)),
        (None, Some(Follows::Rendered { directory, pool })) => {
            return Ok(Source::Directory(PathBuf::from(directory), Some(pool.clone())));
        }
        // Else it is the service account of a pod.
        (None, Some(Follows::Cluster(access))) if access.starts_with('/') => {
            Some(Identity::kubeconfig(&last_report::kubeconfigs(access)).map_err(ControlError::from)?)
        }
        (None, Some(Follows::Cluster(_) | Follows::FirstBoot(_)) | None) => service_account(environment)?,
    };
    let identity = identity.ok_or_else(|| {
        usage("it is not known what the agent of this host follows; name --kubeconfig FILE or --directory DIR, or a file with --to FILE")
    })?;
    let known = flags.node_name.clone().or_else(|| environment.node_name.clone());
    let node = if let Some(name) = known {
        name
    } else {
        let named = identity.node_name().map_err(ControlError::from)?;
        named.or_else(|| left.map(|left| left.report.node)).unwrap_or_else(machine_name)
    };
    let proxies = Proxies::new(root.clone(), environment.proxy.clone());
    Ok(Source::Cluster(identity.through(proxies), node))
}

impl Source {
    /// Reads the desired config.
    pub(super) async fn read(&self, unknown: Unknown) -> Result<Desired, CliError> {
        match self {
            Self::Directory(path, pool) => {
                let directory = Directory::of_pool(path, pool.as_ref())?;
                let mut directory = directory.with_unknown_fields(unknown.allow_unknown_fields);
                let policy = directory.policy().await?;
                let target = directory.desired().await?.ok_or_else(|| {
                    let file = pool.as_ref().map_or_else(|| "target.yaml".to_owned(), pool_file);
                    let file = file.trim_start_matches('/');
                    usage(&format!("the directory has no {file}; write one, or name a file with --to"))
                })?;
                let machine_config = directory.machine_config(&target.config).await?;
                Ok(Desired { target, machine_config, policy })
            }
            Self::Cluster(identity, node) => {
                let desired = desired(identity.clone(), node).await?;
                desired.ok_or_else(|| {
                    usage(&format!("Node {node} has no desiredConfig; a controller has to write it, or name a file with --to"))
                })
            }
        }
    }
}

fn usage(text: &str) -> CliError {
    CliError::Usage(format!("--to desired: {text}"))
}
