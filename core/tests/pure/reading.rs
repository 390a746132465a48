//! Fields that are read from a `MachineConfig` and from a disruption policy, and the errors of those that are refused.

use crate::model_host;
use machine_config_core::model::disruption::Action;
use machine_config_core::model::units::{Enablement, Mask};
use machine_config_core::model::{
    DisruptionPolicy, HostSpec, MachineConfig, ManagedPath, ModelError, UnitName,
};
use serde_json::{Value, json};

fn read(sections: Value) -> Result<HostSpec, ModelError> {
    model_host::config("rendered-a", sections).spec(None)
}

fn refusal(sections: Value) -> String {
    read(sections.clone()).map_or_else(|error| error.to_string(), |_| panic!("read: {sections}"))
}

fn unit(name: &str) -> UnitName {
    UnitName::new(name).unwrap()
}

/// MCD-093: a version that is not supported is refused before anything else of the config is read.
#[test]
fn versions_are_checked_first() {
    let with = |ignition: Value| {
        let document = json!({"metadata": {"name": "a"}, "spec": {"config": ignition}});
        MachineConfig::parse(document.to_string().as_bytes(), "x")
            .unwrap()
            .spec(None)
            .map_err(|error| error.to_string())
    };
    for minor in 0..=6 {
        assert!(with(json!({"ignition": {"version": format!("3.{minor}.0")}})).is_ok(), "3.{minor}.0");
    }
    assert!(with(json!({})).is_ok() && with(Value::Null).is_ok());
    for version in [json!("2.2.0"), json!("3.7.0"), json!("3.6.0-experimental")] {
        let error = with(json!({"ignition": {"version": version}, "storage": 7})).unwrap_err();
        assert!(error.contains("ignition.version") && error.contains("3.0.0 to 3.6.0"), "{error}");
        assert!(!error.contains("storage"), "its fields may be others: {error}");
    }
    // One without a version is read on: each fault is told.
    let error = with(json!({"ignition": {"version": null}, "storage": 7})).unwrap_err();
    assert!(error.contains("ignition.version: it is null") && error.contains("config.storage"), "{error}");
}

/// MCD-120 (a null source is an empty file), MCD-122 (mode 0644), MCD-124 (ids and names), MCD-157 (the keys of
/// core, one a line), MCD-161 (no password is `*`).
#[test]
fn entries_become_spec() {
    let spec = read(json!({
        "files": [
            {"path": "/etc/a", "mode": 384, "user": {"name": "core"}, "group": {"id": 7},
             "contents": {"source": "data:,hi"}},
            {"path": "/etc/empty", "contents": {"source": null}},
            {"path": "/etc/none"},
        ],
        "units": [
            {"name": "a.service", "contents": "", "enabled": null, "mask": null,
             "dropins": [{"name": "1.conf", "contents": ""}, {"name": "2.conf", "contents": "x"}]},
            {"name": "b.service", "enabled": false, "mask": true},
        ],
        "users": [{"name": "other", "sshAuthorizedKeys": ["k1"]}, {"name": "core", "sshAuthorizedKeys": ["k2"]}],
        "kernelArguments": ["a b", "c=\"d e\""], "osImageURL": "", "kernelType": "",
    }))
    .unwrap();
    let file = &spec.files[&ManagedPath::new("/etc/a").unwrap()];
    assert_eq!((file.contents.bytes(), file.mode.bits()), (&b"hi"[..], 0o600));
    assert!(file.is_secret());
    let empty = ["/etc/empty", "/etc/none"].map(|path| &spec.files[&ManagedPath::new(path).unwrap()]);
    assert!(empty.iter().all(|file| file.contents.is_empty() && file.mode.bits() == 0o644));
    let a = &spec.units[&unit("a.service")];
    assert_eq!(
        (a.contents.is_none(), a.dropins.len(), a.enablement, a.mask),
        (true, 1, Enablement::Preset, Mask::Unset)
    );
    let b = &spec.units[&unit("b.service")];
    assert_eq!((b.enablement, b.mask), (Enablement::Disabled, Mask::Masked));
    let core = spec.users.account("core").unwrap().clone();
    assert_eq!((core.keys_text().as_str(), core.password.unwrap().as_str()), ("k2\n", "*"));
    let other = spec.users.account("other").unwrap();
    assert_eq!((other.keys_text().as_str(), &other.password), ("k1\n", &None));
    assert_eq!(
        spec.kargs.iter().map(machine_config_core::model::Karg::as_str).collect::<Vec<_>>(),
        ["a", "b", "c=\"d e\""]
    );
    assert!(spec.os_image_url.is_none());
}

