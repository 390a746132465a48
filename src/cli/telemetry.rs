//! Assembly of a running agent's telemetry.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;

use tracing::warn;

use super::CliError;
use crate::control::kube::{Access, Reviews, Traffic};
use crate::host::Host;
use crate::host::meter::{Meter, resident};
use crate::host::root::Root;
use crate::settings::Environment;
use crate::telemetry::kubelet::KubeletProbe;
use crate::telemetry::listen::{Guard, ListenError, Listener, Review, Reviewer};
use crate::telemetry::metrics::{HostLabels, Kind, Metrics, Reading};
use crate::telemetry::notify::Notify;
use crate::telemetry::readiness::Readiness;
use crate::telemetry::{LastReport, Telemetry, tls};

/// The flags of the listener.
#[derive(Debug, clap::Args)]
pub(super) struct ListenFlags {
    /// Address of /metrics, /healthz and /readyz, or `off`
    #[arg(long = "metrics-listen", value_name = "ADDR", default_value = "127.0.0.1:8797")]
    address: Address,
    /// Certificate chain of the listener (PEM)
    #[arg(long = "metrics-tls-cert", value_name = "FILE", requires = "key")]
    chain: Option<PathBuf>,
    /// Its key (PEM)
    #[arg(long = "metrics-tls-key", value_name = "FILE", requires = "chain")]
    key: Option<PathBuf>,
}

/// Address of the listener.
#[derive(Debug, Clone, Copy)]
enum Address {
    Off,
    At(SocketAddr),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        text.parse().map(Self::At).map_err(|_| "it is IP:PORT, [IPv6]:PORT or off".to_owned())
    }
}

impl ListenFlags {
    /// Binds the address and serves it in a task of the runtime; `own` holds the certificate's files. A port that is taken (MCD still runs, say) is no
    /// reason for a node without its agent; an address that would show the metrics to everyone is.
    pub(super) async fn serve(
        &self,
        telemetry: &Telemetry,
        reviewer: Option<Box<dyn Reviewer>>,
        own: Root,
    ) -> Result<(), CliError> {
        let Address::At(address) = self.address else { return Ok(()) };
        let guard = match (&self.chain, &self.key, reviewer) {
            (Some(chain), Some(key), Some(reviewer)) => {
                Guard::Reviewed { tls: source(own, chain.clone(), key.clone()), reviewer }
            }
            (Some(_) | None, Some(_) | None, Some(_) | None) => Guard::Machine,
        };
        let (metrics, readiness) = (telemetry.metrics.clone(), telemetry.readiness.clone());
        match Listener::bind(address, guard, metrics, readiness).await {
            Ok(listener) => drop(tokio::spawn(listener.serve())),
            Err(error @ ListenError::Unguarded { .. }) => return Err(CliError::Usage(error.to_string())),
            Err(error @ ListenError::Bind { .. }) => {
                warn!("{error}; continuing without it. Next: free the address and restart the agent");
            }
        }
        Ok(())
    }
}

/// Reads the certificate's files again for each connection.
fn source(own: Root, chain: PathBuf, key: PathBuf) -> crate::telemetry::listen::TlsSource {
    Box::new(move || {
        let read = |path: &PathBuf| {
            let name = path.display().to_string();
            let bytes = own.read(&name).map_err(|error| error.to_string())?;
            bytes.ok_or_else(|| format!("{name} does not exist"))
        };
        tls::config(&read(&chain)?, &read(&key)?)
    })
}

/// Returns the metrics of a running agent, beside the `readings` of the control plane.
pub(super) fn telemetry(
    environment: &Environment,
    host: &Host,
    readings: Vec<Reading>,
    last: LastReport,
) -> Telemetry {
    let release = ["/etc/os-release", "/usr/lib/os-release"];
    // The labels of a metric: whatever is in its place, the agent does its work.
    let text = release.iter().find_map(|path| host.root.read(path).ok().flatten());
    let labels = HostLabels::parse(&String::from_utf8_lossy(&text.unwrap_or_default()));
    let mut all = of_process(host.root.meter());
    all.extend(readings);
    Telemetry {
        notify: Notify::new(environment.notify.clone(), environment.watchdog),
        metrics: Metrics::new(labels, all),
        readiness: Readiness::default(),
        last,
    }
}

/// Authorizes readers by the cluster.
pub(super) struct ClusterAuthorizer(pub(super) Reviews);

impl Reviewer for ClusterAuthorizer {
    fn review<'a>(
        &'a self,
        token: &'a str,
        path: &'a str,
    ) -> Pin<Box<dyn Future<Output = Review> + Send + 'a>> {
        Box::pin(async move {
            match self.0.check(token, path).await {
                Ok(Access::Allowed) => Review::Allowed,
                Ok(Access::Forbidden) => Review::Forbidden,
                Ok(Access::Unauthenticated) => Review::Unauthenticated,
                Err(_) => Review::Unknown,
            }
        })
    }
}

/// Returns the readings of the link.
pub(super) fn of_link(traffic: &Arc<Traffic>) -> Vec<Reading> {
    let reading = |name, help, kind, read: fn(&Traffic) -> f64| {
        let traffic = Arc::clone(traffic);
        Reading { name, help, kind, read: Box::new(move || read(&traffic)) }
    };
    vec![
        reading(
            "machine_config_agent_api_requests",
            "Requests that were sent to the API server, watches included",
            Kind::Counter,
            |traffic| number(traffic.requests()),
        ),
        reading("machine_config_agent_watches", "Watches of the Node that began", Kind::Counter, |traffic| {
            number(traffic.watches())
        }),
        reading("machine_config_agent_watch_up", "1 while the Node is watched", Kind::Gauge, |traffic| {
            f64::from(u8::from(traffic.is_up()))
        }),
    ]
}

/// Returns the readings of the kubelet's probe.
pub(super) fn of_kubelet(kubelet: &Arc<KubeletProbe>) -> Reading {
    let kubelet = Arc::clone(kubelet);
    Reading {
        name: "mcd_kubelet_state",
        help: "Scrapes in a row, at most one in half a minute, at which the kubelet did not answer",
        kind: Kind::Gauge,
        read: Box::new(move || f64::from(kubelet.failures())),
    }
}

fn of_process(meter: &Arc<Meter>) -> Vec<Reading> {
    let counter = |name, help, read: fn(&Meter) -> f64| {
        let meter = Arc::clone(meter);
        Reading { name, help, kind: Kind::Counter, read: Box::new(move || read(&meter)) }
    };
    vec![
        counter("machine_config_agent_syncs", "Files and directories that were synced to disk", |meter| {
            number(meter.syncs())
        }),
        counter("machine_config_agent_sync_seconds", "Time spent waiting for syncs, seconds", |meter| {
            std::time::Duration::from_micros(meter.sync_micros()).as_secs_f64()
        }),
        counter("machine_config_agent_changed_paths", "Paths that were changed", |meter| {
            number(meter.files())
        }),
        Reading {
            name: "process_resident_memory_bytes",
            help: "Memory of this process that is in RAM",
            kind: Kind::Gauge,
            read: Box::new(|| number(resident())),
        },
    ]
}

/// A float holds whole numbers up to 2^53; the counts here stay far below.
fn number(count: u64) -> f64 {
    let (high, low) = (count >> 32, count & u64::from(u32::MAX));
    let part = |half: u64| u32::try_from(half).map_or(f64::MAX, f64::from);
    part(high) * 4_294_967_296.0 + part(low)
}
