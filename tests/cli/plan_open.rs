//! `plan` beside an update that was interrupted, and between two files.

use serde_json::json;

use crate::test_host::{Node, apply, config, files, ignition};

/// A host on the way to a config, killed at a point; `None` if the update ends before.
fn killed(storage: &serde_json::Value, point: usize) -> Option<Node> {
    let node = Node::new();
    let none = json!([{"type": "None"}]);
    let policy = json!({"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
        "metadata": {"name": "cluster"}, "spec": {"nodeDisruptionPolicy": {
        "files": [{"path": "/etc", "actions": none}], "units": [{"name": "a.service", "actions": none}]}}});
    node.put("policy.json", policy.to_string());
    let contents = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
    let spec = ignition(json!({"storage": storage, "passwd": {"groups": [{"name": "ops"}]},
        "systemd": {"units": [{"name": "a.service", "enabled": true, "contents": contents}]}}));
    node.put("b.json", config("rendered-b", &spec));
    let mut command = node.command(&apply("b.json"));
    let ended = command.env("MCA_FAIL_POINT", format!("kill:{point}")).output().unwrap().status;
    (!ended.success()).then_some(node)
}

/// The plan says what the run does: it goes on, or what is left of it would not make the host as planned.
fn agree(node: &Node, case: &str) -> i32 {
    let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
    let text = format!("{case}: {}{}{}", planned.out, planned.err, applied.err);
    match planned.code {
        0 => assert_eq!(applied.code, 0, "{text}"),
        3 => assert!([3, 4].contains(&applied.code), "{text}"),
        _ => panic!("{text}"),
    }
    planned.code
}

#[test]
fn changed_path_of_finished_batch_is_shown() {
    let storage = json!({"files": [{"path": "/etc/b", "mode": 420, "contents": {"source": "data:,new"}}]});
    let mut codes = Vec::new();
    for point in 1..80 {
        let Some(node) = killed(&storage, point) else { break };
        if node.path("root/etc/b").exists() {
            node.put("root/etc/b", "a person's");
            codes.push(agree(&node, &format!("kill:{point}")));
        }
    }
    assert!(codes.contains(&0) && codes.contains(&3), "{codes:?}");
}

/// Before the files of the update are begun, too: `overwrite: false` keeps what a person puts there.
#[test]
fn file_put_before_the_batch_of_files_is_kept() {
    for storage in [
        json!({"directories": [{"path": "/etc/d"}]}),
        json!({"links": [{"path": "/etc/d", "target": "b"}], "files": [{"path": "/etc/b"}]}),
    ] {
        let mut refused = 0;
        for point in 1..80 {
            let Some(node) = killed(&storage, point) else { break };
            if node.path("root/etc/d").symlink_metadata().is_err() {
                node.put("root/etc/d", "a person's");
                refused += usize::from(agree(&node, &format!("kill:{point}")) == 3);
                assert_eq!(node.read("root/etc/d"), "a person's", "{storage} kill:{point}");
            }
        }
        assert!(refused > 5, "{storage}: {refused}");
    }
}

/// Nothing is said of a host, since none is looked at; what is assumed of it is.
#[test]
fn plan_between_files_speaks_of_no_host() {
    let node = Node::new();
    node.put("e.json", config("rendered-e", &files(&[])));
    for (spec, code) in [
        (
            json!({"storage": {"files": [{"path": "/etc/a", "user": {"name": "chrony"}, "group": {"name": "chrony"}}]}}),
            0,
        ),
        (json!({"storage": {"files": [{"path": "/etc/passwd", "contents": {"source": "data:,x"}}]}}), 0),
        (json!({"storage": {"files": [{"path": "/usr/bin/machine-config-agent"}]}}), 0),
        (json!({"storage": {"links": [{"path": "/etc/l", "target": "/etc/none", "hard": true}]}}), 0),
        (
            json!({"passwd": {"users": [{"name": "core", "passwordHash": "$6$a$b"}, {"name": "bob", "groups": ["wheel"]}]}}),
            0,
        ),
        (json!({"systemd": {"units": [{"name": "a.service", "enabled": true}, {"name": "b.service"}]}}), 0),
        (json!({"storage": {"luks": [{"name": "data", "device": "/dev/vdb"}]}}), 3),
    ] {
        node.put("o.json", config("rendered-o", &ignition(spec.clone())));
        for (from, to) in [("e.json", "o.json"), ("o.json", "e.json")] {
            let planned = node.run(&["plan", "--from", from, "--to", to]);
            let text = format!("{spec} {from}: {}{}", planned.out, planned.err);
            assert_eq!(planned.code, code, "{text}");
            assert!(!text.contains("this host"), "{text}");
            if text.contains("chrony") && to == "o.json" {
                assert!(planned.out.contains("assumes that the host has the user \"chrony\""), "{text}");
            }
        }
    }
}

