//! Attributes of what an update replaces: an original has them again, and what it does not get is named first.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{IFlags, XattrFlags, ioctl_getflags, ioctl_setflags};
use serde_json::json;

use crate::test_host::{Node, config, files, ignition};

const KEPT: IFlags = IFlags::NOATIME.union(IFlags::NODUMP).union(IFlags::SYNC);

fn set(path: &Path, name: &str) -> bool {
    rustix::fs::lsetxattr(path, name, b"\x03of the host", XattrFlags::empty()).is_ok()
}

fn has(path: &Path, name: &str) -> bool {
    rustix::fs::lgetxattr(path, name, &mut [0_u8; 64][..]).is_ok()
}

fn flags(path: &Path) -> Option<IFlags> {
    Some(ioctl_getflags(File::open(path).unwrap()).ok()? & KEPT)
}

/// Some file systems have no flags, and only root sets the attributes.
#[test]
fn original_has_its_attributes_and_flags_again() {
    let node = Node::new();
    for name in ["own", "plain"] {
        node.put(&format!("root/etc/{name}"), "of the host");
    }
    let (own, plain) = (node.path("root/etc/own"), node.path("root/etc/plain"));
    let names = ["trusted.own", "user.own", "security.ima"].map(|name| (name, set(&own, name)));
    let is_set = flags(&own).is_some() && ioctl_setflags(File::open(&own).unwrap(), KEPT).is_ok();
    // What is made in the directory has a flag that the original has not.
    let etc = File::open(node.path("root/etc")).unwrap();
    let is_passed_on = ioctl_setflags(etc, IFlags::NODUMP).is_ok();
    node.commit("a.json", &files(&[("/etc/own", "x"), ("/etc/plain", "x")]));
    assert!(!has(&own, "security.ima"), "of the contents that are gone");
    node.commit("b.json", &files(&[]));
    assert_eq!(node.read("root/etc/own"), "of the host");
    for (name, is_set) in names {
        assert_eq!(has(&own, name), is_set, "{name}");
    }
    if is_set {
        assert_eq!(flags(&own), Some(KEPT));
    }
    if is_passed_on {
        assert_eq!(flags(&plain), Some(IFlags::empty()));
    }
}

#[test]
fn what_no_undo_brings_back_is_named() {
    let node = Node::new();
    for name in ["one", "plain"] {
        node.put(&format!("root/etc/{name}"), "of the host");
    }
    std::fs::hard_link(node.path("root/etc/one"), node.path("root/etc/two")).unwrap();
    symlink("one", node.path("root/etc/link")).unwrap();
    let has_attribute = set(&node.path("root/etc/link"), "trusted.link");
    let spec = ignition(json!({"storage": {
        "files": [{"path": "/etc/one", "contents": {"source": "data:,x"}}, {"path": "/etc/plain"}],
        "links": [{"path": "/etc/link", "target": "two", "overwrite": true}]}}));
    node.put("a.json", crate::test_host::config("a", &spec));
    let planned = node.run(&[
        "plan",
        "--to",
        "a.json",
        "--policy",
        "policy.json",
        "--root",
        "root",
        "--os-backend",
        "none",
        "--output",
        "json",
    ]);
    assert_eq!(planned.code, 0, "{}{}", planned.out, planned.err);
    let plan: serde_json::Value = serde_json::from_str(&planned.out).unwrap();
    let warnings = plan["warnings"].as_array().unwrap();
    let of = |path: &str| {
        let own = warnings.iter().find(|one| one["field"].as_str().unwrap().ends_with(&format!("{path:?}")));
        own.map(|one| one["message"].as_str().unwrap().to_owned())
    };
    let named = of("/etc/one").unwrap();
    assert!(named.contains("has 2 names (hard links), the other names keep the old content"), "{named}");
    if has_attribute {
        let named = of("/etc/link").unwrap();
        assert!(named.contains("the attribute trusted.link"), "{named}");
    }
    assert_eq!(of("/etc/plain"), None);
    node.commit("a.json", &spec);
    assert_eq!(node.read("root/etc/two"), "of the host");
}

/// A key that leaves the config and can't be removed still opens the account: the plan names it, and what to do.
#[test]
fn keys_that_can_not_leave_are_named_by_plan() {
    let node = Node::new();
    let user = json!({"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA a"]});
    node.commit("rendered-a.json", &ignition(json!({"passwd": {"users": [user]}})));
    let keys = node.path("root/home/core/.ssh/authorized_keys.d/ignition");
    let set = |flags: IFlags| {
        let file = std::fs::File::open(&keys).unwrap();
        let found = rustix::fs::ioctl_getflags(&file).unwrap();
        rustix::fs::ioctl_setflags(&file, found.difference(IFlags::IMMUTABLE) | flags)
    };
    if set(IFlags::IMMUTABLE).is_err() {
        return crate::ran::not_run(
            "attributes::keys_that_can_not_leave_are_named_by_plan",
            "flags of files",
        );
    }
    node.put("b.json", config("rendered-b", &ignition(json!({}))));
    let planned = node.plan("b.json");
    set(IFlags::empty()).unwrap();
    assert_eq!(planned.code, 0, "{}", planned.err);
    let words = ["the keys stay and open the account", "sshAuthorizedKeys", "lsattr"];
    assert!(words.iter().all(|words| planned.out.contains(words)), "{}", planned.out);
}
