//! What a person put in the place of an entry that leaves the config or changes: it stays, or the advice is a way out.

use rustix::fs::{CWD, FileType, Mode};
use serde_json::{Value, json};

use crate::test_host::{Node, config, files, ignition};

const PATH: &str = "root/etc/e";

fn entries() -> Vec<Value> {
    let storage = |storage: Value| ignition(json!({ "storage": storage }));
    vec![files(&[("/etc/e", "x")]), storage(json!({"links": [{"path": "/etc/e", "target": "x"}]}))]
}

fn put(node: &Node, kind: &str) {
    let path = node.path(PATH);
    drop(std::fs::remove_file(&path));
    let make = |kind| rustix::fs::mknodat(CWD, &path, kind, Mode::RUSR, rustix::fs::makedev(1, 3)).unwrap();
    match kind {
        "directory" => node.put(&format!("{PATH}/theirs"), "a person's"),
        "empty directory" => std::fs::create_dir(&path).unwrap(),
        "pipe" => make(FileType::Fifo),
        "device" => make(FileType::CharacterDevice),
        _ => drop(std::os::unix::net::UnixListener::bind(&path).unwrap()),
    }
}

/// It is no config's: it stays, and the plan names it. Where something has to come back there, it is in the way.
#[test]
fn other_kind_in_place_of_entry_that_leaves_stays_and_is_named() {
    for spec in entries() {
        for kind in ["directory", "empty directory", "pipe", "device", "socket"] {
            let node = Node::new();
            node.commit("rendered-a.json", &spec);
            node.put("empty.json", config("rendered-empty", &files(&[])));
            put(&node, kind);
            let (planned, applied) = (node.plan("empty.json"), node.apply("empty.json"));
            let text = format!("{kind} {spec}: {}{}{}", planned.out, planned.err, applied.err);
            assert_eq!((planned.code, applied.code), (0, 0), "{text}");
            let words = [r#""/etc/e""#, "is in its place by now, which no config brought, and stays"];
            assert!(words.iter().all(|word| planned.out.contains(word)), "{text}");
            assert!(node.path(PATH).symlink_metadata().is_ok(), "{text}");
            let verified = node.run(&["verify", "--root", "root", "--os-backend", "none"]);
            assert_eq!(verified.code, 0, "{text}");

            let node = Node::new();
            node.put(PATH, "the host's");
            let mut over = spec.clone();
            for list in ["files", "links"] {
                if over["config"]["storage"][list].is_array() {
                    over["config"]["storage"][list][0]["overwrite"] = json!(true);
                }
            }
            node.commit("rendered-a.json", &over);
            node.put("empty.json", config("rendered-empty", &files(&[])));
            put(&node, kind);
            let (planned, applied) = (node.plan("empty.json"), node.apply("empty.json"));
            for (code, text) in [(planned.code, planned.out + &planned.err), (applied.code, applied.err)] {
                assert!(
                    code == 3 && text.to_lowercase().contains("move /etc/e away"),
                    "{kind} {spec}: {code} {text}"
                );
                assert!(!text.contains("remove it from the MachineConfig"), "{kind} {spec}: {text}");
            }
            std::fs::rename(node.path(PATH), node.path("root/etc/moved")).unwrap();
            let applied = node.apply("empty.json");
            assert_eq!(
                (applied.code, node.read(PATH).as_str()),
                (0, "the host's"),
                "{kind} {spec}: {}",
                applied.err
            );
        }
    }
}

/// The advice for an entry that stays: the entry is the old config's too, so its removal leads to the same.
#[test]
fn other_kind_in_place_of_entry_that_changes_is_moved_away() {
    for kind in ["directory", "pipe"] {
        let node = Node::new();
        node.commit("rendered-a.json", &files(&[("/etc/e", "x")]));
        node.put("b.json", config("rendered-b", &files(&[("/etc/e", "y")])));
        put(&node, kind);
        let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
        for (code, text) in [(planned.code, planned.out + &planned.err), (applied.code, applied.err)] {
            assert!(code == 3 && text.to_lowercase().contains("move /etc/e away"), "{kind}: {code} {text}");
            assert!(!text.contains("remove it from the MachineConfig"), "{kind}: {text}");
        }
        std::fs::rename(node.path(PATH), node.path("root/etc/moved")).unwrap();
        assert_eq!(node.apply("b.json").code, 0);
    }
}

/// An update of the OS took the [Install] section of a unit that a config enables: its links go with the next update, for nothing.
#[test]
fn links_of_unit_that_lost_its_install_section_go_with_next_update() {
    const UNIT: &str = "root/usr/lib/systemd/system/host.service";
    let spec = |text: &str| {
        let mut spec = files(&[("/etc/e", text)]);
        spec["config"]["systemd"] = json!({"units": [{"name": "host.service", "enabled": true}]});
        spec
    };
    let node = Node::new();
    node.put("policy.json", crate::test_host::QUIET.replace("crio.service", "host.service"));
    node.put(UNIT, "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n");
    node.commit("rendered-a.json", &spec("a"));
    let link = node.path("root/etc/systemd/system/multi-user.target.wants/host.service");
    assert!(link.is_symlink());
    node.put("policy.json", crate::test_host::QUIET);
    node.put(UNIT, "[Service]\nExecStart=/bin/true\n");
    let verify = || node.run(&["verify", "--root", "root", "--os-backend", "none"]);
    assert!(verify().code == 1 && verify().out.contains("host.service"), "{}", verify().out);
    node.put("b.json", config("rendered-b", &spec("b")));
    let planned = node.plan("b.json");
    assert!(planned.code == 0 && planned.out.contains("enable-unit"), "{}", planned.out);
    assert!(
        planned.out.contains("host.service has no") || planned.out.contains("no [Install] section"),
        "{}",
        planned.out
    );
    let applied = node.apply("b.json");
    assert_eq!(
        (applied.code, link.is_symlink(), verify().code),
        (0, false, 0),
        "{}{}",
        applied.err,
        verify().out
    );
}
