//! Accounts that the host lacks, and entries that machine-config-daemon has committed and never applied.

use machine_config_core::model::observation::{EmbeddedConfig, Maker};
use machine_config_core::model::{DisruptionPolicy, HostSpec, NotAppliedReason, Observation};
use machine_config_core::plan::differences::DifferenceKind;
use machine_config_core::plan::{Drain, PostActions, differences, late, observed_origin, plan};
use serde_json::{Value, json};

use crate::model_host::{self, Image, ModelHost};

fn spec(name: &str, users: Value, groups: Value) -> HostSpec {
    model_host::config(name, json!({"users": users, "groups": groups})).spec(None).unwrap()
}

fn steps(host: &ModelHost, from: &HostSpec, to: &HostSpec) -> Vec<String> {
    let facts = host.facts(from, to, EmbeddedConfig::Unknown);
    let plan = plan(from, to, &facts, &DisruptionPolicy::defaults()).unwrap();
    plan.steps().iter().map(ToString::to_string).collect()
}

fn named(spec: &HostSpec, observed: &Observation) -> Vec<String> {
    let named = late::accounts(spec, observed);
    assert!(named.iter().all(|one| one.because == NotAppliedReason::HostLacks), "{named:?}");
    named.into_iter().map(|one| one.field).collect()
}

/// `core` on a host that comes without it: named, no difference, and applied as soon as it appears.
#[test]
fn account_that_host_lacks_is_named_and_followed_when_it_appears() {
    let users = json!([{"name": "core", "sshAuthorizedKeys": ["a"], "passwordHash": "$6$x"}]);
    let from = HostSpec::empty("rendered-0".to_owned().try_into().unwrap());
    let mut to = spec("rendered-a", users, json!([]));
    let mut host = ModelHost::bare(None, Image::default());
    host.accounts.clear();
    let observed = host.observe(&[&to]);
    assert_eq!(steps(&host, &from, &to), Vec::<String>::new());
    assert_eq!(named(&to, &observed), ["passwd.users \"core\""]);
    let message = late::accounts(&to, &observed).remove(0).message;
    assert!(message.contains("create the account"), "{message}");
    to.never_applied = Some(late::never_applied(&from, &to, &observed));
    assert_eq!(differences(&to, &observed), vec![]);
    assert!(late::follow(&to, &observed).is_none(), "nothing to follow yet");

    host.accounts.insert("core".to_owned(), model_host::account("core", 1000, Maker::Host));
    let observed = host.observe(&[&to]);
    assert_eq!(differences(&to, &observed), vec![], "an account that appears is no drift");
    let plan = late::follow(&to, &observed).unwrap();
    assert_eq!((plan.drain(), plan.after()), (Drain::NotNeeded, &PostActions::Nothing));
    let texts: Vec<String> = plan.steps().iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["set-ssh-keys core", "set-password core"]);
    host.apply(&plan, &to, &to);
    let mut after = to.clone();
    after.never_applied = Some(late::after_appearance(&to, &observed));
    let observed = host.observe(&[&after]);
    assert_eq!((named(&after, &observed), differences(&after, &observed)), (vec![], vec![]));
    // It goes, and comes back.
    assert_eq!(late::settled(&after, &observed), None);
    host.accounts.remove("core");
    let lost = late::settled(&after, &host.observe(&[&after])).unwrap();
    assert_eq!(lost.into_iter().collect::<Vec<_>>(), ["passwd.users \"core\""]);
}

/// A new target finds an account that has appeared meanwhile.
#[test]
fn next_target_applies_keys_of_account_that_appeared() {
    let users = json!([{"name": "core", "sshAuthorizedKeys": ["a"]}]);
    let mut from = spec("rendered-a", users.clone(), json!([]));
    from.never_applied = Some(std::collections::BTreeSet::from(["passwd.users \"core\"".to_owned()]));
    let to = spec("rendered-b", users, json!([]));
    let host = ModelHost::bare(None, Image::default());
    assert_eq!(steps(&host, &from, &to), ["set-ssh-keys core"]);
    assert!(late::never_applied(&from, &to, &host.observe(&[&to])).is_empty());
}

