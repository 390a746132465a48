//! What people and programs see of the agent while it works: log lines, systemd's status line, metrics and
//! readiness.
//!
//! Imports `model` and `report`. Nothing here decides anything, and a lost log line never stops an update.

pub mod listen;
pub mod log;
pub mod metrics;
pub mod notify;
pub mod readiness;
pub mod tls;

use crate::model::Timestamp;
use crate::report::NodeReport;

use metrics::Metrics;
use notify::Notify;
use readiness::Readiness;

/// What the loop tells beside the control plane.
#[derive(Debug)]
pub struct Telemetry {
    /// systemd.
    pub notify: Notify,
    /// Prometheus.
    pub metrics: Metrics,
    /// The kubelet's probe.
    pub readiness: Readiness,
}

impl Telemetry {
    /// Tells a state. The first one says that the recovery is done.
    pub(crate) fn report(&mut self, report: &NodeReport, now: Timestamp) {
        self.notify.report(report);
        self.metrics.report(report, now);
        self.readiness.ready();
    }

    /// Tells a step of the work under way: systemd's line and its watchdog. Metrics and readiness wait for its end.
    pub(crate) fn progress(&mut self, report: &NodeReport) {
        self.notify.report(report);
    }
}
