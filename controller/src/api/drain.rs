//! Rules of a `RolloutPolicy` for the drains of its pool's nodes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pool::selector;
use super::schema::duration;

/// Rules of drains; without them a drain waits for all pods, for as long as it takes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Drain {
    /// Longest drain of a node, as `1h`; default: none
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration")]
    pub timeout: Option<String>,
    /// Action at the timeout; default Fail
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_timeout: Option<OnTimeout>,
    /// Pods that are neither evicted nor waited for
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip: Option<Skip>,
    /// Take the node out of load balancers of the cloud before the first eviction, by the label
    /// `node.kubernetes.io/exclude-from-external-load-balancers`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude_from_load_balancers: Option<ExcludeFromLoadBalancers>,
}

/// Action on the remaining pods when a drain has taken too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum OnTimeout {
    /// The drain fails: nothing more is evicted, and the node counts as failed.
    #[default]
    Fail,
    /// The pods are deleted, whatever their budgets say.
    DeletePods,
}

/// Pods that are neither evicted nor waited for.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Skip {
    /// Pods with these labels
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "selector")]
    pub pod_selector: Option<LabelSelector>,
    /// Pods that are still Terminating so long after their grace period, as `10m`; kubectl has `--skip-wait-for-delete-timeout`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration")]
    pub terminating_longer_than: Option<String>,
}

/// The label that takes a node out of load balancers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ExcludeFromLoadBalancers {
    /// Wait between the label and the first eviction, as `30s`; default: none
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration")]
    pub wait: Option<String>,
}
