//! What an administrator put in the place of a config's entry, or of a directory on its way: no config brought it, so it stays or is in the
//! way, also while an update is open. What `plan` refuses, `apply` refuses.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::process::Command;

use serde_json::{Value, json};

use crate::ran;
use crate::test_host::{BINARY, Node, Ran, apply, config, files, ignition};

const ADMIN: &str = "an administrator's";

fn storage(parts: Value) -> Value {
    ignition(json!({ "storage": parts }))
}

fn file(path: &str, text: &str) -> Value {
    json!({"path": path, "mode": 0o644, "contents": {"source": format!("data:,{text}")}})
}

fn no_reboot(node: &Node, target: &str) -> Ran {
    node.run(&["apply", "--to", target, "--yes", "--no-reboot", "--root", "root", "--os-backend", "none"])
}

fn plan_here(node: &Node, target: &str) -> Ran {
    node.run(&["plan", "--to", target, "--root", "root", "--os-backend", "none"])
}

fn verify(node: &Node) -> Ran {
    node.run(&["verify", "--root", "root", "--os-backend", "none"])
}

fn boot(node: &Node, number: u32) {
    node.put("root/proc/sys/kernel/random/boot_id", format!("{number}f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f0\n"));
}

/// An entry at `/etc/l`, of each kind that no file is.
fn entries() -> Vec<(&'static str, Value)> {
    let mut all = Vec::new();
    for overwrite in [false, true] {
        let link = |more: Value| {
            let mut link = json!({"path": "/etc/l", "overwrite": overwrite});
            link.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            link
        };
        all.push(("a link", json!({"links": [link(json!({"target": "x"}))]})));
        all.push(("a hard link", json!({"links": [link(json!({"target": "/etc/t", "hard": true}))]})));
        all.push(("a directory", json!({"directories": [link(json!({}))]})));
    }
    all
}

/// Takes what is at a path of the host away, and puts a file there.
fn put_file(node: &Node, path: &str) {
    let at = node.path(path);
    if at.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        fs::remove_dir_all(&at).unwrap();
    } else {
        drop(fs::remove_file(&at));
    }
    node.put(path, ADMIN);
}

fn is_refused(ran: &Ran, words: &[&str], text: &str) {
    let said = format!("{}{}", ran.out, ran.err).to_lowercase();
    assert_eq!(ran.code, 3, "{text}");
    assert!(words.iter().all(|word| said.contains(word)), "{words:?}: {text}");
}

/// An update waits for its reboot, and is planned again after it: a file in the place of one of its entries is in the way.
#[test]
fn file_in_place_of_entry_of_open_update_is_refused_after_its_reboot() {
    for (kind, entry) in entries() {
        let node = Node::new();
        node.put("root/etc/t", "the host's");
        let mut parts = entry.clone();
        parts["files"] = json!([file("/usr/local/b", "new")]);
        node.put("b.json", config("rendered-b", &storage(parts)));
        let ran = no_reboot(&node, "b.json");
        assert_eq!(ran.code, 0, "{kind}: {}", ran.err);
        put_file(&node, "root/etc/l");
        let planned = plan_here(&node, "b.json");
        assert_eq!(planned.code, 0, "{kind}: {}{}", planned.out, planned.err);
        assert!(
            planned.out.contains("after its reboot the open update is refused"),
            "{kind}: {}",
            planned.out
        );
        boot(&node, 1);
        for round in 0..2 {
            let (planned, applied) = (plan_here(&node, "b.json"), no_reboot(&node, "b.json"));
            let text = format!(
                "{kind} {entry} {round}: {}{}\n{}{}",
                planned.out, planned.err, applied.out, applied.err
            );
            for ran in [&planned, &applied] {
                is_refused(ran, &["move", "/etc/l", "away"], &text);
            }
            assert_eq!(node.read("root/etc/l"), ADMIN, "{text}");
        }
        fs::rename(node.path("root/etc/l"), node.path("root/etc/moved")).unwrap();
        let (planned, applied) = (plan_here(&node, "b.json"), no_reboot(&node, "b.json"));
        let text = format!("{kind}: {}{}{}", planned.out, planned.err, applied.err);
        assert_eq!((planned.code, applied.code), (0, 0), "{text}");
        boot(&node, 2);
        assert_eq!(no_reboot(&node, "b.json").code, 0, "{text}");
        assert_eq!(verify(&node).code, 0, "{text}");
    }
}

