//! What a config gave accounts goes with it, whatever an administrator has done to them meanwhile, or is named: locks, other homes,
//! removed accounts, and records that were lost.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;

use rustix::fs::IFlags;
use serde_json::{Value, json};

use crate::plan_accounts::{
    K1, K2, KEYS, applied, host, keys, keys_path, line, program, status, users, verify,
};
use crate::plan_flags::Flagged;
use crate::ran;
use crate::test_host::{Node, STATE, apply, config, ignition};

const OWN: &str = "ssh-ed25519 AAAA own";

fn put_users(node: &Node, name: &str, list: Value) {
    node.put(&format!("{name}.json"), config(&format!("rendered-{name}"), &users(list)));
}

fn password(node: &Node, user: &str) -> String {
    line(node, "shadow", user).split(':').nth(1).unwrap_or_default().to_owned()
}

fn lose(node: &Node, name: &str) {
    fs::remove_file(node.path(&format!("root/{STATE}/{name}"))).unwrap();
}

/// Puts a keys file of a person into a home, as sshd wants it.
fn put_keys(node: &Node, home: &str, id: u32, text: &str) {
    node.put(&format!("{home}/{KEYS}"), text);
    for path in ["", ".ssh", ".ssh/authorized_keys.d", KEYS] {
        chown(node.path(home).join(path), Some(id), Some(id)).unwrap();
    }
    for path in [".ssh", ".ssh/authorized_keys.d"] {
        node.mode(&format!("{home}/{path}"), 0o700);
    }
    node.mode(&format!("{home}/{KEYS}"), 0o600);
}

/// An administrator's lock stays, and the config's hash is not behind it: unlocking the account opens it as before the config.
#[test]
fn lock_of_administrator_hides_no_password_of_config() {
    let guest = json!([{"name": "guest", "gecos": "Managed", "passwordHash": "$6$one"}]);
    let cases = [
        ("leaves", json!([]), "!$6$own"),
        ("is dropped", json!([{"name": "guest", "gecos": "Managed"}]), "!$6$own"),
        ("is none", json!([{"name": "guest", "gecos": "Managed", "passwordHash": ""}]), "*"),
    ];
    for (case, new, left) in cases {
        for lost in [false, true] {
            let node = host();
            node.commit("rendered-a.json", &users(guest.clone()));
            program(&node, "usermod", &["-L", "guest"]);
            assert_eq!(password(&node, "guest"), "!$6$one");
            if lost {
                lose(&node, "accounts.json");
            }
            put_users(&node, "b", new.clone());
            let planned = node.plan("b.json").out;
            assert!(planned.contains("set-password") && planned.contains("lock"), "{case}: {planned}");
            applied(&node, "b.json", case);
            // Without a record nobody knows what it was before.
            let left = if lost { "*" } else { left };
            let found = password(&node, "guest");
            assert!(found == left || (left == "*" && found == "!"), "{case} {lost}: {found}");
            assert_eq!(verify(&node).code, 0, "{case} {lost}");
            applied(&node, "none.json", case);
            assert!(!password(&node, "guest").contains("$6$one"), "{case} {lost}");
        }
    }
}

/// The same of `core`, and of an account of the agent's own that was locked by hand in all ways.
#[test]
fn locked_accounts_of_config_keep_no_hash() {
    for (user, words) in [("core", vec!["-L", "core"]), ("app", vec!["-L", "-e", "1970-01-02", "app"])] {
        let node = host();
        node.commit("rendered-a.json", &users(json!([{"name": user, "passwordHash": "$6$one"}])));
        program(&node, "usermod", &words);
        assert_eq!(password(&node, user), "!$6$one");
        applied(&node, "none.json", user);
        assert_eq!(password(&node, user), "*", "{user}");
        assert_eq!(verify(&node).code, 0, "{user}");
    }
}