/// The key of another user must not open `core`.
#[test]
fn keys_of_other_users_do_not_open_core() {
    let entry = |name: &str, key: &str| json!({"name": name, "sshAuthorizedKeys": [key]});
    for users in [
        json!([entry("guest", "ssh-ed25519 GUEST")]),
        json!([{"name": "core"}, entry("guest", "ssh-ed25519 GUEST")]),
    ] {
        let spec = read(json!({"users": users})).unwrap();
        assert!(spec.users.account("core").is_none_or(|core| core.keys.is_empty()), "{users}");
    }
    let both = json!([entry("guest", "ssh-ed25519 GUEST"), entry("core", "ssh-ed25519 CORE")]);
    let core = read(json!({"users": both})).unwrap().users.account("core").unwrap().clone();
    assert_eq!(core.keys_text(), "ssh-ed25519 CORE\n");
}

/// install-config's `sshKey: |` ends in a line break; `|` over several lines is several keys.
#[test]
fn entry_of_several_lines_is_several_keys() {
    let text =
        "\n# of the installer\nssh-ed25519 A one\r\n\n  from=\"10.0.0.0/8\",no-pty ssh-ed25519 B two # x\n";
    let users = json!([{"name": "core", "sshAuthorizedKeys": [text, "ssh-rsa C\n", ""]}]);
    let core = read(json!({"users": users})).unwrap().users.account("core").unwrap().clone();
    assert_eq!(
        core.keys_text(),
        "ssh-ed25519 A one\nfrom=\"10.0.0.0/8\",no-pty ssh-ed25519 B two # x\nssh-rsa C\n"
    );
}

