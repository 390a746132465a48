//! Directories of the host that a config closes to others, and that are open again once it leaves: what is in them goes first, and
//! stays nowhere that others could change it.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};

use serde_json::{Value, json};

use crate::test_host::{Node, config, ignition};

const WANTS: &str = "/etc/systemd/system/multi-user.target.wants";
const KEYS: &str = "/home/core/.ssh/authorized_keys.d/ignition";

fn host() -> Node {
    let node = Node::new();
    chown(node.path("root/home/core"), Some(1000), Some(1000)).unwrap();
    let none = json!([{"type": "None"}]);
    let files = ["/etc", "/home", "/srv"].map(|path| json!({"path": path, "actions": none}));
    let units = ["a.service", "x.service"].map(|name| json!({"name": name, "actions": none}));
    let policy = json!({"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration", "metadata": {"name": "cluster"},
        "spec": {"nodeDisruptionPolicy": {"files": files, "units": units, "sshkey": {"actions": none}}}});
    node.put("policy.json", policy.to_string());
    node
}

/// A directory that the host has.
fn make(node: &Node, path: &str, mode: u32, owner: u32) {
    let at = node.path(&format!("root{path}"));
    fs::create_dir_all(&at).unwrap();
    chown(&at, Some(owner), Some(owner)).unwrap();
    node.mode(&format!("root{path}"), mode);
}

fn make_all(node: &Node, directories: &[(&str, u32, u32)]) {
    for (path, mode, owner) in directories {
        make(node, path, *mode, *owner);
    }
}

fn state(node: &Node, paths: &[&str]) -> Vec<Option<(u32, u32)>> {
    let one = |path: &&str| {
        let meta = fs::symlink_metadata(node.path(&format!("root{path}"))).ok()?;
        Some((meta.mode() & 0o7777, meta.uid()))
    };
    paths.iter().map(one).collect()
}

/// Adds the parts of one Ignition config to another one's.
fn with(base: &Value, more: Value) -> Value {
    let mut both = base.clone();
    let Value::Object(more) = more else { panic!("a mapping") };
    for (section, value) in more {
        match (both.get_mut(&section), value) {
            (Some(Value::Object(old)), Value::Object(new)) => old.extend(new),
            (_, value) => both[section] = value,
        }
    }
    both
}

fn storage(directories: Value) -> Value {
    json!({"storage": {"directories": directories}})
}

fn unit() -> Value {
    let text = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
    json!({"systemd": {"units": [{"name": "a.service", "enabled": true, "contents": text}]}})
}

fn keys() -> Value {
    json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA a"]}]}})
}

fn agrees(node: &Node, name: &str, sections: &Value) {
    node.put("c.json", config(name, &ignition(sections.clone())));
    let (planned, applied) = (node.plan("c.json"), node.apply("c.json"));
    let text = format!("{name} {sections}\n{}{}{}", planned.out, planned.err, applied.err);
    assert_eq!((planned.code, applied.code), (0, 0), "{text}");
}

fn is_refused(node: &Node, sections: &Value, words: &str) {
    node.put("r.json", config("rendered-r", &ignition(sections.clone())));
    let (planned, applied) = (node.plan("r.json"), node.apply("r.json"));
    assert_eq!((planned.code, applied.code), (3, 3), "{sections}\n{}{}", planned.out, applied.err);
    assert!(planned.out.contains(words), "{}", planned.out);
}

/// A host, its directories that one config closes, what the next one has in them, and the paths of all.
struct Case {
    host: &'static [(&'static str, u32, u32)],
    closed: Value,
    inside: Value,
    paths: &'static [&'static str],
}

