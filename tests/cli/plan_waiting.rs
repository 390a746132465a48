//! What a person puts in the place of an entry while an update waits for its reboot: `plan` says what `apply` does with it, before the
//! reboot and after it, and an undo of the update keeps it.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use serde_json::{Value, json};

use crate::test_host::{Node, Ran, apply, config, files, ignition};

const ADMIN: &str = "[Service]\nExecStart=/bin/false\n";
const UNIT: &str = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
const AT: &str = "root/etc/systemd/system/x.service";
const WANTS: &str = "root/etc/systemd/system/multi-user.target.wants/x.service";

/// A config with a file that no policy covers, so that its update waits for a reboot.
fn waits(mut sections: Value, text: &str) -> Value {
    let file =
        json!({"path": "/usr/local/b", "mode": 0o644, "contents": {"source": format!("data:,{text}")}});
    let storage = sections.as_object_mut().unwrap().entry("storage").or_insert(json!({}));
    let files = storage.as_object_mut().unwrap().entry("files").or_insert(json!([]));
    files.as_array_mut().unwrap().push(file);
    ignition(sections)
}

fn units(entry: Value) -> Value {
    json!({"systemd": {"units": [entry]}})
}

fn no_reboot(node: &Node, target: &str) -> Ran {
    node.run(&["apply", "--to", target, "--yes", "--no-reboot", "--root", "root", "--os-backend", "none"])
}

fn planned(node: &Node, target: &str) -> Ran {
    node.run(&["plan", "--to", target, "--root", "root", "--os-backend", "none"])
}

fn verify(node: &Node) -> Ran {
    node.run(&["verify", "--root", "root", "--os-backend", "none"])
}

fn boot(node: &Node, number: u32) {
    node.put("root/proc/sys/kernel/random/boot_id", format!("{number}f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f0\n"));
}

/// A host that has the first config, and on which the second one waits for its reboot.
fn host(from: &Value, to: &Value) -> Node {
    let node = Node::new();
    node.put("root/etc/t", "the host's");
    node.put("root/usr/lib/systemd/system/v.service", UNIT);
    node.put("a.json", config("rendered-a", from));
    for (target, number) in [("a.json", 1), ("a.json", 2)] {
        assert_eq!(no_reboot(&node, target).code, 0);
        boot(&node, number);
    }
    assert_eq!(verify(&node).code, 0, "{}", verify(&node).out);
    node.put("b.json", config("rendered-b", to));
    let ran = no_reboot(&node, "b.json");
    assert_eq!(ran.code, 0, "{}", ran.err);
    node
}

/// Puts something at a path of the host.
fn put(node: &Node, path: &str, kind: &str) {
    let at = node.path(path);
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    drop(fs::remove_file(&at).or_else(|_| fs::remove_dir_all(&at)));
    match kind {
        "file" => node.put(path, ADMIN),
        "link" => symlink("/srv/x.service", at).unwrap(),
        "mask" => symlink("/dev/null", at).unwrap(),
        "directory" => node.put(&format!("{path}/theirs"), ADMIN),
        _ => drop(UnixListener::bind(&at).unwrap()),
    }
}

fn is_there(node: &Node, path: &str, kind: &str) -> bool {
    let at = node.path(path);
    match kind {
        "file" => fs::read_to_string(at).is_ok_and(|text| text == ADMIN),
        "link" => fs::read_link(at).is_ok_and(|target| target.ends_with("srv/x.service")),
        "mask" => fs::read_link(at).is_ok_and(|target| target.ends_with("dev/null")),
        "directory" => at.join("theirs").exists(),
        _ => at.symlink_metadata().is_ok(),
    }
}

