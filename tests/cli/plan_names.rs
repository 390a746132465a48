//! Files of the host that are not what an entry takes them for: two names of one file, and what somebody put in the place of an entry.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::test_host::{Node, config, ignition};

fn files(paths: &[&str]) -> Value {
    let file = |path: &&str| json!({"path": path, "contents": {"source": "data:,new"}});
    ignition(json!({"storage": {"files": paths.iter().map(file).collect::<Vec<_>>()}}))
}

fn with_users(mut spec: Value, users: Value) -> Value {
    spec["config"]["passwd"] = json!({ "users": users });
    spec
}

fn keys() -> Value {
    json!([{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA a"]}])
}

/// Plans and applies; both are refused, and the host is as before.
fn is_refused(node: &Node, spec: &Value, words: &str) {
    node.put("b.json", config("rendered-b", spec));
    let before = node.listing("root/etc");
    let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
    let text = format!("{spec}: {}{} {}", planned.out, planned.err, applied.err);
    assert_eq!((planned.code, applied.code), (3, 3), "{text}");
    assert!(planned.out.contains(words) && applied.err.contains(words), "{text}");
    assert_eq!(node.listing("root/etc"), before);
}

/// A file that the agent or useradd(8) replaces has a new inode: a hard link would keep the old file, whether the host has it already or not.
#[test]
fn hard_links_to_what_is_replaced_are_refused() {
    let hard = |path: &str, target: &str| json!([{"path": path, "target": target, "hard": true}]);
    let with = |target: &str, users: Value| {
        with_users(ignition(json!({"storage": {"links": hard("/etc/hh", target)}})), users)
    };
    let password = json!([{"name": "core", "passwordHash": "$6$a$b"}]);
    let current = "/etc/machine-config-daemon/currentconfig";
    let file = "/home/core/.ssh/authorized_keys.d/ignition";
    for (target, users, words) in [
        ("/etc/shadow", password.clone(), "passwd of the same config replaces /etc/shadow"),
        ("/etc/passwd", json!([{"name": "bob"}]), "passwd of the same config replaces /etc/passwd"),
        (file, keys(), "the agent writes the keys of passwd.users \"core\" to"),
        (
            "/var/home/core/.ssh/authorized_keys.d/ignition",
            keys(),
            "the agent writes the keys of passwd.users \"core\" to",
        ),
        (current, json!([]), "the agent replaces /etc/machine-config-daemon/currentconfig"),
        (
            "/alias/machine-config-daemon/currentconfig",
            json!([]),
            "the agent replaces /alias/machine-config-daemon",
        ),
    ] {
        for is_there in [false, true] {
            let node = Node::new();
            symlink("etc", node.path("root/alias")).unwrap();
            std::fs::create_dir_all(node.path("root/var")).unwrap();
            symlink("../home", node.path("root/var/home")).unwrap();
            node.commit("rendered-a.json", &with_users(files(&["/etc/a"]), keys()));
            if is_there {
                let (from, to) = (node.path(&format!("root{target}")), node.path("root/etc/hh"));
                std::fs::hard_link(from, to).unwrap();
            }
            is_refused(&node, &with(target, users.clone()), words);
        }
    }
    // Nothing replaces these, and what was applied can be left.
    let node = Node::new();
    node.commit("rendered-a.json", &with("/etc/shadow", json!([])));
    assert_eq!(node.run(&["verify", "--root", "root", "--os-backend", "none"]).code, 0);
    is_refused(
        &node,
        &with("/etc/shadow", password.clone()),
        "passwd of the same config replaces /etc/shadow",
    );
    node.commit("rendered-c.json", &with_users(files(&[]), password));
    assert!(!node.path("root/etc/hh").exists());
    // A listed file by another name.
    let node = Node::new();
    symlink("etc", node.path("root/alias")).unwrap();
    let mut spec = files(&["/etc/f"]);
    spec["config"]["storage"]["links"] = hard("/etc/hh", "/alias/f");
    node.put("root/etc/f", "old");
    is_refused(&node, &spec, "its target /alias/f is the file /etc/f of the config");
    spec["config"]["storage"]["links"] = hard("/etc/hh", "/etc/f");
    node.commit("rendered-d.json", &spec);
}

/// `/home` and `/var/home` are one directory where one is a link to the other, and else two.
#[test]
fn home_of_account_that_exists_is_compared_where_it_is() {
    let host = |is_one: bool| {
        let node = Node::new();
        node.put(
            "root/etc/passwd",
            format!("{}bob:x:1007:1007::/home/bob:/bin/sh\n", node.read("root/etc/passwd")),
        );
        node.put("root/etc/group", format!("{}bob:x:1007:\n", node.read("root/etc/group")));
        node.put("root/etc/shadow", format!("{}bob:*:19000:0:99999:7:::\n", node.read("root/etc/shadow")));
        if is_one {
            std::fs::create_dir_all(node.path("root/var")).unwrap();
            std::fs::rename(node.path("root/home"), node.path("root/var/home")).unwrap();
            symlink("var/home", node.path("root/home")).unwrap();
        }
        node
    };
    let spec = |home: &str| with_users(files(&[]), json!([{"name": "bob", "homeDir": home}]));
    let node = host(false);
    is_refused(
        &node,
        &spec("/var/home/bob"),
        "the account exists with /home/bob, and /var/home/bob can only",
    );
    node.commit("rendered-a.json", &spec("/home/bob/"));
    let node = host(true);
    node.commit("rendered-a.json", &spec("/var/home/bob"));
    assert_eq!(node.run(&["verify", "--root", "root", "--os-backend", "none"]).code, 0);
    is_refused(
        &node,
        &spec("/var/home/rob"),
        "the account exists with /home/bob, and /var/home/rob can only",
    );
}

/// A person's file in the place of what an interrupted update writes outlives the undo: nobody has saved it.
#[test]
fn file_put_in_place_of_file_of_undone_update_is_moved_aside() {
    for before in [None, Some("host")] {
        for target in ["empty.json", "b.json"] {
            let node = Node::new();
            node.put("b.json", config("rendered-b", &files(&["/etc/b"])));
            node.put("empty.json", config("rendered-empty", &files(&[])));
            if let Some(text) = before {
                node.put("root/etc/b", text);
            }
            let mut command = node.command(&crate::test_host::apply("b.json"));
            let output = command.env("MCA_FAIL_POINT", "kill:originals-saved").output().unwrap();
            assert!(!output.status.success());
            node.put("root/etc/b", "a person's");
            let applied = node.apply(target);
            assert_eq!(applied.code, 0, "{}", applied.err);
            if target == "b.json" {
                // Saved as the original, by the run that goes on.
                assert_eq!(node.apply("empty.json").code, 0);
                assert_eq!(node.read("root/etc/b"), "a person's");
                continue;
            }
            assert_eq!(node.read("root/etc/b.mca-foreign"), "a person's", "{}", applied.err);
            assert!(applied.err.contains("moved aside to /etc/b.mca-foreign"), "{}", applied.err);
            assert_eq!(node.path("root/etc/b").exists(), before.is_some());
        }
    }
}

/// The same in the place of a link, which is moved aside, and of a directory, where nothing of the update is.
#[test]
fn file_put_in_place_of_link_or_directory_of_undone_update_is_kept() {
    let directory = json!({"directories": [{"path": "/etc/d"}]});
    let link = json!({"links": [{"path": "/etc/d", "target": "b"}]});
    for (storage, path) in [(directory, "root/etc/d"), (link, "root/etc/d.mca-foreign")] {
        let node = Node::new();
        node.put("b.json", config("rendered-b", &ignition(json!({ "storage": storage }))));
        node.put("empty.json", config("rendered-empty", &files(&[])));
        let mut command = node.command(&crate::test_host::apply("b.json"));
        let output = command.env("MCA_FAIL_POINT", "kill:originals-saved").output().unwrap();
        assert!(!output.status.success());
        node.put("root/etc/d", "a person's");
        assert_eq!((node.plan("empty.json").code, node.apply("empty.json").code), (0, 0), "{path}");
        assert_eq!(node.read(path), "a person's");
    }
}

/// A person's link is moved aside as a file is.
#[test]
fn link_put_in_place_of_file_of_undone_update_is_moved_aside() {
    for (kill, entry) in [
        ("kill:originals-saved", files(&["/etc/b"])),
        ("kill:renamed", files(&["/etc/b"])),
        (
            "kill:originals-saved",
            ignition(json!({"storage": {"links": [{"path": "/etc/b", "target": "a"}]}})),
        ),
    ] {
        let node = Node::new();
        node.put("b.json", config("rendered-b", &entry));
        node.put("empty.json", config("rendered-empty", &files(&[])));
        let mut command = node.command(&crate::test_host::apply("b.json"));
        assert!(!command.env("MCA_FAIL_POINT", kill).output().unwrap().status.success());
        drop(std::fs::remove_file(node.path("root/etc/b")));
        std::os::unix::fs::symlink("person", node.path("root/etc/b")).unwrap();
        let applied = node.apply("empty.json");
        assert_eq!(applied.code, 0, "{kill}: {}", applied.err);
        let aside = std::fs::read_link(node.path("root/etc/b.mca-foreign"));
        assert_eq!(aside.unwrap().to_str(), Some("person"), "{kill}: {}", applied.err);
        assert!(!node.path("root/etc/b").is_symlink(), "{kill}");
    }
}

/// A host with an account of its own, which has keys and a password.
fn with_account(expiry: &str) -> Node {
    let node = Node::new();
    let passwd = node.read("root/etc/passwd");
    node.put("root/etc/passwd", format!("{passwd}bob:x:1777:1777:Bob:/home/bob:/bin/sh\n"));
    node.put(
        "root/etc/shadow",
        format!("{}bob:$6$h$h:19000:0:99999:7::{expiry}:\n", node.read("root/etc/shadow")),
    );
    node.put("root/home/bob/.ssh/authorized_keys.d/ignition", "ssh-ed25519 HOST bob\n");
    for path in ["", ".ssh", ".ssh/authorized_keys.d", ".ssh/authorized_keys.d/ignition"] {
        let path = node.path(&format!("root/home/bob/{path}"));
        std::os::unix::fs::chown(path, Some(1777), Some(1777)).unwrap();
    }
    node
}

/// What an account of the host had comes back once, also where the run that put it back was cut off.
#[test]
fn account_of_host_has_its_own_again_after_kills() {
    let spec = with_users(
        files(&[]),
        json!([{"name": "bob", "passwordHash": "$6$n$n", "sshAuthorizedKeys": ["ssh-ed25519 NEW n"]}]),
    );
    let mut kills = 0;
    for place in 1..120 {
        let node = with_account("");
        node.commit("rendered-a.json", &spec);
        assert!(node.read("root/etc/shadow").contains("bob:$6$n$n:"));
        node.put("empty.json", config("rendered-empty", &files(&[])));
        let mut command = node.command(&crate::test_host::apply("empty.json"));
        let is_over =
            command.env("MCA_FAIL_POINT", format!("kill:{place}")).output().unwrap().status.success();
        assert_eq!(node.apply("empty.json").code, 0, "{place}");
        assert!(
            node.read("root/etc/shadow").contains("bob:$6$h$h:"),
            "{place}: {}",
            node.read("root/etc/shadow")
        );
        let keys = node.read("root/home/bob/.ssh/authorized_keys.d/ignition");
        assert_eq!(keys, "ssh-ed25519 HOST bob\n", "{place}");
        if is_over {
            break;
        }
        kills += 1;
    }
    assert!((20..119).contains(&kills), "{kills}");
}

/// An account of the host that an administrator had expire stays so.
#[test]
fn expiry_of_account_of_host_stays() {
    for expiry in ["1", "0", "19500"] {
        let node = with_account(expiry);
        let line = format!("bob:$6$h$h:19000:0:99999:7::{expiry}:");
        node.commit("rendered-a.json", &with_users(files(&[]), json!([{"name": "bob", "gecos": "Other"}])));
        assert!(node.read("root/etc/passwd").contains(":Other:"));
        assert!(node.read("root/etc/shadow").contains(&line), "{expiry}: {}", node.read("root/etc/shadow"));
        node.commit("rendered-empty.json", &files(&[]));
        assert!(node.read("root/etc/shadow").contains(&line), "{expiry}");
    }
}

/// The agent gives directories of keys to their account, with mode 0700: others are refused before anything is touched.
#[test]
fn directories_of_keys_are_refused_with_other_attributes() {
    for (directory, is_taken) in [
        (json!({"path": "/home/core/.ssh", "mode": 0o755}), false),
        (json!({"path": "/home/core/.ssh/authorized_keys.d", "mode": 0o755}), false),
        (json!({"path": "/home/core/.ssh", "user": {"id": 0}}), false),
        (json!({"path": "/home/core/.ssh", "user": {"name": "root"}}), false),
        (json!({"path": "/home/core/.ssh", "mode": 0o700, "user": {"name": "core"}}), true),
    ] {
        let spec = with_users(ignition(json!({"storage": {"directories": [directory]}})), keys());
        let node = Node::new();
        if is_taken {
            node.put("a.json", config("rendered-a", &spec));
            let (planned, applied) = (node.plan("a.json"), node.apply("a.json"));
            // It reboots.
            assert_eq!((planned.code, applied.code), (0, 133), "{directory}: {}{}", planned.out, applied.err);
        } else {
            is_refused(&node, &spec, "below directories of core with mode 0700");
        }
    }
}