fn cases() -> Vec<Case> {
    let srv = || storage(json!([{"path": "/srv/d", "mode": 0o755}]));
    let file = json!({"path": "/srv/d/f", "contents": {"source": "data:,x"}});
    let nested = json!([{"path": "/srv/d", "mode": 0o755}, {"path": "/srv/d/e", "mode": 0o755}]);
    let own = json!([{"path": "/home/core/f", "mode": 0o755, "user": {"name": "core"}}]);
    let shared = json!([{"path": "/srv/d", "mode": 0o755}, {"path": "/srv/d/e", "user": {"id": 7}}]);
    let dropins = "/etc/systemd/system/x.service.d";
    let dropin = json!({"systemd": {"units": [{"name": "x.service", "dropins": [{"name": "a.conf", "contents": "[Unit]\n"}]}]}});
    let home = json!([{"path": "/home/core", "mode": 0o700, "user": {"name": "core"}}]);
    vec![
        Case {
            host: &[("/srv/d", 0o775, 0)],
            closed: srv(),
            inside: json!({"storage": {"files": [file]}}),
            paths: &["/srv/d", "/srv/d/f"],
        },
        Case {
            host: &[("/srv/d", 0o777, 0)],
            closed: srv(),
            inside: json!({"storage": {"links": [{"path": "/srv/d/l", "target": "x"}]}}),
            paths: &["/srv/d", "/srv/d/l"],
        },
        // Both are opened, the inner one first.
        Case {
            host: &[("/srv/d", 0o775, 0), ("/srv/d/e", 0o777, 0)],
            closed: srv(),
            inside: json!({"storage": {"directories": nested, "links": [{"path": "/srv/d/l", "target": "x"}]}}),
            paths: &["/srv/d", "/srv/d/e", "/srv/d/l"],
        },
        Case {
            host: &[("/home/core/f", 0o755, 1001)],
            closed: storage(own),
            inside: json!({"storage": {"files": [{"path": "/home/core/f/in"}]}}),
            paths: &["/home/core/f", "/home/core/f/in"],
        },
        Case {
            host: &[("/srv/d", 0o1777, 0)],
            closed: srv(),
            inside: json!({"storage": {"directories": shared, "files": [{"path": "/srv/d/e/f"}]}}),
            paths: &["/srv/d", "/srv/d/e", "/srv/d/e/f"],
        },
        Case {
            host: &[(WANTS, 0o775, 0)],
            closed: storage(json!([{"path": WANTS, "mode": 0o755}])),
            inside: unit(),
            paths: &[WANTS, "/etc/systemd/system/multi-user.target.wants/a.service"],
        },
        Case {
            host: &[("/etc/systemd/system/x.service.d", 0o755, 7)],
            closed: storage(json!([{"path": dropins, "user": {"id": 0}}])),
            inside: dropin,
            paths: &["/etc/systemd/system/x.service.d", "/etc/systemd/system/x.service.d/a.conf"],
        },
        Case {
            host: &[("/home/core", 0o777, 1000)],
            closed: storage(home),
            inside: keys(),
            paths: &["/home/core", KEYS],
        },
    ]
}

/// Each config that was applied can be left: what is in the directory goes, then the directory is as the host had it.
#[test]
fn directory_is_opened_after_all_in_it_has_gone() {
    for Case { host: directories, closed, inside, paths } in cases() {
        let node = host();
        make_all(&node, directories);
        let before = state(&node, paths);
        agrees(&node, "rendered-a", &closed);
        agrees(&node, "rendered-b", &with(&closed, inside));
        assert!(state(&node, paths).iter().all(Option::is_some), "{paths:?}");
        agrees(&node, "rendered-empty", &json!({}));
        assert_eq!(state(&node, paths), before, "{paths:?}");
        assert_eq!(node.run(&["verify", "--root", "root", "--os-backend", "none"]).code, 0);
    }
}