/// MCD never managed them: they are named, neither drift nor work, until their entry changes.
#[test]
fn imported_entries_are_named_until_they_change() {
    let users = |shell: &str, groups: Value| {
        json!([{"name": "core", "sshAuthorizedKeys": ["a"], "groups": groups}, {"name": "app", "shell": shell},
               {"name": "as-is"}])
    };
    let groups = json!([{"name": "staff"}]);
    let installed = spec(
        "rendered-a",
        json!([{"name": "core", "sshAuthorizedKeys": ["a"]}, {"name": "as-is"}]),
        json!([]),
    );
    let mut imported = spec("rendered-a", users("/bin/sh", json!(["wheel"])), groups.clone());
    imported.never_applied = None;
    let host = ModelHost::holding(&installed);
    let expected = ["passwd.users \"app\"", "passwd.users \"core\" attributes", "passwd.groups \"staff\""];
    let observed = host.observe(&[&imported]);
    assert_eq!(differences(&imported, &observed), vec![]);
    assert_eq!(named(&imported, &observed), expected);
    let settled = late::settled(&imported, &observed).unwrap();
    for never_applied in [None, Some(settled)] {
        imported.never_applied = never_applied;
        let same = spec("rendered-b", users("/bin/sh", json!(["wheel"])), groups.clone());
        assert_eq!(steps(&host, &imported, &same), Vec::<String>::new());
        let mut same_after = same.clone();
        same_after.never_applied = Some(late::never_applied(&imported, &same, &observed));
        assert_eq!(named(&same_after, &observed), expected);
        assert_eq!(differences(&same_after, &observed), vec![]);
        let origin = observed_origin(&imported, &same, &observed);
        assert_eq!(steps(&host, &origin, &same), Vec::<String>::new(), "after an update that ended wrong");

        let other = spec("rendered-c", users("/bin/zsh", json!(["sudo"])), json!([]));
        assert_eq!(steps(&host, &imported, &other), ["create-user app", "modify-user core"]);
        let left = spec("rendered-d", json!([]), json!([]));
        let expected = ["lock-user as-is", "set-ssh-keys core"];
        assert_eq!(
            steps(&host, &imported, &left).iter().filter(|step| expected.contains(&step.as_str())).count(),
            2
        );
        assert!(
            !steps(&host, &imported, &left).iter().any(|step| step.contains("app") || step.contains("staff"))
        );
    }
}

/// Earlier agents wrote the keys of every user into the file of core: it is written again, without a new target.
#[test]
fn foreign_keys_of_earlier_agent_leave_core() {
    let users =
        json!([{"name": "core", "sshAuthorizedKeys": ["a"]}, {"name": "guest", "sshAuthorizedKeys": ["g"]}]);
    let mut committed = spec("rendered-a", users, json!([]));
    committed.never_applied = None;
    let both = json!([{"name": "core", "sshAuthorizedKeys": ["a", "g"]}]);
    let host = ModelHost::holding(&spec("rendered-a", both, json!([])));
    let observed = host.observe(&[&committed]);
    committed.never_applied = late::settled(&committed, &observed);
    let plan = late::follow(&committed, &observed);
    let texts: Vec<String> =
        plan.iter().flat_map(machine_config_core::plan::Plan::steps).map(ToString::to_string).collect();
    assert_eq!(texts, ["set-ssh-keys core"]);
}

/// Machine-config-daemon gave core the keys of all users: they go with its entry, and hold no update that keeps it.
#[test]
fn keys_of_imported_core_leave_with_its_entry_and_hold_no_other_update() {
    let users = json!([{"name": "core", "sshAuthorizedKeys": ["a"], "gecos": "Core"},
        {"name": "guest", "sshAuthorizedKeys": ["g"]}]);
    let mut imported = spec("rendered-a", users.clone(), json!([]));
    imported.never_applied = None;
    let host = ModelHost::holding(&spec(
        "rendered-a",
        json!([{"name": "core", "sshAuthorizedKeys": ["a", "g"]}]),
        json!([]),
    ));
    let observed = host.observe(&[&imported]);
    imported.never_applied = late::settled(&imported, &observed);
    let left = spec("rendered-b", json!([]), json!([]));
    assert!(steps(&host, &imported, &left).contains(&"set-ssh-keys core".to_owned()));
    let mut same = spec("rendered-c", users, json!([]));
    assert_eq!(steps(&host, &imported, &same), ["set-ssh-keys core"], "the account's comment waits");
    same.never_applied = Some(late::never_applied(&imported, &same, &observed));
    assert!(differences(&same, &observed).iter().all(|one| one.what == DifferenceKind::Content));
}