/// A hash of the config behind a lock is no original of the host.
#[test]
fn locked_password_of_config_is_no_original() {
    let node = host();
    node.commit("rendered-a.json", &users(json!([{"name": "guest", "passwordHash": "$6$one"}])));
    program(&node, "usermod", &["-L", "guest"]);
    lose(&node, "accounts.json");
    put_users(&node, "b", json!([{"name": "guest", "passwordHash": ""}]));
    applied(&node, "b.json", "b");
    applied(&node, "none.json", "none");
    assert_eq!(password(&node, "guest"), "*");
}

/// Keys leave the home in which they were written, also if that is the account's no more.
#[test]
fn keys_leave_home_that_account_had_before() {
    for user in ["guest", "app", "core"] {
        let node = host();
        node.commit("rendered-a.json", &users(json!([{"name": user, "sshAuthorizedKeys": [K1]}])));
        program(&node, "usermod", &["-d", "/srv/g", user]);
        let planned = node.plan("none.json").out;
        assert!(planned.contains("set-ssh-keys") || planned.contains("lock-user"), "{user}: {planned}");
        applied(&node, "none.json", user);
        assert_eq!(keys(&node, user), "", "{user}: the key stayed in the home of before");
        let verified = verify(&node);
        assert_eq!(verified.code, 0, "{user}: {}", verified.out);
        assert!(!node.path("root/srv/g/.ssh").exists() || user == "core", "{user}");
    }
}

/// A keys file of a person in the new home is his, and what the host had in the old one comes back.
#[test]
fn keys_of_person_stay_in_both_homes() {
    let node = host();
    put_keys(&node, "root/home/guest", 1100, &format!("{OWN} before\n"));
    node.commit("rendered-a.json", &users(json!([{"name": "guest", "sshAuthorizedKeys": [K1]}])));
    put_keys(&node, "root/srv/g", 1100, &format!("{OWN} new\n"));
    program(&node, "usermod", &["-d", "/srv/g", "guest"]);
    applied(&node, "none.json", "none");
    assert_eq!(keys(&node, "guest"), format!("{OWN} before\n"));
    assert_eq!(node.read(&format!("root/srv/g/{KEYS}")), format!("{OWN} new\n"));
    assert_eq!(verify(&node).code, 0);
}

/// The home moves with all that is in it (`usermod --move-home`): the keys leave there, and what the host had comes back.
#[test]
fn keys_leave_home_that_moved() {
    for with_update in [false, true] {
        let node = host();
        put_keys(&node, "root/home/guest", 1100, &format!("{OWN}\n"));
        node.commit("rendered-a.json", &users(json!([{"name": "guest", "sshAuthorizedKeys": [K1]}])));
        fs::create_dir_all(node.path("root/srv")).unwrap();
        fs::rename(node.path("root/home/guest"), node.path("root/srv/g")).unwrap();
        program(&node, "usermod", &["-d", "/srv/g", "guest"]);
        if with_update {
            put_users(&node, "b", json!([{"name": "guest", "sshAuthorizedKeys": [K2]}]));
            applied(&node, "b.json", "b");
        }
        applied(&node, "none.json", "none");
        assert_eq!(node.read(&format!("root/srv/g/{KEYS}")), format!("{OWN}\n"), "{with_update}");
        assert_eq!(verify(&node).code, 0, "{with_update}");
    }
}

/// A keys file that a person had in the new home before the config's keys followed there comes back.
#[test]
fn keys_of_person_come_back_in_new_home() {
    let node = host();
    put_keys(&node, "root/home/guest", 1100, &format!("{OWN} before\n"));
    node.commit("rendered-a.json", &users(json!([{"name": "guest", "sshAuthorizedKeys": [K1]}])));
    put_keys(&node, "root/srv/g", 1100, &format!("{OWN} new\n"));
    program(&node, "usermod", &["-d", "/srv/g", "guest"]);
    put_users(&node, "b", json!([{"name": "guest", "sshAuthorizedKeys": [K2]}]));
    applied(&node, "b.json", "b");
    assert_eq!(keys(&node, "guest"), format!("{OWN} before\n"));
    assert_eq!(node.read(&format!("root/srv/g/{KEYS}")), format!("{K2}\n"));
    applied(&node, "none.json", "none");
    assert_eq!(keys(&node, "guest"), format!("{OWN} before\n"));
    assert_eq!(node.read(&format!("root/srv/g/{KEYS}")), format!("{OWN} new\n"));
    assert_eq!(verify(&node).code, 0);
}

