//! Kinds that a controller waits for before it decides anything, and who says so meanwhile.

use std::collections::BTreeSet;

use kube::Client;

use super::cache::{Cache, Kind, Snapshot};
use super::events::{About, Severity, emit};
use super::unread;

/// Events of objects that a controller leaves as they are while the API server refuses kinds.
pub(super) struct Untouched {
    /// The kinds that are named.
    pub(super) kinds: &'static [Kind],
    /// Reason of the Events.
    pub(super) reason: &'static str,
    /// The objects, each with the beginning of its message.
    pub(super) objects: fn(&Snapshot) -> Vec<(About, String)>,
}

impl Untouched {
    /// Waits until all kinds are known that are needed. Meanwhile each object has an Event with the refusals, once.
    pub(super) async fn until_read(self, client: &Client, cache: &Cache, needed: &[Kind]) {
        let (mut changes, mut told) = (cache.contents(), BTreeSet::new());
        loop {
            changes.mark_unchanged();
            let (objects, refused) = {
                let snapshot = cache.lock();
                if needed.iter().all(|kind| snapshot.knows(*kind)) {
                    return;
                }
                // All of them are one Event.
                let is_settled = |kind: &Kind| snapshot.knows(*kind) || snapshot.failing.contains_key(kind);
                let are_settled = self.kinds.iter().all(is_settled);
                let refused = unread::refusals(&snapshot, self.kinds).filter(|_| are_settled);
                ((self.objects)(&snapshot), refused)
            };
            if let Some(refused) = refused {
                for (about, what) in objects {
                    let text = format!("{what}: {refused}");
                    if told.insert(text.clone()) {
                        emit(client, &about, Severity::Warning, self.reason, &text).await;
                    }
                }
            }
            // The cache itself keeps the sender.
            drop(changes.changed().await);
        }
    }
}
