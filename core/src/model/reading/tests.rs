//! Fields that are not known, wrong ones, and those of newer versions: found in one pass, and named.

use ignition_config::{v3_0, v3_1, v3_2, v3_3, v3_4, v3_5, v3_6};
use serde_json::json;

use super::*;

#[derive(Debug, Deserialize, PartialEq)]
struct Outer {
    #[serde(default)]
    items: Vec<Inner>,
    #[serde(default)]
    map: std::collections::BTreeMap<String, Option<Inner>>,
}

#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
struct Inner {
    #[serde(default)]
    kernel_arguments: Option<Vec<String>>,
}

fn unknown(tree: &Value) -> Vec<String> {
    let text = tree.to_string();
    let of_text: Found<Outer> = from_text(&text).unwrap();
    let of_tree: Found<Outer> = from_tree(tree).unwrap();
    assert_eq!((&of_text.value, &of_text.unknown), (&of_tree.value, &of_tree.unknown), "{tree}");
    of_text.unknown.iter().map(ToString::to_string).collect()
}

#[test]
fn unknown_fields_are_named_with_their_place_and_what_was_meant() {
    assert_eq!(unknown(&json!({"items": [{"kernelArguments": ["a"]}], "map": {"any": null}})), [""; 0]);
    assert_eq!(
        unknown(
            &json!({"item": 5, "items": [{}, {"kernelArgs": []}], "map": {"a b": {"whatever": {"x": [1]}}}})
        ),
        [
            "item: there is no such field (did you mean items?)",
            "items[1].kernelArgs: there is no such field (did you mean kernelArguments?)",
            "map.\"a b\".whatever: there is no such field",
        ]
    );
    let flood: serde_json::Map<String, Value> = (0..1000).map(|at| (format!("x{at}"), Value::Null)).collect();
    assert_eq!(unknown(&Value::Object(flood)).len(), 32);
}

#[derive(Debug, Deserialize)]
struct Needs {
    below: Vec<Below>,
}

#[derive(Debug, Deserialize)]
struct Below {
    path: String,
}

