//! Fields that another program sets back: each is written a few times in a row, then with growing pauses, and named in an Event.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::Client;
use tracing::warn;

use super::client::uptime;
use super::events::{About, Severity, emit};
use crate::retry::Repeats;

/// Last writes of a controller, by field. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Contested(Arc<Mutex<Repeats>>);

impl Contested {
    /// Returns the time to wait before a field is given this value again; `None` if it may be written.
    pub(super) fn wait(&self, field: &str, value: &str) -> Option<Duration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).wait(field, value, uptime())
    }

    /// Returns true if another program sets a field back to another value than this one, as far as the own writes show.
    pub(super) fn is_contested(&self, field: &str, value: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_contested(field, value)
    }

    /// Returns the time until an object counts as kept that another program deleted each time.
    pub(super) fn unproven(&self, object: &str) -> Option<Duration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).unproven(object, "", uptime())
    }

    /// Forgets a field that got another value by a write of ours.
    pub(super) fn changed(&self, field: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).forget(field);
    }

    /// Records that a field was written, and tells once of another program that sets it back.
    pub(super) async fn wrote(&self, client: &Client, field: &str, value: &str, about: &About) {
        let text = format!(
            "The {field} was written several times in a row: another program sets it back; find it in metadata.managedFields and stop it"
        );
        self.record(client, field, value, about, &text).await;
    }

    /// Records that an object was made, and tells once of another program that deletes it.
    pub(super) async fn made(&self, client: &Client, object: &str, about: &About) {
        let text = format!(
            "{object} was made several times in a row: another program deletes it; find it in the audit log of the API server and stop it"
        );
        self.record(client, object, "", about, &text).await;
    }

    async fn record(&self, client: &Client, field: &str, value: &str, about: &About, text: &str) {
        let is_told = self.0.lock().unwrap_or_else(PoisonError::into_inner).wrote(field, value, uptime());
        if is_told {
            warn!("{text}");
            emit(client, about, Severity::Warning, "FieldContested", text).await;
        }
    }
}
