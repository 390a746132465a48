//! What `plan` says `apply` does: a config that can't be applied here is refused before anything is touched, and one that was
//! applied can be left.

use std::fmt::Write as _;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::test_host::{Node, config, ignition};

fn file(path: &str) -> Value {
    json!({"path": path, "contents": {"source": "data:,new"}})
}

fn files(paths: &[&str]) -> Value {
    ignition(json!({"storage": {"files": paths.iter().map(|path| file(path)).collect::<Vec<_>>()}}))
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
    let planned = node.plan("b.json");
    assert_eq!(planned.code, 3, "{spec}: {}{}", planned.out, planned.err);
    assert!(planned.out.contains(words), "{}", planned.out);
    let applied = node.apply("b.json");
    assert!(applied.code == 3 && applied.err.contains(words), "{}: {}", applied.code, applied.err);
    assert_eq!(node.listing("root/etc"), before);
}

#[test]
fn paths_that_agent_writes_itself_are_refused_beside_it() {
    let user = json!([{"name": "guest"}]);
    let link = json!([{"path": "/home/core/.ssh", "target": "/etc"}]);
    let table = [
        (
            with_users(files(&["/etc/passwd"]), user.clone()),
            r#"storage.files "/etc/passwd": passwd of the same config"#,
        ),
        (
            with_users(files(&["/etc/shadow"]), json!([{"name": "core", "passwordHash": "$6$a$b"}])),
            "/etc/shadow",
        ),
        (
            with_users(files(&["/home/core/.ssh/authorized_keys.d/ignition"]), keys()),
            r#"the agent writes the keys of passwd.users "core""#,
        ),
        (
            with_users(ignition(json!({"storage": {"links": link}})), keys()),
            r#"storage.links "/home/core/.ssh""#,
        ),
        (files(&["/etc/machine-config-daemon/currentconfig"]), "the agent writes this file"),
    ];
    for (spec, words) in table {
        is_refused(&Node::new(), &spec, words);
    }
    // Each alone, and the directory of the keys as the agent makes it.
    let node = Node::new();
    node.commit("rendered-a.json", &files(&["/etc/subuid"]));
    let ssh = json!([{"path": "/home/core/.ssh", "mode": 448, "user": {"name": "core"}, "group": {"name": "core"}}]);
    node.put(
        "b.json",
        config("rendered-b", &with_users(ignition(json!({"storage": {"directories": ssh}})), keys())),
    );
    assert_eq!(node.plan("b.json").code, 0);
}

/// Files that the agent reads or writes as root's alone: an entry that takes them from it would end each later run.
#[test]
fn entries_that_keep_agent_from_its_own_files_are_refused() {
    const SETTINGS: &str = "/etc/machine-config-agent/settings.toml";
    let settings = |text: &str, mode: u32| {
        let entry = json!({"path": SETTINGS, "mode": mode, "contents": {"source": format!("data:,{}", text.replace(' ', "%20"))}});
        ignition(json!({"storage": {"files": [entry]}}))
    };
    let directory =
        |path: &str, mode: u32| ignition(json!({"storage": {"directories": [{"path": path, "mode": mode}]}}));
    let link = |path: &str| ignition(json!({"storage": {"links": [{"path": path, "target": "/etc/motd"}]}}));
    let of_user = json!({"path": "/etc/machine-config-agent", "user": {"name": "core"}});
    let table = [
        (settings("nonsense", 0o644), "line 1: "),
        (settings("keep-rollback = 15", 0o644), "line 1: invalid type"),
        (settings("%5Bos%5D%0Astall = '1s'", 0o644), "os.stall"),
        (settings(&"a".repeat(300_000), 0o644), "is larger than 262144 bytes"),
        (settings("", 0o666), "no write permission for group and others"),
        (directory(SETTINGS, 0o755), "a regular file here"),
        (link(SETTINGS), "a regular file here"),
        (link("/etc/machine-config-agent"), "a directory here"),
        (directory("/etc/machine-config-agent", 0o777), "no write permission for group and others"),
        (ignition(json!({"storage": {"directories": [of_user]}})), "set owner root"),
        (directory("/var/lib", 0o777), "no write permission for group and others"),
        (directory("/etc/machine-config-daemon", 0o775), "no write permission for group and others"),
        (directory("/etc/mcd-currentconfig.json", 0o755), "the agent writes this file"),
        (directory("/run/machine-config-agent/report.json", 0o755), "the agent writes this file"),
    ];
    for (spec, words) in table {
        is_refused(&Node::new(), &spec, words);
    }
    let node = Node::new();
    node.commit("rendered-a.json", &settings("keep-rollback = '24h'", 0o644));
    node.put("b.json", config("rendered-b", &directory("/etc/machine-config-agent", 0o755)));
    assert_eq!((node.plan("b.json").code, node.apply("b.json").code), (0, 0));
}

