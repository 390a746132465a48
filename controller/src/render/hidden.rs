//! Which MachineConfigs have something that a later one replaces: what is wrong with it is not in the whole any more, and still is
//! refused, as by the Machine Config Operator.

use std::collections::HashSet;

use serde_json::{Map, Value};

/// Lists whose items are merged: section, list, key, and the name of what shares its keys.
const LISTS: [(&str, &str, &str, &str); 10] = [
    ("passwd", "groups", "name", "group"),
    ("passwd", "users", "name", "user"),
    ("storage", "directories", "path", "path"),
    ("storage", "disks", "device", "disk"),
    ("storage", "files", "path", "path"),
    ("storage", "filesystems", "device", "filesystem"),
    ("storage", "links", "path", "path"),
    ("storage", "luks", "name", "luks"),
    ("storage", "raid", "name", "raid"),
    ("systemd", "units", "name", "unit"),
];

/// Sections that are merged as a whole.
const WHOLE: [&str; 2] = ["ignition", "kernelArguments"];

/// Returns the places of the configs of which a later one may hide something.
pub(super) fn hidden(parts: &[&Map<String, Value>]) -> Vec<usize> {
    let mut later = HashSet::new();
    let mut found = Vec::new();
    for (place, part) in parts.iter().enumerate().rev() {
        let keys: Vec<(&str, &str)> = keys(part).collect();
        if keys.iter().any(|key| later.contains(key)) {
            found.push(place);
        }
        later.extend(keys);
    }
    found.reverse();
    found
}

fn keys(part: &Map<String, Value>) -> impl Iterator<Item = (&'static str, &str)> {
    let items = LISTS.into_iter().flat_map(|(section, list, key, shared)| {
        let items = part.get(section).and_then(|section| section.get(list)).and_then(Value::as_array);
        items.into_iter().flatten().filter_map(move |item| Some((shared, item.get(key)?.as_str()?)))
    });
    // `ignition` has its version always.
    let whole = WHOLE.into_iter().filter(|name| {
        part.get(*name)
            .and_then(Value::as_object)
            .is_some_and(|section| section.keys().any(|key| key != "version"))
    });
    items.chain(whole.map(|name| (name, "")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn earlier_config_of_same_path_may_be_hidden() {
        let configs = [
            json!({ "ignition": { "version": "3.2.0" }, "storage": { "files": [{ "path": "/a" }] } }),
            json!({ "ignition": { "version": "3.2.0" }, "systemd": { "units": [{ "name": "a.service" }] } }),
            json!({ "ignition": { "version": "3.2.0" }, "storage": { "links": [{ "path": "/a" }] } }),
            json!({ "ignition": { "version": "3.2.0" }, "passwd": { "users": [{ "name": "a.service" }] } }),
        ];
        let parts: Vec<&Map<String, Value>> =
            configs.iter().map(|config| config.as_object().unwrap()).collect();
        assert_eq!(hidden(&parts), [0]);
        assert_eq!(hidden(&[parts[1], parts[1], parts[1]]), [0, 1]);
        assert!(hidden(&parts[1..]).is_empty());
    }
}
