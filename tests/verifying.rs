//! What verification and drift see, in which order and in which words; and the JSON shapes of `interfaces.md`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test: it fails by panicking"
)]

mod world;

use machine_config_agent::model::observation::{Carries, CoreSeen, EnabledSeen, OsSeen};
use machine_config_agent::model::units::Mask;
use machine_config_agent::model::users::PasswordHash;
use machine_config_agent::model::{DisruptionPolicy, FileSeen, HostSpec, ManagedPath, Observation, UnitName};
use machine_config_agent::plan::{differences, explain, plan};
use serde_json::{Value, json};

use world::World;

fn sections() -> Value {
    json!({
        "files": [{"path": "/etc/a", "contents": {"source": "data:,one"}},
                  {"path": "/etc/secret", "mode": 0o600, "contents": {"source": "data:,hunter2"}},
                  {"path": "/etc/kubernetes/kubelet-ca.crt", "contents": {"source": "data:,ca"}}],
        "units": [{"name": "a.service", "enabled": true, "contents": "x",
                   "dropins": [{"name": "1.conf", "contents": "y"}]},
                  {"name": "b.service", "mask": true}, {"name": "c.service", "enabled": false, "contents": "z"}],
        "users": [{"name": "core", "sshAuthorizedKeys": ["k"]}],
        "kernelArguments": ["q", "q"],
    })
}

fn spec() -> HostSpec {
    world::config("rendered-a", sections()).spec(Some(world::image('a'))).unwrap()
}

fn path(text: &str) -> ManagedPath {
    ManagedPath::new(text).unwrap()
}

fn lines(spec: &HostSpec, seen: &Observation) -> Vec<String> {
    let words = |value: &Value| value.as_str().unwrap().to_owned();
    let found = serde_json::to_value(differences(spec, seen)).unwrap();
    let line = |found: &Value| {
        format!("{} {} {}", words(&found["kind"]), words(&found["target"]), words(&found["what"]))
    };
    found.as_array().unwrap().iter().map(line).collect()
}

#[test]
fn each_thing_that_differs_is_named_in_order() {
    let spec = spec();
    let mut seen = World::holding(&spec).seen(&[&spec]);
    assert_eq!(lines(&spec, &seen), Vec::<String>::new());
    let OsSeen::Deployments { booted, .. } = &mut seen.os else { panic!("image-based") };
    booted.image = Some(world::image('b'));
    seen.kargs.pop();
    for (name, found) in [
        ("/etc/a", FileSeen::Symlink { target: "/etc/b".to_owned() }),
        ("/etc/secret", FileSeen::Absent),
        ("/etc/kubernetes/kubelet-ca.crt", FileSeen::Absent),
        ("/etc/systemd/system/a.service", FileSeen::Directory),
        ("/etc/systemd/system/a.service.d/1.conf", FileSeen::Absent),
    ] {
        seen.files.insert(path(name), found);
    }
    let mut unit = |name: &str, enabled, mask| {
        let unit = seen.units.get_mut(&UnitName::new(name).unwrap()).unwrap();
        (unit.enabled, unit.mask) = (enabled, mask);
    };
    unit("a.service", EnabledSeen::Disabled, Mask::Unset);
    unit("b.service", EnabledSeen::Disabled, Mask::Unset);
    unit("c.service", EnabledSeen::Enabled, Mask::Unset);
    let CoreSeen::Account { keys, password, .. } = &mut seen.core else { panic!("an account") };
    *keys = FileSeen::Absent;
    *password = PasswordHash::new("$6$x");
    let wanted = [
        "image os value",
        "karg q missing",
        "file /etc/a unexpected",
        "file /etc/secret missing",
        "dropin /etc/systemd/system/a.service.d/1.conf missing",
        "unit /etc/systemd/system/a.service unexpected",
        "unit a.service enablement",
        "unit b.service mask",
        "unit c.service enablement",
        "user core content",
        "user core value",
    ];
    assert_eq!(lines(&spec, &seen), wanted);
    seen.os = OsSeen::NotImageBased;
    assert_eq!(lines(&spec, &seen)[..2], ["image os value", "file /etc/a unexpected"]);
}