#[test]
fn two_names_of_one_file_are_refused() {
    let host = || {
        let node = Node::new();
        std::fs::create_dir_all(node.path("root/etc/real")).unwrap();
        symlink("real", node.path("root/etc/alias")).unwrap();
        node
    };
    is_refused(
        &host(),
        &files(&["/etc/alias/x", "/etc/real/x"]),
        "on this host it is the same file as /etc/real/x (/etc/real/x)",
    );
    let node = host();
    node.commit("rendered-a.json", &files(&["/etc/alias/x"]));
    is_refused(&node, &files(&["/etc/real/x"]), "on this host it is the same file as");
    assert_eq!(node.read("root/etc/real/x"), "new");
    node.commit("rendered-c.json", &files(&[]));
    node.commit("rendered-d.json", &files(&["/etc/real/x"]));
    assert_eq!(node.read("root/etc/alias/x"), "new");
}

#[test]
fn homes_that_no_account_can_have_are_refused() {
    let users = |users: Value| with_users(files(&[]), users);
    let two = |one: &str, other: &str| {
        users(json!([{"name": "u1", "homeDir": one}, {"name": "u2", "homeDir": other}]))
    };
    is_refused(&Node::new(), &two("/home/x", "/home/x/sub"), "/home/x/sub is in /home/x, the home of u1");
    is_refused(&Node::new(), &two("/home/x/sub", "/home/x"), "/home/x/sub is in /home/x, the home of u2");
    let node = Node::new();
    std::os::unix::fs::chown(node.path("root/home/core"), Some(1000), Some(1000)).unwrap();
    let below = users(json!([{"name": "u1", "homeDir": "/home/core/a/b"}]));
    is_refused(&node, &below, "would be in /home/core, which belongs to core");
    for home in ["/etc/systemd/system", "/usr/lib/systemd", "/run/lock"] {
        let node = Node::new();
        std::fs::create_dir_all(node.path(&format!("root{home}"))).unwrap();
        let spec = users(json!([{"name": "u1", "homeDir": home}]));
        is_refused(&node, &spec, "is a directory of the system, which belongs to root");
    }
    // The agent refuses files of its own that others own: no later update could start.
    for home in ["/etc/machine-config-agent", "/etc/machine-config-daemon/x", "/run/machine-config-agent"] {
        let spec = users(json!([{"name": "u1", "homeDir": home}]));
        is_refused(&Node::new(), &spec, "is a directory of the system and no account's home");
    }
    let node = Node::new();
    std::fs::remove_file(node.path("root/etc/shadow")).unwrap();
    let spec = users(json!([{"name": "u1", "passwordHash": "$6$a$b"}]));
    is_refused(&node, &spec, "this host has no /etc/shadow for its password");
}

/// Programs take `//home/a` for `/home/a`.
#[test]
fn home_with_empty_parts_is_taken() {
    let node = Node::new();
    node.put("root/etc/passwd", "root:x:0:0::/root:/bin/sh\ncore:x:1000:1000:://home/core:/bin/sh\n");
    let user = json!([{"name": "core", "gecos": "Core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA a"]}]);
    node.put("b.json", config("rendered-b", &with_users(files(&[]), user)));
    assert_eq!(node.plan("b.json").code, 0);
}

