//! Fields that another program sets back: each is written a few times in a row, then with growing pauses, and named in an Event.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Client;
use tracing::warn;

use super::client::uptime;
use super::events::{About, Severity, emit};
use crate::retry::Repeats;

/// A field of an object, or another object that it needs. One of the same name that is made later is another one.
#[derive(Debug, Clone)]
pub(super) struct Field {
    about: About,
    name: String,
}

impl Field {
    /// Names a field for people, with its object.
    pub(super) fn new(about: About, name: impl Into<String>) -> Self {
        Self { about, name: name.into() }
    }

    fn key(&self) -> String {
        format!("{} {}", self.about.key(), self.name)
    }
}

/// Last writes of a controller, by field. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Contested(Arc<Mutex<Repeats>>);

impl Contested {
    fn lock(&self) -> MutexGuard<'_, Repeats> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time to wait before a field is given this value again; `None` if it may be written.
    pub(super) fn wait(&self, field: &Field, value: &str) -> Option<Duration> {
        self.lock().wait(&field.key(), value, uptime())
    }

    /// Returns true if another program sets a field back that is about to be given this value, as far as the own writes show.
    pub(super) fn is_contested(&self, field: &Field, value: &str) -> bool {
        self.lock().is_contested(&field.key(), value, uptime())
    }

    /// Returns the time until a value counts as kept that another program set back, or an object that it deleted.
    pub(super) fn unproven(&self, field: &Field, value: &str) -> Option<Duration> {
        self.lock().unproven(&field.key(), value, uptime())
    }

    /// Forgets a field that got another value by a write of ours.
    pub(super) fn changed(&self, field: &Field) {
        self.lock().forget(&field.key());
    }

    /// Takes over a fight that the process before this one has told of.
    pub(super) fn take_over(&self, field: &Field, value: &str) {
        self.lock().take_over(&field.key(), value, uptime());
    }

    /// Records that a field was written, and tells once of another program that sets it back.
    pub(super) async fn wrote(&self, client: &Client, field: &Field, value: &str) {
        let text = format!(
            "The {} was written several times in a row: another program sets it back; find it in metadata.managedFields and stop it",
            field.name
        );
        self.record(client, field, value, &text).await;
    }

    /// Records that an object was made, and tells once of another program that deletes it.
    pub(super) async fn made(&self, client: &Client, object: &Field) {
        let text = format!(
            "{} was made several times in a row: another program deletes it; find it in the audit log of the API server and stop it",
            object.name
        );
        self.record(client, object, "", &text).await;
    }

    async fn record(&self, client: &Client, field: &Field, value: &str, text: &str) {
        let is_told = self.lock().wrote(&field.key(), value, uptime());
        if is_told {
            warn!("{text}");
            emit(client, &field.about, Severity::Warning, "FieldContested", text).await;
        }
    }
}
