//! Telemetry of the agent while it works: log lines, systemd's status line, metrics and
//! readiness.
//!
//! Imports `model` and `report`. Nothing here decides anything, and a lost log line never stops an update.

pub mod kubelet;
pub mod listen;
pub mod log;
pub mod metrics;
pub mod notify;
pub mod readiness;
pub mod tls;

use std::fmt;

use crate::model::Timestamp;
use crate::report::NodeReport;

use metrics::Metrics;
use notify::Notify;
use readiness::Readiness;

/// Reports of the loop besides the control plane.
#[derive(Debug)]
pub struct Telemetry {
    /// systemd.
    pub notify: Notify,
    /// Prometheus.
    pub metrics: Metrics,
    /// The kubelet's probe.
    pub readiness: Readiness,
    /// The file that `status` reads.
    pub last: LastReport,
}

/// Writes the last report to a file for `status`, which works without the agent.
#[derive(Default)]
pub struct LastReport(Option<WriteReport>);

type WriteReport = Box<dyn FnMut(&NodeReport)>;

impl LastReport {
    /// Creates it from the function that writes a report.
    pub fn new(write: impl FnMut(&NodeReport) + 'static) -> Self {
        Self(Some(Box::new(write)))
    }

    pub(crate) fn write(&mut self, report: &NodeReport) {
        if let Some(write) = &mut self.0 {
            write(report);
        }
    }
}

impl fmt::Debug for LastReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LastReport")
    }
}

impl Telemetry {
    /// Reports a state. The first one ends the recovery.
    pub(crate) fn report(&mut self, report: &NodeReport, now: Timestamp) {
        self.notify.report(report);
        self.metrics.report(report, now);
        self.last.write(report);
        self.readiness.ready();
    }

    /// Reports a step of the work under way: systemd's line and its watchdog. Metrics and readiness wait for its end.
    pub(crate) fn progress(&mut self, report: &NodeReport) {
        self.notify.report(report);
        self.last.write(report);
    }
}
