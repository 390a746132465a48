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
