//! Status of pinned images in the MachineConfigNode: two conditions and a list, applied under a manager of their own, so
//! that they and the conditions of updates never take each other away.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;
use tracing::warn;

use super::super::client::ApiClient;
use super::super::error::KubeError;
use super::super::node_watch::NodeSnapshot;
use crate::control::pins::PinReport;
use crate::decide::pinned::{PinCondition, PinProgress, SetStatus, set_statuses};
use crate::host::clock::Clock;
use crate::model::backoff::Backoff;
use crate::model::message;
use crate::model::pinned::Pins;

/// The field manager.
const MANAGER: &str = "machine-config-agent-pinned-images";

/// Tries of a write while the API server answers.
const TRIES: usize = 5;

/// Writes the status of the node's pinned images.
pub(super) struct Writer {
    api: Api<DynamicObject>,
    node: String,
    snapshot: Receiver<NodeSnapshot>,
    clock: Clock,
}

impl Writer {
    /// Nothing is read yet.
    pub(super) fn new(api: &ApiClient, node: &str, snapshot: Receiver<NodeSnapshot>) -> Self {
        let kind = GroupVersionKind::gvk("machineconfiguration.openshift.io", "v1", "MachineConfigNode");
        let api = Api::all_with(api.client(), &ApiResource::from_gvk(&kind));
        Self { api, node: node.to_owned(), snapshot, clock: Clock::system() }
    }

    /// Writes each report, until its sender is gone.
    pub(super) async fn run(mut self, mut reports: Receiver<PinReport>) {
        while reports.changed().await.is_ok() {
            let report = reports.borrow_and_update().clone();
            if let Some((pins, progress)) = report {
                self.write_while_new(&pins, &progress, &reports).await;
            }
        }
    }

    /// Tries until it is written, or there is something newer to write.
    async fn write_while_new(&mut self, pins: &Pins, progress: &PinProgress, reports: &Receiver<PinReport>) {
        let mut backoff = Backoff::for_requests(&format!("{}/pins-status", self.node));
        for _ in 0..TRIES {
            drop(self.snapshot.wait_for(|snapshot| snapshot.up).await);
            let Err(error) = self.write(pins, progress).await else { return };
            let is_old = reports.has_changed().unwrap_or(true);
            if is_old || !self.may_pass(&error) {
                return;
            }
            tokio::time::sleep(backoff.next_wait().max(Duration::from_millis(100))).await;
        }
    }

    fn may_pass(&self, error: &KubeError) -> bool {
        // A MachineConfigNode that is yet to be made comes with the agent's first report.
        if error.is_away() || error.is_not_found() || matches!(error, KubeError::Refused { status: 409, .. })
        {
            return true;
        }
        warn!(
            MESSAGE_ID = message::NOT_PUBLISHED,
            MCA_FAULT = error.reason(),
            "Failed to write the pinned images of MachineConfigNode {}: {error}. Next: {}",
            self.node,
            error.next()
        );
        false
    }

    async fn write(&self, pins: &Pins, progress: &PinProgress) -> Result<(), KubeError> {
        let object = format!("MachineConfigNode {}", self.node);
        let stored = self.api.get(&self.node).await.map_err(KubeError::about(&object))?;
        let status = stored.data.get("status").cloned().unwrap_or_default();
        let now = self.clock.now().to_string();
        let statuses = set_statuses(&read_sets(&status), pins, progress);
        let sets: Vec<Value> = statuses.iter().map(set).collect();
        let conditions = conditions(&status, progress, &now);
        let is_same = same_conditions(&status, &conditions)
            && status.get("pinnedImageSets").and_then(Value::as_array).map_or(&[][..], Vec::as_slice) == sets;
        if is_same {
            return Ok(());
        }
        let document = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfigNode",
            "metadata": { "name": self.node },
            "status": { "conditions": conditions, "pinnedImageSets": sets },
        });
        let params = PatchParams::apply(MANAGER).force();
        let written = self.api.patch_status(&self.node, &params, &Patch::Apply(&document)).await;
        let written = written.map_err(KubeError::about(&object))?;
        // An apply keeps what MCD wrote of sets that are gone.
        if read_sets(&written.data.get("status").cloned().unwrap_or_default()).len() == sets.len() {
            return Ok(());
        }
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patch = json!({ "status": { "pinnedImageSets": sets } });
        let written = self.api.patch_status(&self.node, &params, &Patch::Merge(&patch)).await;
        written.map(drop).map_err(KubeError::about(&object))
    }
}

fn read_sets(status: &Value) -> Vec<SetStatus> {
    let sets = status.get("pinnedImageSets").and_then(Value::as_array);
    let number = |set: &Value, key: &str| set.get(key).and_then(Value::as_i64);
    let text = |set: &Value, key: &str| set.get(key).and_then(Value::as_str).map(str::to_owned);
    let read = |set: &Value| {
        let failed = number(set, "lastFailedGeneration").zip(text(set, "lastFailedGenerationError"));
        Some(SetStatus {
            name: text(set, "name")?,
            desired: number(set, "desiredGeneration").unwrap_or_default(),
            current: number(set, "currentGeneration"),
            failed,
        })
    };
    sets.into_iter().flatten().filter_map(read).collect()
}

fn set(status: &SetStatus) -> Value {
    let mut set = json!({ "name": status.name, "desiredGeneration": status.desired });
    let Some(fields) = set.as_object_mut() else { return set };
    if let Some(current) = status.current {
        fields.insert("currentGeneration".to_owned(), current.into());
    }
    if let Some((generation, why)) = &status.failed {
        fields.insert("lastFailedGeneration".to_owned(), (*generation).into());
        fields.insert("lastFailedGenerationError".to_owned(), why.clone().into());
    }
    set
}

fn stored_conditions(status: &Value) -> BTreeMap<&str, &Value> {
    let conditions = status.get("conditions").and_then(Value::as_array);
    let named = |one: &'_ Value| one.get("type").and_then(Value::as_str).is_some();
    let conditions = conditions.into_iter().flatten().filter(|one| named(one));
    conditions.filter_map(|one| Some((one.get("type")?.as_str()?, one))).collect()
}

/// Returns the conditions to write; one that is left as it is keeps what is stored.
fn conditions(status: &Value, progress: &PinProgress, now: &str) -> Vec<Value> {
    let stored = stored_conditions(status);
    let write = |condition: PinCondition| {
        let before = stored.get(condition.kind).copied();
        let Some(holds) = condition.holds else { return before.cloned() };
        let status = if holds { "True" } else { "False" };
        let at = before
            .filter(|before| before.get("status").and_then(Value::as_str) == Some(status))
            .and_then(|before| before.get("lastTransitionTime")?.as_str())
            .unwrap_or(now);
        Some(json!({
            "type": condition.kind, "status": status, "reason": condition.reason,
            "message": condition.message, "lastTransitionTime": at,
        }))
    };
    progress.conditions().into_iter().filter_map(write).collect()
}

fn same_conditions(status: &Value, conditions: &[Value]) -> bool {
    let stored = stored_conditions(status);
    let key = |one: &Value| ["type", "status", "reason", "message"].map(|key| one.get(key).cloned());
    conditions.iter().all(|one| {
        let kind = one.get("type").and_then(Value::as_str).unwrap_or_default();
        stored.get(kind).is_some_and(|before| key(before) == key(one))
    })
}