/// The same where the config is committed: a file is no state of such an entry, so a change does not replace it, and a config without the
/// entry leaves it.
#[test]
fn file_in_place_of_committed_entry_is_refused_or_stays() {
    for (kind, entry) in entries() {
        let host = || {
            let node = Node::new();
            node.put("root/etc/t", "the host's");
            node.put("root/etc/other", "the host's other");
            node.commit("rendered-a.json", &storage(entry.clone()));
            put_file(&node, "root/etc/l");
            node
        };
        let mut changed = entry.clone();
        match kind {
            "a link" => changed["links"][0]["target"] = json!("y"),
            "a hard link" => changed["links"][0]["target"] = json!("/etc/other"),
            _ => changed["directories"][0]["mode"] = json!(0o711),
        }
        let as_file = json!({"files": [file("/etc/l", "new")]});
        for next in [changed, as_file] {
            let node = host();
            node.put("b.json", config("rendered-b", &storage(next.clone())));
            let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
            let text = format!("{kind} {next}: {}{}{}", planned.out, planned.err, applied.err);
            for ran in [&planned, &applied] {
                is_refused(ran, &["is in its place by now", "move /etc/l away"], &text);
            }
            assert_eq!(node.read("root/etc/l"), ADMIN, "{text}");
            fs::remove_file(node.path("root/etc/l")).unwrap();
            assert_eq!(node.apply("b.json").code, 0, "{text}");
            assert_eq!(verify(&node).code, 0, "{text}");
        }
        let node = host();
        node.put("empty.json", config("rendered-empty", &files(&[])));
        let (planned, applied) = (node.plan("empty.json"), node.apply("empty.json"));
        let text = format!("{kind}: {}{}{}", planned.out, planned.err, applied.err);
        assert_eq!((planned.code, applied.code), (0, 0), "{text}");
        let words = ["a file is in its place by now, which no config brought, and stays", r#""/etc/l""#];
        assert!(words.iter().all(|word| planned.out.contains(word)), "{text}");
        assert!(!planned.out.contains("remove-"), "{text}");
        assert_eq!(node.read("root/etc/l"), ADMIN, "{text}");
    }
}

/// What came back of a hard link by itself is no person's: the file's contents, old or new.
#[test]
fn copy_in_place_of_hard_link_is_the_configs() {
    let hard = || json!({"links": [{"path": "/etc/l", "target": "/etc/t", "hard": true}]});
    for text in ["old", "new"] {
        for leaves in [false, true] {
            let node = Node::new();
            let with = |text: &str| {
                let mut parts = hard();
                parts["files"] = json!([file("/etc/t", text)]);
                storage(parts)
            };
            node.commit("rendered-a.json", &with("old"));
            fs::remove_file(node.path("root/etc/l")).unwrap();
            node.put("root/etc/l", text);
            if text == "new" {
                node.put("root/etc/t", text);
            }
            let next = if leaves { files(&[]) } else { with("new") };
            node.put("b.json", config("rendered-b", &next));
            let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
            let said = format!("{text} {leaves}: {}{}{}", planned.out, planned.err, applied.err);
            assert_eq!((planned.code, applied.code), (0, 0), "{said}");
            assert_eq!(node.path("root/etc/l").exists(), !leaves, "{said}");
        }
    }
}

/// At each point of an interrupted update: neither its rest nor its undo takes a file that was put in the place of a hard link.
#[test]
fn file_in_place_of_hard_link_of_interrupted_update_is_kept() {
    let hard = json!({"links": [{"path": "/etc/l", "target": "/etc/t", "hard": true}], "files": [file("/etc/z", "z")]});
    for (from, to) in [(json!({}), hard.clone()), (hard.clone(), json!({}))] {
        for undone in [false, true] {
            let mut kept = 0;
            for point in (10..60).step_by(3) {
                let node = Node::new();
                node.put("root/etc/t", "the host's");
                node.commit("rendered-a.json", &storage(from.clone()));
                node.put("b.json", config("rendered-b", &storage(to.clone())));
                let killed =
                    node.command(&apply("b.json")).env("MCA_FAIL_POINT", format!("kill:{point}")).output();
                if killed.unwrap().status.success() {
                    break;
                }
                put_file(&node, "root/etc/l");
                let target = if undone { "c.json" } else { "b.json" };
                node.put("c.json", config("rendered-c", &files(&[("/etc/c", "c")])));
                let (planned, applied) = (node.plan(target), node.apply(target));
                let text = format!(
                    "{from} {to} {undone} {point}: {}{}{}{}",
                    planned.out, planned.err, applied.out, applied.err
                );
                let found: Vec<String> = ["l", "l.mca-foreign"]
                    .iter()
                    .filter_map(|name| fs::read_to_string(node.path(&format!("root/etc/{name}"))).ok())
                    .collect();
                let is_original = || {
                    // It came before the link did, so it is the link's original by now.
                    node.put("e.json", config("rendered-e", &files(&[])));
                    let is_back = node.apply("e.json").code == 0;
                    is_back && fs::read_to_string(node.path("root/etc/l")).is_ok_and(|text| text == ADMIN)
                };
                assert!(found.iter().any(|text| text == ADMIN) || is_original(), "{text}");
                kept += 1;
            }
            assert!(kept > 3, "{kept}");
        }
    }
}

/// How a directory of the config came to be a link: moved away, or removed.
const WAYS: [&str; 2] = ["removed", "moved"];

/// Puts a link to `/srv/o` in the place of a directory, where a file of the administrator is.
fn put_link(node: &Node, directory: &str, way: &str) {
    let at = node.path(&format!("root{directory}"));
    fs::create_dir_all(node.path("root/srv")).unwrap();
    if way == "moved" {
        fs::rename(&at, node.path("root/srv/o")).unwrap();
    } else {
        fs::remove_dir_all(&at).unwrap();
        fs::create_dir(node.path("root/srv/o")).unwrap();
    }
    for name in ["f", "f.conf"] {
        drop(fs::remove_file(node.path(&format!("root/srv/o/{name}"))));
        node.put(&format!("root/srv/o/{name}"), ADMIN);
    }
    let up = "../".repeat(directory.matches('/').count() - 1);
    symlink(format!("{up}srv/o"), at).unwrap();
}

fn listed(more: Value) -> Value {
    let mut parts = json!({"directories": [{"path": "/etc/d"}]});
    parts.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    storage(parts)
}

/// What is below the directory, and its path there.
fn below() -> Vec<(Value, &'static str)> {
    let unit = "[Service]\nExecStart=/bin/true\n";
    let dropin = json!({"name": "x.service", "contents": unit, "dropins": [{"name": "f.conf", "contents": "[Unit]\n"}]});
    vec![
        (listed(json!({"files": [file("/etc/d/f", "x")]})), "/etc/d"),
        (listed(json!({"links": [{"path": "/etc/d/f", "target": "x"}]})), "/etc/d"),
        (listed(json!({"links": [{"path": "/etc/d/f", "target": "/etc/t", "hard": true}]})), "/etc/d"),
        (storage(json!({"files": [file("/etc/d/f", "x")]})), "/etc/d"),
        (storage(json!({"files": [file("/etc/e/d/f", "x")]})), "/etc/e/d"),
        (ignition(json!({"systemd": {"units": [dropin]}})), "/etc/systemd/system/x.service.d"),
    ]
}

fn host() -> Node {
    let node = Node::new();
    node.put("root/etc/t", "the host's");
    let none = json!([{"type": "None"}]);
    let policy = json!({"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration", "metadata": {"name": "cluster"},
        "spec": {"nodeDisruptionPolicy": {"files": [{"path": "/etc", "actions": none}], "units": [{"name": "x.service", "actions": none}]}}});
    node.put("policy.json", policy.to_string());
    node
}

/// The config is left: nothing behind the link is touched, and the plan says so.
#[test]
fn what_is_behind_link_in_place_of_directory_stays() {
    for (spec, directory) in below() {
        for way in WAYS {
            let node = host();
            node.commit("rendered-a.json", &spec);
            put_link(&node, directory, way);
            let before = node.listing("root/srv");
            node.put("empty.json", config("rendered-empty", &files(&[])));
            let (planned, applied) = (node.plan("empty.json"), node.apply("empty.json"));
            let text = format!("{spec} {way}: {}{}{}", planned.out, planned.err, applied.err);
            assert_eq!((planned.code, applied.code), (0, 0), "{text}");
            assert_eq!(node.listing("root/srv"), before, "{text}");
            assert!(node.path(&format!("root{directory}")).is_symlink(), "{text}");
            assert!(
                planned.out.contains(&format!("{directory} above it is a symbolic link by now")),
                "{text}"
            );
            let promises = |line: &str| line.contains(&format!(" {directory}")) && line.contains("remove-");
            assert!(!planned.out.lines().any(promises), "{text}");
            assert_eq!(verify(&node).code, 0, "{text}");
        }
    }
}

/// Something is to be written there, or an original is to come back: the link is in the way, and the advice leads on.
#[test]
fn change_behind_link_in_place_of_directory_is_refused() {
    let f = |text: &str| json!({"files": [file("/etc/d/f", text)]});
    for (of_host, from, to) in [
        (false, listed(f("x")), storage(f("y"))),
        (false, storage(f("x")), storage(f("y"))),
        (false, listed(f("x")), storage(json!({"files": [file("/etc/d/g", "y")]}))),
        (true, listed(f("x")), storage(json!({}))),
        (false, listed(json!({})), storage(f("y"))),
    ] {
        let node = host();
        if of_host {
            node.put("root/etc/d/f", "the host's");
        }
        node.commit("rendered-a.json", &from);
        put_link(&node, "/etc/d", "removed");
        let before = node.listing("root/srv");
        node.put("b.json", config("rendered-b", &to));
        let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
        let text = format!("{from} {to}: {}{}{}", planned.out, planned.err, applied.err);
        for ran in [&planned, &applied] {
            is_refused(ran, &["/etc/d above it is a symbolic link by now", "move /etc/d away"], &text);
        }
        assert_eq!(node.listing("root/srv"), before, "{text}");
        fs::rename(node.path("root/etc/d"), node.path("root/etc/moved")).unwrap();
        assert_eq!(node.apply("b.json").code, 0, "{text}");
        assert_eq!(node.listing("root/srv"), before, "{text}");
        assert_eq!(verify(&node).code, 0, "{text}");
        if of_host {
            assert_eq!(node.read("root/etc/d/f"), "the host's", "{text}");
        }
    }
}

/// At each point of an interrupted update a link comes in the place of a directory that it makes, or takes away.
#[test]
fn what_is_behind_link_stays_when_interrupted_update_goes_on_or_is_undone() {
    let files_below = json!({"files": [file("/etc/d/f", "x"), file("/etc/z", "z")]});
    for with in [storage(files_below.clone()), listed(files_below)] {
        for (from, to) in [(storage(json!({})), with.clone()), (with.clone(), storage(json!({})))] {
            for undone in [false, true] {
                let mut seen = 0;
                for point in (10..60).step_by(3) {
                    let node = host();
                    node.commit("rendered-a.json", &from);
                    node.put("b.json", config("rendered-b", &to));
                    node.put("c.json", config("rendered-c", &from));
                    let killed = node
                        .command(&apply("b.json"))
                        .env("MCA_FAIL_POINT", format!("kill:{point}"))
                        .output();
                    if killed.unwrap().status.success() {
                        break;
                    }
                    if !node.path("root/etc/d").is_dir() {
                        continue;
                    }
                    put_link(&node, "/etc/d", "removed");
                    let before = node.listing("root/srv");
                    let target = if undone { "c.json" } else { "b.json" };
                    let (planned, applied) = (node.plan(target), node.apply(target));
                    let text = format!(
                        "{from} {to} {undone} {point}: {}{}{}{}",
                        planned.out, planned.err, applied.out, applied.err
                    );
                    assert_eq!(node.listing("root/srv"), before, "{text}");
                    seen += 1;
                }
                assert!(seen > 1, "{from} {to} {undone}: {seen}");
            }
        }
    }
}

/// A file system over the directory: what is not as the config left it stays.
#[test]
fn what_is_in_mount_in_place_of_directory_stays() {
    let allowed = Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "x", "/mnt"]).output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        ran::not_run("what_is_in_mount_in_place_of_directory_stays", "to mount (CAP_SYS_ADMIN)");
        return;
    }
    for spec in [
        listed(json!({"files": [file("/etc/d/f", "x")]})),
        storage(json!({"files": [file("/etc/d/f", "x")]})),
    ] {
        let node = host();
        node.commit("rendered-a.json", &spec);
        node.put("empty.json", config("rendered-empty", &files(&[])));
        let apply = apply("empty.json").join(" ");
        let script = format!(
            "set -e; mount -t tmpfs x root/etc/d; echo theirs >root/etc/d/f; set +e\n\
             '{BINARY}' plan --to empty.json --policy policy.json --root root --os-backend none; echo code=$?\n\
             '{BINARY}' {apply}; echo code=$?; cat root/etc/d/f"
        );
        let output =
            Command::new("unshare").args(["-m", "sh", "-c", &script]).current_dir(node.dir.path()).output();
        let output = output.unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(out.matches("code=0").count(), 2, "{spec}: {out}{err}");
        assert!(out.contains("theirs"), "{spec}: {out}{err}");
        assert!(out.contains("/etc/d above it is a mount point by now"), "{spec}: {out}{err}");
    }
}