/// While the config lists the keys they follow the account, and leave its old home; a key that was revoked opens nothing there.
#[test]
fn keys_follow_account_to_its_home() {
    let node = host();
    node.commit("rendered-a.json", &users(json!([{"name": "guest", "sshAuthorizedKeys": [K1]}])));
    fs::create_dir_all(node.path("root/srv/g")).unwrap();
    chown(node.path("root/srv/g"), Some(1100), Some(1100)).unwrap();
    program(&node, "usermod", &["-d", "/srv/g", "guest"]);
    let named = [verify(&node).out, status(&node)];
    for text in named {
        assert!(text.contains("/home/guest") && text.contains("1 SSH key"), "{text}");
        // What ends it, and what does not.
        let words = ["the next update to another config moves them", "`usermod --home /home/guest guest`"];
        assert!(words.iter().all(|word| text.contains(word)) && !text.contains("next `apply`"), "{text}");
    }
    program(&node, "usermod", &["--home", "/home/guest", "guest"]);
    assert_eq!(verify(&node).code, 0, "as the message advises");
    program(&node, "usermod", &["--home", "/srv/g", "guest"]);
    // An update that does not change the account moves them, too.
    let mut other = users(json!([{"name": "guest", "sshAuthorizedKeys": [K1]}]));
    other["config"]["storage"] = json!({"files": [{"path": "/etc/x", "contents": {"source": "data:,x"}}]});
    node.put("c.json", config("rendered-c", &other));
    applied(&node, "c.json", "c");
    assert_eq!((keys(&node, "guest"), verify(&node).code), (String::new(), 0));
    assert_eq!(node.read(&format!("root/srv/g/{KEYS}")), format!("{K1}\n"));
    put_users(&node, "b", json!([{"name": "guest", "sshAuthorizedKeys": [K2]}]));
    applied(&node, "b.json", "b");
    assert_eq!((keys(&node, "guest"), verify(&node).code), (String::new(), 0));
    assert_eq!(node.read(&format!("root/srv/g/{KEYS}")), format!("{K2}\n"));
    program(&node, "usermod", &["-d", "/home/guest", "guest"]);
    applied(&node, "none.json", "none");
    assert_eq!((keys(&node, "guest"), verify(&node).code), (String::new(), 0));
    assert!(!node.path(&format!("root/srv/g/{KEYS}")).exists());
}

/// An account that was removed leaves its home, and another one may get it.
#[test]
fn keys_leave_home_of_removed_account() {
    for (user, id, to_other) in
        [("guest", 1100, false), ("guest", 1100, true), ("app", 0, false), ("app", 0, true)]
    {
        let node = host();
        let entry = json!({"name": user, "sshAuthorizedKeys": [K1]});
        node.commit("rendered-a.json", &users(json!([entry])));
        assert_eq!(keys(&node, user), format!("{K1}\n"), "{user} {id}");
        program(&node, "userdel", &[user]);
        if to_other {
            program(
                &node,
                "useradd",
                &["--uid=1500", "--no-create-home", "-d", &format!("/home/{user}"), "bob"],
            );
            for path in ["", ".ssh", ".ssh/authorized_keys.d", KEYS] {
                let path = node.path(&format!("root/home/{user}")).join(path);
                chown(path, Some(1500), Some(1500)).unwrap();
            }
        }
        applied(&node, "none.json", user);
        assert_eq!(keys(&node, user), "", "{user} {to_other}");
        let verified = verify(&node);
        assert_eq!(verified.code, 0, "{user} {to_other}: {}", verified.out);
    }
}

