//! Jobs and Secrets of builds in the cache.

use std::collections::BTreeSet;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;

use super::observed::{BuildJob, ObservedSecret, put_job};
use crate::controllers::cache::{Kind, Snapshot};
use crate::controllers::cached::{Cached, Identified};

impl Cached for Job {
    const KIND: Kind = Kind::Jobs;
    const LABELS: Option<&'static str> = Some("machineconfiguration.openshift.io/machine-os-build");

    fn insert(self, snapshot: &mut Snapshot) -> bool {
        let (name, new) = (self.metadata.name.clone().unwrap_or_default(), BuildJob::of(&self));
        let takes_older = snapshot.takes_older();
        put_job(&mut snapshot.jobs, name, new, takes_older)
    }
    fn remove(snapshot: &mut Snapshot, name: &str) -> bool {
        snapshot.jobs.remove(name).is_some()
    }
    fn names(snapshot: &Snapshot) -> BTreeSet<String> {
        snapshot.jobs.keys().cloned().collect()
    }
    fn uid<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a str> {
        Some(&snapshot.jobs.get(name)?.job.uid)
    }
}

impl Identified for Job {}

impl Cached for Secret {
    const KIND: Kind = Kind::Secrets;
    // Not those of builds: they are large.
    const LABELS: Option<&'static str> = Some("!machineconfiguration.openshift.io/ephemeral-build-object");

    fn insert(self, snapshot: &mut Snapshot) -> bool {
        let has_credentials = crate::registry::credentials_of_secret(&self).is_some();
        let name = self.metadata.name.unwrap_or_default();
        let new =
            ObservedSecret { version: self.metadata.resource_version.unwrap_or_default(), has_credentials };
        snapshot.secrets.insert(name, new.clone()) != Some(new)
    }
    fn remove(snapshot: &mut Snapshot, name: &str) -> bool {
        snapshot.secrets.remove(name).is_some()
    }
    fn names(snapshot: &Snapshot) -> BTreeSet<String> {
        snapshot.secrets.keys().cloned().collect()
    }
}
