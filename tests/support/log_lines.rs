//! The lines that one thread logs, with their fields.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// A second subscriber: where there is only one, the thread that comes to a statement first decides for all of them
/// whether it is logged.
static BESIDE: LazyLock<tracing::Dispatch> =
    LazyLock::new(|| tracing::Dispatch::new(tracing_subscriber::registry()));

/// The fields of the lines of this thread, in order.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<BTreeMap<String, String>>>>);

impl<S: tracing::Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &tracing::Event<'_>, _context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }
}

#[derive(Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

impl Lines {
    /// Takes the lines of this thread until it is dropped.
    pub(crate) fn taken(&self) -> tracing::subscriber::DefaultGuard {
        LazyLock::force(&BESIDE);
        tracing::subscriber::set_default(tracing_subscriber::registry().with(self.clone()))
    }

    /// Returns the lines since the last call.
    pub(crate) fn take(&self) -> Vec<BTreeMap<String, String>> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}