/// The home of another account: his file is not touched.
#[test]
fn keys_of_other_account_stay_when_home_moves_there() {
    let node = host();
    put_keys(&node, "root/home/core", 1000, &format!("{OWN}\n"));
    node.commit("rendered-a.json", &users(json!([{"name": "guest", "sshAuthorizedKeys": [K1]}])));
    program(&node, "usermod", &["-d", "/home/core", "guest"]);
    applied(&node, "none.json", "none");
    assert_eq!((keys(&node, "guest"), keys(&node, "core")), (String::new(), format!("{OWN}\n")));
    assert_eq!(verify(&node).code, 0);
}

/// Keys that can't be removed there are named until they are gone, also once the home is the account's again.
#[test]
fn keys_that_stay_in_old_home_are_named() {
    let node = host();
    node.commit("rendered-a.json", &users(json!([{"name": "guest", "sshAuthorizedKeys": [K1]}])));
    program(&node, "usermod", &["-d", "/srv/g", "guest"]);
    let Some(flagged) = Flagged::new(node.path(&keys_path("guest")), IFlags::IMMUTABLE) else {
        return ran::not_run("keys_that_stay_in_old_home_are_named", "chattr");
    };
    for case in ["/srv/g", "/home/guest"] {
        applied(&node, "none.json", case);
        let verified = verify(&node);
        assert_eq!(verified.code, 1, "{case}: {}", verified.out);
        for text in [verified.out, node.plan("none.json").out, status(&node)] {
            let words = ["guest", "1 SSH key", "chattr -i", "/home/guest/.ssh"];
            assert!(words.iter().all(|word| text.contains(word)), "{case}: {text}");
        }
        if case == "/srv/g" {
            program(&node, "usermod", &["-d", "/home/guest", "guest"]);
        }
    }
    drop(flagged);
    applied(&node, "none.json", "none");
    assert_eq!((keys(&node, "guest"), verify(&node).code), (String::new(), 0));
}

/// A host where the home of an account is a link to that of another with the same uid.
fn host_with_linked_home() -> Node {
    let node = host();
    let passwd = node.read("root/etc/passwd").replace("guest:x:1100:1100:", "guest:x:1000:1000:");
    node.put("root/etc/passwd", passwd);
    fs::remove_dir(node.path("root/home/guest")).unwrap();
    symlink("core", node.path("root/home/guest")).unwrap();
    node
}

/// A home that is a link to another account's: `plan` refuses it as `apply` does, and as it refuses equal paths.
#[test]
fn home_shared_through_link_is_refused() {
    let node = host_with_linked_home();
    put_users(
        &node,
        "b",
        json!([{"name": "core", "sshAuthorizedKeys": [K1]}, {"name": "guest", "sshAuthorizedKeys": [K2]}]),
    );
    for ran in [node.plan("b.json"), node.apply("b.json")] {
        let text = ran.out + &ran.err;
        assert!(ran.code == 3 && text.contains("/home/core is the home of"), "{} {text}", ran.code);
    }
    assert_eq!(keys(&node, "core"), "");
}

/// The same where only one of them stays: its keys would go with those of the other one.
#[test]
fn home_shared_through_link_keeps_keys_of_other() {
    for (old, new) in [("guest", "core"), ("core", "guest")] {
        let node = host_with_linked_home();
        node.commit("rendered-a.json", &users(json!([{"name": old, "sshAuthorizedKeys": [K1]}])));
        put_users(&node, "b", json!([{"name": new, "sshAuthorizedKeys": [K2]}]));
        for ran in [node.plan("b.json"), node.apply("b.json")] {
            let text = ran.out + &ran.err;
            assert!(ran.code == 3 && text.contains("/home/core is the home of"), "{old} {} {text}", ran.code);
        }
        assert_eq!(keys(&node, "core"), format!("{K1}\n"), "{old}");
        applied(&node, "none.json", old);
        assert_eq!((keys(&node, "core"), verify(&node).code), (String::new(), 0), "{old}");
    }
}