/// An interrupted update is undone: what a person put in the place of a unit, of its mask or of a link that starts it is moved aside.
#[test]
fn what_is_in_place_of_unit_is_kept_when_interrupted_update_is_undone() {
    let unit = |more: Value| {
        let mut unit = json!({"name": "x.service"});
        unit.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ignition(units(unit))
    };
    let (masked, nothing) = (unit(json!({"mask": true})), ignition(json!({})));
    let enabled = unit(json!({"enabled": true, "contents": UNIT}));
    let folder = "root/etc/systemd/system/multi-user.target.wants";
    for (from, to, path, kind) in [
        (masked.clone(), unit(json!({"mask": false})), AT, "file"),
        (masked.clone(), unit(json!({"mask": false})), AT, "link"),
        (masked.clone(), nothing.clone(), AT, "file"),
        (masked, nothing.clone(), AT, "link"),
        (enabled.clone(), unit(json!({"enabled": false, "contents": UNIT})), WANTS, "file"),
        (enabled.clone(), nothing.clone(), WANTS, "file"),
        (enabled.clone(), nothing.clone(), folder, "file"),
        (enabled.clone(), nothing.clone(), AT, "link"),
        (enabled, nothing, AT, "mask"),
    ] {
        let mut aside = 0;
        for point in (13..60).step_by(6) {
            let node = Node::new();
            node.put("policy.json", crate::test_host::QUIET.replace("crio.service", "x.service"));
            node.commit("rendered-a.json", &from);
            node.put("b.json", config("rendered-b", &to));
            let killed =
                node.command(&apply("b.json")).env("MCA_FAIL_POINT", format!("kill:{point}")).output();
            if killed.unwrap().status.success() {
                break;
            }
            put(&node, path, kind);
            let planned = node.plan("rendered-a.json");
            if planned.out.contains("it finishes before this plan begins") {
                break;
            }
            let applied = node.apply("rendered-a.json");
            let text = format!(
                "{from} {to} {path} {kind} {point}: {}{}\n{}{}",
                planned.out, planned.err, applied.out, applied.err
            );
            let is_aside = is_there(&node, &format!("{path}.mca-foreign"), kind);
            assert!(is_aside || is_there(&node, path, kind), "{text}");
            if is_aside {
                assert_eq!((applied.code, verify(&node).code), (0, 0), "{text}");
                aside += 1;
            }
        }
        assert!(aside > 0, "{from} {to} {path} {kind}");
    }
}

/// A config only wants no mask, so the unit is a person's: it is kept when a later config masks the unit, and comes back, whatever the
/// host had before all of them.
#[test]
fn unit_that_person_wrote_after_mask_comes_back() {
    let unit = |mask: bool| units(json!({"name": "x.service", "mask": mask}));
    for (first, kind) in
        ["nothing", "file"].iter().flat_map(|first| ["file", "link"].map(|kind| (first, kind)))
    {
        for is_waiting in [false, true] {
            let node = Node::new();
            node.put("policy.json", crate::test_host::QUIET.replace("crio.service", "x.service"));
            if *first == "file" {
                node.put(AT, UNIT);
            }
            if is_waiting {
                for (name, mask) in [("a", true), ("b", false)] {
                    node.put(
                        &format!("{name}.json"),
                        config(&format!("rendered-{name}"), &waits(unit(mask), name)),
                    );
                }
                assert_eq!(no_reboot(&node, "a.json").code, 0);
                boot(&node, 1);
                assert_eq!((no_reboot(&node, "a.json").code, no_reboot(&node, "b.json").code), (0, 0));
                put(&node, AT, kind);
                let left = node.apply("a.json");
                assert_eq!(left.code, 133, "{}", left.err);
                boot(&node, 2);
                assert_eq!(no_reboot(&node, "a.json").code, 0);
                boot(&node, 3);
                let applied = no_reboot(&node, "a.json");
                assert_eq!((applied.code, verify(&node).code), (0, 0), "{}", applied.err);
            } else {
                node.commit("rendered-a.json", &ignition(unit(true)));
                node.commit("rendered-b.json", &ignition(unit(false)));
                put(&node, AT, kind);
                node.commit("rendered-c.json", &ignition(unit(true)));
            }
            assert!(is_there(&node, AT, "mask"), "{first} {kind}");
            node.commit(
                "rendered-e.json",
                &if is_waiting { waits(json!({}), "a") } else { ignition(json!({})) },
            );
            assert!(is_there(&node, AT, kind), "{first} {kind} {is_waiting}");
        }
    }
}

