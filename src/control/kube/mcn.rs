//! The node's MachineConfigNode: written when it says something new, never watched, read only when it has to be (W-43).
//!
//! MCD and the drain controller write the list of conditions under one manager's name, so a writer that leaves one out
//! removes it, and one that sends an old one replaces a newer one. Each write therefore names the version that it
//! builds on: without other writers that costs nothing; otherwise it is refused, and only then the object is read
//! again.
//!
//! # Which form the CRD has
//! A server-side apply of an unknown field is an error, a patch drops it in silence. So a patch that is not carried out
//! (`dryRun`) asks: once in a process, and again before a new update's first write when the last answer is an hour old,
//! since a cluster's upgrade changes the CRD first and its nodes later. An object that has the field answers for free.

mod merge;
mod stored;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use tracing::warn;

use super::client::ApiClient;
use super::error::KubeError;
use super::node::NodeView;
use crate::host::clock::Clock;
use crate::model::message;
use crate::report::NodeReport;

pub(super) use merge::Cordons;
pub(super) use merge::rendered_pool;
use merge::{ConditionLayout, MergeInput};
use stored::{MANAGER, Stored};

/// Its API.
const GROUP: &str = "machineconfiguration.openshift.io";
const VERSION: &str = "v1";
const KIND: &str = "MachineConfigNode";

/// Lifetime of the known form of a present CRD.
const KNOWN_LIFETIME: Duration = Duration::from_secs(3600);

/// Lifetime of an absent CRD: only reports ask, and an idle node has none.
const ABSENT_INTERVAL: Duration = Duration::from_secs(300);

/// Tries of a write after writes of others: the drain controller writes a few times in a
/// row, and the next report comes anyway.
const TRIES: usize = 4;

/// An image that never exists, for the dry run.
const PROBE: &str =
    "probe.invalid/os@sha256:0000000000000000000000000000000000000000000000000000000000000000";

/// The node's MachineConfigNode.
#[derive(Debug)]
pub(super) struct Mcn {
    api: Api<DynamicObject>,
    node: String,
    object: String,
    cordons: Cordons,
    clock: Clock,
    stored: Option<Stored>,
    form: Option<(ConditionLayout, Instant)>,
    absent: Option<Instant>,
    refused: Option<String>,
    /// Changes that the CRD has no field for.
    dropped: Option<Value>,
}

