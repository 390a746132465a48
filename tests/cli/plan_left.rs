//! What a person put in the place of an entry that leaves the config or changes: it stays, or the advice is a way out.

use std::os::unix::fs::symlink;

use rustix::fs::{CWD, FileType, Mode};
use serde_json::{Value, json};

use crate::test_host::{Node, apply, config, files, ignition};

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

/// A directory took the place of a file or a link of the host: what a person has there since is in the way of that.
#[test]
fn original_below_directory_of_config_is_not_dropped() {
    let over = ignition(json!({"storage": {"directories": [{"path": "/etc/e", "overwrite": true}]}}));
    for (original, put) in
        ["file", "link"].into_iter().flat_map(|one| ["in it", "file", "link"].map(|put| (one, put)))
    {
        let node = Node::new();
        let read = || match node.path(PATH).read_link() {
            Ok(target) => target.display().to_string(),
            Err(_) => node.read(PATH),
        };
        match original {
            "file" => node.put(PATH, "the host's"),
            _ => symlink("the host's", node.path(PATH)).unwrap(),
        }
        node.commit("rendered-a.json", &over);
        node.put("empty.json", config("rendered-empty", &files(&[])));
        let path = node.path(PATH);
        match put {
            "in it" => node.put(&format!("{PATH}/theirs"), "a person's"),
            "file" => std::fs::remove_dir(&path).map(|()| node.put(PATH, "a person's")).unwrap(),
            _ => std::fs::remove_dir(&path).and_then(|()| symlink("theirs", &path)).unwrap(),
        }
        let (planned, applied) = (node.plan("empty.json"), node.apply("empty.json"));
        for (code, text) in [(planned.code, planned.out + &planned.err), (applied.code, applied.err)] {
            let is_told = text.to_lowercase().contains("move /etc/e away");
            assert!(code == 3 && is_told, "{original} {put}: {code} {text}");
        }
        std::fs::rename(&path, node.path("root/etc/moved")).unwrap();
        let applied = node.apply("empty.json");
        assert_eq!((applied.code, read().as_str()), (0, "the host's"), "{original} {put}: {}", applied.err);
    }
}

/// A host with a directory of a config in the place of a file of its own, killed at a point of the update to a config.
fn killed_over_file(before: &str, to: &str, point: usize) -> Option<Node> {
    let over = ignition(json!({"storage": {
        "directories": [{"path": "/etc/e", "overwrite": true}], "files": [{"path": "/etc/e/in"}]}}));
    let node = Node::new();
    node.put(PATH, "the host's");
    node.put("empty.json", config("rendered-empty", &files(&[])));
    node.put("b.json", config("rendered-b", &over));
    assert_eq!(node.apply(before).code, 0);
    let mut command = node.command(&crate::test_host::apply(to));
    let ended = command.env("MCA_FAIL_POINT", format!("kill:{point}")).output().unwrap().status;
    (!ended.success()).then_some(node)
}

/// As above, when the update that makes the directory is undone.
#[test]
fn original_below_directory_of_undone_update_is_not_dropped() {
    let mut undone = 0;
    for point in 1..120 {
        let Some(node) = killed_over_file("empty.json", "b.json", point) else { break };
        if !node.path(PATH).is_dir() {
            continue;
        }
        node.put("root/etc/e/theirs", "a person's");
        let (planned, applied) = (node.plan("empty.json"), node.apply("empty.json"));
        let text = format!("kill:{point}: {}{}{}", planned.out, planned.err, applied.err);
        if node.path(PATH).is_file() {
            undone += 1;
            assert_eq!(node.read(PATH), "the host's", "{text}");
            assert_eq!(node.read("root/etc/e.mca-foreign/theirs"), "a person's", "{text}");
            assert!(!node.path("root/etc/e.mca-foreign/in").exists(), "{text}");
        } else {
            // It was done but for its end: it is an update back.
            assert_eq!(applied.code, 3, "{text}");
        }
    }
    assert!(undone > 3, "{undone}");
}

