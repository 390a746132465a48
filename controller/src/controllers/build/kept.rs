//! Jobs and Secrets of builds in the cache.

use std::collections::BTreeSet;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;

use super::observed::{BuildJob, SecretSeen, put_job};
use crate::controllers::cache::{Kind, Seen};
use crate::controllers::kept::Kept;

impl Kept for Job {
    const KIND: Kind = Kind::Jobs;
    const LABELS: Option<&'static str> = Some("machineconfiguration.openshift.io/machine-os-build");

    fn put(self, seen: &mut Seen) -> bool {
        let (name, new) = (self.metadata.name.clone().unwrap_or_default(), BuildJob::of(&self));
        put_job(&mut seen.jobs, name, new)
    }
    fn remove(seen: &mut Seen, name: &str) -> bool {
        seen.jobs.remove(name).is_some()
    }
    fn names(seen: &Seen) -> BTreeSet<String> {
        seen.jobs.keys().cloned().collect()
    }
}

impl Kept for Secret {
    const KIND: Kind = Kind::Secrets;
    // Not those of builds: they are large.
    const LABELS: Option<&'static str> = Some("!machineconfiguration.openshift.io/ephemeral-build-object");

    fn put(self, seen: &mut Seen) -> bool {
        let has_credentials = super::builder::credentials(&self).is_some();
        let name = self.metadata.name.unwrap_or_default();
        let new = SecretSeen { version: self.metadata.resource_version.unwrap_or_default(), has_credentials };
        seen.secrets.insert(name, new.clone()) != Some(new)
    }
    fn remove(seen: &mut Seen, name: &str) -> bool {
        seen.secrets.remove(name).is_some()
    }
    fn names(seen: &Seen) -> BTreeSet<String> {
        seen.secrets.keys().cloned().collect()
    }
}
