//! Metrics for Prometheus. A number is set where it changes; idle costs nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// Pairs of a label's name and its value.
type Labels = Vec<(&'static str, String)>;
type Gauges = Family<Labels, Gauge<i64, AtomicI64>>;
type Counters = Family<Labels, Counter<u64, AtomicU64>>;

/// Exported conditions of a pool: those that the node controller sets.
const CONDITIONS: [&str; 8] = [
    "Updated",
    "Updating",
    "Degraded",
    "NodeDegraded",
    "RolloutProgressing",
    "RolloutHalted",
    "RolloutInvalid",
    "RolloutNodesNotWritten",
];

/// The controller's metrics; a handle that is cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Metrics {
    registry: Arc<Registry>,
    /// 1 while this process leads.
    pub(super) leading: Gauge<i64, AtomicI64>,
    writes: Counters,
    nodes: Gauges,
    conditions: Gauges,
    render_degraded: Gauges,
    drain_blocked: Gauges,
    drain_failed: Gauges,
    drains: Gauge<i64, AtomicI64>,
    drain_seconds: Histogram,
    evictions: Counters,
    watches: Gauges,
}

impl Metrics {
    pub(super) const CONTENT_TYPE: &'static str =
        "application/openmetrics-text; version=1.0.0; charset=utf-8";

    pub(super) fn new() -> Self {
        let mut metrics = Self {
            registry: Arc::default(),
            leading: Gauge::default(),
            writes: Family::default(),
            nodes: Family::default(),
            conditions: Family::default(),
            render_degraded: Family::default(),
            drain_blocked: Family::default(),
            drain_failed: Family::default(),
            drains: Gauge::default(),
            drain_seconds: Histogram::new(exponential_buckets(1.0, 2.0, 13)),
            evictions: Family::default(),
            watches: Family::default(),
        };
        metrics.registry = Arc::new(metrics.registered());
        metrics
    }

    fn registered(&self) -> Registry {
        let mut registry = Registry::default();
        let name = |name: &str| format!("machine_config_controller_{name}");
        registry.register(name("leading"), "1 while this process leads", self.leading.clone());
        registry.register(
            name("writes"),
            "Writes to the API server by controller and outcome",
            self.writes.clone(),
        );
        registry.register(name("pool_nodes"), "Nodes of a pool by state", self.nodes.clone());
        registry.register(
            name("pool_condition"),
            "1 while a condition of a pool is True",
            self.conditions.clone(),
        );
        registry.register(
            name("pool_render_degraded"),
            "1 while a pool can't be rendered",
            self.render_degraded.clone(),
        );
        registry.register(
            name("drain_blocked"),
            "1 for each node whose drain is blocked",
            self.drain_blocked.clone(),
        );
        registry.register(name("drains"), "Nodes that are drained now", self.drains.clone());
        registry.register(name("drain_duration_seconds"), "How long drains took", self.drain_seconds.clone());
        registry.register(name("evictions"), "Evictions by outcome", self.evictions.clone());
        registry.register(
            name("write_failures"),
            "Writes that the API server refused or did not answer, by write and outcome",
            super::write::failures(),
        );
        registry.register(name("watch_up"), "1 while a resource is watched", self.watches.clone());
        // The Machine Config Operator's name: its alert works with either.
        registry.register(
            "mcc_drain_err",
            "1 while a drain fails for over an hour",
            self.drain_failed.clone(),
        );
        registry
    }

