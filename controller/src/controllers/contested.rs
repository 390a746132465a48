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

    /// Forgets a field that got another value by a write of ours.
    pub(super) fn changed(&self, field: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).forget(field);
    }

    /// Records that a field was written, and tells once of another program that sets it back.
    pub(super) async fn wrote(&self, client: &Client, field: &str, value: &str, about: &About) {
        let is_told = self.0.lock().unwrap_or_else(PoisonError::into_inner).wrote(field, value, uptime());
        if is_told {
            let text = format!(
                "The {field} was written several times in a row: another program sets it back; find it in metadata.managedFields and stop it"
            );
            warn!("{text}");
            emit(client, about, Severity::Warning, "FieldContested", &text).await;
        }
    }
}