/// A mask of the host's own is back when the configs have left, although one of them took it away and a later one set it again.
#[test]
fn own_mask_comes_back_after_unmask_and_mask() {
    let unit = |mask: bool| ignition(units(json!({"name": "x.service", "mask": mask})));
    let node = Node::new();
    node.put("policy.json", crate::test_host::QUIET.replace("crio.service", "x.service"));
    put(&node, AT, "mask");
    for (name, mask) in [("a", false), ("b", true), ("c", false), ("d", true)] {
        node.commit(&format!("rendered-{name}.json"), &unit(mask));
        assert_eq!(is_there(&node, AT, "mask"), mask);
    }
    node.commit("rendered-e.json", &ignition(json!({})));
    assert!(is_there(&node, AT, "mask"));
}

/// An entry leaves with the update, and a person puts something of another kind there: it stays, before the reboot and after it.
#[test]
fn what_is_in_place_of_entry_that_left_stays_after_reboot() {
    let link = json!({"links": [{"path": "/etc/l", "target": "x"}]});
    let hard = json!({"links": [{"path": "/etc/l", "target": "/etc/t", "hard": true}]});
    let directory = json!({"directories": [{"path": "/etc/l"}]});
    let file = json!({"files": [{"path": "/etc/l", "contents": {"source": "data:,x"}}]});
    let kinds = ["file", "link", "directory", "socket"];
    for (entry, kind) in [link, hard, directory, file].iter().flat_map(|one| kinds.map(|kind| (one, kind))) {
        let case = format!("{entry} {kind}");
        let node = host(&waits(json!({ "storage": entry }), "a"), &waits(json!({}), "b"));
        put(&node, "root/etc/l", kind);
        for number in 3..6 {
            let (planned, applied) = (planned(&node, "b.json"), no_reboot(&node, "b.json"));
            let text =
                format!("{case} {number}: {}{}\n{}{}", planned.out, planned.err, applied.out, applied.err);
            assert_eq!((planned.code, applied.code), (0, 0), "{text}");
            assert!(is_there(&node, "root/etc/l", kind), "{text}");
            boot(&node, number);
        }
        assert_eq!(verify(&node).code, 0, "{case}: {}", verify(&node).out);
    }
}

/// The same while an update is interrupted: the plan names no obstacle that its run leaves alone.
#[test]
fn what_is_in_place_of_entry_that_leaves_stays_when_interrupted_update_goes_on() {
    let link = json!({"storage": {"links": [{"path": "/etc/l", "target": "x"}]}});
    let directory = json!({"storage": {"directories": [{"path": "/etc/l"}]}});
    for entry in [link, directory] {
        let mut seen = 0;
        for point in (4..60).step_by(3) {
            let node = Node::new();
            node.commit("rendered-a.json", &ignition(entry.clone()));
            node.put("b.json", config("rendered-b", &files(&[("/etc/z", "z")])));
            let killed =
                node.command(&apply("b.json")).env("MCA_FAIL_POINT", format!("kill:{point}")).output();
            if killed.unwrap().status.success() {
                break;
            }
            put(&node, "root/etc/l", "file");
            let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
            let text = format!("{entry} {point}: {}{}\n{}", planned.out, planned.err, applied.err);
            assert_eq!((planned.code, applied.code), (0, 0), "{text}");
            assert!(is_there(&node, "root/etc/l", "file"), "{text}");
            seen += 1;
        }
        assert!(seen > 3, "{entry}: {seen}");
    }
}