    /// Returns them as Prometheus reads them.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            Ok(()) => text,
            // Unreachable: a String takes everything.
            Err(_) => String::new(),
        }
    }

    pub(super) fn wrote(&self, controller: &'static str, outcome: &'static str) {
        let labels = vec![("controller", controller.to_owned()), ("outcome", outcome.to_owned())];
        self.writes.get_or_create(&labels).inc();
    }

    pub(super) fn watched(&self, resource: &str, is_up: bool) {
        self.watches.get_or_create(&vec![("resource", resource.to_owned())]).set(i64::from(is_up));
    }

    /// Nobody needs the watch any more.
    pub(super) fn not_watched(&self, resource: &str) {
        self.watches.remove(&vec![("resource", resource.to_owned())]);
    }

    pub(super) fn evicted(&self, outcome: &'static str) {
        self.evictions.get_or_create(&vec![("outcome", outcome.to_owned())]).inc();
    }

    pub(super) fn pool(&self, pool: &str, counts: &[(&'static str, i32)]) {
        for (state, count) in counts {
            let labels = vec![("pool", pool.to_owned()), ("state", (*state).to_owned())];
            self.nodes.get_or_create(&labels).set(i64::from(*count));
        }
    }

    /// Replaces the conditions of a pool; `is_true` is called for each.
    pub(super) fn conditions(&self, pool: &str, is_true: impl Fn(&str) -> bool) {
        for condition in CONDITIONS {
            let labels = vec![("pool", pool.to_owned()), ("condition", condition.to_owned())];
            self.conditions.get_or_create(&labels).set(i64::from(is_true(condition)));
        }
    }

    /// Forgets a pool that is gone.
    pub(super) fn forget_pool(&self, pool: &str) {
        for state in ["total", "updated", "ready", "unavailable", "degraded"] {
            self.nodes.remove(&vec![("pool", pool.to_owned()), ("state", state.to_owned())]);
        }
        for condition in CONDITIONS {
            self.conditions.remove(&vec![("pool", pool.to_owned()), ("condition", condition.to_owned())]);
        }
    }

    /// Forgets the rendering of a pool that is gone.
    pub(super) fn forget_rendered(&self, pool: &str) {
        self.render_degraded.remove(&vec![("pool", pool.to_owned())]);
    }

    pub(super) fn rendered(&self, pool: &str, ok: bool) {
        self.render_degraded.get_or_create(&vec![("pool", pool.to_owned())]).set(i64::from(!ok));
    }

    pub(super) fn draining(&self, nodes: usize) {
        self.drains.set(i64::try_from(nodes).unwrap_or(i64::MAX));
    }

    /// Replaces the blocker of a node's drain.
    pub(super) fn blocked(&self, old: Option<&Labels>, new: Option<&Labels>) {
        if let Some(old) = old {
            self.drain_blocked.remove(old);
        }
        if let Some(new) = new {
            self.drain_blocked.get_or_create(new).set(1);
        }
    }

    pub(super) fn drain_failed(&self, node: &str, failed: bool) {
        let labels = vec![("node", node.to_owned())];
        if failed {
            self.drain_failed.get_or_create(&labels).set(1);
        } else {
            self.drain_failed.remove(&labels);
        }
    }

    pub(super) fn drained(&self, seconds: f64) {
        self.drain_seconds.observe(seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_and_removes_conditions_of_pool() {
        let metrics = Metrics::new();
        metrics.conditions("worker", |condition| condition == "RolloutHalted");
        let series = |condition| {
            format!("machine_config_controller_pool_condition{{pool=\"worker\",condition=\"{condition}\"}}")
        };
        let text = metrics.text();
        assert!(text.contains(&format!("{} 1\n", series("RolloutHalted"))), "{text}");
        assert!(text.contains(&format!("{} 0\n", series("Degraded"))), "{text}");
        metrics.conditions("worker", |_| false);
        assert!(metrics.text().contains(&format!("{} 0\n", series("RolloutHalted"))));
        metrics.forget_pool("worker");
        assert!(!metrics.text().contains("worker"), "{}", metrics.text());
    }

    /// All that is served, with each series that a family can have.
    fn served() -> String {
        let metrics = Metrics::new();
        metrics.wrote("render", "failed");
        metrics.evicted("evicted");
        metrics.watched("nodes", true);
        metrics.pool("worker", &[("degraded", 1), ("total", 1), ("updated", 0), ("unavailable", 0)]);
        metrics.conditions("worker", |_| true);
        metrics.rendered("worker", false);
        metrics.draining(1);
        metrics.drained(1.0);
        let labels = ["node", "pod", "budget"].map(|label| (label, "x".to_owned())).to_vec();
        metrics.blocked(None, Some(&labels));
        metrics.drain_failed("n1", true);
        metrics.text()
    }

    /// The metrics that a text names.
    fn named(text: &str) -> std::collections::BTreeSet<&str> {
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        words
            .filter(|word| word.starts_with("machine_config_controller_") || word.starts_with("mcc_"))
            .collect()
    }

    /// All series in alerts, dashboard and documents are served, and the documents name all of them.
    #[test]
    fn alerts_dashboard_and_documents_name_served_metrics() {
        let served = served();
        let series: std::collections::BTreeSet<&str> =
            served.lines().filter(|line| !line.starts_with('#')).flat_map(named).collect();
        let alerts =
            include_str!("../../../dist/manifests/components/controller-monitoring/prometheusrule.yaml");
        let dashboard =
            include_str!("../../../dist/manifests/components/controller-monitoring/dashboard.yaml");
        for name in named(alerts).union(&named(dashboard)) {
            assert!(series.contains(name), "{name} is not served:\n{served}");
        }
        for (label, value) in alerts.split('{').skip(1).filter_map(|selector| {
            let (label, rest) = selector.split_once("=\"")?;
            Some((label, rest.split_once('"')?.0))
        }) {
            let pair = format!("{label}=\"{value}\"");
            assert!(label == "job" || served.contains(&pair), "no series has {pair}:\n{served}");
        }
        let documents = include_str!("../../../docs/pools.md");
        let families = |line: &&str| line.starts_with("# TYPE ");
        for family in served.lines().filter(families).flat_map(named) {
            let listed = [format!("| `{family}` |"), format!("| `{family}_total` |")];
            assert!(listed.iter().any(|row| documents.contains(row)), "docs/pools.md has no {family}");
        }
        for row in documents.lines().filter(|line| line.starts_with("| `m")).flat_map(named) {
            let is_served = series.iter().any(|one| *one == row || one.strip_suffix("_bucket") == Some(row));
            assert!(is_served, "docs/pools.md: {row} is not served");
        }
    }
}
