//! Directories on the way to what a config has: of other accounts, as the same config makes them, and those in whose place somebody
//! has put something else. What `plan` lets pass, `apply` writes.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

use crate::test_host::{Node, STATE, config, ignition};

const CORE: u32 = 1000;

/// A host whose home of `core` is its own, and with `/tmp`.
fn host() -> Node {
    let node = Node::new();
    chown(node.path("root/home/core"), Some(CORE), Some(CORE)).unwrap();
    fs::create_dir(node.path("root/tmp")).unwrap();
    node.mode("root/tmp", 0o1777);
    let none = json!([{"type": "None"}]);
    let files = ["/etc", "/home", "/tmp"].map(|path| json!({"path": path, "actions": none}));
    let units = json!([{"name": "a.service", "actions": none}]);
    let policy = json!({"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
        "metadata": {"name": "cluster"},
        "spec": {"nodeDisruptionPolicy": {"files": files, "units": units, "sshkey": {"actions": none}}}});
    node.put("policy.json", policy.to_string());
    node
}

fn storage(parts: Value) -> Value {
    ignition(json!({ "storage": parts }))
}

fn file(path: &str) -> Value {
    json!({"path": path, "contents": {"source": "data:,ours"}})
}

fn directory(path: &str, owner: &str) -> Value {
    json!({"path": path, "mode": 0o711, "user": {"name": owner}})
}

fn with_users(mut spec: Value, users: Value) -> Value {
    spec["config"]["passwd"] = json!({ "users": users });
    spec
}

/// Plans and applies: both are refused with these words and with no advice that breaks an account, and nothing is touched.
fn is_refused(node: &Node, spec: &Value, words: &[&str]) {
    node.put("b.json", config("rendered-b", spec));
    let before = [node.listing("root/etc"), node.listing("root/home"), node.listing("root/tmp")];
    let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
    let text = format!("{spec}\n{}{}{}", planned.out, planned.err, applied.err);
    assert_eq!((planned.code, applied.code), (3, 3), "{text}");
    assert!(words.iter().all(|words| planned.out.contains(words)), "{words:?}: {text}");
    assert!(!text.contains("chown"), "{text}");
    let after = [node.listing("root/etc"), node.listing("root/home"), node.listing("root/tmp")];
    assert_eq!(after, before, "{text}");
}

fn agrees(node: &Node, spec: &Value) {
    node.put("b.json", config("rendered-b", spec));
    let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
    let text = format!("{spec}\n{}{}{}", planned.out, planned.err, applied.err);
    assert_eq!((planned.code, applied.code), (0, 0), "{text}");
}

/// The home of `core` and `/tmp` are the host's, the directory in them the config's; the account may come with it.
#[test]
fn directory_of_account_in_directory_of_other_is_refused_with_entry_in_it() {
    let in_it = |at: &str, owner: &str, entry: &str| {
        let mut parts = json!({"directories": [directory(at, owner)]});
        match entry {
            "file" => parts["files"] = json!([file(&format!("{at}/in"))]),
            "deep" => parts["files"] = json!([file(&format!("{at}/a/b/in"))]),
            "link" => parts["links"] = json!([{"path": format!("{at}/in"), "target": "x"}]),
            _ => {
                parts["directories"].as_array_mut().unwrap().push(json!({"path": format!("{at}/in")}));
            }
        }
        storage(parts)
    };
    let users = json!([{"name": "alice"}, {"name": "core"}]);
    for at in ["/home/core/f", "/tmp/f"] {
        for entry in ["file", "deep", "link", "directory"] {
            let spec = with_users(in_it(at, "alice", entry), users.clone());
            is_refused(&host(), &spec, &[at, "alice", "or to the owner"]);
        }
        // It is the config that decides, not who has the number by now.
        let mut spec = in_it(at, "alice", "file");
        spec["config"]["storage"]["directories"][0]["user"] = json!({"id": 1777});
        is_refused(&host(), &spec, &[at, "1777"]);
    }
    for (at, owner) in [("/home/core/f", "core"), ("/home/core/f", "root"), ("/tmp/f", "root")] {
        agrees(&host(), &with_users(in_it(at, owner, "deep"), users.clone()));
    }
    // Its own files may be there.
    for at in ["/home/core/f", "/tmp/f"] {
        let mut spec = with_users(in_it(at, "alice", "file"), users.clone());
        spec["config"]["storage"]["files"][0]["user"] = json!({"name": "alice"});
        agrees(&host(), &spec);
    }
    // A home that comes with the same config.
    let new = json!([{"name": "alice"}, {"name": "bob"}]);
    is_refused(&host(), &with_users(in_it("/home/bob/f", "alice", "file"), new.clone()), &["/home/bob/f"]);
    agrees(&host(), &with_users(in_it("/home/bob/f", "bob", "file"), new));
}

