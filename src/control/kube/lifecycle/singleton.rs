//! A kind of lifecycle-agent of which there is one object, by its name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::core::{ObjectList, WatchEvent};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch::Sender;
use tracing::warn;

use super::super::error::KubeError;
use super::super::node::broken;
use super::super::optional_kind::OptionalKind;
use super::super::reflector::{Requests, WatchHandler, WatchStep};
use crate::model::message;

/// Names of a kind and of its one object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Singleton {
    /// The kind.
    pub(super) kind: &'static str,
    /// Its path.
    pub(super) path: &'static str,
    /// The object.
    pub(super) name: &'static str,
    /// Both, for people.
    pub(super) shown: &'static str,
}

/// The object.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct LcaObject {
    /// Its metadata.
    pub(super) metadata: Metadata,
    /// Its spec.
    #[serde(default)]
    pub(super) spec: Value,
    /// Its status.
    #[serde(default)]
    pub(super) status: Value,
}

/// The part of its metadata that is read.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata {
    /// Another one is another object.
    pub(super) uid: String,
    /// Another one is another spec.
    pub(super) generation: i64,
    resource_version: String,
    /// Its annotations.
    pub(super) annotations: Option<BTreeMap<String, String>>,
    /// Set while it is being deleted.
    pub(super) deletion_timestamp: Option<String>,
}

impl LcaObject {
    /// Returns an annotation.
    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// Returns its annotations of lifecycle-agent.
    pub(super) fn annotations(&self) -> BTreeMap<&str, &str> {
        let all = self.metadata.annotations.iter().flatten();
        let is_own =
            |key: &str| key.split('/').next().is_some_and(|domain| domain.ends_with("lca.openshift.io"));
        all.filter(|(key, _)| is_own(key)).map(|(key, value)| (key.as_str(), value.as_str())).collect()
    }
}

/// The object as last seen.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum ObservedObject {
    /// It was not listed yet, or the cluster has no such kind.
    #[default]
    Unknown,
    /// There is none.
    Absent,
    /// As it is.
    There(Arc<LcaObject>),
}

/// Puts the object into a value.
pub(super) struct SingletonHandler {
    what: Singleton,
    observed: Sender<ObservedObject>,
    kind: OptionalKind,
}

impl SingletonHandler {
    /// Takes where it is put.
    pub(super) fn new(what: Singleton, observed: Sender<ObservedObject>, kind: OptionalKind) -> Self {
        Self { what, observed, kind }
    }

    fn put(&self, observed: ObservedObject) {
        self.observed.send_if_modified(|known| {
            let is_news = *known != observed;
            *known = observed;
            is_news
        });
    }
}

impl WatchHandler for SingletonHandler {
    type Object = LcaObject;

    fn requests(&self) -> Requests {
        Requests { path: self.what.path, name: self.what.name.to_owned(), metadata: false }
    }

    fn object(&self) -> &str {
        self.what.shown
    }

    fn on_list(&mut self, list: ObjectList<LcaObject>) -> String {
        self.kind.listed();
        let found = list.items.into_iter().next();
        self.put(found.map_or(ObservedObject::Absent, |object| ObservedObject::There(Arc::new(object))));
        list.metadata.resource_version.unwrap_or_default()
    }

    fn on_event(&mut self, event: WatchEvent<LcaObject>) -> WatchStep {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let version = object.metadata.resource_version.clone();
                self.put(ObservedObject::There(Arc::new(object)));
                WatchStep::At(version)
            }
            WatchEvent::Deleted(object) => {
                self.put(ObservedObject::Absent);
                WatchStep::At(object.metadata.resource_version)
            }
            WatchEvent::Bookmark(bookmark) => WatchStep::At(bookmark.metadata.resource_version),
            WatchEvent::Error(status) => {
                broken(self.what.shown, *status).map_or(WatchStep::Expired, WatchStep::Failed)
            }
        }
    }

    async fn on_error(&mut self, error: KubeError, wait: Duration) {
        if self.kind.is_news(&error) {
            warn!(
                MESSAGE_ID = message::STAGE_FAILED,
                MCA_FAULT = error.reason(),
                "{} is not watched: {error}. Next: {}",
                self.what.shown,
                error.next()
            );
        }
        self.kind.wait_after(&error, wait).await;
    }
}

/// An object as the API server has it.
#[cfg(test)]
pub(super) fn object(value: Value) -> LcaObject {
    serde_json::from_value(value).unwrap()
}