/// MCD-087, MCD-091, MCD-128: a mode above 0777 or an append entry is refused, before anything is written.
#[test]
fn inapplicable_field_is_refused_with_next_step() {
    let file = |path: &str| json!({"path": path, "contents": {"source": "data:,"}});
    let files = |extra: Value| {
        let mut entry = file("/etc/a");
        entry.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        json!({"files": [entry]})
    };
    let units = |one: Value| json!({"units": [one]});
    for (sections, words) in [
        (files(json!({"mode": 0o4755})), ["storage.files \"/etc/a\" mode", "0 to 0777"]),
        (files(json!({"mode": -1})), ["mode", "0 to 0777"]),
        (files(json!({"append": [{"source": "data:,"}]})), ["append", "write the whole file"]),
        (files(json!({"contents": {"source": "http://x/y"}})), ["contents", "nothing is downloaded"]),
        (files(json!({"contents": {"source": "data:,", "compression": "xz"}})), ["contents", "use gzip"]),
        (files(json!({"user": {"id": -1}})), ["user", "0 to 4294967294"]),
        (files(json!({"group": {"name": "a:b"}})), ["group", "not valid"]),
        (json!({"files": [file("/etc/../a")]}), ["\"/etc/../a\"", "another path"]),
        (json!({"files": [file("/etc/a"), file("/etc/a")]}), ["\"/etc/a\"", "twice"]),
        (json!({"files": [file("/etc/a"), file("/etc/a/b")]}), ["\"/etc/a/b\"", "has to be a directory"]),
        (
            json!({"files": [file("/etc/systemd/system/a.service")],
                   "units": [{"name": "a.service", "contents": "x"}]}),
            ["a.service", "writes /etc/systemd/system/a.service too"],
        ),
        (
            json!({"files": [file("/etc/systemd/system/a.service.d/1.conf")],
                   "units": [{"name": "a.service", "dropins": [{"name": "1.conf", "contents": "x"}]}]}),
            ["a.service", "too; keep one"],
        ),
        (
            units(json!({"name": "a.service", "mask": true, "enabled": true})),
            ["a.service", "masked and enabled"],
        ),
        (units(json!({"name": "a/b.service"})), ["a/b.service", "not valid"]),
        (
            units(json!({"name": "a.service", "dropins": [{"name": "1.conf"}, {"name": "1.conf"}]})),
            ["\"1.conf\"", "twice"],
        ),
        (json!({"units": [{"name": "a.service"}, {"name": "a.service"}]}), ["a.service", "twice"]),
        (json!({"users": [{"name": "core"}, {"name": "core"}]}), ["core", "twice"]),
        (
            json!({"users": [{"name": "core", "sshAuthorizedKeys": ["a\u{0}b"]}]}),
            ["sshAuthorizedKeys[0]", "one key a line"],
        ),
        (json!({"users": [{"name": "core", "passwordHash": "a:b"}]}), ["passwordHash", "crypt(3)"]),
        (json!({"kernelArguments": ["a=\"b"]}), ["spec.kernelArguments", "close the quote"]),
        (json!({"extensions": ["a b"]}), ["spec.extensions", "correct it"]),
        (json!({"extensions": ["usbguard", "cowsay"]}), ["spec.extensions \"cowsay\"", "there are ipsec"]),
        (json!({"kernelType": "fast"}), ["spec.kernelType \"fast\"", "64k-pages"]),
        (
            json!({"kernelType": "realtime", "extensions": ["kernel-devel"]}),
            ["spec.extensions \"kernel-devel\"", "remove one of them"],
        ),
        (json!({"osImageURL": "os:latest"}), ["os:latest", "@sha256:"]),
    ] {
        let error = refusal(sections);
        assert!(words.iter().all(|word| error.contains(word)), "{words:?}: {error}");
        let named = error.contains("MachineConfig rendered-a") || error.starts_with("image");
        assert!(named, "{error}");
    }
}

#[test]
fn errors_and_debug_texts_hold_no_secret() {
    let secret = "hunter2";
    let error = refusal(json!({"users": [{"name": "core", "passwordHash": format!("{secret}:x")}]}));
    assert!(!error.contains(secret), "{error}");
    let error = refusal(json!({"units": [{"name": "a.service", "contents": [secret]}]}));
    assert!(!error.contains(secret), "{error}");
    let config = model_host::config(
        "a",
        json!({"users": [{"name": "core", "passwordHash": secret, "sshAuthorizedKeys": [secret]}]}),
    );
    assert!(!format!("{config:?} {:?}", config.spec(None)).contains(secret));
}

/// Go writes an empty list as null: it means the same everywhere.
#[test]
fn null_lists_are_empty() {
    let parse = |text: &str| DisruptionPolicy::parse(text.as_bytes(), "policy").unwrap();
    let defaults = DisruptionPolicy::defaults();
    for text in [
        r#"{"spec": {"nodeDisruptionPolicy": {"files": null, "units": null}}}"#,
        r#"{"spec": {"irreconcilableValidationOverrides": {"storage": null}}}"#,
    ] {
        assert_eq!(parse(text), defaults, "{text}");
    }
    let own = parse(
        r#"{"spec": {"nodeDisruptionPolicy": {"files": [{"path": "/etc/a", "actions": null}],
            "units": [{"name": "a.service", "actions": null}], "sshkey": {"actions": null}}}}"#,
    );
    assert_eq!((own.files["/etc/a"].as_slice(), own.sshkey.as_slice()), (&[][..], &[][..]));
    assert_eq!(own.units[&unit("a.service")], []);
    let nulls = json!({
        "files": [{"path": "/etc/a", "append": null}], "directories": null, "links": null, "disks": null,
        "raid": null, "filesystems": null, "luks": null, "groups": null, "kernelArguments": null, "extensions": null,
        "units": [{"name": "a.service", "dropins": null}],
        "users": [{"name": "core", "passwordHash": "x", "sshAuthorizedKeys": null, "groups": null}],
    });
    let none = json!({
        "files": [{"path": "/etc/a", "append": []}], "directories": [], "links": [], "disks": [], "raid": [],
        "filesystems": [], "luks": [], "groups": [], "kernelArguments": [], "extensions": [],
        "units": [{"name": "a.service", "dropins": []}],
        "users": [{"name": "core", "passwordHash": "x", "sshAuthorizedKeys": [], "groups": []}],
    });
    assert_eq!(read(nulls).unwrap(), read(none).unwrap());
    assert_eq!(
        read(json!({"files": null, "units": null, "users": null})).unwrap(),
        read(json!({"files": [], "units": [], "users": []})).unwrap()
    );
}

