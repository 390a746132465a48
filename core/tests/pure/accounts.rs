//! Accounts that the host lacks, and entries that machine-config-daemon has committed and never applied.

use machine_config_core::model::observation::{EmbeddedConfig, Maker};
use machine_config_core::model::obstacles::{InTheWay, Space};
use machine_config_core::model::{
    DisruptionPolicy, Facts, HostSpec, NotAppliedReason, Observation, ObservedFile, Obstacle,
};
use machine_config_core::plan::differences::DifferenceKind;
use machine_config_core::plan::start::blocking_drift;
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

fn refused(users: Value, groups: Value) -> String {
    model_host::config("rendered-a", json!({"users": users, "groups": groups}))
        .spec(None)
        .unwrap_err()
        .to_string()
}

/// `useradd` and `groupadd` would fail on the second one, after a drain.
#[test]
fn id_of_two_entries_is_refused_with_both_names() {
    let text = refused(json!([{"name": "one", "uid": 1500}, {"name": "two", "uid": 1500}]), json!([]));
    assert!(
        text.contains("passwd.users \"two\" uid") && text.contains("the user one has the uid 1500"),
        "{text}"
    );
    let text = refused(json!([]), json!([{"name": "one", "gid": 1600}, {"name": "two", "gid": 1600}]));
    assert!(
        text.contains("passwd.groups \"two\" gid") && text.contains("the group one has the gid"),
        "{text}"
    );
    let gone = json!([{"name": "one", "uid": 1500, "shouldExist": false}, {"name": "two", "uid": 1500}]);
    spec("rendered-a", gone, json!([{"name": "one", "gid": 1500}]));
}

#[test]
fn bad_name_is_told_with_its_kind() {
    let text = refused(json!([]), json!([{"name": "Big Group"}]));
    assert!(text.contains("group name") && !text.contains("user name"), "{text}");
    for part in [json!({"groups": ["Big"]}), json!({"primaryGroup": "Big"})] {
        let mut user = json!({"name": "app"});
        user.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
        let text = refused(json!([user]), json!([]));
        assert!(text.contains("group name") && !text.contains("user name"), "{text}");
    }
    assert!(refused(json!([{"name": "Big"}]), json!([])).contains("user name"));
}

/// Ignition sets `*` for it.
#[test]
fn empty_password_hash_locks_password() {
    let mut host = ModelHost::bare(None, Image::default());
    let mut guest = model_host::account("guest", 1100, Maker::Host);
    guest.password = machine_config_core::model::users::PasswordHash::new("$6$own");
    host.accounts.insert("guest".to_owned(), guest);
    let from = HostSpec::empty("rendered-0".to_owned().try_into().unwrap());
    let to = spec("rendered-a", json!([{"name": "guest", "passwordHash": ""}]), json!([]));
    assert_eq!(steps(&host, &from, &to), ["set-password guest"]);
    assert_eq!(differences(&to, &host.observe(&[&to])).len(), 1);
}

/// What an account has follows from the config, not from the configs before it.
#[test]
fn attribute_that_leaves_entry_of_own_account_is_reset() {
    let users = |more: Value| {
        let mut user = json!({"name": "app"});
        user.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!([user])
    };
    for part in [json!({"gecos": "The app"}), json!({"shell": "/bin/zsh"})] {
        let (full, plain) =
            (spec("rendered-a", users(part), json!([])), spec("rendered-b", users(json!({})), json!([])));
        let mut host = ModelHost::holding(&full);
        assert_eq!(steps(&host, &full, &plain), ["modify-user app"]);
        let facts = host.facts(&full, &plain, EmbeddedConfig::Unknown);
        let plan = plan(&full, &plain, &facts, &DisruptionPolicy::defaults()).unwrap();
        host.apply(&plan, &full, &plain);
        let observe = |host: &ModelHost| host.observe(&[&plain]).accounts;
        assert_eq!(observe(&host), observe(&ModelHost::holding(&plain)));
    }
}