/// What no link can take the place of is refused as soon as the unit is planned again, and named before.
#[test]
fn what_is_in_place_of_mask_of_waiting_update_is_refused_after_its_reboot() {
    let masked = |name: &str| waits(units(json!({"name": name, "mask": true})), "b");
    for (name, kind) in ["x.service", "v.service"]
        .into_iter()
        .flat_map(|name| ["directory", "socket"].map(|kind| (name, kind)))
    {
        let path = format!("root/etc/systemd/system/{name}");
        let node = host(&waits(json!({}), "a"), &masked(name));
        put(&node, &path, kind);
        let (before, applied) = (planned(&node, "b.json"), no_reboot(&node, "b.json"));
        let text = format!("{name} {kind}: {}{}\n{}", before.out, before.err, applied.err);
        assert_eq!((before.code, applied.code), (0, 0), "{text}");
        assert!(before.out.contains("after its reboot the open update is refused"), "{text}");
        boot(&node, 3);
        for _ in 0..2 {
            let (planned, applied) = (planned(&node, "b.json"), no_reboot(&node, "b.json"));
            let text = format!("{name} {kind}: {}{}\n{}", planned.out, planned.err, applied.err);
            assert_eq!((planned.code, applied.code), (3, 3), "{text}");
            for said in [planned.out, applied.err] {
                assert!(said.contains(name) && said.to_lowercase().contains("move"), "{text}");
            }
            assert!(is_there(&node, &path, kind), "{text}");
        }
        fs::rename(node.path(&path), node.path("root/moved")).unwrap();
        let (planned, applied) = (planned(&node, "b.json"), no_reboot(&node, "b.json"));
        let text = format!("{name} {kind}: {}{}\n{}", planned.out, planned.err, applied.err);
        assert_eq!((planned.code, applied.code), (0, 0), "{text}");
        boot(&node, 4);
        assert_eq!(no_reboot(&node, "b.json").code, 0, "{text}");
        assert_eq!(verify(&node).code, 0, "{text}");
    }
}

/// A mask is an entry as any other: what a person puts in its place is not replaced, whether the mask stays, changes or leaves.
#[test]
fn what_is_in_place_of_mask_is_refused_or_stays() {
    let unit = |more: Value| {
        let mut unit = json!({"name": "x.service"});
        unit.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ignition(units(unit))
    };
    let masked = unit(json!({"mask": true}));
    let leaves = ignition(json!({}));
    for kind in ["file", "link"] {
        for (of_host, to, is_refused) in [
            (true, leaves.clone(), true),
            (false, leaves.clone(), false),
            (true, unit(json!({"mask": false})), true),
            (false, unit(json!({"mask": false})), false),
            (false, unit(json!({"enabled": true, "contents": UNIT})), true),
            (false, unit(json!({"mask": true, "enabled": false})), true),
        ] {
            let node = Node::new();
            node.put("policy.json", crate::test_host::QUIET.replace("crio.service", "x.service"));
            if of_host {
                node.put(AT, UNIT);
            }
            node.commit("rendered-a.json", &masked);
            put(&node, AT, kind);
            node.put("b.json", config("rendered-b", &to));
            let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
            let text = format!("{kind} {of_host} {to}: {}{}\n{}", planned.out, planned.err, applied.err);
            let code = if is_refused { 3 } else { 0 };
            assert_eq!((planned.code, applied.code), (code, code), "{text}");
            assert!(is_there(&node, AT, kind), "{text}");
            if is_refused {
                let words = [
                    "is in its place by now, which no config brought",
                    "ove /etc/systemd/system/x.service away",
                ];
                for said in [&planned.out, &applied.err] {
                    assert!(words.iter().all(|word| said.contains(word)), "{text}");
                }
                fs::rename(node.path(AT), node.path("root/moved")).unwrap();
                assert_eq!(node.apply("b.json").code, 0, "{text}");
            }
            assert_eq!(verify(&node).code, 0, "{}{text}", verify(&node).out);
        }
    }
}

/// The same while an update waits for its reboot: it does not mask the unit again over what a person put there.
#[test]
fn file_in_place_of_mask_of_waiting_update_is_refused_after_its_reboot() {
    for kind in ["file", "link"] {
        let node =
            host(&waits(json!({}), "a"), &waits(units(json!({"name": "x.service", "mask": true})), "b"));
        put(&node, AT, kind);
        assert_eq!((planned(&node, "b.json").code, no_reboot(&node, "b.json").code), (0, 0));
        boot(&node, 3);
        let (planned, applied) = (planned(&node, "b.json"), no_reboot(&node, "b.json"));
        let text = format!("{kind}: {}{}\n{}", planned.out, planned.err, applied.err);
        assert_eq!((planned.code, applied.code), (3, 3), "{text}");
        assert!(is_there(&node, AT, kind), "{text}");
        fs::rename(node.path(AT), node.path("root/moved")).unwrap();
        assert_eq!(no_reboot(&node, "b.json").code, 0, "{text}");
        boot(&node, 4);
        assert_eq!(no_reboot(&node, "b.json").code, 0, "{text}");
        assert_eq!(verify(&node).code, 0, "{text}");
    }
}