/// The owner of a listed directory leads a directory in it elsewhere: the config is left, and names what stays.
#[test]
fn link_of_owner_in_listed_directory_keeps_no_config() {
    for in_sub in [json!([]), json!([{"path": "/etc/d/sub"}])] {
        for made in [false, true] {
            let node = host();
            let mut directories = vec![json!({"path": "/etc/d", "user": {"id": 1500}})];
            directories.extend(in_sub.as_array().unwrap().clone());
            node.commit("rendered-0.json", &storage(json!({ "directories": directories.clone() })));
            if made {
                fs::create_dir_all(node.path("root/etc/d/sub")).unwrap();
                chown(node.path("root/etc/d/sub"), Some(1500), Some(1500)).unwrap();
            }
            let parts = json!({"directories": directories, "files": [file("/etc/d/sub/f", "x")]});
            node.commit("rendered-a.json", &storage(parts));
            fs::rename(node.path("root/etc/d/sub"), node.path("root/etc/d/s2")).unwrap();
            symlink("s2", node.path("root/etc/d/sub")).unwrap();
            std::os::unix::fs::lchown(node.path("root/etc/d/sub"), Some(1500), Some(1500)).unwrap();
            node.put("empty.json", config("rendered-empty", &files(&[])));
            let (planned, applied) = (node.plan("empty.json"), node.apply("empty.json"));
            let text = format!("{in_sub} {made}: {}{}{}", planned.out, planned.err, applied.err);
            assert_eq!((planned.code, applied.code), (0, 0), "{text}");
            assert!(planned.out.contains("/etc/d/sub/f") && planned.out.contains("stays"), "{text}");
            assert_eq!(node.read("root/etc/d/s2/f"), "x", "{text}");
            assert_eq!(verify(&node).code, 0, "{text}");
        }
    }
}