/// The record of accounts, or the whole state, is lost right before the config leaves: what it gave goes where it is known, and
/// the rest is named.
#[test]
fn what_config_gave_is_named_when_record_is_lost() {
    let target = ignition(json!({"passwd": {
        "groups": [{"name": "ops", "passwordHash": "$6$group"}],
        "users": [{"name": "guest", "gecos": "Managed", "shell": "/bin/bash", "groups": ["wheel"],
            "sshAuthorizedKeys": [K1], "passwordHash": "$6$one"},
            {"name": "core", "groups": ["wheel"], "sshAuthorizedKeys": [K1]}]}}));
    for case in ["accounts", "state"] {
        let node = host();
        node.put("root/etc/group", node.read("root/etc/group") + "ops:x:77:\n");
        node.put("root/etc/gshadow", node.read("root/etc/gshadow") + "ops:!::\n");
        node.commit("rendered-a.json", &target);
        if case == "accounts" {
            lose(&node, "accounts.json");
        } else {
            fs::remove_dir_all(node.path(&format!("root/{STATE}"))).unwrap();
        }
        let planned = node.plan("none.json").out;
        let words = [
            "gpasswd --delete guest wheel",
            "gpasswd --delete core wheel",
            "usermod --comment",
            "usermod --shell",
        ];
        assert!(words.iter().all(|word| planned.contains(word)), "{case}: {planned}");
        applied(&node, "none.json", case);
        assert_eq!(line(&node, "group", "wheel"), "wheel:x:10:ann,core,guest", "{case}");
        assert_eq!(line(&node, "gshadow", "ops"), "ops:!::", "{case}: the password of the config stayed");
        assert_eq!(
            (keys(&node, "guest"), password(&node, "guest")),
            (String::new(), "*".to_owned()),
            "{case}"
        );
        let planned = node.plan("none.json").out;
        assert!(!planned.contains("gpasswd"), "{case}: {planned}");
    }
}

/// A part that an entry drops is named as well.
#[test]
fn what_entry_drops_is_named_when_record_is_lost() {
    let node = host();
    let entry = json!({"name": "guest", "gecos": "Managed", "groups": ["wheel"], "passwordHash": "$6$one"});
    node.commit("rendered-a.json", &users(json!([entry])));
    lose(&node, "accounts.json");
    put_users(&node, "b", json!([{"name": "guest", "gecos": "Managed", "passwordHash": "$6$one"}]));
    let planned = node.plan("b.json").out;
    assert!(planned.contains("gpasswd --delete guest wheel") && !planned.contains("--comment"), "{planned}");
    applied(&node, "b.json", "b");
    assert_eq!(verify(&node).code, 0);
}

/// A user has changed his entry (`chfn`) before the state was lost: the config's key and hash leave all the same.
#[test]
fn secrets_leave_changed_account_when_state_is_lost() {
    let node = host();
    let entry =
        json!({"name": "guest", "gecos": "Managed", "sshAuthorizedKeys": [K1], "passwordHash": "$6$one"});
    node.commit("rendered-a.json", &users(json!([entry])));
    program(&node, "usermod", &["--comment", "Mine", "guest"]);
    fs::remove_dir_all(node.path(&format!("root/{STATE}"))).unwrap();
    applied(&node, "none.json", "none");
    assert_eq!((keys(&node, "guest"), password(&node, "guest")), (String::new(), "*".to_owned()));
}

