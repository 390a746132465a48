//! The cluster's desired state of a Node, read once: three requests, no watch, no write, nothing kept.

use super::client::ApiClient;
use super::fetch::{POLICY_OBJECT, POLICY_PATH, config_path, parse_config, parse_policy};
use super::node::{NodeView, nodes};
use super::{ControlError, Identity, KubeError, invalid};
use crate::model::Target;
use crate::model::machineconfig::MachineConfig;
use crate::model::policy::DisruptionPolicy;

/// Result of a Node's annotations.
#[derive(Debug)]
pub struct Desired {
    /// The target.
    pub target: Target,
    /// The config it names.
    pub machine_config: MachineConfig,
    /// The disruption policy in force.
    pub policy: DisruptionPolicy,
}

/// Reads it; `None` where the Node names no config. Within a tokio runtime.
pub async fn desired(identity: Identity, node: &str) -> Result<Option<Desired>, ControlError> {
    let link = ApiClient::new(identity);
    let object = format!("Node {node}");
    let metadata = nodes(link.client()).get_metadata(node).await.map_err(KubeError::about(&object))?.metadata;
    let view = NodeView::from(metadata);
    let target = crate::model::annotations::target(&view.annotations);
    let Some(target) = target.map_err(|source| invalid(&object, source))? else { return Ok(None) };
    let name = &target.config;
    let bytes = match link.get(&config_path(name), &format!("MachineConfig {name}")).await {
        Err(error) if error.is_not_found() => {
            return Err(ControlError::NotInCluster { config: name.clone(), instead: String::new() });
        }
        text => text?,
    };
    let machine_config = parse_config(name, bytes.as_bytes())?;
    let policy = match link.get(POLICY_PATH, POLICY_OBJECT).await {
        Err(error) if error.is_not_found() => DisruptionPolicy::defaults(),
        text => parse_policy(text?.as_bytes())?
            .ok_or_else(|| ControlError::PolicyNotReady { object: POLICY_OBJECT.to_owned() })?,
    };
    Ok(Some(Desired { target, machine_config, policy }))
}
