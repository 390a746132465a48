//! Ignition's rules: which field an error names, that all are named, and what is read all the same. That the verdicts are Ignition's
//! own is compared in `tests/cli/ignition_rules.rs`.

use machine_config_core::model::{
    HostSpec, MachineConfig, ModelError, NotAppliedReason, check_ignition, drop_stale_digests,
};
use serde_json::{Value, json};

fn document(minor: u32, sections: Value) -> MachineConfig {
    let mut config = json!({"ignition": {"version": format!("3.{minor}.0")}});
    for (name, section) in sections.as_object().unwrap() {
        match config.get_mut(name).and_then(Value::as_object_mut) {
            Some(known) => known.extend(section.as_object().unwrap().clone()),
            None => config[name] = section.clone(),
        }
    }
    let object = json!({"kind": "MachineConfig", "metadata": {"name": "a"}, "spec": {"config": config}});
    MachineConfig::parse(object.to_string().as_bytes(), "a").unwrap()
}

fn read(minor: u32, sections: Value) -> Result<HostSpec, ModelError> {
    document(minor, sections).spec(None)
}

fn refusal(sections: Value) -> String {
    read(5, sections.clone()).map_or_else(|error| error.to_string(), |_| panic!("read: {sections}"))
}

/// Each row: the sections, the field that is named, and a part of cause or next step.
const ROWS: &str = r#"
{"storage": {"raid": [{"name": "md0", "devices": ["/dev/a"]}]}}
storage.raid "md0" level
write one such as raid1
{"storage": {"raid": [{"name": "md0", "level": "raid1"}]}}
storage.raid "md0" devices
list the devices
{"storage": {"raid": [{"name": "md0", "level": "0", "devices": ["/dev/a"], "spares": 1}]}}
storage.raid "md0" level
remove them
{"storage": {"links": [{"path": "/etc/a"}]}}
storage.links "/etc/a" target
give the path that the link leads to
{"storage": {"directories": [{"path": "etc"}]}}
storage.directories "etc"
absolute
{"storage": {"filesystems": [{"device": "/dev/a", "path": "/var"}]}}
storage.filesystems "/dev/a" format
write it
{"storage": {"disks": [{"device": "/dev/a", "partitions": [{"number": 1}, {"number": 1}]}]}}
storage.disks "/dev/a" partitions[1]
keep one
{"storage": {"luks": [{"name": "data", "device": "/dev/a", "clevis": {"tang": [{"url": "http://a"}]}}]}}
storage.luks "data" clevis.tang[0] thumbprint
write the thumbprint
{"storage": {"luks": [{"name": "data", "device": "/dev/a", "keyFile": {"source": "oem:///key"}}]}}
storage.luks "data" keyFile source
data URL
{"storage": {"links": [{"path": "/etc/a", "target": "b"}], "directories": [{"path": "/etc/a"}]}}
storage.links "/etc/a"
keep one
{"storage": {"links": [{"path": "/etc/a", "target": "b"}], "files": [{"path": "/etc/a/c"}]}}
storage.files "/etc/a/c"
move one
{"storage": {"files": [{"path": "/etc/a"}], "directories": [{"path": "/etc/a/c"}]}}
storage.directories "/etc/a/c"
move one
{"storage": {"files": [{"path": "/etc/a", "user": {"id": 1, "name": "b"}}]}}
storage.files "/etc/a" user
keep one
{"storage": {"files": [{"path": "/etc/a", "overwrite": true}]}}
storage.files "/etc/a" overwrite
`data:,`
{"storage": {"files": [{"path": "/etc/a", "contents": {"source": "data:,", "verification": {"hash": "sha512-00"}}}]}}
storage.files "/etc/a" contents
hex digits
{"systemd": {"units": [{"name": "a.service", "contents": "[Unit]\nDescription\n"}]}}
systemd.units "a.service" contents
line 2: an option has no `=`
{"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["a", "a"]}]}}
passwd.users "core" sshAuthorizedKeys[1]
keep one
{"kernelArguments": {"shouldExist": ["a"], "shouldNotExist": ["a"]}}
kernelArguments "a"
keep one
{"ignition": {"proxy": {"httpProxy": "proxy:3128"}}}
ignition.proxy.httpProxy
http or https
{"ignition": {"config": {"merge": [{"source": "data:,"}]}}}
ignition.config.merge
merge them into one
{"ignition": {"config": {"replace": {"source": "http://a"}}}}
ignition.config.replace
merge them into one
"#;

#[test]
fn broken_rules_name_field_cause_and_next_step() {
    let lines: Vec<&str> = ROWS.trim().lines().collect();
    for row in lines.chunks(3) {
        let error = refusal(serde_json::from_str(row[0]).unwrap());
        let begin = format!("{} in MachineConfig a: ", row[1]);
        assert!(error.starts_with(&begin) && error.contains(row[2]), "{row:?}: {error}");
    }
    assert_eq!(lines.len(), 63);
}

#[test]
fn every_violation_is_named_in_order() {
    let sections = json!({"storage": {"raid": [{"name": "md0"}, {"name": "md1", "level": "x", "devices": ["a"]}],
        "files": [{"path": "/etc/a", "mode": 0o4755}], "links": [{"path": "/etc/b"}]}});
    let error = refusal(sections.clone());
    // What the reader finds comes first.
    let named = [
        "storage.files \"/etc/a\" mode in",
        "also storage.links \"/etc/b\" target:",
        "\"md0\" level",
        "\"md0\" devices",
        "\"md1\" level",
        "\"md1\" devices",
    ];
    let places: Vec<usize> =
        named.iter().map(|name| error.find(name).unwrap_or_else(|| panic!("{name}: {error}"))).collect();
    assert!(places.is_sorted(), "{error}");
    assert_eq!(error, refusal(sections));
    let many: Vec<Value> = (0..100).map(|number| json!({"path": format!("/etc/{number}")})).collect();
    assert!(refusal(json!({"storage": {"links": many}})).ends_with("; and 79 more"));
}

#[test]
fn rules_follow_version() {
    let hash = json!({"storage": {"files": [{"path": "/etc/a", "contents": {"source": "data:,", "verification": {"hash":
        "sha256-e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}}}]}});
    let luks = json!({"storage": {"luks": [{"name": "a/b"}]}});
    let pin = json!({"storage": {"luks": [{"name": "a", "device": "/dev/a", "clevis": {"custom": {"pin": "own", "config": "x"}}}]}});
    for (sections, refused) in [(hash, 0..=0), (luks, 2..=6), (pin, 2..=5)] {
        for minor in 0..=6 {
            assert_eq!(
                read(minor, sections.clone()).is_err(),
                refused.contains(&minor),
                "3.{minor}: {sections}"
            );
        }
    }
}

/// A host that was given such a config by an earlier agent has to be able to leave it.
#[test]
fn committed_config_is_read_without_rules() {
    let broken = document(5, json!({"storage": {"raid": [{"name": "md0"}], "luks": [{"name": "a/b"}]}}));
    assert!(broken.spec(None).is_err());
    assert_eq!(broken.committed_spec(None).unwrap().fixed.sections.len(), 2);
    let object = json!({"metadata": {"name": "a"}, "spec": {"kernelType": "fast", "extensions": ["cowsay"]}});
    let config = MachineConfig::parse(object.to_string().as_bytes(), "a").unwrap();
    assert!(config.spec(None).is_err() && config.committed_spec(None).is_ok());
}

#[test]
fn installation_sections_and_stale_digests_are_named() {
    let spec = read(5, json!({
        "ignition": {"proxy": {"httpProxy": "http://a"}, "timeouts": {"httpTotal": 1}, "security": {"tls": {"certificateAuthorities": [{"source": "data:,a"}]}}},
        "storage": {"files": [{"path": "/etc/a", "contents": {"source": "data:,b", "verification": {"hash": format!("sha256-{}", "0".repeat(64))}}}]},
    }))
    .unwrap();
    let named: Vec<(&str, NotAppliedReason)> =
        spec.remarks.iter().map(|remark| (remark.field.as_str(), remark.because)).collect();
    assert_eq!(
        named,
        [
            ("ignition.proxy", NotAppliedReason::Installation),
            ("ignition.security", NotAppliedReason::Installation),
            ("ignition.timeouts", NotAppliedReason::Installation),
            ("storage.files \"/etc/a\" contents.verification.hash", NotAppliedReason::Stale),
        ]
    );
    assert_eq!(spec.files.values().next().unwrap().contents.bytes(), b"b");
    let empty = json!({"ignition": {"proxy": {}, "security": {}, "timeouts": {}, "config": {"merge": [], "replace": {"verification": {}}}}});
    assert_eq!(read(5, empty).unwrap().remarks, []);
}

#[test]
fn stale_digest_leaves_tree_and_valid_one_stays() {
    let contents = |text: &str| {
        json!({"source": format!("data:,{text}"), "compression": "", "verification": {"hash":
        "sha256-ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"}})
    };
    let mut config = json!({"storage": {"files": [{"path": "/etc/a", "contents": contents("a")}, {"path": "/etc/b", "contents": contents("b")}]}});
    let dropped = drop_stale_digests(&mut config);
    assert_eq!(
        dropped.iter().map(|one| one.field.as_str()).collect::<Vec<_>>(),
        ["storage.files \"/etc/b\" contents.verification.hash"]
    );
    assert_eq!(config["storage"]["files"][0]["contents"], contents("a"));
    assert_eq!(config["storage"]["files"][1]["contents"], json!({"source": "data:,b", "compression": ""}));
    assert_eq!(drop_stale_digests(&mut config), []);
}

/// A hostile document costs no more than its size.
#[test]
fn large_lists_are_checked_in_one_pass() {
    let path = format!("/{}", "a/".repeat(200_000));
    let partitions: Vec<Value> =
        (1..50_000).map(|number| json!({"number": number, "startMiB": number, "sizeMiB": 1})).collect();
    let links: Vec<Value> = (0..20_000)
        .map(|number| json!({"path": format!("/etc/{number}"), "target": "/a", "hard": true}))
        .collect();
    let config = json!({"ignition": {"version": "3.5.0"}, "storage": {"directories": [{"path": path}], "links": links,
        "disks": [{"device": "/dev/a", "partitions": partitions}]}});
    let name = machine_config_core::model::ConfigName::new("a").unwrap();
    let error = check_ignition(&name, config.as_object().unwrap()).unwrap_err().to_string();
    assert!(error.contains("longer than 4095 bytes") && !error.contains("also"), "{error}");
}