/// An own account with another uid and without its record is known by its mark, which only a copy of its line could have, too.
#[test]
fn own_account_is_locked_with_other_uid_and_without_record() {
    for case in ["accounts", "state", "unlisted"] {
        let node = host();
        node.commit(
            "rendered-a.json",
            &users(json!([{"name": "app", "uid": 1600, "passwordHash": "$6$one"}])),
        );
        program(&node, "usermod", &["--uid", "1777", "app"]);
        match case {
            "accounts" => lose(&node, "accounts.json"),
            _ => fs::remove_dir_all(node.path(&format!("root/{STATE}"))).unwrap(),
        }
        if case == "unlisted" {
            fs::remove_dir_all(node.path("root/etc/machine-config-daemon")).unwrap();
        }
        let planned = node.plan("none.json").out;
        if case == "unlisted" {
            assert!(planned.contains("usermod --lock --expiredate 1 app"), "{case}: {planned}");
            continue;
        }
        assert!(planned.contains("lock-user"), "{case}: {planned}");
        applied(&node, "none.json", case);
        let shadow = line(&node, "shadow", "app");
        assert!(shadow.starts_with("app:*:") && shadow.split(':').nth(7) == Some("1"), "{case}: {shadow}");
        assert!(!node.plan("none.json").out.contains("usermod"), "{case}");
    }
}

/// A copy of an own account's line is the host's.
#[test]
fn copied_mark_makes_no_account_the_agents() {
    let node = host();
    node.commit("rendered-a.json", &users(json!([{"name": "app"}, {"name": "bob", "gecos": "B"}])));
    program(&node, "userdel", &["bob"]);
    let copy = |database: &str, from: &str, to: &str| {
        let copied = line(&node, database, "app").replace(from, to) + "\n";
        node.put(&format!("root/etc/{database}"), node.read(&format!("root/etc/{database}")) + &copied);
    };
    let uid = line(&node, "passwd", "app").split(':').nth(2).unwrap().to_owned();
    copy("passwd", &format!("app:x:{uid}"), "bob:x:1888");
    copy("shadow", "app:", "bob:");
    lose(&node, "accounts.json");
    let planned = node.plan("none.json").out;
    assert!(planned.contains("lock-user  app") || planned.contains("lock-user app"), "{planned}");
    applied(&node, "none.json", "none");
    assert_ne!(line(&node, "shadow", "bob").split(':').nth(7), Some("1"));
}

/// Keys of an own account that are removed late: what a person has in the file stays, and the account stays locked.
#[test]
fn late_removal_of_keys_leaves_lines_of_person() {
    let node = host();
    node.commit("rendered-a.json", &users(json!([{"name": "app", "sshAuthorizedKeys": [K1]}])));
    let path = node.path(&keys_path("app"));
    fs::write(&path, format!("{K1}\n{OWN}\n")).unwrap();
    let Some(flagged) = Flagged::new(path, IFlags::IMMUTABLE) else {
        return ran::not_run("late_removal_of_keys_leaves_lines_of_person", "chattr");
    };
    put_users(&node, "absent", json!([{"name": "app", "shouldExist": false}]));
    applied(&node, "absent.json", "absent");
    assert_eq!(verify(&node).code, 1);
    drop(flagged);
    applied(&node, "absent.json", "late");
    assert_eq!(keys(&node, "app"), format!("{OWN}\n"));
    let verified = verify(&node);
    assert_eq!(verified.code, 0, "{}", verified.out);
    assert_eq!(line(&node, "shadow", "app").split(':').nth(7), Some("1"));
    // An update does take the whole file, which is the config's.
    put_users(&node, "c", json!([{"name": "app"}]));
    applied(&node, "c.json", "c");
    assert_eq!(keys(&node, "app"), "");
}

