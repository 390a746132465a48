//! Differences of verification and drift, their order and their words; and the JSON of `verify`.

use machine_config_core::model::observation::{EmbeddedConfig, ObservedOs, Staged, UnitFileState};
use machine_config_core::model::units::Mask;
use machine_config_core::model::users::PasswordHash;
use machine_config_core::model::{
    DisruptionPolicy, HostSpec, Karg, ManagedPath, Observation, ObservedFile, UnitName,
};
use machine_config_core::plan::drift::{drift, unresolved};
use machine_config_core::plan::{differences, explain, plan};
use serde_json::{Value, json};

use crate::model_host;
use crate::model_host::ModelHost;

const DIRECTORY: ObservedFile = ObservedFile::Directory { mode: 0o755, uid: 0, gid: 0 };

fn sections() -> Value {
    json!({
        "files": [{"path": "/etc/a", "contents": {"source": "data:,one"}},
                  {"path": "/etc/secret", "mode": 0o600, "contents": {"source": "data:,hunter2"}},
                  {"path": "/etc/kubernetes/kubelet-ca.crt", "contents": {"source": "data:,ca"}},
                  {"path": "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem",
                   "contents": {"source": "data:,ca"}},
                  {"path": "/etc/mco/internal-registry-pull-secret.json", "contents": {"source": "data:,%7B%7D"}}],
        "units": [{"name": "a.service", "enabled": true, "contents": "x",
                   "dropins": [{"name": "1.conf", "contents": "y"}]},
                  {"name": "b.service", "mask": true}, {"name": "c.service", "enabled": false, "contents": "z"}],
        "users": [{"name": "core", "sshAuthorizedKeys": ["k"]}],
        "kernelArguments": ["q", "q"],
    })
}

fn spec() -> HostSpec {
    model_host::config("rendered-a", sections()).spec(Some(model_host::image('a'))).unwrap()
}

fn path(text: &str) -> ManagedPath {
    ManagedPath::new(text).unwrap()
}

fn lines(spec: &HostSpec, observed: &Observation) -> Vec<String> {
    let words = |value: &Value| value.as_str().unwrap().to_owned();
    let found = serde_json::to_value(differences(spec, observed)).unwrap();
    let line = |found: &Value| {
        format!("{} {} {}", words(&found["kind"]), words(&found["target"]), words(&found["what"]))
    };
    found.as_array().unwrap().iter().map(line).collect()
}

