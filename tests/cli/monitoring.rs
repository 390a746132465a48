//! Alerts and the dashboard name existing metrics, and each alert has a runbook. The controller's own metrics are compared
//! with what it serves in `controller/src/controllers/metrics.rs`.

use std::collections::BTreeSet;

use crate::manifests::each;
use crate::rendered::{documents, file, manifests, text};
use serde_json::Value;

/// The words of an expression, as Prometheus splits it.
fn words(expression: &str) -> impl Iterator<Item = &str> {
    expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// Those of them that are metrics of the agent.
fn of_agent(expression: &str) -> BTreeSet<&str> {
    words(expression)
        .filter(|word| word.starts_with("mcd_") || word.starts_with("machine_config_agent_"))
        .collect()
}

fn check_agent_metrics(place: &str, expression: &str) {
    let code = |file: &str| std::fs::read_to_string(file).unwrap();
    let sources = [code("src/telemetry/metrics.rs"), code("src/cli/telemetry.rs")].concat();
    let reference = code("docs/reference.md");
    for metric in of_agent(expression) {
        // The library adds the suffix of counters; the reference has the whole name.
        let registered = [metric, metric.trim_end_matches("_total")].map(|name| format!("\"{name}\""));
        assert!(registered.iter().any(|name| sources.contains(name)), "{place}: {metric} is not a metric");
        assert!(reference.contains(&format!("| `{metric}` |")), "{place}: {metric} is not in the reference");
    }
}

#[test]
fn alerts_name_existing_metrics_and_runbooks() {
    let mut alerts = BTreeSet::new();
    for component in ["monitoring", "controller-monitoring"] {
        let rules = file(&manifests().join("components").join(component).join("prometheusrule.yaml"));
        for rule in each(rules.first().unwrap(), "/spec/groups/0/rules") {
            let name = text(rule, "/alert");
            assert!(alerts.insert(name.to_owned()), "{name} twice");
            check_alert(name, rule);
        }
    }
    assert!(alerts.len() >= 15, "{alerts:?}");
    let page = std::fs::read_to_string("docs/monitoring.md").unwrap();
    let explained =
        |name: &&String| page.contains(&format!("`{name}`")) || page.contains(&format!("### {name}\n"));
    let silent: Vec<&String> = alerts.iter().filter(|name| !explained(name)).collect();
    assert!(silent.is_empty(), "docs/monitoring.md does not explain {silent:?}");
}

fn check_alert(name: &str, rule: &Value) {
    let expression = text(rule, "/expr");
    check_agent_metrics(name, expression);
    let known = ["mcd_", "machine_config_agent_", "machine_config_controller_", "mcc_"];
    let is_metric = |word: &str| word == "up" || known.iter().any(|prefix| word.starts_with(prefix));
    assert!(words(expression).any(is_metric), "{name}: {expression}");
    assert!(["warning", "critical"].contains(&text(rule, "/labels/severity")), "{name}");
    for field in ["summary", "description"] {
        assert!(text(rule, &format!("/annotations/{field}")).ends_with('.'), "{name}: {field}");
    }
    let runbook = text(rule, "/annotations/runbook_url");
    // A series with a reason leads to the section of that reason: each has one (`docs.rs`), of its name.
    let has_reason = words(expression).any(|word| word == "mcd_state");
    assert_eq!(runbook.ends_with(REASON), has_reason, "{name}: {runbook}");
    check_link(name, &runbook.replace(REASON, "/docs/troubleshoot.md#configdrift"));
}

/// The anchor of the reason of an alert.
const REASON: &str = "/docs/troubleshoot.md#{{ $labels.reason | toLower }}";

/// A link leads to a heading of a document.
fn check_link(name: &str, url: &str) {
    let (_, link) = url.split_once("/blob/main/").unwrap_or_else(|| panic!("{name}: {url}"));
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let document = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{name}: {path}: {error}"));
    let headings = document.lines().filter(|line| line.starts_with('#'));
    let mut anchors =
        headings.map(|line| line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-"));
    assert!(
        anchor.is_empty() || anchors.any(|heading| heading == anchor),
        "{name}: {path} has no heading {anchor}"
    );
}

/// A number on a dashboard says by its color whether it is well, and leads to what to do.
#[test]
fn numbers_of_dashboards_have_thresholds_and_links() {
    for dashboard in dashboards() {
        let panels = each(&dashboard, "/panels");
        let numbers = panels.filter(|panel| {
            let title = text(panel, "/title");
            each(panel, "/links").for_each(|link| check_link(title, text(link, "/url")));
            let is_number = text(panel, "/type") == "stat";
            if is_number {
                check_number(title, panel);
            }
            is_number
        });
        let numbers = numbers.count();
        assert!(numbers >= 6, "{numbers} of {}", text(&dashboard, "/title"));
    }
}

fn check_number(title: &str, panel: &Value) {
    assert_eq!(text(panel, "/fieldConfig/defaults/color/mode"), "thresholds", "{title}");
    assert_eq!(text(panel, "/options/colorMode"), "background", "{title}");
    let steps: Vec<&Value> = each(panel, "/fieldConfig/defaults/thresholds/steps").collect();
    // Grafana takes the first step for all below the second.
    assert!(steps.len() > 1 && steps[0]["value"].is_null(), "{title}: {steps:?}");
    let values: Vec<f64> = steps[1..].iter().map(|step| step["value"].as_f64().unwrap()).collect();
    assert!(values.is_sorted() && steps.iter().all(|step| step["color"].is_string()), "{title}: {steps:?}");
    assert!(each(panel, "/links").next().is_some(), "{title} leads nowhere");
}

/// Returns the dashboards of the controller and of the agents.
fn dashboards() -> [Value; 2] {
    [("controller-monitoring", "machine-config"), ("monitoring", "machine-config-agents")].map(
        |(component, name)| {
            let maps = file(&manifests().join("components").join(component).join("dashboard.yaml"));
            let dashboard = documents(text(&maps[0], &format!("/data/{name}.json")), "dashboard").remove(0);
            assert_eq!(text(&dashboard, "/uid"), name);
            dashboard
        },
    )
}

/// The job that the alerts name is the one that the `PodMonitor` makes, and its port is the Deployment's.
#[test]
fn pods_are_scraped_under_name_in_alerts() {
    let component = |path: &str| file(&manifests().join("components").join(path)).remove(0);
    let monitor = component("controller-monitoring/podmonitor.yaml");
    let deployment = component("controller/deployment.yaml");
    let labels = deployment.pointer("/spec/template/metadata/labels").unwrap();
    assert_eq!(monitor.pointer("/spec/selector/matchLabels"), Some(labels));
    let job = labels.get(text(&monitor, "/spec/jobLabel")).and_then(Value::as_str).unwrap();
    let rules =
        std::fs::read_to_string(manifests().join("components/controller-monitoring/prometheusrule.yaml"));
    assert!(rules.unwrap().contains(&format!("up{{job=\"{job}\"}}")));
    let port = text(&monitor, "/spec/podMetricsEndpoints/0/port");
    let mut ports = each(&deployment, "/spec/template/spec/containers/0/ports");
    assert!(ports.any(|one| text(one, "/name") == port));
}

#[test]
fn dashboards_show_existing_metrics() {
    for dashboard in dashboards() {
        let panels: Vec<&Value> = each(&dashboard, "/panels").collect();
        let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), panels.len(), "ids are unique");
        for panel in panels {
            let title = text(panel, "/title");
            assert!(each(panel, "/targets").count() > 0, "{title}");
            for target in each(panel, "/targets") {
                check_agent_metrics(title, text(target, "/expr"));
            }
            check_place(title, panel, &dashboard);
        }
    }
}

/// No panel hides another one, and each is within the 24 columns.
fn check_place(title: &str, panel: &Value, dashboard: &Value) {
    let place = |panel: &Value| ["x", "y", "w", "h"].map(|name| panel["gridPos"][name].as_u64().unwrap());
    let [x, y, w, h] = place(panel);
    assert!(x + w <= 24, "{title}");
    for other in each(dashboard, "/panels").filter(|other| other["id"] != panel["id"]) {
        let [ox, oy, ow, oh] = place(other);
        let is_beside = x + w <= ox || ox + ow <= x || y + h <= oy || oy + oh <= y;
        assert!(is_beside, "{title} and {}", text(other, "/title"));
    }
}
