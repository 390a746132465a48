//! Metrics: MCD's names and labels (docs/contract.md), and the agent's own (`machine_config_agent_*`).
//!
//! A number is set where the report is made, or read from its owner at the scrape: idle costs nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use super::kubelet::KubeletProbe;
use crate::model::Timestamp;
use crate::report::{NodeReport, NodeState};

/// Pairs of a label's name and its value.
type Labels = Vec<(&'static str, String)>;
type SecondsCounter = Counter<f64, AtomicU64>;
type SecondsGauge = Gauge<i64, AtomicI64>;

/// Prometheus type of a number kept by another module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only grows; the name gets the suffix `_total`.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A number kept by another module, read at the scrape.
pub struct Reading {
    /// The metric's name.
    pub name: &'static str,
    /// Its help text.
    pub help: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Reads it.
    pub read: Box<dyn Fn() -> f64 + Send + Sync>,
}

/// The agent's metrics; a handle that is cheap to clone.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    state: Family<Labels, SecondsGauge>,
    update_state: Family<Labels, SecondsGauge>,
    config_drift: SecondsGauge,
    reboots_failed: Counter,
    pivot_errors: SecondsGauge,
    unsupported_packages: SecondsGauge,
    kubelet: Option<Arc<KubeletProbe>>,
    phase: Family<Labels, SecondsGauge>,
    phase_seconds: Family<Labels, SecondsCounter>,
    updates: Family<Labels, Counter>,
}

impl Metrics {
    /// Registers all of them.
    pub fn new(host: HostLabels, readings: Vec<Reading>) -> Self {
        let mut registry = Registry::default();
        let metrics = Self {
            registry: Arc::default(),
            state: Family::default(),
            update_state: Family::default(),
            config_drift: Gauge::default(),
            reboots_failed: Counter::default(),
            pivot_errors: Gauge::default(),
            unsupported_packages: Gauge::default(),
            kubelet: None,
            phase: Family::default(),
            phase_seconds: Family::default(),
            updates: Family::default(),
        };
        metrics.register_mcd(&mut registry, host);
        metrics.register_own(&mut registry);
        registry.register_collector(Box::new(Readings(readings)));
        Self { registry: Arc::new(registry), ..metrics }
    }

    fn register_mcd(&self, registry: &mut Registry, host: HostLabels) {
        let os = Family::<Labels, SecondsGauge>::default();
        os.get_or_create(&vec![("os", host.os), ("version", host.version)]).set(1);
        registry.register("mcd_host_os_and_version", "The booted OS and its version", os);
        registry.register("mcd_state", "When the node reached its state, Unix time", self.state.clone());
        registry.register("mcd_update_state", "The last update's end, Unix time", self.update_state.clone());
        let help = "When the host was last seen to differ from its config, Unix time; 0 when it does not";
        registry.register("mcd_config_drift", help, self.config_drift.clone());
        registry.register(
            "mcd_reboots_failed",
            "Reboots that could not be requested",
            self.reboots_failed.clone(),
        );
        let help = "OS switches that failed since the last one that succeeded";
        registry.register("mcd_pivot_errors_total", help, self.pivot_errors.clone());
        let help = "Packages that were layered, removed or replaced on the host, and by no config";
        registry.register("mcd_local_unsupported_packages", help, self.unsupported_packages.clone());
    }

    /// Adds the kubelet, which is probed at a scrape.
    #[must_use]
    pub fn with_kubelet(self, kubelet: Arc<KubeletProbe>) -> Self {
        Self { kubelet: Some(kubelet), ..self }
    }

    /// Refreshes the readings that need it, before a scrape is answered.
    pub async fn refresh(&self) {
        if let Some(kubelet) = &self.kubelet {
            kubelet.probe().await;
        }
    }

    fn register_own(&self, registry: &mut Registry) {
        let help = "1 for the phase that the update is in; Preparing before it has a plan";
        registry.register("machine_config_agent_phase", help, self.phase.clone());
        let help = "Time that ended updates spent in a phase, seconds";
        registry.register("machine_config_agent_phase_seconds", help, self.phase_seconds.clone());
        let help = "Updates that ended, by outcome";
        registry.register("machine_config_agent_updates", help, self.updates.clone());
    }

