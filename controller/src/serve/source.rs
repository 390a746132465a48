//! Source of pools and rendered configs: the cluster, or a directory that a bootstrap wrote.

use super::cluster::Cluster;
use super::directory::Directory;
use super::ignition::Joining;
use super::no_config::NoConfig;

/// Source of pools and rendered configs.
#[derive(Debug)]
pub enum Source {
    /// A cluster.
    Cluster(Box<Cluster>),
    /// A directory.
    Directory(Directory),
}

impl Source {
    /// Returns the data for a node of the pool, but for the kubeconfig.
    pub(super) async fn joining(&self, pool: &str) -> Result<Joining, NoConfig> {
        match self {
            Self::Cluster(cluster) => cluster.joining(pool).await,
            Self::Directory(directory) => directory.joining(pool).await,
        }
    }

    /// Returns true if pools are known.
    pub(super) fn is_ready(&self) -> bool {
        match self {
            Self::Cluster(cluster) => cluster.is_ready(),
            Self::Directory(directory) => directory.is_ready(),
        }
    }
}
