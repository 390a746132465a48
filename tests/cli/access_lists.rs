//! Access lists (acl(5)): what is written has none, an original has its own again, and `verify` names one that was added.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use serde_json::json;

use crate::access_list::{give, lists, pass_on};
use crate::test_host::{Node, STATE, config, files, ignition};

const LIST: [&str; 1] = ["system.posix_acl_access"];

fn mode(node: &Node, path: &str) -> u32 {
    fs::symlink_metadata(node.path(path)).unwrap().mode() & 0o7777
}

/// Each directory passes a list on: those of files, of units, of accounts' keys and of the agent's state.
#[test]
fn what_an_update_makes_is_open_to_those_of_its_mode_only() {
    let node = Node::new();
    for directory in ["etc", "etc/systemd/system", "home/core", STATE] {
        fs::create_dir_all(node.path("root").join(directory)).unwrap();
        pass_on(&node.path("root").join(directory));
    }
    std::os::unix::fs::chown(node.path("root/home/core"), Some(1000), Some(1000)).unwrap();
    let unit = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
    let spec = ignition(json!({
        "storage": {
            "files": [{"path": "/etc/a/b/file", "mode": 416, "contents": {"source": "data:,x"}}],
            "directories": [{"path": "/etc/directory", "mode": 488}],
            "links": [{"path": "/etc/links/link", "target": "/dev/null"}]},
        "systemd": {"units": [{"name": "a.service", "enabled": true, "contents": unit,
            "dropins": [{"name": "d.conf", "contents": "[Service]\nNice=1\n"}]}]},
        "passwd": {"users": [{"name": "core", "passwordHash": "$6$salt$hash", "sshAuthorizedKeys": ["ssh-rsa a"]}]}}));
    node.put("a.json", config("a", &spec));
    let ran = node.run(&[
        "apply",
        "--to",
        "a.json",
        "--yes",
        "--no-reboot",
        "--root",
        "root",
        "--os-backend",
        "none",
    ]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let mut seen = 0;
    for (path, _) in node.listing("root") {
        let is_made = ["/etc/a", "/etc/directory", "/etc/links", "/etc/systemd/system/", "/home/core/.ssh"]
            .iter()
            .any(|above| path.starts_with(above))
            || path.strip_prefix(&format!("/{STATE}/")).is_some_and(|name| name != "lock");
        if is_made {
            seen += 1;
            assert_eq!(lists(&node.path(&format!("root{path}"))), [""; 0], "{path}");
        }
    }
    assert!(seen > 15, "{seen}");
    assert_eq!(mode(&node, "root/etc/a/b/file"), 0o640);
    assert_eq!(mode(&node, "root/etc/a/b"), 0o755);
    assert_eq!(mode(&node, "root/etc/directory"), 0o750);
}

/// A database of accounts that is edited remains what it is to others.
#[test]
fn account_files_keep_their_own() {
    let node = Node::new();
    for path in ["etc/shadow", "etc/passwd", "etc/group"] {
        give(&node.path("root").join(path));
    }
    pass_on(&node.path("root/etc"));
    let user = json!({"name": "core", "passwordHash": "$6$salt$hash"});
    node.commit("a.json", &ignition(json!({"passwd": {"users": [user]}})));
    assert!(node.read("root/etc/shadow").contains("$6$salt$hash"));
    for path in ["etc/shadow", "etc/passwd", "etc/group"] {
        assert_eq!(lists(&node.path("root").join(path)), LIST, "{path}");
    }
    fs::write(node.path("root/etc/gshadow"), "core:!::\n").unwrap();
    node.commit("b.json", &ignition(json!({})));
    assert_eq!(lists(&node.path("root/etc/shadow")), LIST);
}

#[test]
fn original_has_its_own_again_and_none_that_its_directory_passes_on() {
    let node = Node::new();
    for name in ["own", "none"] {
        node.put(&format!("root/etc/foo/{name}"), "of the host");
    }
    give(&node.path("root/etc/foo/own"));
    pass_on(&node.path("root/etc/foo"));
    let mode_of_own = mode(&node, "root/etc/foo/own");
    node.commit("a.json", &files(&[("/etc/foo/own", "x"), ("/etc/foo/none", "x")]));
    for name in ["own", "none"] {
        assert_eq!(lists(&node.path("root/etc/foo").join(name)), [""; 0], "{name}");
    }
    node.commit("b.json", &files(&[]));
    assert_eq!(node.read("root/etc/foo/own"), "of the host");
    assert_eq!(lists(&node.path("root/etc/foo/own")), LIST);
    assert_eq!(mode(&node, "root/etc/foo/own"), mode_of_own);
    assert_eq!(lists(&node.path("root/etc/foo/none")), [""; 0]);
    assert_eq!(mode(&node, "root/etc/foo/none"), 0o644);
}

#[test]
fn added_list_is_named_and_goes_with_the_next_write() {
    let node = Node::new();
    let spec = ignition(json!({"storage": {"files": [
        {"path": "/etc/foo", "mode": 424, "contents": {"source": "data:,x"}}]}}));
    node.commit("a.json", &spec);
    let verify = || node.run(&["verify", "--root", "root", "--os-backend", "none"]);
    assert_eq!(verify().code, 0);
    give(&node.path("root/etc/foo"));
    assert_eq!(mode(&node, "root/etc/foo"), 0o650, "as the config has it");
    let found = verify();
    assert_eq!(found.code, 1, "{}{}", found.out, found.err);
    let text = "0650 and an access list (getfacl /etc/foo)";
    assert!(found.out.contains(text), "{}", found.out);
    node.commit("b.json", &files(&[("/etc/foo", "y")]));
    assert_eq!(lists(&node.path("root/etc/foo")), [""; 0]);
    assert_eq!(verify().code, 0);
}