/// An administrator removed the agent's account and made it again: it is the host's.
#[test]
fn remade_account_keeps_all_but_keys_of_config() {
    let user = json!([{"name": "app", "passwordHash": "$6$config", "sshAuthorizedKeys": ["a"], "gecos": "App",
        "groups": ["core"]}]);
    let (from, to) = (spec("rendered-a", user, json!([])), spec("rendered-b", json!([]), json!([])));
    let mut host = ModelHost::holding(&from);
    let app = host.accounts.get_mut("app").unwrap();
    (app.maker, app.has_original) = (Maker::Host, false);
    app.password = machine_config_core::model::users::PasswordHash::new("$6$own");
    assert_eq!(steps(&host, &from, &to), ["set-ssh-keys app"], "the config's own keys");
    host.accounts.insert("app".to_owned(), model_host::account("app", 1500, Maker::Host));
    assert_eq!(steps(&host, &from, &to), Vec::<String>::new());
}

/// The host's programs choose free ids: they must not choose one that the config gives to another entry.
#[test]
fn entries_with_ids_are_made_first() {
    let users = json!([{"name": "a"}, {"name": "b", "uid": 1000}]);
    let groups = json!([{"name": "c"}, {"name": "d", "gid": 1000}]);
    let from = HostSpec::empty("rendered-0".to_owned().try_into().unwrap());
    let to = spec("rendered-a", users, groups);
    let host = ModelHost::bare(None, Image::default());
    assert_eq!(
        steps(&host, &from, &to),
        ["create-group d", "create-group c", "create-user b", "create-user a"]
    );
}

fn reasons(host: &ModelHost, to: &HostSpec, change: impl FnOnce(&mut Facts)) -> Vec<(String, String)> {
    let from = HostSpec::empty("rendered-0".to_owned().try_into().unwrap());
    let mut facts = host.facts(&from, to, EmbeddedConfig::Unknown);
    change(&mut facts);
    let refused = plan(&from, to, &facts, &DisruptionPolicy::defaults());
    refused.err().map_or_else(Vec::new, |refused| {
        assert!(refused.is_of_host, "{refused}");
        refused.reasons.into_iter().map(|reason| (reason.field, reason.message)).collect()
    })
}

/// Each obstacle of the host's databases is named once, by the steps that it holds.
#[test]
fn closed_database_refuses_steps_that_change_it() {
    let (cause, next) = ("it is closed".to_owned(), "Open it.".to_owned());
    let obstacle = || Obstacle { cause: cause.clone(), next: next.clone() };
    let host = ModelHost::bare(None, Image::default());
    let users = |users: Value, groups: Value| spec("rendered-a", users, groups);
    let make = || users(json!([{"name": "a"}, {"name": "b"}]), json!([]));
    let group = || users(json!([]), json!([{"name": "g"}]));
    let keys = || users(json!([{"name": "core", "sshAuthorizedKeys": ["a"]}]), json!([]));
    let password = || users(json!([{"name": "core", "passwordHash": "$6$x"}]), json!([]));
    let all = ["/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/subuid", "/etc/subgid"];
    for (to, held, by_program) in [
        (make(), &all[..], true),
        (group(), &["/etc/group", "/etc/gshadow"][..], true),
        (keys(), &[][..], false),
        (password(), &["/etc/shadow"][..], false),
    ] {
        for path in all {
            let closed = reasons(&host, &to, |facts| {
                facts.obstacles.databases.insert(path.to_owned(), obstacle());
            });
            let locked =
                reasons(&host, &to, |facts| drop(facts.obstacles.locks.insert(path.to_owned(), obstacle())));
            let expected = usize::from(held.contains(&path));
            assert_eq!(
                (closed.len(), locked.len()),
                (expected, expected * usize::from(by_program)),
                "{path}"
            );
            assert!(closed.iter().all(|(_, message)| message == "it is closed; open it"), "{closed:?}");
        }
        let locked = reasons(&host, &to, |facts| facts.obstacles.password_lock = Some(obstacle()));
        assert_eq!(locked.len(), usize::from(!held.is_empty()));
    }
}

