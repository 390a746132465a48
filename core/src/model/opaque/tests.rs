//! Configs that machine-config-daemon, or an earlier agent, may have applied: whatever can be read of them is.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{HostSpec, MachineConfig, NotAppliedReason};
use super::STAYS;

fn parsed(spec: &Value) -> MachineConfig {
    let object = json!({ "metadata": { "name": "rendered-a" }, "spec": spec });
    MachineConfig::parse_applied(object.to_string().as_bytes(), "currentconfig").unwrap()
}

fn file(path: &str, text: &str) -> Value {
    json!({ "path": path, "mode": 420, "contents": { "source": format!("data:,{text}") } })
}

fn with_files(files: &[Value]) -> Value {
    json!({ "config": { "ignition": { "version": "3.2.0" }, "storage": { "files": files } } })
}

fn fields(spec: &HostSpec) -> Vec<&str> {
    spec.opaque().map(|remark| remark.field.as_str()).collect()
}

fn paths(spec: &HostSpec) -> Vec<&str> {
    spec.files.keys().map(super::super::ManagedPath::as_str).collect()
}

/// A config with a good file, a good unit and another one.
fn with_unit(unit: Value) -> Value {
    let units = [
        unit,
        json!({ "name": "good.service", "enabled": true, "contents": "[Service]\nExecStart=/bin/true\n" }),
    ];
    let mut spec = with_files(&[file("/etc/good", "a")]);
    spec["config"]["systemd"] = json!({ "units": units });
    spec
}

/// Specs with one entry that the strict reading refuses, and the fields of it.
fn refused_entries() -> Vec<(Value, Vec<&'static str>)> {
    let good = || file("/etc/good", "a");
    let append = json!({ "path": "/etc/log", "append": [{ "source": "data:,x" }] });
    let remote = json!({ "path": "/etc/far", "contents": { "source": "https://a.test/x" } });
    let setuid = json!({ "path": "/usr/local/bin/su", "mode": 2541, "contents": { "source": "data:,x" } });
    let unit = with_unit;
    let beside = |key: &str, value: Value| {
        let mut spec = with_files(&[good()]);
        spec[key] = value;
        spec
    };
    let in_config = |section: &str, value: Value| {
        let mut spec = with_files(&[good()]);
        spec["config"][section] = value;
        spec
    };
    vec![
        (with_files(&[append, good()]), vec!["storage.files \"/etc/log\" append"]),
        (with_files(&[good(), remote]), vec!["storage.files \"/etc/far\" contents"]),
        (with_files(&[setuid, good()]), vec!["storage.files \"/usr/local/bin/su\" mode"]),
        (with_files(&[file("relative", "a"), good()]), vec!["storage.files \"relative\""]),
        (with_files(&[json!("no object"), good()]), vec!["storage.files[0]"]),
        (beside("osImageURL", json!("quay.io/os:latest")), vec!["spec.osImageURL"]),
        (beside("kernelArguments", json!(["a", "b=\"open"])), vec!["spec.kernelArguments \"b=\\\"open\""]),
        (beside("extensions", json!(["usbguard", "Not One"])), vec!["spec.extensions \"Not One\""]),
        (beside("fips", json!("yes")), vec!["spec.fips"]),
        (
            unit(json!({ "name": "a.service", "enabled": true, "mask": true })),
            vec!["systemd.units \"a.service\""],
        ),
        (unit(json!({ "name": "no unit" })), vec!["systemd.units \"no unit\""]),
        (
            unit(json!({ "name": "b.service", "dropins": [{ "name": "../x.conf", "contents": "[Unit]\n" },
                { "name": "ok.conf", "contents": "[Unit]\n" }] })),
            vec!["systemd.units \"b.service\" dropins \"../x.conf\""],
        ),
        (in_config("storage", json!({ "disks": ["none"], "files": [good()] })), vec!["storage.disks[0]"]),
        (
            in_config("passwd", json!({ "users": [{ "name": "core", "passwordHash": "a:b" }] })),
            vec!["passwd.users \"core\" passwordHash"],
        ),
    ]
}

/// Everything that MCD's code could have committed and the strict reading refuses: the entry is named, the rest is kept.
#[test]
fn refused_entry_is_named_and_rest_is_kept() {
    for (spec, named) in refused_entries() {
        let config = parsed(&spec);
        config.spec(None).unwrap_err();
        let read = config.known_spec(None);
        assert_eq!(fields(&read), named, "{spec}: {:?}", read.remarks);
        assert!(
            read.is_opaque()
                && read.files.contains_key(&super::super::ManagedPath::new("/etc/good").unwrap()),
            "{spec}"
        );
        assert!(read.remarks.iter().all(|remark| remark.because == NotAppliedReason::OpaqueOrigin));
        assert!(
            read.remarks.iter().all(|remark| remark.message.contains("stays on the host")),
            "{:?}",
            read.remarks
        );
    }
    let read = parsed(&with_unit(
        json!({ "name": "b.service", "dropins": [{ "name": "../x.conf", "contents": "[Unit]\n" },
        { "name": "ok.conf", "contents": "[Unit]\n" }] }),
    ))
    .known_spec(None);
    assert_eq!(read.units.len(), 2);
    assert_eq!(read.units.values().map(|unit| unit.dropins.len()).sum::<usize>(), 1);
}