/// A record of an update that never began says nothing of what the host gives an account later.
#[test]
fn memberships_are_recorded_anew_by_each_update() {
    let node = host();
    let in_groups = |node: &Node, groups: &[&str]| {
        for (database, middle) in [("group", "x:10"), ("gshadow", "!:")] {
            let text = node.read(&format!("root/etc/{database}"));
            let is_other = |line: &&str| !line.starts_with("wheel:") && !line.starts_with("adm:");
            let mut lines: Vec<String> = text.lines().filter(is_other).map(str::to_owned).collect();
            for name in ["wheel", "adm"] {
                let members = if groups.contains(&name) { "guest" } else { "" };
                let middle = if name == "adm" { middle.replace("10", "4") } else { middle.to_owned() };
                lines.push(format!("{name}:{middle}:{members}"));
            }
            node.put(&format!("root/etc/{database}"), lines.join("\n") + "\n");
        }
    };
    in_groups(&node, &["wheel"]);
    node.commit("rendered-a.json", &users(json!([{"name": "guest", "groups": ["wheel"]}])));
    let recorded = node.read(&format!("root/{STATE}/accounts.json"));
    assert!(recorded.contains("wheel"), "{recorded}");
    applied(&node, "none.json", "none");
    // As a crash between this record and that of the update leaves it.
    node.put(&format!("root/{STATE}/accounts.json"), recorded);
    in_groups(&node, &["wheel", "adm"]);
    node.commit("rendered-b.json", &users(json!([{"name": "guest", "groups": ["adm", "wheel"]}])));
    applied(&node, "none.json", "none");
    assert_eq!(line(&node, "group", "adm"), "adm:x:4:guest", "a membership of the host went");
    assert_eq!(line(&node, "group", "wheel"), "wheel:x:10:guest");
}

/// What a person has changed after the config set it is his: neither an entry that leaves nor one that drops a field takes it back, and
/// the plan names it.
#[test]
fn newer_values_of_person_stay_when_config_lets_them_go() {
    let entry = |name: &str| json!({"name": name, "gecos": "Managed", "shell": "/bin/bash", "groups": ["wheel"], "passwordHash": "$6$one"});
    for (user, new) in [
        ("guest", json!([])),
        ("guest", json!([{"name": "guest", "sshAuthorizedKeys": [K1]}])),
        ("app", json!([{"name": "app", "sshAuthorizedKeys": [K1]}])),
    ] {
        let case = format!("{user} {new}");
        let node = host();
        node.commit("rendered-a.json", &users(json!([entry(user)])));
        program(
            &node,
            "usermod",
            &["-c", "By hand", "-s", "/sbin/nologin", "-p", "$6$hand", "-d", "/srv/g", user],
        );
        program(&node, "usermod", &["-G", "guest,core", user]);
        let lines = || {
            let of = |database: &str| node.read(&format!("root/etc/{database}"));
            ["passwd", "shadow", "group", "gshadow"].map(of)
        };
        let by_hand = lines();
        put_users(&node, "b", new);
        let planned = node.plan("b.json").out;
        let named = format!("{user:?} gecos and shell and passwordHash: it was changed on this host after");
        assert!(planned.contains(&named), "{case}: {planned}");
        applied(&node, "b.json", &case);
        assert_eq!(lines(), by_hand, "{case}");
        assert_eq!(verify(&node).code, 0, "{case}");
        // The next config begins from there.
        node.commit("rendered-c.json", &users(json!([entry(user)])));
        assert!(line(&node, "passwd", user).contains(":Managed:"), "{case}");
        if user == "guest" {
            applied(&node, "none.json", &case);
            assert_eq!(lines(), by_hand, "{case}: again");
        }
    }
}

/// The lock of a person stays where the config has locked the password as well.
#[test]
fn lock_of_person_stays_behind_lock_of_config() {
    let node = host();
    node.commit("rendered-a.json", &users(json!([{"name": "guest", "passwordHash": "*"}])));
    program(&node, "usermod", &["-p", "!*", "guest"]);
    applied(&node, "none.json", "none");
    assert!(password(&node, "guest").starts_with('!'), "{}", password(&node, "guest"));
}

/// The same of the password of a group.
#[test]
fn newer_password_of_group_stays() {
    let node = host();
    node.put("root/etc/group", node.read("root/etc/group") + "ops:x:77:\n");
    node.put("root/etc/gshadow", node.read("root/etc/gshadow") + "ops:$6$before::\n");
    let groups = ignition(json!({"passwd": {"groups": [{"name": "ops", "passwordHash": "$6$group"}]}}));
    node.commit("rendered-a.json", &groups);
    assert_eq!(line(&node, "gshadow", "ops"), "ops:$6$group::");
    program(&node, "groupmod", &["-p", "$6$hand", "ops"]);
    let planned = node.plan("none.json").out;
    assert!(planned.contains("passwd.groups \"ops\" passwordHash: it was changed"), "{planned}");
    applied(&node, "none.json", "none");
    assert_eq!(line(&node, "gshadow", "ops"), "ops:$6$hand::");
    node.commit("rendered-c.json", &groups);
    applied(&node, "none.json", "none");
    assert_eq!(line(&node, "gshadow", "ops"), "ops:$6$hand::", "the next config begins from there");
}