#[test]
fn account_that_can_not_be_written_refuses_plan() {
    let mut host = ModelHost::bare(None, Image::default());
    let password = spec("rendered-a", json!([{"name": "core", "passwordHash": "$6$x"}]), json!([]));
    host.accounts.get_mut("core").unwrap().password = None;
    let [(field, message)] = &reasons(&host, &password, |_| ())[..] else { panic!("it was not refused") };
    assert!(
        field == "passwd.users \"core\" passwordHash" && message.contains("no line in /etc/shadow"),
        "{message}"
    );
    let keys = spec("rendered-a", json!([{"name": "core", "sshAuthorizedKeys": ["a"]}]), json!([]));
    assert_eq!(reasons(&host, &keys, |_| ()), vec![], "it has no password to lock");

    let home = spec("rendered-a", json!([{"name": "app"}]), json!([]));
    let told = reasons(&host, &home, |facts| {
        let obstacle = Obstacle { cause: "/home/app is of guest".to_owned(), next: "Move it.".to_owned() };
        facts.obstacles.homes.insert("app".to_owned(), obstacle);
    });
    assert_eq!(
        told,
        [("passwd.users \"app\" homeDir".to_owned(), "/home/app is of guest; move it".to_owned())]
    );
}

/// It would be removed under its new member.
#[test]
fn member_of_group_that_leaves_refuses_plan() {
    let users = json!([{"name": "app", "groups": ["staff"]}]);
    let from = spec("rendered-a", users.clone(), json!([{"name": "staff"}]));
    let host = ModelHost::holding(&from);
    for users in [users, json!([{"name": "app"}, {"name": "other", "groups": ["staff"]}])] {
        let to = spec("rendered-b", users, json!([]));
        let facts = host.facts(&from, &to, EmbeddedConfig::Unknown);
        let refused = plan(&from, &to, &facts, &DisruptionPolicy::defaults()).unwrap_err();
        assert!(
            refused.to_string().contains("groups: the group staff is removed with its entry"),
            "{refused}"
        );
    }
    let to = spec("rendered-c", json!([{"name": "app"}]), json!([]));
    assert_eq!(steps(&host, &from, &to), ["modify-user app", "remove-group staff"]);
}

type Change = Box<dyn Fn(&mut machine_config_core::model::observation::ObservedAccount)>;

/// The changes that a user can make do not hold an update of something else; what only root can does, and is not undone.
#[test]
fn update_sets_again_what_user_changed_and_waits_for_administrator() {
    let user = json!({"name": "app", "sshAuthorizedKeys": ["a"], "passwordHash": "$6$config", "gecos": "App",
        "shell": "/bin/bash", "groups": ["wheel"], "uid": 1500});
    let from = spec("rendered-a", json!([user]), json!([]));
    let to = spec("rendered-b", json!([user]), json!([]));
    let hash = |text: &str| machine_config_core::model::users::PasswordHash::new(text);
    let cases: Vec<(&str, Change, &[&str], bool)> = vec![
        ("keys", Box::new(|app| app.keys = ObservedFile::Absent), &["set-ssh-keys app"], false),
        ("password", Box::new(move |app| app.password = hash("$6$own")), &["set-password app"], false),
        ("gecos", Box::new(|app| app.gecos = "Me".to_owned()), &["modify-user app"], false),
        ("shell", Box::new(|app| app.shell = "/bin/zsh".to_owned()), &["modify-user app"], false),
        ("locked", Box::new(move |app| app.password = hash("!$6$config")), &[], true),
        ("expired", Box::new(|app| app.is_expired = true), &[], true),
        ("closed", Box::new(|app| app.shell = "/usr/sbin/nologin".to_owned()), &[], true),
        ("group", Box::new(|app| app.groups.clear()), &[], true),
        ("uid", Box::new(|app| app.uid = 4711), &[], true),
    ];
    for (what, change, expected, is_blocked) in cases {
        let mut host = ModelHost::holding(&from);
        change(host.accounts.get_mut("app").unwrap());
        let facts = host.facts(&from, &to, EmbeddedConfig::Unknown);
        let plan = plan(&from, &to, &facts, &DisruptionPolicy::defaults()).unwrap();
        // Of another owner, the keys are not right either.
        let found: Vec<String> = plan.steps().iter().map(ToString::to_string).collect();
        if what != "uid" {
            assert_eq!(found, expected, "{what}");
        }
        let blocking = blocking_drift(&from, &to, &facts.observed, &plan);
        assert_eq!(blocking.is_some(), is_blocked, "{what}: {blocking:?}");
        if !is_blocked {
            let warnings = plan.warnings();
            assert!(
                warnings.iter().any(|one| one.message.contains("was changed on this host")),
                "{what}: {warnings:?}"
            );
            host.apply(&plan, &from, &to);
            assert_eq!(differences(&to, &host.observe(&[&to])), vec![], "{what}");
        }
    }
}

