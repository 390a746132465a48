//! Deletes rendered configs that nobody uses, a few beside each other. One that fails keeps no other, and is told on its pool.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use kube::api::{DeleteParams, Preconditions};
use tracing::{info, warn};

use super::Controller;
use crate::api::MachineConfig;
use crate::controllers::cached::Identified as _;
use crate::controllers::client::RequestError;
use crate::controllers::conflict::{Expected, judge};
use crate::controllers::contested::Field;
use crate::controllers::events::{About, Severity, emit};
use crate::controllers::unused::unused;
use crate::controllers::write::{Write, write};
use crate::reading::Lenient;

/// So many are deleted at once.
const MAX_AT_ONCE: usize = 4;

impl Controller {
    /// Deletes unused rendered configs; returns the time until the next try, if one failed.
    pub(super) async fn collect(&self) -> Option<Duration> {
        let surplus = unused(&self.cache.lock());
        self.deletions.keep(|config| surplus.iter().any(|(name, ..)| name == config));
        let deletions = stream::iter(surplus).map(|(name, uid, version)| self.remove(name, uid, version));
        let waits = deletions.buffer_unordered(MAX_AT_ONCE).collect::<Vec<_>>().await;
        waits.into_iter().flatten().min()
    }

    async fn remove(&self, name: String, uid: String, version: String) -> Option<Duration> {
        if let Some(wait) = self.deletions.wait(&name, &uid) {
            return Some(wait);
        }
        // A pool that is rendered meanwhile may be about to have it as its target.
        let _deletion = self.names.begin_deletion(&name)?;
        let expected = Expected::Version { uid: Some(uid.clone()), version: Some(version.clone()) };
        let preconditions = Preconditions { uid: Some(uid.clone()), resource_version: Some(version) };
        let how = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let configs = self.configs();
        let deleted = write(Write::RenderedConfigDeletion, configs.delete(&name, &how)).await;
        let Err(error) = deleted else {
            info!("Deleted {name}: no node and no pool uses it");
            self.metrics.wrote("render", "deleted");
            self.deleted(&name, &uid);
            self.deletions.succeeded(&name);
            return None;
        };
        // Somebody else changed or deleted it: the watch brings the next decision.
        let error = judge(Write::RenderedConfigDeletion, error, &expected, configs.get(&name)).await.err()?;
        Some(self.not_deleted(&name, &uid, &error).await)
    }

    /// Removes a rendered config that was deleted. Its pool may make it again.
    fn deleted(&self, name: &str, uid: &str) {
        self.cache.change(|snapshot| {
            if let Some(rendered) = snapshot.rendered.get(name) {
                let about = About::pool(&rendered.pool, &rendered.pool_uid);
                self.contested.changed(&Field::new(about, format!("MachineConfig {name}")));
            }
            Lenient::<MachineConfig>::remove_gone(snapshot, name, Some(uid))
        });
    }

    /// Tells of a deletion that failed; returns the pause before the next try.
    async fn not_deleted(&self, name: &str, uid: &str, error: &RequestError) -> Duration {
        let failed = self.deletions.failed(name, uid, error);
        let text = format!("Unused MachineConfig {name} is not deleted: {error}");
        if failed.is_logged {
            warn!("{text}");
        }
        if failed.is_told {
            let pool =
                self.cache.lock().rendered.get(name).map(|one| (one.pool.clone(), one.pool_uid.clone()));
            if let Some((pool, uid)) = pool {
                let about = About::pool(&pool, &uid);
                emit(&self.client, &about, Severity::Warning, "RenderedConfigNotDeleted", &text).await;
            }
        }
        failed.wait
    }
}
