//! Attributes of chattr(1) on what an update changes, removes or links to: `plan` names path and `chattr`, and nothing is touched.

use std::path::Path;

use rustix::fs::IFlags;
use serde_json::{Value, json};

use crate::ran;
use crate::test_host::{Node, config, files, ignition};

/// A path with a flag, until the end.
pub struct Flagged(std::path::PathBuf);

impl Flagged {
    pub fn new(path: std::path::PathBuf, flag: IFlags) -> Option<Self> {
        set(&path, flag).ok()?;
        Some(Self(path))
    }
}

impl Drop for Flagged {
    fn drop(&mut self) {
        let _is_reset = set(&self.0, IFlags::empty());
    }
}

fn set(path: &Path, flags: IFlags) -> rustix::io::Result<()> {
    let file = std::fs::File::open(path).map_err(|_| rustix::io::Errno::NOENT)?;
    rustix::fs::ioctl_setflags(&file, flags)
}

fn storage(storage: Value) -> Value {
    ignition(json!({ "storage": storage }))
}

fn keys(key: &str) -> Value {
    ignition(json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": [key]}]}}))
}

const DIRECTORY: &str = "/etc/d";

/// A case: its name, files of the host, the committed config, the other one, and the flagged path.
type Case = (&'static str, &'static [&'static str], Value, Value, &'static str);

fn cases() -> Vec<Case> {
    let directory = || storage(json!({"directories": [{"path": DIRECTORY}]}));
    let moded = |mode: u32| storage(json!({"directories": [{"path": DIRECTORY, "mode": mode}]}));
    let file = || json!([{"path": "/etc/d", "contents": {"source": "data:,x"}}]);
    let link = || json!([{"path": "/etc/d", "target": "x"}]);
    let hard = || storage(json!({"links": [{"path": "/etc/h", "target": "/etc/t", "hard": true}]}));
    let deep = || files(&[("/etc/deep/a/f", "x")]);
    let none = || files(&[]);
    let home = "/home/core/.ssh/authorized_keys.d";
    let (one, other) = (|| keys("ssh-ed25519 AAAA a"), || keys("ssh-ed25519 AAAA b"));
    vec![
        ("a directory that leaves", &[], directory(), none(), DIRECTORY),
        ("a directory for a file", &[], directory(), storage(json!({"files": file()})), DIRECTORY),
        ("a directory for a link", &[], directory(), storage(json!({"links": link()})), DIRECTORY),
        ("another mode", &[], moded(0o755), moded(0o700), DIRECTORY),
        ("the mode before", &["/etc/d/theirs"], moded(0o700), none(), DIRECTORY),
        ("a parent that was made", &[], deep(), none(), "/etc/deep/a"),
        ("a parent above it", &[], deep(), none(), "/etc/deep"),
        ("the target of a hard link", &["/etc/t"], none(), hard(), "/etc/t"),
        ("keys", &[], one(), other(), "/home/core/.ssh/authorized_keys.d/ignition"),
        ("the directory of keys", &[], one(), other(), home),
        ("new keys", &["/home/core/.ssh/config"], none(), one(), "/home/core/.ssh"),
    ]
}

#[test]
fn immutable_and_append_only_paths_are_named_before_anything_is_touched() {
    for (name, host, committed, other, path) in cases() {
        for (flag, letter) in [(IFlags::IMMUTABLE, 'i'), (IFlags::APPEND, 'a')] {
            let node = Node::new();
            for file in host {
                node.put(&format!("root{file}"), "the host's");
            }
            for own in ["root/home/core", "root/home/core/.ssh", "root/home/core/.ssh/config"] {
                drop(std::os::unix::fs::chown(node.path(own), Some(1000), Some(1000)));
            }
            if node.path("root/home/core/.ssh").exists() {
                node.mode("root/home/core/.ssh", 0o700);
            }
            node.commit("rendered-a.json", &committed);
            node.put("b.json", config("rendered-b", &other));
            let Some(flagged) = Flagged::new(node.path(&format!("root{path}")), flag) else {
                ran::not_run(
                    "immutable_and_append_only_paths_are_named_before_anything_is_touched",
                    "chattr",
                );
                return;
            };
            let before = (node.listing("root/etc"), node.listing("root/home"));
            let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
            let words = format!("chattr -{letter} {path}");
            for (code, text) in [(planned.code, planned.out + &planned.err), (applied.code, applied.err)] {
                assert!(code == 3 && text.contains(&words), "{name} +{letter}: {code} {text}");
            }
            assert_eq!((node.listing("root/etc"), node.listing("root/home")), before, "{name}");
            drop(flagged);
            let applied = node.apply("b.json");
            assert_eq!(applied.code, 0, "{name}: {}", applied.err);
        }
    }
}

/// What is right already, and what no step changes, is left alone.
#[test]
fn flags_on_what_stays_are_no_obstacle() {
    let kept = || json!([{"path": "/etc/d"}]);
    let with = |more: Value| storage(json!({"directories": kept(), "files": more}));
    let node = Node::new();
    node.commit("rendered-a.json", &with(json!([])));
    node.put(
        "b.json",
        config("rendered-b", &with(json!([{"path": "/etc/n", "contents": {"source": "data:,x"}}]))),
    );
    let Some(_flagged) = Flagged::new(node.path("root/etc/d"), IFlags::IMMUTABLE) else {
        ran::not_run("flags_on_what_stays_are_no_obstacle", "chattr");
        return;
    };
    let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
    assert_eq!((planned.code, applied.code), (0, 0), "{}{}", planned.out, applied.err);
}

/// Of a home whose directories of keys are right only the file is written.
#[test]
fn immutable_home_with_directories_of_keys_is_no_obstacle() {
    for kept in ["root/home/core", "root/home/core/.ssh"] {
        let node = Node::new();
        node.commit("rendered-a.json", &keys("ssh-ed25519 AAAA a"));
        node.put("b.json", config("rendered-b", &keys("ssh-ed25519 AAAA b")));
        let Some(_flagged) = Flagged::new(node.path(kept), IFlags::IMMUTABLE) else {
            ran::not_run("immutable_home_with_directories_of_keys_is_no_obstacle", "chattr");
            return;
        };
        let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
        assert_eq!((planned.code, applied.code), (0, 0), "{kept}: {}{}", planned.out, applied.err);
        let written = node.read("root/home/core/.ssh/authorized_keys.d/ignition");
        assert_eq!(written, "ssh-ed25519 AAAA b\n", "{kept}");
    }
}