/// Nor is it opened by another change of its entry, or as it leaves.
#[test]
fn account_that_administrator_locked_stays_locked() {
    let hash = |text: &str| machine_config_core::model::users::PasswordHash::new(text);
    let user = |hash: &str, key: &str| {
        let user = json!([{"name": "guest", "passwordHash": hash, "sshAuthorizedKeys": [key], "gecos": key}]);
        spec("rendered-a", user, json!([]))
    };
    let (from, left) = (user("$6$one", "a"), spec("rendered-b", json!([]), json!([])));
    let mut host = ModelHost::bare(None, Image::default());
    let mut guest = model_host::account("guest", 1100, Maker::Host);
    (guest.password, guest.has_original, guest.gecos) = (hash("!$6$one"), true, "a".to_owned());
    host.accounts.insert("guest".to_owned(), guest);
    let sets =
        |host: &ModelHost, to: &HostSpec, op: &str| steps(host, &from, to).contains(&format!("{op} guest"));
    assert!(!sets(&host, &user("$6$one", "b"), "set-password"));
    assert!(sets(&host, &left, "set-password"), "the hash of the config goes from behind the lock");
    let mut locked = host.clone();
    for by_hand in ["!", "*", "!$6$other"] {
        locked.accounts.get_mut("guest").unwrap().password = hash(by_hand);
        assert!(!sets(&locked, &left, "set-password"), "{by_hand}");
    }
    let refused = |from: &HostSpec, to: &HostSpec| {
        let facts = host.facts(from, to, EmbeddedConfig::Unknown);
        let error = plan(from, to, &facts, &DisruptionPolicy::defaults()).unwrap_err().to_string();
        assert!(error.contains("this update would open it"), "{error}");
    };
    refused(&from, &user("$6$two", "a"));
    refused(&left, &user("$6$one", "a"));
    assert!(sets(&host, &user("$6$one", "b"), "modify-user"));
    host.accounts.get_mut("guest").unwrap().is_expired = true;
    assert!(!sets(&host, &user("$6$one", "b"), "modify-user"));
    host.accounts.get_mut("guest").unwrap().password = hash("$6$own");
    assert_eq!(steps(&host, &left, &user("$6$one", "a")).len(), 3, "unlocked and listed again");
}

fn warned(host: &ModelHost, from: &HostSpec, to: &HostSpec) -> Vec<String> {
    let facts = host.facts(from, to, EmbeddedConfig::Unknown);
    let plan = plan(from, to, &facts, &DisruptionPolicy::defaults()).unwrap();
    plan.warnings().iter().map(|one| format!("{}: {}", one.field, one.message)).collect()
}