/// As above, when the update that lets the directory go continues.
#[test]
fn original_below_directory_of_open_update_is_not_dropped() {
    let mut kept = 0;
    for point in 1..120 {
        let Some(node) = killed_over_file("b.json", "empty.json", point) else { break };
        if !node.path(PATH).is_dir() {
            continue;
        }
        node.put("root/etc/e/theirs", "a person's");
        let (planned, applied) = (node.plan("empty.json"), node.apply("empty.json"));
        let text = format!("kill:{point}: {}{}{}", planned.out, planned.err, applied.err);
        assert!(planned.code == 3 && [3, 4].contains(&applied.code), "{text}");
        std::fs::remove_file(node.path("root/etc/e/theirs")).unwrap();
        let applied = node.apply("empty.json");
        assert_eq!((applied.code, node.read(PATH).as_str()), (0, "the host's"), "{text}{}", applied.err);
        kept += 1;
    }
    assert!(kept > 3, "{kept}");
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

/// The plan lists the directories that go, and no other one: what a person, another program or a link of a unit holds stays.
#[test]
fn directories_that_stay_are_not_listed_as_removed() {
    let unit = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
    let spec = ignition(json!({
        "systemd": {"units": [{"name": "x.service", "enabled": true, "contents": unit,
            "dropins": [{"name": "a.conf", "contents": "[Unit]\n"}]}]},
        "storage": {"files": [{"path": "/etc/systemd/system.conf.d/a.conf"}],
            "directories": [{"path": "/etc/systemd/system/l.service.d"}],
            "links": [{"path": "/etc/systemd/system/foo.target.wants/bar.service",
                "target": "/usr/lib/systemd/system/bar.service"}]}
    }));
    let below = |name: &str| format!("/etc/systemd/{name}");
    let kept =
        ["system/x.service.d", "system/l.service.d", "system/foo.target.wants", "system.conf.d"].map(below);
    for theirs in kept.iter().map(Some).chain([None]) {
        let node = Node::new();
        node.put("policy.json", crate::test_host::QUIET.replace("crio.service", "x.service"));
        node.put("root/etc/systemd/system.conf", "");
        node.put("a.json", config("rendered-a", &spec));
        let number = |number: u32| format!("{number}f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f0\n");
        let settle = |target: &str, first: u32| {
            let ran = node.apply(target);
            node.put("root/proc/sys/kernel/random/boot_id", number(first));
            let verified = node.apply(target);
            assert!([0, 133].contains(&ran.code) && verified.code == 0, "{}{}", ran.err, verified.err);
        };
        settle("a.json", 1);
        if let Some(directory) = theirs {
            node.put(&format!("root{directory}/theirs"), "a person's");
        }
        node.put("empty.json", config("rendered-empty", &files(&[])));
        let planned = node.plan("empty.json");
        settle("empty.json", 2);
        let listed = planned.out.lines().filter(|line| line.contains("remove-directory"));
        let listed: Vec<&str> = listed.filter_map(|line| line.split_whitespace().nth(2)).collect();
        for directory in
            kept.iter().cloned().chain(["/etc/systemd/system", "/etc/systemd"].map(str::to_owned))
        {
            let is_there = node.path(&format!("root{directory}")).exists();
            assert_eq!(is_there, !listed.contains(&&*directory), "{theirs:?} {directory}: {}", planned.out);
        }
        let is_warned = planned.out.contains("the directory holds what no config brought, and stays");
        assert_eq!(is_warned, theirs.is_some_and(|path| path.ends_with("l.service.d")), "{}", planned.out);
    }
}

/// A unit with a drop-in, and a file; the paths of the three.
fn unit_and_file(text: &str) -> (Value, [&'static str; 3]) {
    let unit = format!("[Service]\nExecStart=/bin/{text}\n[Install]\nWantedBy=multi-user.target\n");
    let dropin = json!({"name": "d.conf", "contents": format!("[Unit]\nDescription={text}\n")});
    let spec = ignition(json!({
        "systemd": {"units": [{"name": "x.service", "enabled": true, "contents": unit, "dropins": [dropin]}]},
        "storage": {"files": [{"path": "/etc/e", "contents": {"source": format!("data:,{text}")}}]}
    }));
    (spec, ["/etc/e", "/etc/systemd/system/x.service", "/etc/systemd/system/x.service.d/d.conf"])
}

fn unit_host() -> Node {
    let node = Node::new();
    node.put("policy.json", crate::test_host::QUIET.replace("crio.service", "x.service"));
    node.put("root/srv/theirs", "a person's");
    std::fs::create_dir_all(node.path("root/srv/folder")).unwrap();
    node.commit("rendered-a.json", &unit_and_file("true").0);
    node
}

fn verify_code(node: &Node) -> i32 {
    node.run(&["verify", "--root", "root", "--os-backend", "none"]).code
}

/// A link in the place of a file, a unit file or a drop-in is a person's as well, wherever it leads: no text of it would be kept.
#[test]
fn link_in_place_of_file_stays_or_is_refused() {
    let (changed, paths) = unit_and_file("false");
    for path in paths {
        let name = path.rsplit('/').next().unwrap();
        for target in ["/srv/theirs", "/srv/folder", "/nowhere", "/dev/null", name] {
            let link = |node: &Node| {
                std::fs::remove_file(node.path(&format!("root{path}"))).unwrap();
                std::os::unix::fs::symlink(target, node.path(&format!("root{path}"))).unwrap();
            };
            let is_there = |node: &Node| {
                let found = std::fs::read_link(node.path(&format!("root{path}")));
                found.is_ok_and(|found| found.to_str() == Some(target))
            };
            let node = unit_host();
            link(&node);
            assert_eq!(verify_code(&node), 1, "{path} {target}");
            node.put("empty.json", config("rendered-empty", &files(&[])));
            let (planned, applied) = (node.plan("empty.json"), node.apply("empty.json"));
            let text = format!("{path} {target}: {}{}{}", planned.out, planned.err, applied.err);
            assert_eq!((planned.code, applied.code), (0, 0), "{text}");
            let words = [path, "is in its place by now, which no config brought, and stays"];
            assert!(words.iter().all(|word| planned.out.contains(word)), "{text}");
            assert!(is_there(&node), "{text}");
            assert_eq!(verify_code(&node), 0, "{text}");

            let node = unit_host();
            link(&node);
            node.put("b.json", config("rendered-b", &changed));
            let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
            let text = format!("{path} {target}: {}{}{}", planned.out, planned.err, applied.err);
            for (code, said) in [(planned.code, planned.out + &planned.err), (applied.code, applied.err)] {
                assert!(code == 3 && said.to_lowercase().contains(&format!("move {path} away")), "{text}");
            }
            assert!(is_there(&node), "{text}");
            std::fs::remove_file(node.path(&format!("root{path}"))).unwrap();
            assert_eq!(node.apply("b.json").code, 0, "{text}");
            assert_eq!(verify_code(&node), 0, "{text}");
        }
    }
}

/// systemd loads no unit and no drop-in of a socket or a pipe: it keeps neither the config from being compared nor from being left.
#[test]
fn socket_in_place_of_unit_file_or_drop_in_stays() {
    for path in unit_and_file("true").1 {
        for kind in ["socket", "pipe", "device", "directory"] {
            let node = unit_host();
            let at = node.path(&format!("root{path}"));
            std::fs::remove_file(&at).unwrap();
            let make =
                |kind| rustix::fs::mknodat(CWD, &at, kind, Mode::RUSR, rustix::fs::makedev(1, 3)).unwrap();
            match kind {
                "socket" => drop(std::os::unix::net::UnixListener::bind(&at).unwrap()),
                "pipe" => make(FileType::Fifo),
                "device" => make(FileType::CharacterDevice),
                _ => std::fs::create_dir(&at).unwrap(),
            }
            assert_eq!(verify_code(&node), 1, "{path} {kind}");
            node.put("empty.json", config("rendered-empty", &files(&[])));
            let (planned, applied) = (node.plan("empty.json"), node.apply("empty.json"));
            let text = format!("{path} {kind}: {}{}{}", planned.out, planned.err, applied.err);
            assert_eq!((planned.code, applied.code), (0, 0), "{text}");
            assert!(at.symlink_metadata().is_ok(), "{text}");
            let listed = planned.out.lines().filter(|line| line.contains("remove-directory"));
            for directory in listed.filter_map(|line| line.split_whitespace().nth(2)) {
                assert!(!node.path(&format!("root{directory}")).exists(), "{directory} {text}");
            }
            assert_eq!(verify_code(&node), 0, "{text}");
        }
    }
}

/// A link of the host above an entry leads elsewhere since: what the config left at the first place, its original, and a file of a person
/// at the second one stay, and the plan is refused with an advice that works.
#[test]
fn link_of_host_that_leads_elsewhere_since_is_refused() {
    let file = |text: &str| {
        let contents = json!({"source": format!("data:,{text}")});
        ignition(json!({"storage": {"files": [
            {"path": "/etc/foo/x", "mode": 420, "overwrite": true, "contents": contents}]}}))
    };
    for (had, other, target) in
        [(true, true, "none.json"), (false, false, "none.json"), (true, true, "b.json")]
    {
        let case = format!("{had} {other} {target}");
        let node = Node::new();
        let lead = |to: &str| {
            drop(std::fs::remove_file(node.path("root/etc/foo")));
            symlink(to, node.path("root/etc/foo")).unwrap();
        };
        for directory in ["root/var/foo", "root/var/bar"] {
            std::fs::create_dir_all(node.path(directory)).unwrap();
        }
        lead("../var/foo");
        if had {
            node.put("root/var/foo/x", "admin");
        }
        node.put("b.json", config("rendered-b", &file("two")));
        node.put("none.json", config("rendered-none", &ignition(json!({}))));
        node.commit("rendered-a.json", &file("one"));
        lead("../var/bar");
        if other {
            node.put("root/var/bar/x", "other");
        }
        for ran in [node.plan(target), node.apply(target)] {
            let text = ran.out + &ran.err;
            let words = ["storage.files \"/etc/foo/x\"", "/etc/foo led to /var/foo", "leads to /var/bar now"];
            assert!(
                ran.code == 3 && words.iter().all(|word| text.contains(word)),
                "{case}: {} {text}",
                ran.code
            );
        }
        let bar = || std::fs::read_to_string(node.path("root/var/bar/x")).unwrap_or_default();
        assert_eq!(
            (node.read("root/var/foo/x").as_str(), bar().as_str()),
            ("one", if other { "other" } else { "" })
        );
        lead("../var/foo");
        for target in [target, "none.json"] {
            assert_eq!(node.apply(target).code, 0, "{case}");
        }
        let left = std::fs::read_to_string(node.path("root/var/foo/x")).unwrap_or_default();
        assert_eq!(
            (left.as_str(), bar().as_str()),
            (if had { "admin" } else { "" }, if other { "other" } else { "" })
        );
    }
}

/// A directory of the host that moved with all that is in it is the same one.
#[test]
fn directory_of_host_that_moved_holds_its_entries() {
    let node = Node::new();
    node.put("root/var/foo/x", "admin");
    symlink("../var/foo", node.path("root/etc/foo")).unwrap();
    let file =
        json!({"path": "/etc/foo/x", "mode": 420, "overwrite": true, "contents": {"source": "data:,one"}});
    node.commit("rendered-a.json", &ignition(json!({"storage": {"files": [file]}})));
    std::fs::rename(node.path("root/var/foo"), node.path("root/var/bar")).unwrap();
    std::fs::remove_file(node.path("root/etc/foo")).unwrap();
    symlink("../var/bar", node.path("root/etc/foo")).unwrap();
    node.commit("rendered-none.json", &ignition(json!({})));
    assert_eq!(node.read("root/var/bar/x"), "admin");
}

/// In the home of an account, too, an undo moves a full directory aside for the file that was there before.
#[test]
fn undo_brings_file_of_account_back_from_under_full_directory() {
    let mut undone = 0;
    for owner in [json!({}), json!({"user": {"name": "core"}, "group": {"name": "core"}})] {
        for point in 1..200 {
            let node = Node::new();
            node.put("root/home/core/d", "own");
            for path in ["root/home/core", "root/home/core/d"] {
                std::os::unix::fs::chown(node.path(path), Some(1000), Some(1000)).unwrap();
            }
            let mut directory = json!({"path": "/home/core/d", "overwrite": true});
            directory.as_object_mut().unwrap().extend(owner.as_object().unwrap().clone());
            node.put("none.json", config("rendered-none", &ignition(json!({}))));
            let target = ignition(json!({"storage": {"directories": [directory]}}));
            node.put("b.json", config("rendered-b", &target));
            let mut command = node.command(&apply("b.json"));
            command.env("MCA_FAIL_POINT", format!("kill:{point}"));
            if command.output().unwrap().status.success() {
                break;
            }
            if !node.path("root/home/core/d").is_dir() {
                continue;
            }
            node.put("root/home/core/d/person", "person");
            let ran = node.apply("none.json");
            if !ran.err.contains("rolling back") {
                break;
            }
            let text = format!("{owner} kill:{point}: {}", ran.err);
            assert_eq!((ran.code, node.read("root/home/core/d")), (0, "own".to_owned()), "{text}");
            assert_eq!(node.read("root/home/core/d.mca-foreign/person"), "person", "{text}");
            assert!(ran.err.contains("moved aside to /home/core/d.mca-foreign"), "{text}");
            undone += 1;
        }
    }
    assert!(undone > 3, "{undone}");
}