/// The update waits for its reboot, after which it is planned again from what is found: plan and apply go on, and the change is named.
#[test]
fn changed_path_of_update_before_its_reboot_is_named() {
    let reboot = |node: &Node, number: u32| {
        node.put(
            "root/proc/sys/kernel/random/boot_id",
            format!("{number}f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f0\n"),
        );
    };
    let (root, on) =
        (["--root", "root", "--os-backend", "none"], ["apply", "--to", "b.json", "--yes", "--no-reboot"]);
    let left = [&on[..], &root].concat();
    let plan = [&["plan", "--to", "b.json"][..], &root].concat();
    for kind in ["file", "directory"] {
        let node = Node::new();
        node.put("b.json", config("rendered-b", &files(&[("/usr/local/b", "new"), ("/usr/local/c", "new")])));
        let ran = node.run(&left);
        assert_eq!(ran.code, 0, "{}", ran.err);
        std::fs::remove_file(node.path("root/usr/local/b")).unwrap();
        node.put(if kind == "file" { "root/usr/local/b" } else { "root/usr/local/b/in" }, "a person's");
        let (planned, applied) = (node.run(&plan), node.run(&left));
        let text = format!("{kind}: {}{}{}", planned.out, planned.err, applied.err);
        assert_eq!((planned.code, applied.code), (0, 0), "{text}");
        let told = ["/usr/local/b", "it was changed after the open update had set it", "set again"];
        assert!(told.iter().all(|word| planned.out.contains(word)), "{text}");
        reboot(&node, 1);
        // It is written again, and that needs a reboot, too; in the place of a directory it can't be.
        let (planned, applied) = (node.run(&plan), node.run(&left));
        let text = format!("{kind}: {}{}{}", planned.out, planned.err, applied.err);
        let code = if kind == "file" { 0 } else { 3 };
        assert_eq!((planned.code, applied.code), (code, code), "{text}");
        if kind == "directory" {
            std::fs::remove_dir_all(node.path("root/usr/local/b")).unwrap();
            let applied = node.run(&left);
            assert_eq!(applied.code, 0, "{}", applied.err);
        }
        assert_eq!(node.read("root/usr/local/b"), "new", "{text}");
        reboot(&node, 2);
        let (planned, applied) = (node.run(&plan), node.run(&left));
        let text = format!("{kind}: {}{}{}", planned.out, planned.err, applied.err);
        assert_eq!((planned.code, applied.code), (0, 0), "{text}");
        assert!(applied.out.contains("matches"), "{text}");
    }
}

/// As a changed path, what is in the way of the plan that follows the reboot is named before it, and refused after it: at the link of a
/// unit, and where an account has another name.
#[test]
fn changed_link_or_account_of_update_before_its_reboot_is_named() {
    let (root, on) =
        (["--root", "root", "--os-backend", "none"], ["apply", "--to", "b.json", "--yes", "--no-reboot"]);
    let left = [&on[..], &root].concat();
    let plan = [&["plan", "--to", "b.json"][..], &root].concat();
    let link = "root/etc/systemd/system/multi-user.target.wants/a.service";
    let contents = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
    let spec = ignition(json!({"passwd": {"users": [{"name": "app", "uid": 1500}]},
        "systemd": {"units": [{"name": "a.service", "enabled": true, "contents": contents}]}}));
    for (kind, code, reason) in [
        ("gone", 0, ""),
        ("file", 3, "exists and is not a link"),
        ("directory", 3, "exists and is not a link"),
        ("renamed", 3, "uid 1500 belongs to other"),
    ] {
        let node = Node::new();
        node.put("b.json", config("rendered-b", &spec));
        let ran = node.run(&left);
        assert_eq!(ran.code, 0, "{}", ran.err);
        if kind == "renamed" {
            for file in ["passwd", "shadow", "group"] {
                let path = format!("root/etc/{file}");
                node.put(&path, node.read(&path).replace("app:", "other:"));
            }
        } else {
            std::fs::remove_file(node.path(link)).unwrap();
        }
        match kind {
            "file" => node.put(link, "a person's"),
            "directory" => std::fs::create_dir(node.path(link)).unwrap(),
            _ => {}
        }
        let (planned, applied) = (node.run(&plan), node.run(&left));
        let text = format!("{kind}: {}{}{}", planned.out, planned.err, applied.err);
        assert_eq!((planned.code, applied.code), (0, 0), "{text}");
        assert!(planned.out.contains("it was changed after the open update had set it"), "{text}");
        let is_refused = planned.out.contains("after its reboot the open update is refused");
        assert_eq!((is_refused, planned.out.contains(reason)), (code == 3, true), "{text}");
        node.put("root/proc/sys/kernel/random/boot_id", "1f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f0\n");
        let (planned, applied) = (node.run(&plan), node.run(&left));
        let text = format!("{kind}: {}{}{}", planned.out, planned.err, applied.err);
        assert_eq!((planned.code, applied.code), (code, code), "{text}");
        assert!([planned.err + &planned.out, applied.err].iter().all(|said| said.contains(reason)), "{text}");
    }
}