/// Nobody knows which of them the host has: neither is compared, nor is anything else of the same path.
#[test]
fn entries_in_conflict_are_both_left_out() {
    let spec =
        with_files(&[file("/etc/a", "1"), file("/etc/good", "a"), file("/etc/a", "2"), file("/etc/a", "3")]);
    let read = parsed(&spec).known_spec(None);
    assert_eq!(paths(&read), ["/etc/good"]);
    assert_eq!(fields(&read), ["storage.files \"/etc/a\""; 3]);

    let spec = with_files(&[file("/etc/a", "1"), file("/etc/good", "a"), file("/etc/a/b", "2")]);
    assert_eq!(paths(&parsed(&spec).known_spec(None)), ["/etc/good"]);

    let append = json!({ "path": "/etc/a", "append": [{ "source": "data:,x" }] });
    let read = parsed(&with_files(&[file("/etc/a", "1"), append])).known_spec(None);
    assert_eq!((paths(&read).len(), read.remarks.len()), (0, 2));

    let unit = json!({ "name": "a.service", "enabled": true, "mask": true });
    let mut spec = with_files(&[file("/etc/systemd/system/a.service", "x"), file("/etc/good", "a")]);
    spec["config"]["systemd"] = json!({ "units": [unit] });
    assert_eq!(paths(&parsed(&spec).known_spec(None)), ["/etc/good"]);
}

/// The keys of all users are one account's: part of them would be drift.
#[test]
fn refused_user_leaves_all_users_out() {
    let users = json!([{ "name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA a"] }, { "name": "core", "passwordHash": "x" }]);
    let spec = json!({ "config": { "ignition": { "version": "3.2.0" }, "passwd": { "users": users } } });
    let read = parsed(&spec).known_spec(None);
    assert_eq!((read.users, read.remarks.len()), (super::super::users::Users::default(), 2));
}

/// MCD of the time of Ignition 2 committed it as it was given.
#[test]
fn other_version_is_read_where_fields_mean_the_same() {
    let spec = json!({ "kernelArguments": ["a"], "config": { "ignition": { "version": "2.2.0", "config": {}, "security": { "tls": {} } },
        "networkd": {}, "storage": { "disks": [{ "device": "/dev/sda", "wipeTable": true }],
            "files": [{ "filesystem": "root", "path": "/etc/a", "mode": 420, "contents": { "source": "data:,a", "verification": {} } },
                { "filesystem": "root", "path": "/etc/b", "append": true }] },
        "systemd": { "units": [{ "name": "a.service", "enabled": true, "contents": "[Unit]\n" }] } } });
    let read = parsed(&spec).known_spec(None);
    assert_eq!((paths(&read), read.units.len(), read.kargs.len()), (vec!["/etc/a"], 1, 1));
    assert!(read.fixed.sections.is_empty() && read.is_opaque_in("storage.disks"), "{:?}", read.fixed);
    let version = read.opaque().find(|remark| remark.field == "spec.config.ignition.version").unwrap();
    assert!(version.message.contains("2.2.0"), "{}", version.message);
    // What is read of it is removed as that of any config.
    let words = ["files, units and users are read", "removed with their entries"];
    assert!(words.iter().all(|word| version.message.contains(word)), "{}", version.message);
    assert!(!version.message.contains(STAYS), "{}", version.message);
    assert!(read.is_opaque_in("storage.files \"/etc/b\""));
}

#[test]
fn unreadable_whole_is_one_remark() {
    let deep: Value = json!({ "config": { "ignition": { "version": "1" } }, "x": "[".repeat(3) });
    let text = json!({ "metadata": { "name": "a" }, "spec": deep })
        .to_string()
        .replace("\"[[[\"", &format!("{}{}", "[".repeat(300), "]".repeat(300)));
    for text in [text.as_str(), r#"{"metadata":{"name":"a"},"spec":"top-secret"}"#] {
        let read = MachineConfig::parse_applied(text.as_bytes(), "x").unwrap().known_spec(None);
        assert_eq!(fields(&read), ["spec"], "{text}");
        assert!(read.is_opaque_in("storage.disks") && !format!("{:?}", read.remarks).contains("secret"));
    }
}

