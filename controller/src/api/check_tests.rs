//! Verdicts on objects, against those of the API server's own code.

use serde_json::{Value, json};

use super::*;

/// The first column is what k8s.io/apiextensions-apiserver v0.36.3 says of the object in the second one, with our definitions: the
/// fields that it refuses at a creation (its schema, list and rule validation, after pruning and defaults; the validation of
/// metadata, which gives owners no place), which was run once over the objects. `controllers::definitions` sends them to a whole server.
#[test]
fn verdicts_are_those_of_api_server() {
    let mut refused = 0;
    let table = include_str!("objects.tsv");
    for row in table.lines() {
        let (fields, object) = row.split_once('\t').unwrap();
        let expected: BTreeSet<String> =
            serde_json::from_str::<Vec<String>>(fields).unwrap().into_iter().collect();
        let object: Value = serde_json::from_str(object).unwrap();
        let errors = errors(&object).unwrap();
        let found: BTreeSet<String> = errors.found.iter().map(|(field, _)| field.clone()).collect();
        assert_eq!(found, expected, "{object}: {:?}", errors.found);
        refused += usize::from(!expected.is_empty());
        assert_eq!(check(&object).is_empty(), expected.is_empty(), "{object}");
    }
    assert!(refused >= 60 && table.lines().count() - refused >= 40, "{refused}");
}

/// Calls with each schema outside the status.
fn walk(schema: &Value, path: &str, visit: &mut dyn FnMut(&str, &Value)) {
    visit(path, schema);
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        if !(path.is_empty() && name == "status") {
            walk(inner, &format!("{path}.{name}"), visit);
        }
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            walk(&schema[inner], &format!("{path}[]"), visit);
        }
    }
}

/// A keyword without a function would pass in silence.
#[test]
fn each_keyword_pattern_and_rule_is_known() {
    const KNOWN: [&str; 27] = [
        "additionalProperties",
        "default",
        "description",
        "enum",
        "format",
        "items",
        "maxItems",
        "maxLength",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "nullable",
        "pattern",
        "properties",
        "required",
        "title",
        "type",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-validations",
        "example",
        "externalDocs",
    ];
    for definition in DEFINITIONS.iter() {
        walk(&definition.schema, "", &mut |path, schema| {
            let place = format!("{} {path}", definition.kind);
            for keyword in schema.as_object().unwrap().keys() {
                assert!(KNOWN.contains(&keyword.as_str()), "{place}: {keyword}");
            }
            if let Some(pattern) = schema["pattern"].as_str() {
                assert!(unmatched(pattern, "?").is_some(), "{place}: {pattern}");
            }
            let format = schema["format"].as_str();
            assert!(
                format.is_none_or(|format| ["byte", "int32", "int64"].contains(&format)),
                "{place}: {format:?}"
            );
            for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
                let is_old = rule["rule"].as_str().unwrap().contains("oldSelf");
                assert!(
                    is_old || holds(rule["message"].as_str().unwrap(), &json!("")).is_some(),
                    "{place}: {rule}"
                );
            }
        });
    }
}

#[test]
fn error_names_object_field_cause_and_next_step() {
    let object = json!({ "apiVersion": "machine-config-agent.io/v1alpha1", "kind": "RolloutPolicy",
        "metadata": { "name": "worker" },
        "spec": { "windows": [{ "start": "25:00", "length": "0h" }], "allowedFailures": "101%", "waves": [{ "nodes": 0 }] } });
    let texts: Vec<String> = check(&object).into_iter().map(|found| found.text).collect();
    assert_eq!(
        texts,
        [
            "RolloutPolicy worker: spec.allowedFailures: \"101%\" is neither a number nor a percentage up to 100%; write it as 3 or 10%",
            "RolloutPolicy worker: spec.waves[0]: nodes must be at least 1, or 1%",
            "RolloutPolicy worker: spec.windows[0].start: \"25:00\" is not a time; write it as 22:00",
            "RolloutPolicy worker: spec.windows[0]: length must be 1m to 168h",
        ]
    );
    let pool = |spec: Value| {
        check(
            &json!({ "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "metadata": { "name": "a" },
            "spec": spec }),
        )
    };
    let [error] = &pool(json!({ "paused": "yes" }))[..] else { panic!() };
    assert_eq!(error.field, "spec.paused");
    assert_eq!(
        error.text,
        "MachineConfigPool a: spec.paused: it is a string, and must be of type boolean; correct it"
    );
    assert!(pool(json!({ "paused": true, "other": 1 })).is_empty(), "unknown fields are pruned");
    // Another kind of our group has no definition here.
    assert!(check(&json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": 1 })).is_empty());
}