/// An entry that stays, and a hard link's file, are reached by the same way.
#[test]
fn directory_that_changes_hands_is_refused_with_what_is_in_it() {
    let of = |owner: &str, files: &[&str]| {
        let files: Vec<Value> = files.iter().map(|path| file(path)).collect();
        storage(json!({"directories": [directory("/home/core/f", owner)], "files": files}))
    };
    let node = host();
    node.put("root/etc/passwd", node.read("root/etc/passwd") + "alice:x:1001:1001::/home/alice:/bin/sh\n");
    node.commit("rendered-a.json", &of("core", &["/home/core/f/in"]));
    is_refused(&node, &of("alice", &["/home/core/f/in"]), &["/home/core/f", "alice"]);
    // What goes, goes before.
    agrees(&node, &of("alice", &[]));
    // The host's own directory comes back, and is alice's.
    let node = host();
    fs::create_dir(node.path("root/home/core/f")).unwrap();
    chown(node.path("root/home/core/f"), Some(1001), Some(1001)).unwrap();
    node.commit("rendered-a.json", &storage(json!({"directories": [directory("/home/core/f", "core")]})));
    node.commit("rendered-a2.json", &of("core", &["/home/core/f/in"]));
    node.commit("rendered-c.json", &storage(json!({})));
    // A hard link to a file in a directory that others may write to.
    let node = host();
    node.put("root/etc/open/f", "theirs");
    node.mode("root/etc/open", 0o777);
    let hard = json!([{"path": "/etc/h", "target": "/etc/open/f", "hard": true}]);
    is_refused(&node, &storage(json!({ "links": hard })), &["/etc/open can be written by others"]);
}

/// Keys are in directories of their account, whatever the config makes of the home.
#[test]
fn home_in_hands_of_other_is_refused_with_keys() {
    let users = json!([{"name": "alice"}, {"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA a"]}]);
    let spec = with_users(storage(json!({"directories": [directory("/home/core", "alice")]})), users);
    is_refused(&host(), &spec, &["/home/core", "alice"]);
}

type Put = fn(&Path);

/// What an administrator may put in the place of a directory.
const KINDS: [(&str, Put); 5] = [
    ("a file", |at| fs::write(at, "mine").unwrap()),
    ("a pipe", |at| mknodat(CWD, at, FileType::Fifo, Mode::RWXU, 0).unwrap()),
    ("a socket", |at| drop(std::os::unix::net::UnixListener::bind(at).unwrap())),
    ("a link to a file", |at| symlink("/etc/passwd", at).unwrap()),
    ("a link to itself", |at| symlink(at.file_name().unwrap(), at).unwrap()),
];

const UNIT: &str = "/etc/systemd/system";

/// All kinds of entries, each in a directory of its own.
fn everything() -> Value {
    let unit = json!({"name": "a.service", "contents": "[Service]\nExecStart=/bin/true\n",
        "dropins": [{"name": "a.conf", "contents": "[Unit]\n"}]});
    json!({"config": {"ignition": {"version": "3.5.0"}, "systemd": {"units": [unit]}, "storage": {
        "files": [file("/etc/app/f"), file("/etc/deep/er/f"), file("/etc/listed/f")],
        "directories": [{"path": "/etc/dir/d"}, {"path": "/etc/listed"}],
        "links": [{"path": "/etc/link/l", "target": "x"}, {"path": "/etc/hard/l", "target": "/etc/motd", "hard": true}]}}})
}