/// An entry of a config: good, or broken in some way.
fn entry() -> impl Strategy<Value = (String, Value)> {
    let path = prop_oneof![Just("/etc/a"), Just("/etc/a/b"), Just("/etc/c"), Just("relative"), Just("")];
    let source = prop_oneof![Just("data:,x"), Just("https://a.test"), Just("data:;base64,?"), Just("")];
    let mode = prop_oneof![
        Just(json!(420)),
        Just(json!(2541)),
        Just(json!(-1)),
        Just(json!("0644")),
        Just(Value::Null)
    ];
    let files = (path, source, mode).prop_map(|(path, source, mode)| {
        ("storage.files".to_owned(), json!({ "path": path, "mode": mode, "contents": { "source": source } }))
    });
    let name = prop_oneof![Just("a.service"), Just("b.socket"), Just("none"), Just("../a.service")];
    let flag = || prop_oneof![Just(json!(true)), Just(json!(false)), Just(Value::Null), Just(json!("yes"))];
    let dropin = prop_oneof![Just("10.conf"), Just("x"), Just("../10.conf")];
    let units = (name, flag(), flag(), proptest::collection::vec(dropin, 0..3)).prop_map(
        |(name, enabled, mask, dropins)| {
            let dropins: Vec<_> =
                dropins.iter().map(|name| json!({ "name": name, "contents": "[Unit]\n" })).collect();
            (
                "systemd.units".to_owned(),
                json!({ "name": name, "enabled": enabled, "mask": mask, "dropins": dropins }),
            )
        },
    );
    let users = prop_oneof![
        Just(json!({ "name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA a"] })),
        Just(json!({ "name": "core", "passwordHash": "a:b" })),
        Just(json!({ "name": "other", "uid": "x" })),
        Just(json!(7)),
    ];
    let others = prop_oneof![
        Just("storage.disks"),
        Just("storage.luks"),
        Just("storage.links"),
        Just("passwd.groups"),
        Just("kernelArguments.shouldExist"),
    ];
    let values = prop_oneof![
        Just(json!({ "device": "/dev/sda" })),
        Just(json!({ "path": "/etc/a", "target": "b" })),
        Just(json!("x")),
        Just(json!([1]))
    ];
    prop_oneof![
        4 => files,
        2 => units,
        1 => users.prop_map(|user| ("passwd.users".to_owned(), user)),
        1 => (others, values).prop_map(|(section, value)| (section.to_owned(), value)),
    ]
}

fn document() -> impl Strategy<Value = Value> {
    let version = prop_oneof![6 => Just(json!("3.4.0")), 1 => Just(json!("2.2.0")), 1 => Just(json!("9.9.0")), 1 => Just(Value::Null), 1 => Just(json!(3))];
    let beside = proptest::collection::vec(
        prop_oneof![
            Just(("osImageURL", json!("quay.io/os:tag"))),
            Just(("kernelType", json!("fast"))),
            Just(("kernelType", json!(1))),
            Just(("kernelArguments", json!(["a", "\""]))),
            Just(("kernelArguments", json!("a"))),
            Just(("fips", json!("x"))),
            Just(("extensions", json!(["a", "A B"]))),
            Just(("unheard", json!({ "of": [] }))),
            Just(("baseOSExtensionsContainerImage", json!(""))),
        ],
        0..3,
    );
    (version, proptest::collection::vec(entry(), 0..8), beside).prop_map(|(version, entries, beside)| {
        let mut config = json!({ "ignition": { "version": version } });
        for (section, entry) in entries {
            let (outer, inner) = section.split_once('.').unwrap();
            if config.get(outer).is_none() {
                config[outer] = json!({});
            }
            let list = &mut config[outer][inner];
            match list.as_array_mut() {
                Some(list) => list.push(entry),
                None => *list = json!([entry]),
            }
        }
        let mut spec = json!({ "config": config });
        for (key, value) in beside {
            spec[key] = value;
        }
        spec
    })
}

/// A unit that is left out for another of its name takes its drop-ins with it: the unit before it has a drop-in of that name, too.
#[test]
fn unit_that_is_left_out_takes_its_drop_ins_along() {
    let unit = |name: &str, enabled: Value, dropin: &str| {
        let dropins = [json!({ "name": dropin, "contents": "[Unit]\n" })];
        json!({ "name": name, "enabled": enabled, "dropins": dropins })
    };
    for dropin in ["10.conf", "20.conf"] {
        let units = [
            json!({ "name": "a.service", "enabled": "yes" }),
            unit("b.socket", json!(true), "10.conf"),
            unit("a.service", json!(true), dropin),
        ];
        let config = json!({ "ignition": { "version": "3.4.0" }, "systemd": { "units": units } });
        let read = parsed(&json!({ "config": config })).known_spec(None);
        let units: Vec<_> =
            read.units.iter().map(|(name, unit)| (name.as_str(), unit.dropins.len())).collect();
        assert_eq!(units, [("b.socket", 1)], "{:?}", read.remarks);
        let fields: Vec<&str> = read.opaque().map(|remark| &*remark.field).collect();
        assert_eq!(fields.len(), 3, "{fields:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The lenient reading never fails, is the strict one where that accepts the config, and names something where it does not.
    #[test]
    fn any_config_is_read_and_valid_one_as_by_strict_reading(spec in document()) {
        let config = parsed(&spec);
        let read = config.known_spec(None);
        if let Ok(strict) = config.spec(None) {
            prop_assert_eq!(read, strict);
        } else {
            prop_assert!(read.is_opaque());
            let unread = read.opaque().any(|remark| remark.field == "spec");
            prop_assert!(!unread, "{:?}", read.remarks);
        }
    }
}