/// Moves a directory with all that is in it, and leaves a link to it.
fn move_away(node: &Node, directory: &str) {
    fs::create_dir_all(node.path("root/srv")).unwrap();
    fs::rename(node.path(&format!("root{directory}")), node.path("root/srv/o")).unwrap();
    let up = "../".repeat(directory.matches('/').count() - 1);
    symlink(format!("{up}srv/o"), node.path(&format!("root{directory}"))).unwrap();
}

/// What the agent wrote moved with its directory: it is written through the link as little as what somebody else put there.
#[test]
fn change_behind_link_of_moved_directory_is_refused() {
    let link = |target: &str| storage(json!({"links": [{"path": "/etc/a/l", "target": target}]}));
    let hard =
        |target: &str| storage(json!({"links": [{"path": "/etc/a/l", "target": target, "hard": true}]}));
    let of_files = |list: &[Value]| storage(json!({ "files": list }));
    let mut private = file("/etc/a/f", "x");
    private["mode"] = json!(0o600);
    let unit = |text: &str| {
        let dropin = json!({"name": "f.conf", "contents": format!("[Unit]\nDescription={text}\n")});
        ignition(
            json!({"systemd": {"units": [{"name": "x.service", "contents": "[Service]\nExecStart=/bin/true\n",
            "dropins": [dropin]}]}}),
        )
    };
    for (from, to, directory) in [
        (link("x"), link("y"), "/etc/a"),
        (link("x"), of_files(&[file("/etc/a/l", "x")]), "/etc/a"),
        (hard("/etc/t"), hard("/etc/passwd"), "/etc/a"),
        (of_files(&[file("/etc/a/f", "x")]), of_files(&[file("/etc/a/f", "y")]), "/etc/a"),
        (of_files(&[file("/etc/a/f", "x")]), of_files(&[private]), "/etc/a"),
        (
            of_files(&[file("/etc/a/f", "x")]),
            of_files(&[file("/etc/a/f", "x"), file("/etc/a/g", "new")]),
            "/etc/a",
        ),
        (of_files(&[file("/etc/a/f", "x")]), link("x"), "/etc/a"),
        (
            of_files(&[file("/etc/a/n/f", "x")]),
            storage(json!({"files": [file("/etc/a/n/f", "x")], "directories": [{"path": "/etc/a/n/d"}]})),
            "/etc/a",
        ),
        (of_files(&[file("/etc/a/n/f", "x")]), of_files(&[file("/etc/a/n/f", "y")]), "/etc/a/n"),
        (unit("x"), unit("y"), "/etc/systemd/system/x.service.d"),
    ] {
        let node = host();
        node.commit("rendered-a.json", &from);
        move_away(&node, directory);
        let before = node.listing("root/srv");
        node.put("b.json", config("rendered-b", &to));
        let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
        let text = format!("{from} {to}: {}{}{}", planned.out, planned.err, applied.err);
        // Without the file that stays as it is the host would differ from its config.
        let is_left = text.contains("/etc/a/g") || text.contains("/etc/a/n/d");
        let next = if is_left {
            format!("make {directory} a directory again")
        } else {
            format!("move {directory} away")
        };
        for ran in [&planned, &applied] {
            let words = [format!("{directory} above it is a symbolic link by now"), next.clone()];
            is_refused(ran, &words.each_ref().map(String::as_str), &text);
        }
        assert_eq!(node.listing("root/srv"), before, "{text}");
        fs::remove_file(node.path(&format!("root{directory}"))).unwrap();
        fs::rename(node.path("root/srv/o"), node.path(&format!("root{directory}"))).unwrap();
        assert_eq!(node.apply("b.json").code, 0, "{text}");
        assert_eq!(verify(&node).code, 0, "{text}");
    }
}