#[test]
fn errors_name_their_field() {
    let field = |tree: Value| from_text::<Outer>(&tree.to_string()).unwrap_err().field;
    assert_eq!(field(json!({"items": [{}, {"kernelArguments": [1]}]})), "items[1].kernelArguments[0]");
    assert_eq!(field(json!({"map": 1})), "map");
    assert_eq!(field(json!(1)), "");
    assert_eq!(from_text::<Needs>(r#"{"below": [{}]}"#).unwrap_err().field, "below[0].path");
    let broken = from_text::<Outer>("{\"items\": [").unwrap_err();
    assert!(broken.field.is_empty() && !broken.is_data());
}

#[test]
fn refusal_names_first_field_and_others() {
    let tree = json!({"item": 1, "maps": 2});
    let found: Found<Outer> = from_tree(&tree).unwrap();
    let error = refuse_unknown(&found.unknown, "f").unwrap_err();
    assert_eq!(error.field(), Some("item"));
    let text = error.to_string();
    assert!(
        text.contains("items?") && text.contains("maps: ") && text.contains("--allow-unknown-fields"),
        "{text}"
    );
    assert_eq!(refuse_unknown(&[], "f"), Ok(()));
}

/// Everything that a config can have, with each field.
fn whole() -> Value {
    let resource = json!({"compression": "gzip", "httpHeaders": [{"name": "a", "value": "b"}], "source": "data:,",
        "verification": {"hash": "sha256-0"}});
    let node = json!({"id": 1, "name": "a"});
    json!({
        "ignition": {
            "config": {"merge": [resource], "replace": resource},
            "proxy": {"httpProxy": "a", "httpsProxy": "a", "noProxy": ["a"]},
            "security": {"tls": {"certificateAuthorities": [resource]}},
            "timeouts": {"httpResponseHeaders": 1, "httpTotal": 1},
        },
        "kernelArguments": {"shouldExist": ["a"], "shouldNotExist": ["b"]},
        "passwd": {
            "groups": [{"gid": 1, "name": "a", "passwordHash": "a", "shouldExist": true, "system": true}],
            "users": [{"gecos": "a", "groups": ["a"], "homeDir": "a", "name": "a", "noCreateHome": true,
                "noLogInit": true, "noUserGroup": true, "passwordHash": "a", "primaryGroup": "a", "shell": "a",
                "shouldExist": true, "sshAuthorizedKeys": ["a"], "system": true, "uid": 1}],
        },
        "storage": {
            "directories": [{"group": node, "mode": 1, "overwrite": true, "path": "/a", "user": node}],
            "disks": [{"device": "/a", "wipeTable": true, "partitions": [{"guid": "a", "label": "a", "number": 1,
                "resize": true, "shouldExist": true, "sizeMiB": 1, "startMiB": 1, "typeGuid": "a",
                "wipePartitionEntry": true}]}],
            "files": [{"append": [resource], "contents": resource, "group": node, "mode": 1, "overwrite": true,
                "path": "/a", "user": node}],
            "filesystems": [{"device": "/a", "format": "a", "label": "a", "mountOptions": ["a"], "options": ["a"],
                "path": "/a", "uuid": "a", "wipeFilesystem": true}],
            "links": [{"group": node, "hard": true, "overwrite": true, "path": "/a", "target": "a", "user": node}],
            "luks": [{"cex": {"enabled": true}, "clevis": {"custom": {"config": "a", "needsNetwork": true, "pin": "a"},
                "tang": [{"advertisement": "a", "thumbprint": "a", "url": "a"}], "threshold": 1, "tpm2": true},
                "device": "/a", "discard": true, "keyFile": resource, "label": "a", "name": "a", "openOptions": ["a"],
                "options": ["a"], "uuid": "a", "wipeVolume": true}],
            "raid": [{"devices": ["/a"], "level": "a", "name": "a", "options": ["a"], "spares": 1}],
        },
        "systemd": {"units": [{"contents": "a", "dropins": [{"contents": "a", "name": "a"}], "enabled": true,
            "mask": true, "name": "a"}]},
    })
}

fn unknown_to<T: serde::de::DeserializeOwned>(config: &Value) -> Vec<String> {
    from_tree::<T>(config).unwrap().unknown.into_iter().map(|remark| remark.field).collect()
}

/// The table of versions is what the types of each version say.
#[test]
fn newer_fields_are_those_that_types_of_version_lack() {
    let readers: [fn(&Value) -> Vec<String>; 7] = [
        unknown_to::<v3_0::Config>,
        unknown_to::<v3_1::Config>,
        unknown_to::<v3_2::Config>,
        unknown_to::<v3_3::Config>,
        unknown_to::<v3_4::Config>,
        unknown_to::<v3_5::Config>,
        unknown_to::<v3_6::Config>,
    ];
    for (minor, reader) in readers.iter().enumerate() {
        let mut config = whole();
        config["ignition"]["version"] = format!("3.{minor}.0").into();
        let mut expected = reader(&config);
        let newest: Found<v3_6::Config> = from_tree(&config).unwrap();
        let mut found: Vec<String> = newer(&newest.value).into_iter().map(|remark| remark.field).collect();
        expected.sort();
        found.sort();
        assert_eq!(found, expected, "3.{minor}.0");
        assert!(minor < 5 || found.is_empty());
    }
}

/// A reading goes on behind each wrong value; entries are named by their places in the document.
#[test]
fn reading_goes_on_behind_wrong_values() {
    let text = r#"{"items": [5, {"kernelArguments": "x"}, {"kernelArgs": 1, "kernelArguments": [1, "a", 2]}], "map": {"a": {}, "a": {}}}"#;
    let read = mended_text::<Outer>(text);
    let fields: Vec<&str> = read.faults.iter().map(|fault| fault.field.as_str()).collect();
    let expected = [
        "items[0]",
        "items[1].kernelArguments",
        "items[2].kernelArguments[0]",
        "items[2].kernelArguments[2]",
    ];
    assert_eq!(fields, expected);
    assert_eq!(read.unknown.iter().map(|one| &*one.field).collect::<Vec<_>>(), ["items[2].kernelArgs"]);
    assert_eq!(read.explain("items[1].x: wrong"), "items[2].x: wrong");
    assert!(read.is_told("items[0]") && !read.is_told("items"));
    let value = read.value.unwrap();
    assert_eq!(value.items[1].kernel_arguments, Some(vec!["a".to_owned()]));
    // What has to be there gets a stand-in, which no text shows.
    let read = mended_text::<Needs>(r#"{"below": [{"path": "a"}, {}, {"path": null}]}"#);
    let fields: Vec<&str> = read.faults.iter().map(|fault| fault.field.as_str()).collect();
    assert_eq!(fields, ["below[1].path", "below[2].path"]);
    let name = &read.value.as_ref().unwrap().below[1].path;
    assert_eq!(
        read.explain(&format!("below {name:?} mode: {name} is wrong")),
        "below[1] mode: below[1] is wrong"
    );
    let twice = mended_text::<Needs>(r#"{"below": [], "below": [{}]}"#);
    assert_eq!((twice.faults.len(), twice.value.is_some()), (1, true));
    // Too much is wrong, or the text itself.
    assert!(mended_text::<Outer>("5").value.is_none() && mended_text::<Outer>("{").value.is_none());
    let flood = format!(r#"{{"items": [{}]}}"#, vec!["1"; 1000].join(","));
    let read = mended_text::<Outer>(&flood);
    assert!(read.value.is_none() && read.faults.len() <= 2 * crate::model::faults::MAX_FAULTS);
}