/// A password that an administrator set is not overwritten in silence, whatever the update makes of it.
#[test]
fn password_of_administrator_is_named_before_it_goes() {
    let password =
        |hash: &str| spec("rendered-a", json!([{"name": "guest", "passwordHash": hash}]), json!([]));
    let (from, other, left) =
        (password("$6$one"), password("$6$two"), spec("rendered-b", json!([]), json!([])));
    let mut host = ModelHost::bare(None, Image::default());
    let mut guest = model_host::account("guest", 1100, Maker::Host);
    (guest.password, guest.has_original) =
        (machine_config_core::model::users::PasswordHash::new("$6$one"), true);
    host.accounts.insert("guest".to_owned(), guest);
    assert_eq!(warned(&host, &from, &other), Vec::<String>::new(), "as the config has it");
    host.accounts.get_mut("guest").unwrap().password =
        machine_config_core::model::users::PasswordHash::new("$6$by-hand");
    for to in [&other, &left] {
        let found = warned(&host, &from, to);
        let [one] = &found[..] else { panic!("{found:?}") };
        assert!(one.starts_with("passwd.users \"guest\" passwordHash: it was changed on this host"), "{one}");
    }
    // Keys alone lock the password of core.
    let none = spec("rendered-0", json!([]), json!([]));
    let keys = spec("rendered-b", json!([{"name": "core", "sshAuthorizedKeys": ["a"]}]), json!([]));
    assert_eq!(warned(&host, &none, &keys), Vec::<String>::new(), "it has none");
    host.accounts.get_mut("core").unwrap().password =
        machine_config_core::model::users::PasswordHash::new("$6$x");
    let found = warned(&host, &none, &keys);
    assert!(found.len() == 1 && found[0].contains("this update locks it, since the config"), "{found:?}");
}

#[test]
fn home_that_is_gone_at_boot_and_obstacles_of_keys_are_warned_of() {
    let none = spec("rendered-0", json!([]), json!([]));
    let host = ModelHost::bare(None, Image::default());
    let to = spec("rendered-a", json!([{"name": "app", "homeDir": "/run/app"}]), json!([]));
    let found = warned(&host, &none, &to);
    assert!(found.len() == 1 && found[0].contains("is in /run, which is empty after each boot"), "{found:?}");
    let to = spec("rendered-a", json!([{"name": "core", "sshAuthorizedKeys": ["a"]}]), json!([]));
    let mut facts = host.facts(&none, &to, EmbeddedConfig::Unknown);
    let (path, aside) = ("/home/core/.ssh".to_owned(), "/home/core/.ssh.mca-foreign".to_owned());
    facts.obstacles.in_the_way.insert("core".to_owned(), InTheWay { path, aside });
    let plan = plan(&none, &to, &facts, &DisruptionPolicy::defaults()).unwrap();
    let [warning] = plan.warnings() else { panic!("{:?}", plan.warnings()) };
    assert!(
        warning.message.contains("/home/core/.ssh is in the way") && warning.message.contains(".mca-foreign")
    );
}

/// Homes with what useradd copies into them, keys files, and the databases.
#[test]
fn missing_space_for_accounts_refuses_plan() {
    let host = ModelHost::bare(None, Image::default());
    let to = spec("rendered-a", json!([{"name": "app", "sshAuthorizedKeys": ["a"]}]), json!([]));
    let with = |home: (u64, u64), databases: (u64, u64)| {
        let told = reasons(&host, &to, |facts| {
            let space = |(bytes, inodes): (u64, u64), directory: &str| Space {
                directory: directory.to_owned(),
                bytes,
                inodes: Some(inodes),
                block: 4096,
            };
            facts.obstacles.spaces.insert(1, space(home, "/home"));
            facts.obstacles.spaces.insert(2, space(databases, "/etc"));
            facts.obstacles.accounts.homes.insert("app".to_owned(), 1);
            facts.obstacles.accounts.skeleton = (8192, 3);
            facts.obstacles.accounts.databases = Some((2, 10_000));
        });
        told.into_iter().map(|(field, message)| format!("{field}: {message}")).collect::<Vec<_>>().join("; ")
    };
    let much = (1 << 30, 1 << 20);
    // Skeleton, directory and keys; twice the databases with their new lines.
    assert_eq!(with((16384, 8), (24576, 12)), "");
    for (home, databases, directory, what) in [
        ((16383, 8), much, "/home", "KiB"),
        ((16384, 7), much, "/home", "inodes"),
        (much, (24575, 12), "/etc", "KiB"),
        (much, (24576, 11), "/etc", "inodes"),
    ] {
        let told = with(home, databases);
        let is_told = told.starts_with("passwd: ") && told.contains(directory) && told.contains(what);
        assert!(is_told, "{home:?} {databases:?}: {told}");
    }
}