impl Mcn {
    /// Nothing is read yet.
    pub(super) fn new(api: &ApiClient, node: &str) -> Self {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, VERSION, KIND));
        Self {
            api: Api::all_with(api.client(), &resource),
            node: node.to_owned(),
            object: format!("{KIND} {node}"),
            cordons: Cordons::Controllers,
            clock: Clock::system(),
            stored: None,
            form: None,
            absent: None,
            refused: None,
            dropped: None,
        }
    }

    /// Sets who cordons: whoever does reports it.
    pub(super) fn with(self, cordons: Cordons) -> Self {
        Self { cordons, ..self }
    }

    /// Forgets what is stored: after the API server was away, or the Node was another one, all may be different.
    pub(super) fn check_again(&mut self) {
        self.stored = None;
        self.absent = None;
        self.refused = None;
        self.dropped = None;
    }

    /// Writes the report's conditions, if they differ from the stored ones. A refusal is logged, and is no error: no
    /// update waits for it.
    pub(super) async fn publish(&mut self, node: &NodeView, report: &NodeReport) -> Result<(), KubeError> {
        let absent = self.absent.is_some_and(|since| since.elapsed() < ABSENT_INTERVAL);
        let refused_content =
            format!("{:?} {:?}", report.conditions, (&report.desired_config, &report.desired_image));
        if absent || node.deleting || self.refused.as_ref() == Some(&refused_content) {
            return Ok(());
        }
        let mut last = Ok(());
        for _ in 0..TRIES {
            match self.write(node, report).await {
                Ok(()) => {
                    self.refused = None;
                    return Ok(());
                }
                // Deleted, or written by another writer: it is read again.
                Err(error) if error.is_not_found() || is_conflict(&error) => {
                    self.stored = None;
                    last = Err(error);
                }
                // The CRD lost the fields that were sent: the API server takes that for its own failure.
                Err(error) if is_undeclared(&error) => {
                    (self.stored, self.form) = (None, None);
                    last = Err(error);
                }
                Err(error) if error.is_away() => return Err(error),
                Err(error) => {
                    self.refuse(&error, refused_content);
                    return Ok(());
                }
            }
        }
        last
    }

    fn refuse(&mut self, error: &KubeError, refused_content: String) {
        warn!(
            MESSAGE_ID = message::NOT_PUBLISHED,
            MCA_FAULT = error.reason(),
            "Failed to write {}; the update continues without it: {error}. Next: {}",
            self.object,
            error.next()
        );
        // The CRD may have changed under it.
        self.form = None;
        self.stored = None;
        self.refused = Some(refused_content);
    }

    async fn write(&mut self, node: &NodeView, report: &NodeReport) -> Result<(), KubeError> {
        let Some(mut stored) = self.current(node, report).await? else { return Ok(()) };
        let now = self.clock.now().to_string();
        let known = self.form.map_or(ConditionLayout::Joint, |(form, _)| form);
        let mut words = MergeInput { report, form: known, cordons: self.cordons, now };
        let begins = merge::spec(&stored, &node.labels, &words).is_some();
        words.form = self.form(&stored, begins).await?;
        if let Some(spec) = merge::spec(&stored, &node.labels, &words) {
            stored = self.apply(&stored, Part::Spec, json!({ "spec": spec })).await?;
        }
        for list in merge::lists(&stored, &words) {
            if let Some(status) = merge::status(&stored, &list, &words) {
                stored = self.apply(&stored, Part::Status, json!({ "status": status })).await?;
            }
        }
        match merge::changes(&stored, report) {
            Some(changes) => self.set_changes(&stored, changes).await,
            None => Ok(()),
        }
    }

    /// Sets the list of irreconcilable changes as a whole (MCD-251). An apply would keep entries that MCD wrote with an
    /// update, and would fail on a CRD without the field: a patch drops it in silence there.
    async fn set_changes(&mut self, stored: &Stored, changes: Value) -> Result<(), KubeError> {
        if self.dropped.as_ref() == Some(&changes) {
            return Ok(());
        }
        let patch = json!({
            "metadata": { "resourceVersion": stored.version },
            "status": { "irreconcilableChanges": changes },
        });
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let answer = self.api.patch_status(&self.node, &params, &Patch::Merge(&patch)).await;
        let now = self.store(&answer.map_err(KubeError::about(&self.object))?)?;
        self.dropped = (now.changes != changes).then_some(changes);
        Ok(())
    }

    /// Returns what is stored: remembered, read, or created. `None` in a cluster without the CRD.
    async fn current(&mut self, node: &NodeView, report: &NodeReport) -> Result<Option<Stored>, KubeError> {
        if let Some(stored) = &self.stored {
            return Ok(Some(stored.clone()));
        }
        let answer = match self.api.get(&self.node).await.map_err(KubeError::about(&self.object)) {
            Err(error) if error.is_not_found() => self.create(node, report).await?,
            answer => Some(answer?),
        };
        let Some(answer) = answer else {
            self.absent = Some(Instant::now());
            return Ok(None);
        };
        self.absent = None;
        self.store(&answer).map(Some)
    }

    async fn create(&self, node: &NodeView, report: &NodeReport) -> Result<Option<DynamicObject>, KubeError> {
        let owner = json!({ "apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid });
        let mut object = self.document(json!({ "spec": merge::first_spec(&node.labels, report) }), None);
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("ownerReferences".to_owned(), json!([owner]));
        }
        let object: DynamicObject =
            serde_json::from_value(object).map_err(|error| self.unreadable(&error))?;
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        match self.api.create(&params, &object).await.map_err(KubeError::about(&self.object)) {
            Err(error) if error.is_not_found() => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// Applies a part of the object to the version that was read.
    async fn apply(&mut self, stored: &Stored, part_of: Part, part: Value) -> Result<Stored, KubeError> {
        let object = self.document(part, Some(&stored.version));
        let (params, patch) = (PatchParams::apply(MANAGER).force(), Patch::Apply(&object));
        let answer = match part_of {
            Part::Spec => self.api.patch(&self.node, &params, &patch).await,
            Part::Status => self.api.patch_status(&self.node, &params, &patch).await,
        };
        self.store(&answer.map_err(KubeError::about(&self.object))?)
    }

    fn document(&self, mut part: Value, version: Option<&str>) -> Value {
        let name = &self.node;
        if let Some(object) = part.as_object_mut() {
            object.insert("apiVersion".to_owned(), json!(format!("{GROUP}/{VERSION}")));
            object.insert("kind".to_owned(), json!(KIND));
            let metadata = match version {
                Some(version) => json!({ "name": name, "resourceVersion": version }),
                None => json!({ "name": name }),
            };
            object.insert("metadata".to_owned(), metadata);
        }
        part
    }

    fn unreadable(&self, error: &serde_json::Error) -> KubeError {
        super::node::unreadable(&self.object, error)
    }

    fn store(&mut self, answer: &DynamicObject) -> Result<Stored, KubeError> {
        let object = serde_json::to_value(answer).map_err(|error| self.unreadable(&error))?;
        let stored = Stored::read(&object);
        self.stored = Some(stored.clone());
        Ok(stored)
    }

    /// Returns the form of the CRD; probes it when it is not known, or was probed long before this update began.
    async fn form(&mut self, stored: &Stored, begins: bool) -> Result<ConditionLayout, KubeError> {
        if stored.has_images() {
            self.form = Some((ConditionLayout::Split, Instant::now()));
            return Ok(ConditionLayout::Split);
        }
        if let Some((form, probed_at)) = self.form
            && !(begins && probed_at.elapsed() >= KNOWN_LIFETIME)
        {
            return Ok(form);
        }
        let probe = json!({ "spec": { "configImage": { "desiredImage": PROBE } } });
        let manager = Some(MANAGER.to_owned());
        let params = PatchParams { dry_run: true, field_manager: manager, ..PatchParams::default() };
        let answer = self.api.patch(&self.node, &params, &Patch::Merge(&probe)).await;
        let form = match answer.map_err(KubeError::about(&self.object)) {
            Ok(answer) if answer.data.pointer("/spec/configImage/desiredImage").is_some() => {
                ConditionLayout::Split
            }
            Err(error) if error.is_away() || error.is_not_found() => return Err(error),
            // Without the permission only the form that every CRD takes is used.
            Ok(_) | Err(_) => ConditionLayout::Joint,
        };
        self.form = Some((form, Instant::now()));
        Ok(form)
    }
}

/// Part of the object that is applied.
#[derive(Debug, Clone, Copy)]
enum Part {
    Spec,
    Status,
}

fn is_conflict(error: &KubeError) -> bool {
    matches!(error, KubeError::Refused { status: 409, .. })
}

fn is_undeclared(error: &KubeError) -> bool {
    error.to_string().contains("not declared in schema")
}