/// A run that dies at any point of the way back is finished, or undone, by the next.
#[test]
fn interrupted_opening_is_finished_or_undone() {
    let chosen = cases().into_iter().enumerate().filter(|(place, _)| [0, 2, 5].contains(place));
    for (_, Case { host: directories, closed, inside, paths }) in chosen {
        let both = with(&closed, inside);
        let prepared = || {
            let node = host();
            make_all(&node, directories);
            agrees(&node, "rendered-a", &closed);
            agrees(&node, "rendered-b", &both);
            node.put("empty.json", config("rendered-empty", &ignition(json!({}))));
            node
        };
        let (applied, empty) = (state(&prepared(), paths), json!({}));
        for kill in ["removed", "directory-made", "directories-synced", "originals-saved", "end"] {
            for to in ["rendered-b", "rendered-empty"] {
                let node = prepared();
                let words = crate::test_host::apply("empty.json");
                let killed =
                    node.command(&words).env("MCA_FAIL_POINT", format!("kill:{kill}")).output().unwrap();
                assert!(!killed.status.success(), "{kill}");
                agrees(&node, to, if to == "rendered-b" { &both } else { &empty });
                if to == "rendered-b" {
                    assert_eq!(state(&node, paths), applied, "{kill} {paths:?}");
                    agrees(&node, "rendered-empty", &json!({}));
                }
                let found = state(&node, paths);
                let expected: Vec<_> = paths
                    .iter()
                    .map(|path| directories.iter().find(|one| one.0 == *path).map(|one| (one.1, one.2)))
                    .collect();
                assert_eq!(found, expected, "{kill} {to} {paths:?}");
            }
        }
    }
}

/// What stays could never be changed again, and others could change it.
#[test]
fn directory_is_not_opened_while_something_stays_in_it() {
    let node = host();
    make(&node, WANTS, 0o775, 0);
    let closed = storage(json!([{"path": WANTS, "mode": 0o755}]));
    agrees(&node, "rendered-a", &closed);
    agrees(&node, "rendered-b", &with(&closed, unit()));
    is_refused(&node, &unit(), "it holds /etc/systemd/system/multi-user.target.wants/a.service");
    agrees(&node, "rendered-empty", &json!({}));

    let node = host();
    make(&node, "/home/core", 0o777, 1000);
    let home = storage(json!([{"path": "/home/core", "mode": 0o700, "user": {"name": "core"}}]));
    agrees(&node, "rendered-a", &home);
    agrees(&node, "rendered-b", &with(&home, keys()));
    is_refused(&node, &keys(), "keep the directory in the config");
    agrees(&node, "rendered-empty", &json!({}));
    assert_eq!(state(&node, &[KEYS]), [None]);

    let node = host();
    let at = |mode: u32, files: Value| json!({"storage": {"directories": [{"path": "/srv/d", "mode": mode}], "files": files}});
    agrees(&node, "rendered-a", &at(0o755, json!([{"path": "/srv/d/f"}])));
    is_refused(&node, &at(0o775, json!([{"path": "/srv/d/f"}])), "with mode 0775");
    agrees(&node, "rendered-b", &at(0o775, json!([])));
    assert_eq!(state(&node, &["/srv/d", "/srv/d/f"]), [Some((0o775, 0)), None]);
}

/// An entry that is right already needs no write, wherever it is, and none when it leaves: the host had it before. A link that a unit
/// gets back has to be written: the plan names what opens the way.
#[test]
fn entry_in_open_directory_of_host_is_left() {
    let node = host();
    make(&node, "/srv/o", 0o777, 0);
    node.put("root/srv/o/f", "new");
    node.mode("root/srv/o/f", 0o644);
    let file = json!({"path": "/srv/o/f", "mode": 0o644, "contents": {"source": "data:,new"}});
    agrees(&node, "rendered-a", &json!({"storage": {"files": [file]}}));
    agrees(&node, "rendered-empty", &json!({}));
    assert_eq!(node.read("root/srv/o/f"), "new");
    let node = host();
    node.put("root/usr/lib/systemd/system/x.service", "[Install]\nWantedBy=a.target\n");
    make(&node, "/etc/systemd/system", 0o777, 0);
    agrees(&node, "rendered-a", &json!({"systemd": {"units": [{"name": "x.service", "enabled": false}]}}));
    is_refused(&node, &json!({}), "check what it holds, then: chmod go-w /etc/systemd/system");
    let verified = node.run(&["verify", "--root", "root", "--os-backend", "none"]);
    assert_eq!(verified.code, 0, "{}", verified.out);
    node.mode("root/etc/systemd/system", 0o755);
    agrees(&node, "rendered-empty", &json!({}));
}