const WAITS: [&str; 3] = ["--root", "root", "--no-reboot"];

fn no_reboot(node: &Node, target: &str) -> crate::test_host::Ran {
    node.run(&[&["apply", "--to", target, "--yes", "--os-backend", "none"][..], &WAITS].concat())
}

/// An update to b waits for its reboot: a target that is refused is refused by both, in the same words, and nothing is touched.
#[test]
fn refused_target_beside_waiting_update_is_refused_by_both() {
    let refused = |name: &str, spec: &serde_json::Value| (name.to_owned(), config("rendered-c", spec));
    let targets = [
        refused("luks", &ignition(json!({"storage": {"luks": [{"name": "data", "device": "/dev/vdb"}]}}))),
        refused("obstacle", &files(&[("/usr/local/d/file", "new")])),
        refused("path", &files(&[("/etc/machine-config-daemon/currentconfig", "x")])),
        refused("field", &ignition(json!({"storage": {"files": [{"path": "etc/relative"}]}}))),
    ];
    for (case, target) in targets {
        let node = Node::new();
        node.put("b.json", config("rendered-b", &files(&[("/usr/local/b", "new")])));
        assert_eq!(no_reboot(&node, "b.json").code, 0);
        node.put("root/usr/local/d", "a person's");
        node.put("c.json", target);
        let before = node.listing("root");
        let (planned, left, asked) = (node.plan("c.json"), no_reboot(&node, "c.json"), node.apply("c.json"));
        let text = format!("{case}: {}{}\n{}{}\n{}", planned.out, planned.err, left.out, left.err, asked.err);
        assert!([2, 3, 4].contains(&planned.code), "{text}");
        assert_eq!((left.code, asked.code), (planned.code, planned.code), "{text}");
        assert!(!left.out.contains("applied"), "{text}");
        assert_eq!(node.listing("root"), before, "{case}: it was touched");
        if planned.code == 3 && planned.err.is_empty() {
            let open = "rendered-b in phase Rebooting: it stays as it is";
            assert!([&planned.out, &left.err, &asked.err].iter().all(|text| text.contains(open)), "{text}");
            let reason = planned.out.lines().next().unwrap();
            assert!(left.err.contains(reason) && asked.err.contains(reason), "{text}");
        }
        // The update itself goes on as ever.
        assert_eq!(no_reboot(&node, "b.json").code, 0, "{text}");
    }
}

/// A target that is not refused follows; until then nothing says that it is applied.
#[test]
fn target_beside_waiting_update_is_not_called_applied() {
    let node = Node::new();
    node.put("b.json", config("rendered-b", &files(&[("/usr/local/b", "new")])));
    node.put("c.json", config("rendered-c", &files(&[("/usr/local/b", "other")])));
    assert_eq!(no_reboot(&node, "b.json").code, 0);
    let (planned, left) = (node.plan("c.json"), no_reboot(&node, "c.json"));
    let text = format!("{}{}{}{}", planned.out, planned.err, left.out, left.err);
    assert_eq!((planned.code, left.code), (0, 0), "{text}");
    assert!(!left.out.contains("applied"), "{text}");
    for words in ["rendered-b waits for its reboot", "rendered-c is not begun"] {
        assert!(left.out.contains(words), "{text}");
    }
    assert_eq!(node.read("root/usr/local/b"), "new", "{text}");
    // Somebody has removed a path of both, which no step of the plan sets: it is restored first.
    node.put("c.json", config("rendered-c", &files(&[("/usr/local/b", "new"), ("/usr/local/c", "new")])));
    std::fs::remove_file(node.path("root/usr/local/b")).unwrap();
    let (planned, left) = (node.plan("c.json"), no_reboot(&node, "c.json"));
    let text = format!("{}{}{}{}", planned.out, planned.err, left.out, left.err);
    assert_eq!((planned.code, left.code), (4, 4), "{text}");
    let drift = "file /usr/local/b is missing";
    assert!(planned.out.contains(drift) && left.err.contains(drift), "{text}");
    assert!(left.err.contains("the host differs from rendered-b, so no update starts"), "{text}");
    node.put("root/usr/local/b", "new");
    node.mode("root/usr/local/b", 0o644);
    let (planned, left) = (node.plan("c.json"), no_reboot(&node, "c.json"));
    let text = format!("{}{}{}{}", planned.out, planned.err, left.out, left.err);
    assert_eq!((planned.code, left.code), (0, 0), "{text}");
}