    /// Sets the metrics of a report.
    pub fn report(&self, report: &NodeReport, now: Timestamp) {
        let at = seconds(now);
        let state = vec![("state", format!("{:?}", report.state)), ("reason", reason(report))];
        set_only_series(&self.state, &state, at);
        set_only_series(&self.phase, &vec![("phase", phase(report).to_owned())], 1);
        let drifted = report.fault.as_ref().is_some_and(|fault| fault.reason == "ConfigDrift");
        match (drifted, self.config_drift.get()) {
            (true, 0) => drop(self.config_drift.set(at)),
            (false, since) if since != 0 => drop(self.config_drift.set(0)),
            (true | false, _) => {}
        }
        let labels = match (report.state, &report.current_config, &report.fault) {
            (NodeState::Done, Some(config), _) => {
                let image = report.current_image.as_ref().map(|image| format!(" / Image: {image}"));
                vec![
                    ("config", format!("MachineConfig: {config}{}", image.unwrap_or_default())),
                    ("err", String::new()),
                ]
            }
            (_, _, Some(fault)) => vec![("config", String::new()), ("err", fault.reason.clone())],
            (
                NodeState::Done | NodeState::Working | NodeState::Degraded | NodeState::Unreconcilable,
                _,
                None,
            ) => return,
        };
        set_only_series(&self.update_state, &labels, at);
    }

    /// Counts an update that ended, with the microseconds that it spent in each phase.
    pub fn ended(&self, outcome: &str, durations: &BTreeMap<String, u64>) {
        self.updates.get_or_create(&vec![("outcome", outcome.to_owned())]).inc();
        for (phase, micros) in durations {
            let spent = std::time::Duration::from_micros(*micros).as_secs_f64();
            self.phase_seconds.get_or_create(&vec![("phase", phase.clone())]).inc_by(spent);
        }
    }

    /// Sets the number of packages that were changed on the host, and by no config (MCD-258).
    pub fn unsupported_packages(&self, count: usize) {
        self.unsupported_packages.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Counts a reboot that could not be requested.
    pub fn reboot_failed(&self) {
        self.reboots_failed.inc();
    }

    /// Counts an OS switch that failed; the next one that succeeds begins again.
    pub fn switched(&self, worked: SwitchResult) {
        match worked {
            SwitchResult::Succeeded => drop(self.pivot_errors.set(0)),
            SwitchResult::Failed => drop(self.pivot_errors.inc()),
        }
    }

    /// Writes all of them in the text format of OpenMetrics for Prometheus.
    pub fn text(&self) -> String {
        let mut text = String::new();
        match prometheus_client::encoding::text::encode(&mut text, &self.registry) {
            Ok(()) => text,
            Err(fmt::Error) => "# the metrics can't be written\n# EOF\n".to_owned(),
        }
    }
}

/// Result of an OS switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwitchResult {
    /// It did.
    Succeeded,
    /// It did not.
    Failed,
}

/// Labels of `mcd_host_os_and_version`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostLabels {
    /// The upper-cased `ID` of os-release(5); `unsupported` where there is none.
    pub os: String,
    /// Its version.
    pub version: String,
}

impl HostLabels {
    /// Reads os-release(5).
    pub fn parse(text: &str) -> Self {
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
            Some(line.trim_matches(['"', '\'']).to_owned())
        };
        let version = value("OSTREE_VERSION").or_else(|| value("VERSION_ID"));
        match value("ID") {
            Some(id) => Self { os: id.to_uppercase(), version: version.unwrap_or_default() },
            None => Self { os: "unsupported".to_owned(), version: String::new() },
        }
    }
}

/// Returns the phase, also of a target that has no update yet: it is inspected and planned for, which may hang.
fn phase(report: &NodeReport) -> &str {
    let desired = (report.desired_config.as_ref(), report.desired_image.as_ref());
    let is_other = desired != (report.current_config.as_ref(), report.current_image.as_ref());
    let is_due = report.doing.is_some() || (desired.0.is_some() && (is_other || report.content_changed));
    if report.phase == "Idle" && report.state == NodeState::Working && is_due {
        return "Preparing";
    }
    &report.phase
}

/// Keeps one series in a family (MCD-254).
fn set_only_series(family: &Family<Labels, SecondsGauge>, labels: &Labels, value: i64) {
    if family.get(labels).is_none() {
        family.clear();
        family.get_or_create(labels).set(value);
    }
}

/// A bounded word: the text of a reason would make a series of each cause.
fn reason(report: &NodeReport) -> String {
    report.fault.as_ref().map(|fault| fault.reason.clone()).unwrap_or_default()
}