/// A kill while the keys follow to another home, or leave both, loses no line of a person in either.
#[test]
fn kill_while_keys_move_loses_no_lines_of_person() {
    for (target, each) in [("b.json", 1), ("none.json", 3)] {
        let mut kills = 0;
        for number in (1..).step_by(each) {
            let node = host();
            put_keys(&node, "root/home/guest", 1100, &format!("{OWN} before\n"));
            node.commit("rendered-a.json", &users(json!([{"name": "guest", "sshAuthorizedKeys": [K1]}])));
            put_keys(&node, "root/srv/g", 1100, &format!("{OWN} new\n"));
            program(&node, "usermod", &["-d", "/srv/g", "guest"]);
            put_users(&node, "b", json!([{"name": "guest", "sshAuthorizedKeys": [K2]}]));
            let mut command = node.command(&apply(target));
            let ended = command.env("MCA_FAIL_POINT", format!("kill:{number}")).output().unwrap().status;
            let at = |path: &str| node.path(&format!("root/{STATE}/{path}"));
            let record = fs::read_to_string(at("record.json")).unwrap_or_default();
            // From the verification on nothing is changed.
            if ended.success() || record.contains("erifying") {
                break;
            }
            if !has_originals(&at("preimages")) {
                continue;
            }
            kills += 1;
            let case = format!("{target} killed at point {number}");
            let found = |new: &str| {
                let found = (keys(&node, "guest"), node.read(&format!("root/srv/g/{KEYS}")));
                assert_eq!(found, (format!("{OWN} before\n"), format!("{new}\n")), "{case}");
            };
            if target == "b.json" {
                applied(&node, target, &case);
                found(K2);
            }
            applied(&node, "none.json", &case);
            found(&format!("{OWN} new"));
        }
        assert!(kills > 3, "{target} {kills}");
    }
}

/// Returns true if a batch of an update has its originals.
fn has_originals(preimages: &Path) -> bool {
    let Ok(updates) = fs::read_dir(preimages) else { return false };
    updates.flatten().any(|update| update.path().join("0.json").exists())
}

/// Keys that can't leave the home of before when others follow to the new one: once they can, the file of the person comes back there.
#[test]
fn late_removal_in_home_of_before_restores_file_of_person() {
    let node = host();
    put_keys(&node, "root/home/guest", 1100, &format!("{OWN} before\n"));
    node.commit("rendered-a.json", &users(json!([{"name": "guest", "sshAuthorizedKeys": [K1]}])));
    put_keys(&node, "root/srv/g", 1100, &format!("{OWN} new\n"));
    program(&node, "usermod", &["-d", "/srv/g", "guest"]);
    let Some(flagged) = Flagged::new(node.path(&keys_path("guest")), IFlags::IMMUTABLE) else {
        return ran::not_run("late_removal_in_home_of_before_restores_file_of_person", "chattr");
    };
    put_users(&node, "b", json!([{"name": "guest", "sshAuthorizedKeys": [K2]}]));
    applied(&node, "b.json", "b");
    assert_eq!((keys(&node, "guest"), verify(&node).code), (format!("{K1}\n"), 1));
    drop(flagged);
    applied(&node, "b.json", "late");
    assert_eq!((keys(&node, "guest"), verify(&node).code), (format!("{OWN} before\n"), 0));
    applied(&node, "none.json", "none");
    assert_eq!(node.read(&format!("root/srv/g/{KEYS}")), format!("{OWN} new\n"));
}