/// The config leaves: no directory behind the link is listed as removed.
#[test]
fn directories_behind_link_of_moved_directory_are_not_listed_as_removed() {
    let node = host();
    node.commit("rendered-a.json", &storage(json!({"files": [file("/etc/a/n/m/f", "x")]})));
    move_away(&node, "/etc/a");
    let before = node.listing("root/srv");
    node.put("empty.json", config("rendered-empty", &files(&[])));
    let (planned, applied) = (node.plan("empty.json"), node.apply("empty.json"));
    let text = format!("{}{}{}", planned.out, planned.err, applied.err);
    assert_eq!((planned.code, applied.code), (0, 0), "{text}");
    assert!(!planned.out.contains("remove-"), "{text}");
    assert!(planned.out.contains("/etc/a above it is a symbolic link by now"), "{text}");
    assert_eq!(node.listing("root/srv"), before, "{text}");
    assert_eq!(verify(&node).code, 0, "{text}");
}

/// A symbolic link in the place of a hard link is no config's, whatever becomes of the entry.
#[test]
fn symlink_in_place_of_hard_link_is_refused_or_stays() {
    let hard = |target: &str| json!([{"path": "/etc/l", "target": target, "hard": true, "overwrite": true}]);
    let (x, other) = (file("/etc/x", "x"), file("/etc/x", "two"));
    let targets = [
        ("leaves", storage(json!({"files": [x]}))),
        ("leaves with its file", ignition(json!({}))),
        ("stays with another file", storage(json!({"files": [other], "links": hard("/etc/x")}))),
        ("leads elsewhere", storage(json!({"files": [x, file("/etc/y", "y")], "links": hard("/etc/y")}))),
        ("becomes a file", storage(json!({"files": [x, file("/etc/l", "l")]}))),
    ];
    for had in [false, true] {
        for (case, target) in &targets {
            let node = Node::new();
            if had {
                node.put("root/etc/l", "own");
            }
            node.commit("rendered-a.json", &storage(json!({"files": [x], "links": hard("/etc/x")})));
            fs::remove_file(node.path("root/etc/l")).unwrap();
            symlink("other", node.path("root/etc/l")).unwrap();
            node.put("b.json", config("rendered-b", target));
            let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
            let text = format!("{case} {had}: {}{}{}", planned.out, planned.err, applied.err);
            let left = fs::read_link(node.path("root/etc/l")).map(|left| left.to_str().unwrap().to_owned());
            assert_eq!(left.ok().as_deref(), Some("other"), "{text}");
            if case.starts_with("leaves") && !had {
                assert_eq!((planned.code, applied.code), (0, 0), "{text}");
                assert!(planned.out.contains("which no config brought, and stays"), "{text}");
                continue;
            }
            let words = ["/etc/l", "which no config brought", "move /etc/l away"];
            is_refused(&planned, &words, &text);
            is_refused(&applied, &words, &text);
            fs::rename(node.path("root/etc/l"), node.path("root/etc/aside")).unwrap();
            assert_eq!(node.apply("b.json").code, 0, "{text}");
        }
    }
}
