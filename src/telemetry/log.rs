//! Log lines: to the journal with its own protocol under systemd, else to standard error as text or JSON.
//!
//! Every line's text can stand alone; the keys for filters are in fields (`MCA_UPDATE`, `MCA_PHASE`, ...) that only
//! the journal and JSON show.

use std::fmt;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Destination and format of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The journal.
    Journal,
    /// Text on standard error.
    Text,
    /// JSON on standard error, one object a line.
    Json,
}

/// The identifier for `journalctl -t`.
pub const IDENTIFIER: &str = "machine-config-agent";

/// Starts logging. A journal that can't be reached is replaced by text; a second call changes nothing.
pub fn start(format: Format) {
    let journal = match format {
        Format::Journal => tracing_journald::layer().ok(),
        Format::Text | Format::Json => None,
    };
    let registry = tracing_subscriber::registry();
    let started = match (journal, format) {
        (Some(layer), _) => {
            let layer = layer.with_syslog_identifier(IDENTIFIER.to_owned()).with_field_prefix(None);
            registry.with(layer.with_filter(own_targets(LevelFilter::DEBUG))).try_init()
        }
        (None, Format::Json) => {
            let layer = tracing_subscriber::fmt::layer().json().flatten_event(true).with_target(false);
            registry
                .with(layer.with_writer(std::io::stderr).with_filter(own_targets(LevelFilter::DEBUG)))
                .try_init()
        }
        (None, Format::Journal | Format::Text) => {
            let layer = tracing_subscriber::fmt::layer().event_format(TextFormat);
            registry
                .with(layer.with_writer(std::io::stderr).with_filter(own_targets(LevelFilter::INFO)))
                .try_init()
        }
    };
    // Only tests start twice; the first subscriber stays.
    drop(started);
}

/// Lets our own lines through; of the libraries only errors. kube's client logs an object that it can't read,
/// which may hold secrets: the cause is in its error.
fn own_targets(level: LevelFilter) -> Targets {
    Targets::new()
        .with_default(LevelFilter::WARN)
        .with_target("kube_client", LevelFilter::OFF)
        .with_target("machine_config_agent", level)
}

/// A line for people: the message; a warning or an error begins with its level.
struct TextFormat;

impl<S, N> FormatEvent<S, N> for TextFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = *event.metadata().level();
        if level == Level::ERROR {
            writer.write_str("error: ")?;
        } else if level == Level::WARN {
            writer.write_str("warning: ")?;
        }
        let mut message = MessageOnly { writer: writer.by_ref(), written: Ok(()) };
        event.record(&mut message);
        message.written?;
        writeln!(writer)
    }
}

struct MessageOnly<'a> {
    writer: Writer<'a>,
    written: fmt::Result,
}

impl Visit for MessageOnly<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.written = write!(self.writer, "{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// kube's client warns of an answer that it can't read with the whole answer.
    #[test]
    fn client_logs_no_object() {
        let filter = own_targets(LevelFilter::DEBUG);
        assert!(!filter.would_enable("kube_client::client", &Level::WARN));
        assert!(filter.would_enable("zbus", &Level::WARN));
        assert!(filter.would_enable("machine_config_agent::control::kube::client", &Level::DEBUG));
    }
}