/// A directory that is none any more has nothing in it that could be removed.
#[test]
fn entry_leaves_whose_directory_was_replaced() {
    let replaced = [
        "/etc/app",
        "/etc/deep",
        "/etc/dir",
        "/etc/link",
        "/etc/hard",
        "/etc/listed",
        "/etc/systemd/system/a.service.d",
    ];
    for (kind, put) in KINDS {
        for import in [false, true] {
            let node = host();
            node.put("root/etc/motd", "host");
            let spec = everything();
            node.commit("rendered-a.json", &spec);
            if import {
                fs::remove_dir_all(node.path(&format!("root/{STATE}"))).unwrap();
                node.put(&format!("root/{STATE}/lock"), "");
                node.mode(&format!("root/{STATE}"), 0o700);
                node.put("root/etc/machine-config-daemon/currentconfig", config("rendered-a", &spec));
            }
            for path in replaced {
                let at = node.path(&format!("root{path}"));
                fs::remove_dir_all(&at).unwrap();
                put(&at);
            }
            let empty = storage(json!({}));
            node.put("b.json", config("rendered-b", &empty));
            let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
            let text = format!("{kind} {import}\n{}{}{}", planned.out, planned.err, applied.err);
            if *kind == *"a link to itself" {
                // Whether something is there can't be told.
                assert_eq!((planned.code, applied.code), (3, 3), "{text}");
                // What was not applied of an import has no step.
                let named = if import { &replaced[..2] } else { &replaced[..] };
                assert!(named.iter().all(|path| text.contains(&format!("move {path} away"))), "{text}");
                continue;
            }
            assert_eq!((planned.code, applied.code), (0, 0), "{text}");
            for path in replaced {
                let found = fs::symlink_metadata(node.path(&format!("root{path}")));
                assert!(found.is_ok_and(|found| !found.is_dir()), "{kind} {path}");
            }
            assert!(!node.path(&format!("root{UNIT}/a.service")).exists(), "{text}");
        }
    }
}

/// An original that has to come back needs its directory: the plan says so, and the advice leads on.
#[test]
fn original_whose_directory_was_replaced_is_refused() {
    for (kind, put) in &KINDS[..4] {
        let node = host();
        node.put("root/etc/app/f", "of the host");
        node.commit("rendered-a.json", &storage(json!({"files": [file("/etc/app/f")]})));
        let at = node.path("root/etc/app");
        fs::remove_dir_all(&at).unwrap();
        put(&at);
        is_refused(
            &node,
            &storage(json!({})),
            &["/etc/app is a", "move /etc/app away", "needs a directory there"],
        );
        fs::remove_file(&at).unwrap();
        node.commit("rendered-b.json", &storage(json!({})));
        assert_eq!(node.read("root/etc/app/f"), "of the host", "{kind}");
    }
}

/// Somebody closed or opened the directory, and what was in it is gone.
#[test]
fn entry_leaves_that_is_gone_from_directory_of_others() {
    let node = host();
    node.commit("rendered-a.json", &storage(json!({"files": [file("/etc/app/f")]})));
    fs::remove_file(node.path("root/etc/app/f")).unwrap();
    node.mode("root/etc/app", 0o777);
    agrees(&node, &storage(json!({})));
}