/// A hard link needs a file, also after this update.
#[test]
fn hard_link_to_what_becomes_link_is_refused() {
    let hard = json!([{"path": "/etc/h", "target": "/etc/l", "hard": true}]);
    let node = Node::new();
    node.put("root/etc/target", "t");
    symlink("target", node.path("root/etc/l")).unwrap();
    node.commit("rendered-a.json", &files(&["/etc/l"]));
    let spec = ignition(json!({"storage": {"links": hard}}));
    is_refused(&node, &spec, "its target /etc/l is a file that leaves with the old config");
}

/// The advice of a field that is named leads on: the entry can be removed, as long as nothing shows that it was applied.
#[test]
fn installation_that_host_never_got_can_be_left() {
    let storage = [
        json!({"luks": [{"name": "data", "device": "/dev/sdb", "clevis": {"tpm2": true}}]}),
        json!({"disks": [{"device": "/dev/vdb", "partitions": [{"label": "data", "number": 1}]}]}),
        json!({"filesystems": [{"device": "/dev/vdb1", "format": "xfs", "path": "/var/data"}]}),
    ];
    let mut specs: Vec<Value> =
        storage.into_iter().map(|storage| ignition(json!({ "storage": storage }))).collect();
    specs.push(ignition(json!({"kernelArguments": {"shouldExist": ["quiet2"]}})));
    specs.push({
        let mut spec = files(&[]);
        spec["fips"] = json!(true);
        spec
    });
    for spec in specs {
        let node = Node::new();
        node.put("a.json", config("rendered-a", &spec));
        let ran = node.apply("a.json");
        assert_eq!(ran.code, 0, "{spec}: {}", ran.err);
        let planned = node.plan("a.json");
        assert!(planned.out.contains("\nNot applied\n"), "{}", planned.out);
        node.commit("rendered-b.json", &files(&["/etc/new"]));
        // It is not taken back in on a running host.
        node.put("a.json", config("rendered-a", &spec));
        assert_eq!(node.plan("a.json").code, 3, "{spec}");
    }
}

/// What others wrote on the host moves no terminal, in no verb.
#[test]
fn control_characters_of_host_are_escaped() {
    let node = Node::new();
    let link = json!([{"path": "/etc/l", "target": "/etc/motd"}]);
    let luks = json!([{"name": "\u{1b}[2Jx", "device": "/dev/sdb"}]);
    node.commit("rendered-a.json", &ignition(json!({"storage": {"links": link, "luks": luks}})));
    std::fs::remove_file(node.path("root/etc/l")).unwrap();
    symlink("\u{1b}]0;x\u{7}\u{202e}\u{9b}31m", node.path("root/etc/l")).unwrap();
    let host = ["--root", "root", "--os-backend", "none"];
    let mut wrong = String::new();
    for verb in
        [&["verify"][..], &["verify", "--output", "json"], &["status"], &["status", "--output", "json"]]
    {
        let ran = node.run(&[verb, &host].concat());
        let text = format!("{}{}", ran.out, ran.err);
        let bad = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        if text.contains(bad) || !text.contains("/etc/l") {
            writeln!(wrong, "{verb:?}: {text:?}").unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The lock of the accounts is opened without waiting: a pipe in its place is no lock.
#[test]
fn pipe_in_place_of_lock_of_accounts_is_named() {
    let node = Node::new();
    let lock = node.path("root/etc/.pwd.lock");
    assert!(std::process::Command::new("mkfifo").arg(&lock).status().unwrap().success());
    let spec = ignition(
        json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA a"]}]}}),
    );
    node.put("b.json", config("rendered-b", &spec));
    let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
    assert_eq!(planned.code, applied.code, "{}{} {}", planned.out, planned.err, applied.err);
    for text in [planned.out + &planned.err, applied.err] {
        assert!(text.contains("/etc/.pwd.lock") && text.contains("a regular file"), "{text}");
    }
}
