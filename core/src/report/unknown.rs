//! A config that a cluster does not know, compared with the one that it has in its place.

use crate::model::policy::DisruptionPolicy;
use crate::model::{Facts, HostSpec};
use crate::plan::{Step, plan};

/// Maximum number of named steps.
const MAX_NAMED: usize = 5;

/// The cut of the text: it stands in a reason.
const MAX_LENGTH: usize = 600;

/// Returns the work from one config to another one, in a line; `None` if there is none: they are the same under two
/// names.
pub fn config_difference(ours: &HostSpec, theirs: &HostSpec) -> Option<String> {
    let theirs = HostSpec { name: ours.name.clone(), ..theirs.clone() };
    let planned = Facts::assumed(ours, &theirs).map_err(|error| error.to_string()).and_then(|facts| {
        plan(ours, &theirs, &facts, &DisruptionPolicy::none()).map_err(|error| error.to_string())
    });
    let text = match planned {
        Ok(plan) if plan.is_empty() => return None,
        Ok(plan) => named(plan.steps()),
        Err(error) => error,
    };
    Some(text.chars().take(MAX_LENGTH).collect())
}

fn named(steps: &[Step]) -> String {
    let line = |step: &Step| format!("{} {}", step.op.as_str(), step.op.target());
    let shown: Vec<String> = steps.iter().take(MAX_NAMED).map(line).collect();
    let more = steps.len().saturating_sub(MAX_NAMED);
    let rest = if more == 0 { String::new() } else { format!("; and {more} more") };
    format!("{}{rest}", shown.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::MachineConfig;
    use serde_json::{Value, json};

    fn spec(name: &str, files: &[(&str, &str)], more: &Value) -> HostSpec {
        let files: Vec<Value> = files
            .iter()
            .map(|(path, text)| json!({ "path": path, "contents": { "source": format!("data:,{text}") } }))
            .collect();
        let mut config = json!({ "kind": "MachineConfig", "metadata": { "name": name },
            "spec": { "config": { "ignition": { "version": "3.4.0" }, "storage": { "files": files } } } });
        config["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        MachineConfig::parse(config.to_string().as_bytes(), name).unwrap().spec(None).unwrap()
    }

    /// BOOT-016: equal content under another name takes nothing; differing content is named, and never shown.
    #[test]
    fn configs_are_compared_by_plan_between_them() {
        let ours = spec("rendered-worker-a", &[("/etc/a", "hidden")], &json!({}));
        assert_eq!(
            config_difference(&ours, &spec("rendered-worker-b", &[("/etc/a", "hidden")], &json!({}))),
            None
        );
        let theirs = spec("rendered-worker-b", &[("/etc/a", "other"), ("/etc/b", "b")], &json!({}));
        let text = config_difference(&ours, &theirs).unwrap();
        assert_eq!(text, "write-file /etc/a; write-file /etc/b");
        let paths: Vec<String> = (0..400).map(|number| format!("/etc/{number}")).collect();
        let many: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "x")).collect();
        let text = config_difference(&ours, &spec("rendered-worker-b", &many, &json!({}))).unwrap();
        assert!(text.contains("more") && text.len() <= MAX_LENGTH, "{text}");
        let text =
            config_difference(&ours, &spec("b", &[("/etc/a", "hidden")], &json!({ "fips": true }))).unwrap();
        assert!(text.contains("spec.fips"), "{text}");
    }
}