/// A home that is none any more, with keys in it that leave.
#[test]
fn keys_leave_whose_home_was_replaced() {
    for (kind, put) in KINDS {
        for below in ["", "/.ssh", "/.ssh/authorized_keys.d"] {
            let node = host();
            let users = json!([{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA a"]}]);
            node.commit("rendered-a.json", &with_users(storage(json!({})), users));
            let at = node.path(&format!("root/home/core{below}"));
            fs::remove_dir_all(&at).unwrap();
            put(&at);
            node.put("b.json", config("rendered-b", &storage(json!({}))));
            let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
            let text = format!("{kind} {below}\n{}{}{}", planned.out, planned.err, applied.err);
            assert_eq!((planned.code, applied.code), (0, 0), "{text}");
        }
    }
}

/// The links of units are in directories as well.
#[test]
fn unit_leaves_whose_directory_of_links_was_replaced() {
    for (kind, put) in KINDS {
        let node = host();
        let unit = json!({"name": "a.service", "enabled": true,
            "contents": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"});
        let spec = json!({"config": {"ignition": {"version": "3.5.0"}, "systemd": {"units": [unit]}}});
        node.commit("rendered-a.json", &spec);
        let at = node.path(&format!("root{UNIT}/multi-user.target.wants"));
        fs::remove_dir_all(&at).unwrap();
        put(&at);
        node.put("b.json", config("rendered-b", &storage(json!({}))));
        let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
        let text = format!("{kind}\n{}{}{}", planned.out, planned.err, applied.err);
        assert_eq!(planned.code, applied.code, "{text}");
        assert_eq!(planned.code, 0, "{text}");
    }
}

/// A person's content is the original from then on, as if it had been there before the update.
#[test]
fn file_put_in_place_of_file_of_open_update_is_kept() {
    for before in [None, Some("of the host")] {
        for point in ["originals-saved", "renamed"] {
            let node = host();
            if let Some(text) = before {
                node.put("root/etc/app/f", text);
            }
            node.put(
                "b.json",
                config("rendered-b", &storage(json!({"files": [file("/etc/app/f"), file("/etc/z")]}))),
            );
            let mut command = node.command(&crate::test_host::apply("b.json"));
            let output = command.env("MCA_FAIL_POINT", format!("kill:{point}")).output().unwrap();
            assert!(!output.status.success());
            node.put("root/etc/app/f", "a person's");
            let ran = node.apply("b.json");
            assert_eq!((ran.code, node.read("root/etc/app/f").as_str()), (0, "ours"), "{}", ran.err);
            node.commit("rendered-c.json", &storage(json!({})));
            assert_eq!(node.read("root/etc/app/f"), "a person's", "{before:?} {point}");
        }
    }
    // Without a person nothing is of the batch but its own.
    let node = host();
    node.put("root/etc/app/f", "of the host");
    node.put("b.json", config("rendered-b", &storage(json!({"files": [file("/etc/app/f")]}))));
    for point in ["originals-saved", "renamed"] {
        let mut command = node.command(&crate::test_host::apply("b.json"));
        drop(command.env("MCA_FAIL_POINT", format!("kill:{point}")).output().unwrap());
    }
    assert_eq!(node.apply("b.json").code, 0);
    node.commit("rendered-c.json", &storage(json!({})));
    assert_eq!(node.read("root/etc/app/f"), "of the host");
}

/// A directory of the host that was listed, and is another thing by now: only its mode and owner could come back.
#[test]
fn listed_directory_leaves_that_somebody_replaced() {
    for (kind, put) in KINDS {
        for of_host in [false, true] {
            let node = host();
            if of_host {
                fs::create_dir(node.path("root/etc/dir")).unwrap();
            }
            let listed = json!({"directories": [{"path": "/etc/dir", "mode": 0o711}]});
            node.commit("rendered-a.json", &storage(listed));
            let at = node.path("root/etc/dir");
            fs::remove_dir(&at).unwrap();
            put(&at);
            agrees(&node, &storage(json!({})));
            assert!(fs::symlink_metadata(&at).is_ok_and(|found| !found.is_dir()), "{kind} {of_host}");
        }
    }
}

/// The programs for accounts open no link, and below a root of another machine they want all databases plain.
#[test]
fn linked_databases_are_refused_before_anything_changes() {
    let group = || ignition(json!({"passwd": {"groups": [{"name": "gg"}]}}));
    let user = |attributes: Value| with_users(ignition(json!({})), json!([attributes]));
    for (database, spec) in [
        ("shadow", group()),
        ("passwd", group()),
        ("subuid", group()),
        ("shadow", user(json!({"name": "bob"}))),
        ("subgid", user(json!({"name": "core", "shell": "/bin/bash"}))),
        ("shadow", user(json!({"name": "core", "passwordHash": "$6$a$b"}))),
    ] {
        for target in ["../var/linked", "nowhere"] {
            let node = host();
            let path = node.path(&format!("root/etc/{database}"));
            let text = fs::read(&path).unwrap_or_default();
            node.put("root/var/linked", text);
            node.mode("root/var/linked", 0o600);
            drop(fs::remove_file(&path));
            symlink(target, &path).unwrap();
            if target == "nowhere" && database == "passwd" {
                continue;
            }
            is_refused(&node, &spec, &[&format!("/etc/{database} is a link")]);
            assert!(fs::symlink_metadata(&path).unwrap().is_symlink(), "{database}");
        }
    }
}

/// An interrupted update has made a directory in the place of a file or a link of the old config: the plan takes it for the agent's own.
#[test]
fn directory_that_open_update_made_is_no_obstacle() {
    let put = |node: &Node, to: &Value| {
        node.put("b.json", config("rendered-b", to));
    };
    let below = storage(json!({"files": [file("/etc/d/f")]}));
    let (one, link) =
        (json!({"files": [file("/etc/d")]}), json!({"links": [{"path": "/etc/d", "target": "/opt"}]}));
    let mut between = 0;
    for from in [one, link] {
        for point in (16..34).step_by(2) {
            let node = host();
            node.commit("rendered-a.json", &storage(from.clone()));
            put(&node, &below);
            let mut killed = node.command(&crate::test_host::apply("b.json"));
            killed.env("MCA_FAIL_POINT", format!("kill:{point}")).output().unwrap();
            between += usize::from(node.path("root/etc/d").is_dir());
            let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
            let text = format!("{from} {point}: {}{}{}", planned.out, planned.err, applied.err);
            assert_eq!((planned.code, applied.code), (0, 0), "{text}");
        }
    }
    assert!(between > 4, "{between}");
    // A directory that somebody else put there is one.
    let node = host();
    node.commit("rendered-a.json", &storage(json!({"files": [file("/etc/d")]})));
    put(&node, &below);
    fs::remove_file(node.path("root/etc/d")).unwrap();
    fs::create_dir(node.path("root/etc/d")).unwrap();
    is_refused(&node, &below, &["/etc/d is a directory, not a file"]);
}

/// An interrupted update has removed files, and a person makes one of them again: it is no config's.
#[test]
fn file_put_where_open_update_removed_one_stays() {
    let mut between = 0;
    for (put, text) in [("a file", "a person's"), ("a link", "")] {
        for point in 14..34 {
            let node = host();
            node.commit("rendered-a.json", &storage(json!({"files": [file("/etc/app/f"), file("/etc/z")]})));
            node.put("b.json", config("rendered-b", &storage(json!({}))));
            let mut killed = node.command(&crate::test_host::apply("b.json"));
            let killed = killed.env("MCA_FAIL_POINT", format!("kill:{point}")).output().unwrap();
            if killed.status.success() || node.path("root/etc/app/f").exists() {
                continue;
            }
            between += 1;
            fs::create_dir_all(node.path("root/etc/app")).unwrap();
            if put == "a file" {
                node.put("root/etc/app/f", text);
            } else {
                symlink("elsewhere", node.path("root/etc/app/f")).unwrap();
            }
            let ran = node.apply("b.json");
            assert_eq!(ran.code, 0, "{put} {point}: {}", ran.err);
            assert!(fs::symlink_metadata(node.path("root/etc/app/f")).is_ok(), "{put} {point}: {}", ran.err);
            assert!(!node.path("root/etc/z").exists());
        }
    }
    assert!(between > 6, "{between}");
}