/// MCD-171, MCD-174, MCD-175: in order; files that the cluster rotates are not compared; enablement is, both ways.
#[test]
fn each_difference_is_named_in_order() {
    let spec = spec();
    let mut observed = ModelHost::holding(&spec).observe(&[&spec]);
    assert_eq!(lines(&spec, &observed), Vec::<String>::new());
    let ObservedOs::Deployments { booted, .. } = &mut observed.os else { panic!("image-based") };
    booted.image = Some(model_host::image('b'));
    observed.kargs.pop();
    for (name, found) in [
        ("/etc/a", ObservedFile::Symlink { target: "/etc/b".to_owned(), uid: 0, gid: 0 }),
        ("/etc/secret", ObservedFile::Absent),
        ("/etc/kubernetes/kubelet-ca.crt", ObservedFile::Absent),
        ("/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem", ObservedFile::Absent),
        ("/etc/mco/internal-registry-pull-secret.json", DIRECTORY),
        ("/etc/systemd/system/a.service", DIRECTORY),
        ("/etc/systemd/system/a.service.d/1.conf", ObservedFile::Absent),
    ] {
        observed.files.insert(path(name), found);
    }
    let mut unit = |name: &str, enabled, mask| {
        let unit = observed.units.get_mut(&UnitName::new(name).unwrap()).unwrap();
        (unit.enabled, unit.mask) = (enabled, mask);
    };
    unit("a.service", UnitFileState::Disabled, Mask::Unset);
    unit("b.service", UnitFileState::Disabled, Mask::Unset);
    unit("c.service", UnitFileState::Enabled, Mask::Unset);
    let core = observed.accounts.get_mut("core").unwrap();
    core.keys = ObservedFile::Absent;
    core.password = PasswordHash::new("$6$x");
    let desired = [
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
    assert_eq!(lines(&spec, &observed), desired);
    observed.os = ObservedOs::NotImageBased;
    assert_eq!(lines(&spec, &observed)[..2], ["image os value", "file /etc/a unexpected"]);
}

/// MCD-166, MCD-167, MCD-168, MCD-169: the words that alerts and other software search for.
#[test]
fn drift_messages_match_mcd() {
    let spec = spec();
    let mut observed = ModelHost::holding(&spec).observe(&[&spec]);
    let ObservedOs::Deployments { booted, .. } = &mut observed.os else { panic!("image-based") };
    booted.image = Some(model_host::image('b'));
    observed.kargs = Karg::split("more q additional=1");
    let files = [("/etc/a", 0o644, "other"), ("/etc/systemd/system/a.service", 0o664, "x")];
    for (name, mode, text) in files {
        let sha256 = machine_config_core::model::Sha256::digest(text.as_bytes());
        let len = u64::try_from(text.len()).unwrap();
        observed.files.insert(path(name), ObservedFile::Regular { sha256, len, mode, uid: 0, gid: 0 });
    }
    let found: Vec<String> = differences(&spec, &observed).iter().map(ToString::to_string).collect();
    let (desired, other) = (model_host::image('a'), model_host::image('b'));
    assert_eq!(found[0], format!("expected target osImageURL \"{desired}\", have \"{other}\""));
    assert_eq!(found[1], "missing expected kernel arguments: [q]");
    assert!(found[2].starts_with("content mismatch for file \"/etc/a\" (expected 3 bytes, "), "{}", found[2]);
    let mode = "mode mismatch for file: \"/etc/systemd/system/a.service\"; expected: 0644; received: 0664";
    assert_eq!(found[3..], [mode]);
}

/// MCD-173: of a masked unit only the link counts, whatever contents the config has for it.
#[test]
fn masked_unit_is_compared_by_link() {
    let units = json!([{"name": "a.service", "mask": true, "contents": "x"}]);
    let spec = model_host::config("rendered-a", json!({ "units": units })).spec(None).unwrap();
    let mut observed = ModelHost::holding(&spec).observe(&[&spec]);
    assert_eq!(lines(&spec, &observed), Vec::<String>::new());
    let unit = observed.units.get_mut(&UnitName::new("a.service").unwrap()).unwrap();
    (unit.enabled, unit.mask) = (UnitFileState::Disabled, Mask::Unset);
    assert_eq!(lines(&spec, &observed), ["unit a.service mask"]);
}

/// CRA-010: what the next boot would run is drift of an idle host, and no reason to call an update wrong. Manual packages
/// and other arguments for the same image are an administrator's business.
#[test]
fn manual_changes_of_host_are_named() {
    let plain = spec();
    let mut observed = ModelHost::holding(&plain).observe(&[&plain]);
    let ObservedOs::Deployments { booted, staged, .. } = &mut observed.os else { panic!("image-based") };
    booted.local.requested.insert("strace".to_owned());
    booted.local.replaced.insert("kernel".to_owned());
    *staged = Some(Staged {
        image: booted.image.clone(),
        deployment: "os-0.1".to_owned(),
        kargs: Karg::split("debug"),
    });
    assert_eq!(drift(&plain, &observed), []);
    let mut observed = ModelHost::holding(&plain).observe(&[&plain]);
    let other = |name: &str| Staged {
        image: Some(model_host::image('c')),
        deployment: name.to_owned(),
        kargs: Vec::new(),
    };
    let ObservedOs::Deployments { staged, next, .. } = &mut observed.os else { panic!("image-based") };
    *staged = Some(other("os-2.0"));
    *next = Some(other("os-3.0"));
    assert_eq!(differences(&plain, &observed), []);
    let found: Vec<String> = drift(&plain, &observed).iter().map(ToString::to_string).collect();
    let image = model_host::image('c');
    for (line, word) in found.iter().zip(["the staged deployment os-2.0", "the deployment os-3.0"]) {
        assert!(line.starts_with("image of the next boot is something else"), "{line}");
        assert!(line.contains(word) && line.contains(&image.to_string()), "{line}");
        assert!(line.contains("the running deployment os-0.0"), "{line}");
    }
    assert_eq!(found.len(), 2);
}

#[test]
fn bytes_mode_and_owner_are_compared_and_secrets_stay_secret() {
    let spec = spec();
    let observed = ModelHost::holding(&spec).observe(&[&spec]);
    let changed = |name: &str, change: &dyn Fn(&mut ObservedFile)| {
        let mut observed = observed.clone();
        change(observed.files.get_mut(&path(name)).unwrap());
        serde_json::to_value(differences(&spec, &observed)).unwrap()
    };
    let other = machine_config_core::model::Sha256::digest(b"other");
    let bytes = |file: &mut ObservedFile| {
        let ObservedFile::Regular { sha256, .. } = file else { panic!("a file") };
        *sha256 = other;
    };
    let found = changed("/etc/a", &bytes);
    assert_eq!((&found[0]["what"], found.as_array().unwrap().len()), (&json!("content"), 1));
    assert!(found[0]["expected"].as_str().unwrap().starts_with("3 bytes, sha256:"), "{found}");
    let found = changed("/etc/secret", &bytes);
    assert_eq!((&found[0]["expected"], &found[0]["found"]), (&json!("7 bytes"), &json!("7 bytes")));
    let found = changed("/etc/a", &|file| {
        let ObservedFile::Regular { mode, .. } = file else { panic!("a file") };
        *mode = 0o4644;
    });
    assert_eq!((&found[0]["expected"], &found[0]["found"]), (&json!("0644"), &json!("4644")));
    let found = changed("/etc/a", &|file| {
        let ObservedFile::Regular { gid, .. } = file else { panic!("a file") };
        *gid = 5;
    });
    assert_eq!((&found[0]["what"], &found[0]["found"]), (&json!("owner"), &json!("0:5")));
}

#[test]
fn every_locked_password_is_locked() {
    let spec = spec();
    let mut observed = ModelHost::holding(&spec).observe(&[&spec]);
    for hash in [None, PasswordHash::new("*"), PasswordHash::new("!!"), PasswordHash::new("!$6$x")] {
        observed.accounts.get_mut("core").unwrap().password = hash;
        assert_eq!(lines(&spec, &observed), Vec::<String>::new());
    }
}

/// Other than MCD (MCD-164): an update does not wait for the owner of a keys file, which it sets again.
#[test]
fn update_sets_keys_that_user_changed() {
    let users = json!([{"name": "core", "sshAuthorizedKeys": ["k1"], "passwordHash": "$6$x"}]);
    let from = model_host::config("rendered-a", json!({"users": users})).spec(None).unwrap();
    let to = |users: &Value| model_host::config("rendered-b", json!({"users": users})).spec(None).unwrap();
    let mut world = ModelHost::holding(&from);
    world.accounts.get_mut("core").unwrap().keys = ObservedFile::Directory { mode: 0o755, uid: 0, gid: 0 };
    let steps = |to: &HostSpec| {
        let facts = world.facts(&from, to, EmbeddedConfig::Unknown);
        let plan = plan(&from, to, &facts, &DisruptionPolicy::defaults()).unwrap();
        plan.steps().iter().map(|step| step.op.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(steps(&to(&users)), ["set-ssh-keys"]);
    let other = json!([{"name": "core", "sshAuthorizedKeys": ["k2"], "passwordHash": "$6$x"}]);
    assert_eq!(steps(&to(&other)), ["set-ssh-keys"]);
}

/// MCD-177: drift keeps an update from beginning where the new config wants something else and no step goes there.
#[test]
fn only_remaining_drift_blocks_update() {
    type Change = fn(&mut Value);
    let file = |observed: &mut Observation| drop(observed.files.insert(path("/etc/a"), DIRECTORY));
    let keys = |observed: &mut Observation| {
        observed.accounts.get_mut("core").unwrap().keys = ObservedFile::Absent;
    };
    let unit = |observed: &mut Observation| {
        observed.units.get_mut(&UnitName::new("c.service").unwrap()).unwrap().enabled =
            UnitFileState::Enabled;
    };
    let karg = |observed: &mut Observation| drop(observed.kargs.pop());
    let restarts: Change = |to| {
        let policy = json!({"path": "/etc/restarts", "contents": {"source": "data:,x"}});
        to["files"].as_array_mut().unwrap().push(policy);
    };
    let drifted = |drift: &dyn Fn(&mut Observation), change: Change| {
        let mut next = sections();
        change(&mut next);
        let from = spec();
        let to = model_host::config("rendered-b", next).spec(Some(model_host::image('a'))).unwrap();
        let mut facts = ModelHost::holding(&from).facts(&from, &to, EmbeddedConfig::Unknown);
        drift(&mut facts.observed);
        let actions = json!([{"type": "Restart", "restart": {"serviceName": "c.service"}}]);
        let policy = json!({"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
            "metadata": {"name": "cluster"},
            "spec": {"nodeDisruptionPolicy": {"files": [{"path": "/etc/restarts", "actions": actions}]}}});
        let policy = DisruptionPolicy::parse(policy.to_string().as_bytes(), "a policy").unwrap();
        let plan = plan(&from, &to, &facts, &policy).unwrap();
        let stays = unresolved(&from, &to, &facts.observed, &plan);
        let stays: Value = serde_json::to_value(stays).unwrap();
        let word = |value: &Value| value.as_str().unwrap().to_owned();
        let line = |one: &Value| format!("{} {}", word(&one["target"]), word(&one["what"]));
        stays.as_array().unwrap().iter().map(line).collect::<Vec<_>>()
    };
    let same: Change = |_| {};
    let none: [&str; 0] = [];
    assert_eq!(drifted(&file, same), ["/etc/a unexpected"]);
    assert_eq!(drifted(&file, |to| to["files"][0]["contents"]["source"] = json!("data:,two")), none);
    assert_eq!(drifted(&file, |to| drop(to["files"].as_array_mut().unwrap().remove(0))), none);
    assert_eq!(drifted(&keys, same), none);
    let unlocked = |observed: &mut Observation| {
        observed.accounts.get_mut("core").unwrap().password = PasswordHash::new("$6$of-administrator");
    };
    assert_eq!(drifted(&unlocked, same), ["core value"], "an administrator's work");
    assert_eq!(drifted(&keys, |to| to["users"] = json!([])), none);
    assert_eq!(drifted(&keys, |to| to["users"][0]["passwordHash"] = json!("$6$x")), none);
    assert_eq!(drifted(&keys, |to| to["users"][0] = json!({"name": "core", "passwordHash": "$6$x"})), none);
    assert_eq!(drifted(&unit, same), ["c.service enablement"]);
    assert_eq!(drifted(&unit, |to| to["units"][2]["enabled"] = json!(true)), none);
    assert_eq!(drifted(&unit, restarts), ["c.service enablement"], "a restart changes no link");
    // The step starts at the command line, so each new target mends it.
    assert_eq!(drifted(&karg, same), none);
    assert_eq!(drifted(&karg, |to| to["kernelArguments"] = json!([])), none);
    let more: Change = |to| to["kernelArguments"] = json!(["q", "q", "more"]);
    assert_eq!(drifted(&karg, more), none);
}

/// FIL-013.
#[test]
fn json_of_plan_is_as_promised() {
    let from = model_host::config("rendered-a", json!({})).spec(None).unwrap();
    let files = json!([{"path": "/etc/containers/policy.json", "contents": {"source": "data:,x"}}]);
    let to = model_host::config("rendered-b", json!({"files": files})).spec(None).unwrap();
    let facts = ModelHost::holding(&from).facts(&from, &to, EmbeddedConfig::Unknown);
    let (old, new) = (from.target(), to.target());
    let outcome = plan(&from, &to, &facts, &DisruptionPolicy::defaults());
    let shown =
        serde_json::to_value(explain::json(outcome.as_ref(), Some(&old), &new, &explain::Beside::default()))
            .unwrap();
    let desired = json!({
        "schemaVersion": 1,
        "from": {"config": "rendered-a", "image": null},
        "to": {"config": "rendered-b", "image": null},
        "mode": "files",
        "irreconcilable": [],
        "notApplied": [],
        "steps": [{"op": "write-file", "target": "/etc/containers/policy.json", "because": "added"},
                  {"op": "reload-unit", "target": "crio.service", "because": "policy"}],
        "drain": false,
        "after": {"kind": "services", "because": [], "actions": [
            {"action": "reload", "unit": "crio.service", "because": ["/etc/containers/policy.json"]}]},
        "warnings": [],
        "drift": [],
        "left": [],
    });
    assert_eq!(shown, desired);
    let plan_again: machine_config_core::plan::Plan =
        serde_json::from_str(&serde_json::to_string(outcome.as_ref().unwrap()).unwrap()).unwrap();
    assert_eq!(&plan_again, outcome.as_ref().unwrap(), "a plan survives the journal");

    let fips = model_host::config("rendered-c", json!({"fips": true})).spec(None).unwrap();
    let refused = plan(&from, &fips, &facts, &DisruptionPolicy::defaults());
    let shown = serde_json::to_value(explain::json(
        refused.as_ref(),
        None,
        &fips.target(),
        &explain::Beside::default(),
    ))
    .unwrap();
    assert_eq!(
        (&shown["mode"], &shown["from"], &shown["irreconcilable"][0]["field"]),
        (&Value::Null, &Value::Null, &json!("spec.fips"))
    );
}