fn seconds(at: Timestamp) -> i64 {
    i64::try_from(at.micros() / 1_000_000).unwrap_or(i64::MAX)
}

struct Readings(Vec<Reading>);

impl fmt::Debug for Readings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|reading| reading.name)).finish()
    }
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").field("name", &self.name).field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Collector for Readings {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for reading in &self.0 {
            let value = (reading.read)();
            match reading.kind {
                Kind::Counter => encode_reading(&mut encoder, reading, &ConstCounter::new(value))?,
                Kind::Gauge => encode_reading(&mut encoder, reading, &ConstGauge::new(value))?,
            }
        }
        Ok(())
    }
}

fn encode_reading(
    encoder: &mut DescriptorEncoder<'_>,
    reading: &Reading,
    metric: &impl EncodeMetric,
) -> Result<(), fmt::Error> {
    let place = encoder.encode_descriptor(reading.name, reading.help, None, metric.metric_type())?;
    metric.encode(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::FaultClass;
    use crate::report::{LoopState, report};
    use crate::update::Fault;

    fn series<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
        text.lines().filter(|line| line.starts_with(name) && !line.starts_with('#')).collect()
    }

    /// MCD-018, MCD-254: the state has one series, and the OS its name and version as labels.
    #[test]
    fn one_series_reports_state() {
        let metrics = Metrics::new(HostLabels::parse("ID=rhcos\nVERSION_ID=\"9.6\"\n"), Vec::new());
        let at = |seconds: u64| Timestamp::from_micros(seconds * 1_000_000);
        metrics.report(&report(None, &LoopState::default()), at(100));
        let fault = Fault {
            class: FaultClass::Degraded,
            reason: "ConfigDrift".to_owned(),
            message: "m".to_owned(),
            next: "n".to_owned(),
        };
        let drifted = report(None, &LoopState { fault: Some(fault), ..LoopState::default() });
        metrics.report(&drifted, at(200));
        metrics.report(&drifted, at(300));
        let text = metrics.text();
        assert_eq!(series(&text, "mcd_state{"), ["mcd_state{state=\"Degraded\",reason=\"ConfigDrift\"} 200"]);
        assert_eq!(series(&text, "mcd_config_drift"), ["mcd_config_drift 200"]);
        assert_eq!(
            series(&text, "mcd_host_os_and_version"),
            ["mcd_host_os_and_version{os=\"RHCOS\",version=\"9.6\"} 1"]
        );
        metrics.report(&report(None, &LoopState::default()), at(400));
        assert_eq!(series(&metrics.text(), "mcd_config_drift"), ["mcd_config_drift 0"]);
        assert!(metrics.text().ends_with("# EOF\n"));
    }

    /// MCD-206: failed switches are counted until one succeeds.
    #[test]
    fn successful_switch_resets_error_count() {
        let metrics = Metrics::new(HostLabels::default(), Vec::new());
        metrics.switched(SwitchResult::Failed);
        metrics.switched(SwitchResult::Failed);
        assert_eq!(series(&metrics.text(), "mcd_pivot_errors_total"), ["mcd_pivot_errors_total 2"]);
        metrics.switched(SwitchResult::Succeeded);
        assert_eq!(series(&metrics.text(), "mcd_pivot_errors_total"), ["mcd_pivot_errors_total 0"]);
    }

    #[test]
    fn foreign_counters_are_read_at_scrape() {
        let reading = |name, kind| Reading { name, help: "h", kind, read: Box::new(|| 7.0) };
        let metrics = Metrics::new(
            HostLabels::default(),
            vec![reading("machine_config_agent_syncs", Kind::Counter), reading("rss_bytes", Kind::Gauge)],
        );
        metrics.ended("committed", &BTreeMap::from([("applying".to_owned(), 1_500_000)]));
        let text = metrics.text();
        assert_eq!(series(&text, "machine_config_agent_syncs"), ["machine_config_agent_syncs_total 7.0"]);
        assert_eq!(series(&text, "rss_bytes"), ["rss_bytes 7.0"]);
        assert_eq!(
            series(&text, "machine_config_agent_phase_seconds"),
            ["machine_config_agent_phase_seconds_total{phase=\"applying\"} 1.5"]
        );
        assert_eq!(
            series(&text, "machine_config_agent_updates"),
            ["machine_config_agent_updates_total{outcome=\"committed\"} 1"]
        );
    }
}