/// FIL-011: the administrator's object overlays the defaults; without an object they stand.
#[test]
fn policy_overlays_defaults_and_status_stands_alone() {
    let parse =
        |text: &str| DisruptionPolicy::parse(text.as_bytes(), "policy").map_err(|error| error.to_string());
    let defaults = DisruptionPolicy::defaults();
    assert_eq!((defaults.files.len(), defaults.units.len(), &defaults.sshkey), (13, 1, &vec![Action::None]));
    assert_eq!(parse("kind: MachineConfiguration").unwrap(), defaults);
    let own = parse(
        "{spec: {nodeDisruptionPolicy: {sshkey: {actions: [{type: Drain}]}, units: [{name: a.service, actions: [{type: None}]}]}}}",
    );
    let own = own.unwrap();
    assert_eq!((own.files.len(), own.units.len(), &own.sshkey), (13, 2, &vec![Action::Drain]));
    let merged = parse(
        "{status: {nodeDisruptionPolicyStatus: {clusterPolicies: {files: [{path: /a, actions: [{type: Special}]}]}}}}",
    );
    let merged = merged.unwrap();
    assert_eq!((merged.files.len(), merged.units.len()), (1, 0));

    let iri = &defaults.files["/etc/pki/ca-trust/source/anchors/iri-root-ca.crt"];
    assert_eq!(*iri, [Action::Restart(unit("coreos-update-ca-trust.service"))]);

    let eleven = ["{type: Drain}"; 11].join(", ");
    for (actions, word) in [
        ("{type: Reboot}, {type: Drain}", "alone"),
        ("{type: None}, {type: None}", "alone"),
        ("{type: Special}", "not None"),
        ("{type: Restart}", "serviceName"),
        ("{type: Restart, restart: {serviceName: crio}}", "not valid"),
        (eleven.as_str(), "at most 10"),
    ] {
        let text = format!(
            "{{spec: {{nodeDisruptionPolicy: {{files: [{{path: /etc/a, actions: [{actions}]}}]}}}}}}"
        );
        let error = parse(&text).unwrap_err();
        assert!(error.contains(word) && error.contains("/etc/a"), "{actions}: {error}");
    }
    for path in ["etc/a", "/etc/../a", "/etc/"] {
        let text = format!("{{spec: {{nodeDisruptionPolicy: {{files: [{{path: {path}, actions: []}}]}}}}}}");
        assert!(parse(&text).unwrap_err().contains("absolute"), "{path}");
    }
    assert!(
        parse("{spec: {irreconcilableValidationOverrides: {storage: [Luks]}}}").unwrap_err().contains("Luks")
    );
}

#[test]
fn large_config_is_read() {
    let body = "x".repeat(60_000);
    let files: Vec<Value> = (0..24)
        .map(|n| json!({"path": format!("/etc/large/{n}"), "contents": {"source": format!("data:,{body}")}}))
        .collect();
    let config = model_host::config("rendered-a", json!({"files": files}));
    assert!(config.json().len() > 1_400_000);
    assert_eq!(config.spec(None).unwrap().files.len(), 24);
}
