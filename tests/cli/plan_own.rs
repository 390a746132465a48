//! The agent's own files and those of machine-config-daemon where they can't be written: `plan` and `apply` refuse the same, before
//! anything is touched, and the advice leads on.

use std::process::Command;

use rustix::fs::IFlags;
use serde_json::Value;

use crate::plan_flags::Flagged;
use crate::ran;
use crate::test_host::{self, Node, apply, config, files};

const STATE: &str = "/var/lib/machine-config-agent";
const MCD: &str = "/etc/machine-config-daemon";

fn before() -> Value {
    files(&[("/etc/a", "x")])
}

/// A host with a committed config that has replaced a file, and another config.
fn host() -> Node {
    let node = Node::new();
    node.put("root/etc/a", "the host's");
    node.commit("rendered-a.json", &before());
    node.put("b.json", config("rendered-b", &files(&[("/etc/a", "x"), ("/etc/b", "y")])));
    node
}

/// Returns the first file of a directory of the state.
fn file_in(node: &Node, directory: &str) -> String {
    let at = node.path(&format!("root{STATE}/{directory}"));
    let first = std::fs::read_dir(at).unwrap().next().unwrap().unwrap();
    format!("{STATE}/{directory}/{}", first.file_name().to_str().unwrap())
}

/// Plan and apply refuse the same, with the advice.
fn is_refused(node: &Node, case: &str, words: &[&str]) {
    let before = node.listing("root/etc");
    let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
    for (code, text) in [(planned.code, planned.out + &planned.err), (applied.code, applied.err)] {
        assert_eq!(code, 4, "{case}: {text}");
        for word in words {
            assert!(text.contains(word), "{case}: {word} is missing: {text}");
        }
    }
    assert_eq!(node.listing("root/etc"), before, "{case}: it was touched");
}

#[test]
fn own_paths_with_attributes_are_named_before_anything_is_touched() {
    let node = host();
    let mut paths: Vec<String> = ["", "/lock", "/current.json", "/history", "/preimages", "/preimages/kept"]
        .map(|name| format!("{STATE}{name}"))
        .to_vec();
    paths.extend(["", "/currentconfig", "/currentimage"].map(|name| format!("{MCD}{name}")));
    paths.extend([file_in(&node, "history"), file_in(&node, "preimages/kept")]);
    for path in paths {
        for flag in [IFlags::IMMUTABLE, IFlags::APPEND] {
            let Some(flagged) = Flagged::new(node.path(&format!("root{path}")), flag) else {
                ran::not_run("own_paths_with_attributes_are_named_before_anything_is_touched", "chattr");
                return;
            };
            let advice = format!("lsattr -d {path}");
            is_refused(&node, &format!("{path} {flag:?}"), &[&path, &advice, "chattr -ia"]);
            // Nothing is to be written for the committed config, but the lock is taken.
            let (planned, applied) = (node.plan("rendered-a.json"), node.apply("rendered-a.json"));
            let text = format!("{path}: {}{}{}", planned.out, planned.err, applied.err);
            assert_eq!(planned.code, applied.code, "{text}");
            drop(flagged);
        }
    }
    let applied = node.apply("b.json");
    assert_eq!((applied.code, node.read("root/etc/b").as_str()), (0, "y"), "{}", applied.err);
}

/// The import of machine-config-daemon's config writes, too.
#[test]
fn import_into_closed_state_is_refused_before_it_begins() {
    let node = Node::new();
    node.put(&format!("root{MCD}/currentconfig"), config("rendered-mcd", &before()));
    node.put(&format!("root{MCD}/currentimage"), "");
    node.put("b.json", config("rendered-b", &files(&[("/etc/b", "y")])));
    for path in [format!("{MCD}/currentconfig"), STATE.to_owned()] {
        let Some(_flagged) = Flagged::new(node.path(&format!("root{path}")), IFlags::IMMUTABLE) else {
            ran::not_run("import_into_closed_state_is_refused_before_it_begins", "chattr");
            return;
        };
        let before = node.listing("root/var");
        is_refused(&node, &path, &["lsattr -d"]);
        assert_eq!(node.listing("root/var"), before, "{path}");
    }
    let applied = node.apply("b.json");
    assert_eq!(applied.code, 0, "{}", applied.err);
}

/// An update that was cut off writes nothing more where it can't be recorded.
#[test]
fn open_update_is_refused_before_anything_more_is_touched() {
    let (mut refused, path) = (0, format!("root{STATE}"));
    for point in 1..80 {
        let node = host();
        let mut command = node.command(&apply("b.json"));
        let ended = command.env("MCA_FAIL_POINT", format!("kill:{point}")).output().unwrap().status;
        let current = node.read(&format!("root{STATE}/current.json"));
        if ended.success()
            || (!node.path(&format!("root{STATE}/record.json")).exists() && current.contains("rendered-b"))
        {
            break;
        }
        let Some(_flagged) = Flagged::new(node.path(&path), IFlags::IMMUTABLE) else {
            ran::not_run("open_update_is_refused_before_anything_more_is_touched", "chattr");
            return;
        };
        is_refused(&node, &format!("kill:{point}"), &["lsattr -d"]);
        refused += 1;
    }
    assert!(refused > 10, "{refused}");
}

/// Runs plan and apply with mounts over the agent's own paths, in a mount namespace that ends with them.
fn mounted(mount: &str, words: &[&str]) {
    let node = host();
    let plan = "plan --to b.json --policy policy.json --root root --os-backend none";
    let (binary, apply) = (test_host::BINARY, apply("b.json").join(" "));
    let script = format!(
        "set -e; {mount}\nset +e; '{binary}' {plan}; echo code=$?; '{binary}' {apply}; echo code=$?; test -e root/etc/b && echo touched"
    );
    let output =
        Command::new("unshare").args(["-m", "sh", "-c", &script]).current_dir(node.dir.path()).output();
    let output = output.unwrap();
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(out.matches("code=4").count(), 2, "{mount}: {out}{err}");
    assert!(!out.contains("touched"), "{mount}: {err}");
    for word in words {
        assert!(err.matches(word).count() >= 2, "{mount}: {word} is missing: {err}");
    }
}

#[test]
fn mounts_over_own_paths_are_named_before_anything_is_touched() {
    let allowed = Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "x", "/mnt"]).output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        ran::not_run(
            "mounts_over_own_paths_are_named_before_anything_is_touched",
            "to mount (CAP_SYS_ADMIN)",
        );
        return;
    }
    for path in [format!("root{STATE}"), format!("root{STATE}/history"), format!("root{MCD}")] {
        let mount = format!("mount --bind {path} {path}; mount -o remount,ro,bind {path}");
        mounted(&mount, &["Read-only", "findmnt"]);
    }
    for path in [format!("root{STATE}/current.json"), format!("root{MCD}/currentconfig")] {
        mounted(&format!("mount --bind {path} {path}"), &["mount point", "findmnt"]);
    }
}
