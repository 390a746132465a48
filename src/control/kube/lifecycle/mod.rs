//! The objects of lifecycle-agent, in its place: watched where the agent was told to carry them out and the cluster has this
//! one node.

mod follower;
mod image_based_upgrade;
mod seed_cluster;
mod seed_generator;
mod singleton;
mod upgrade;

use kube::api::ListParams;
use kube::core::ObjectList;
use serde::de::IgnoredAny;
use tokio::sync::watch::Receiver;
use tokio::task::AbortHandle;
use tracing::warn;

use super::client::ApiClient;
use super::error::KubeError;
use super::node_watch::NodeSnapshot;
use crate::control::lifecycle::{LifecycleLink, LifecycleSource};
use crate::control::link::link;
use crate::control::seed_generation::{GenerationLink, GenerationSource};
use crate::model::backoff::Backoff;
use crate::model::message;

use follower::follow;
use image_based_upgrade::ImageBasedUpgrade;
pub use seed_cluster::KubeSeedCluster;
use seed_generator::SeedGenerator;

/// The objects of lifecycle-agent as the agent follows them.
#[derive(Debug)]
pub struct LifecycleObjects {
    /// The task that follows them. Dropped, it ends.
    pub watcher: LifecycleWatcher,
    /// Stages of the ImageBasedUpgrade.
    pub stages: LifecycleLink,
    /// Seeds of the SeedGenerator.
    pub seeds: GenerationLink,
    /// The cluster that they are of.
    pub cluster: KubeSeedCluster,
}

/// The task that follows them. Dropped, it ends.
#[derive(Debug)]
pub struct LifecycleWatcher {
    task: AbortHandle,
}

impl Drop for LifecycleWatcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl LifecycleObjects {
    /// Begins. Within a tokio runtime; nothing is requested yet.
    pub(super) fn follow(api: &ApiClient, node: &str, snapshot: &Receiver<NodeSnapshot>) -> Self {
        let (stage_source, stages) = link();
        let (seed_source, seeds) = link();
        let follower = Follower { api: api.clone(), node: node.to_owned(), snapshot: snapshot.clone() };
        let task = tokio::spawn(follower.run(stage_source, seed_source)).abort_handle();
        let (watcher, cluster) = (LifecycleWatcher { task }, KubeSeedCluster::new(api));
        Self { watcher, stages, seeds, cluster }
    }
}

struct Follower {
    api: ApiClient,
    node: String,
    snapshot: Receiver<NodeSnapshot>,
}

impl Follower {
    async fn run(mut self, stages: LifecycleSource, seeds: GenerationSource) {
        self.until_alone().await;
        let Self { api, node, snapshot } = &self;
        tokio::select! {
            // Neither ends by itself.
            () = follow(api, node, snapshot, ImageBasedUpgrade::new(api, stages)) => {}
            () = follow(api, node, snapshot, SeedGenerator::new(api, seeds)) => {}
        }
    }

    /// Waits until the API server answers that this is its only node.
    async fn until_alone(&mut self) {
        let mut backoff = Backoff::for_requests(&format!("{}/nodes", self.node));
        let mut is_logged = false;
        loop {
            let is_up = |snapshot: &NodeSnapshot| snapshot.up && snapshot.node.is_some();
            // The Node's watch is gone with the process only.
            drop(self.snapshot.wait_for(is_up).await);
            let why = match self.nodes().await {
                Ok(1) => return,
                Ok(_) => "the cluster has other nodes; image-based upgrades and seeds need a single node"
                    .to_owned(),
                Err(error) if error.is_away() => {
                    tokio::time::sleep(backoff.next_wait()).await;
                    continue;
                }
                Err(error) => format!("{error}. Next: {}", error.next()),
            };
            if !is_logged {
                warn!(
                    MESSAGE_ID = message::STAGE_FAILED,
                    "ImageBasedUpgrade and SeedGenerator are not followed: {why}"
                );
                is_logged = true;
            }
            drop(self.snapshot.wait_for(|snapshot| !snapshot.up).await);
        }
    }

    /// Counts the nodes, up to two.
    async fn nodes(&self) -> Result<usize, KubeError> {
        let request =
            kube::core::Request::new("/api/v1/nodes").list_metadata(&ListParams::default().limit(2));
        let list = async {
            let request = request.map_err(kube::Error::BuildRequest)?;
            self.api.client().request::<ObjectList<IgnoredAny>>(request).await
        };
        Ok(list.await.map_err(KubeError::about("Nodes"))?.items.len())
    }
}