#[test]
fn bytes_mode_and_owner_are_compared_and_secrets_stay_secret() {
    let spec = spec();
    let seen = World::holding(&spec).seen(&[&spec]);
    let changed = |name: &str, change: &dyn Fn(&mut FileSeen)| {
        let mut seen = seen.clone();
        change(seen.files.get_mut(&path(name)).unwrap());
        serde_json::to_value(differences(&spec, &seen)).unwrap()
    };
    let other = machine_config_agent::model::Sha256::of(b"other");
    let bytes = |file: &mut FileSeen| {
        let FileSeen::Regular { sha256, .. } = file else { panic!("a file") };
        *sha256 = other;
    };
    let found = changed("/etc/a", &bytes);
    assert_eq!((&found[0]["what"], found.as_array().unwrap().len()), (&json!("content"), 1));
    assert!(found[0]["expected"].as_str().unwrap().starts_with("3 bytes, sha256:"), "{found}");
    let found = changed("/etc/secret", &bytes);
    assert_eq!((&found[0]["expected"], &found[0]["found"]), (&json!("7 bytes"), &json!("7 bytes")));
    let found = changed("/etc/a", &|file| {
        let FileSeen::Regular { mode, .. } = file else { panic!("a file") };
        *mode = 0o4644;
    });
    assert_eq!((&found[0]["expected"], &found[0]["found"]), (&json!("0644"), &json!("4644")));
    let found = changed("/etc/a", &|file| {
        let FileSeen::Regular { gid, .. } = file else { panic!("a file") };
        *gid = 5;
    });
    assert_eq!((&found[0]["what"], &found[0]["found"]), (&json!("owner"), &json!("0:5")));
}

#[test]
fn every_locked_password_is_locked() {
    let spec = spec();
    let mut seen = World::holding(&spec).seen(&[&spec]);
    for hash in [None, PasswordHash::new("*"), PasswordHash::new("!!"), PasswordHash::new("!$6$x")] {
        let CoreSeen::Account { password, .. } = &mut seen.core else { panic!("an account") };
        *password = hash;
        assert_eq!(lines(&spec, &seen), Vec::<String>::new());
    }
}

#[test]
fn the_json_of_a_plan_is_as_promised() {
    let from = world::config("rendered-a", json!({})).spec(None).unwrap();
    let files = json!([{"path": "/etc/containers/policy.json", "contents": {"source": "data:,x"}}]);
    let to = world::config("rendered-b", json!({"files": files})).spec(None).unwrap();
    let facts = World::holding(&from).facts(&from, &to, Carries::Unknown);
    let (old, new) = (from.target(), to.target());
    let outcome = plan(&from, &to, &facts, &DisruptionPolicy::defaults());
    let shown = serde_json::to_value(explain::json(outcome.as_ref(), Some(&old), &new)).unwrap();
    let wanted = json!({
        "schemaVersion": 1,
        "from": {"config": "rendered-a", "image": null},
        "to": {"config": "rendered-b", "image": null},
        "mode": "files",
        "irreconcilable": [],
        "steps": [{"op": "write-file", "target": "/etc/containers/policy.json", "because": "added"},
                  {"op": "reload-unit", "target": "crio.service", "because": "policy"}],
        "drain": false,
        "after": {"kind": "services", "because": [], "actions": [
            {"action": "reload", "unit": "crio.service", "because": ["/etc/containers/policy.json"]}]},
    });
    assert_eq!(shown, wanted);
    let plan_again: machine_config_agent::plan::Plan =
        serde_json::from_str(&serde_json::to_string(outcome.as_ref().unwrap()).unwrap()).unwrap();
    assert_eq!(&plan_again, outcome.as_ref().unwrap(), "a plan survives the journal");

    let fips = world::config("rendered-c", json!({"fips": true})).spec(None).unwrap();
    let refused = plan(&from, &fips, &facts, &DisruptionPolicy::defaults());
    let shown = serde_json::to_value(explain::json(refused.as_ref(), None, &fips.target())).unwrap();
    assert_eq!(
        (&shown["mode"], &shown["from"], &shown["irreconcilable"][0]["field"]),
        (&Value::Null, &Value::Null, &json!("spec.fips"))
    );
}
