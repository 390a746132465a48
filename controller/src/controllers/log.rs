//! Log lines on standard error: text, or JSON with one object a line.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Human-readable
    Text,
    /// Machine-readable
    Json,
}

/// Starts logging; a second call changes nothing.
pub(crate) fn start(format: Format) {
    // Only errors of the libraries. kube's client logs an object that it can't read, which may hold secrets.
    let ours = Targets::new()
        .with_target("machine_config_controller", LevelFilter::INFO)
        .with_target("kube_client", LevelFilter::OFF)
        .with_target("kube_runtime", LevelFilter::OFF)
        .with_default(LevelFilter::WARN);
    let registry = tracing_subscriber::registry();
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    let started = match format {
        Format::Text => registry.with(layer.with_target(false).with_filter(ours)).try_init(),
        Format::Json => {
            registry.with(layer.json().flatten_event(true).with_target(false).with_filter(ours)).try_init()
        }
    };
    drop(started);
}
