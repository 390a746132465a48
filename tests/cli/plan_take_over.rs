//! A config that was applied without its accounts, groups and directories, by machine-config-daemon: `plan` does not take them for
//! there, and names what another entry lacks of them.

use serde_json::{Value, json};

use crate::test_host::{Node, QUIET, config, ignition};

const CURRENT: &str = "root/etc/machine-config-daemon/currentconfig";

fn spec(storage: Value, passwd: Value) -> Value {
    ignition(json!({"storage": storage, "passwd": passwd}))
}

/// A host of machine-config-daemon with its config.
fn host(storage: Value, passwd: Value) -> Node {
    let node = Node::new();
    let of_homes = r#""files": [{"path": "/home", "actions": [{"type": "None"}]}, "#;
    node.put("policy.json", QUIET.replace(r#""files": ["#, of_homes));
    node.put(CURRENT, config("rendered-mcd", &spec(storage, passwd)));
    node.put("root/etc/machine-config-daemon/currentimage", "");
    node
}

/// Plan and apply refuse the same, before and after the import, and the next step of the refusal is a way out.
fn is_refused(node: &Node, target: &Value, words: &[&str]) {
    node.put("b.json", config("rendered-b", target));
    for _ in 0..2 {
        let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
        for (code, text) in [(planned.code, planned.out + &planned.err), (applied.code, applied.err)] {
            assert!(code == 3 && words.iter().all(|word| text.contains(word)), "{code} {target}: {text}");
        }
    }
}

fn is_applied(node: &Node, target: &Value) {
    node.put("c.json", config("rendered-c", target));
    let (planned, applied) = (node.plan("c.json"), node.apply("c.json"));
    let text = format!("{target}: {}{}{}", planned.out, planned.err, applied.err);
    assert_eq!((planned.code, applied.code), (0, 0), "{text}");
    let verified = node.run(&["verify", "--root", "root", "--os-backend", "none"]);
    assert_eq!(verified.code, 0, "{target}: {}", verified.out);
}

fn bob(more: Value) -> Value {
    let mut bob = json!({"name": "bob"});
    bob.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"users": [bob]})
}

const WAITS: &str = "its entry came with a config that was applied without it";

#[test]
fn owner_that_was_never_applied_is_named() {
    let file = |more: Value| {
        let mut file = json!({"path": "/etc/of-bob", "contents": {"source": "data:,x"}});
        file.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"files": [file]})
    };
    let user = json!({"user": {"name": "bob"}});
    let home = json!({"files": [{"path": "/home/bob/x", "contents": {"source": "data:,x"}, "user": {"name": "bob"}}]});
    let directory = json!({"directories": [{"path": "/etc/of-bob", "user": {"name": "bob"}}]});
    let link = json!({"links": [{"path": "/etc/of-bob", "target": "x", "user": {"name": "bob"}}]});
    for storage in [file(user.clone()), home, directory, link] {
        let node = host(json!({}), bob(json!({})));
        let target = spec(storage.clone(), bob(json!({})));
        is_refused(&node, &target, &[r#"this host has no user "bob""#, WAITS]);
        // A change of the entry brings it in, and so does an account of the host.
        is_applied(&node, &spec(storage.clone(), bob(json!({"gecos": "Bob"}))));
        let node = host(json!({}), bob(json!({})));
        let passwd = node.read("root/etc/passwd") + "bob:x:1005:1005::/home/bob:/bin/sh\n";
        node.put("root/etc/passwd", passwd);
        is_applied(&node, &target);
    }
    // The group of its name, and one of the config.
    let group = json!({"group": {"name": "bob"}});
    let node = host(json!({}), bob(json!({})));
    is_refused(&node, &spec(file(group), bob(json!({}))), &[r#"this host has no group "bob""#, WAITS]);
    let groups = |gg: Value| json!({"groups": [gg]});
    let of_gg = || file(json!({"group": {"name": "gg"}}));
    let node = host(json!({}), groups(json!({"name": "gg"})));
    is_refused(
        &node,
        &spec(of_gg(), groups(json!({"name": "gg"}))),
        &[r#"this host has no group "gg""#, WAITS],
    );
    is_applied(&node, &spec(of_gg(), groups(json!({"name": "gg", "system": true}))));
}

#[test]
fn group_of_new_account_that_was_never_applied_is_named() {
    for part in ["groups", "primaryGroup"] {
        let user = |more: Value| {
            let mut user = json!({"name": "new"});
            user[part] = if part == "groups" { json!(["gg"]) } else { json!("gg") };
            json!({"users": [user], "groups": [more]})
        };
        let gg = json!({"name": "gg"});
        let node = host(json!({}), json!({"groups": [gg]}));
        let words = [part, r#"this host has no group "gg""#, WAITS];
        is_refused(&node, &spec(json!({}), user(gg.clone())), &words);
        is_applied(&node, &spec(json!({}), user(json!({"name": "gg", "system": true}))));
    }
    // The group that comes with an account which was never applied.
    let node = host(json!({}), bob(json!({})));
    let users = json!({"users": [{"name": "bob"}, {"name": "new", "groups": ["bob"]}]});
    is_refused(&node, &spec(json!({}), users), &[r#"this host has no group "bob""#, WAITS]);
}

/// A file of the host in the place of a directory that machine-config-daemon never made.
#[test]
fn file_in_place_of_directory_that_was_never_applied_is_named() {
    let listed = |path: &str| json!([{"path": path}]);
    let inner = json!([{"path": "/etc/q/a", "contents": {"source": "data:,x"}}]);
    let node = host(json!({"directories": listed("/etc/q")}), json!({}));
    node.put("root/etc/q", "the host's");
    let target = spec(json!({"directories": listed("/etc/q"), "files": inner}), json!({}));
    is_refused(&node, &target, &[r#"storage.files "/etc/q/a""#, "move /etc/q away"]);
    std::fs::remove_file(node.path("root/etc/q")).unwrap();
    is_applied(&node, &target);

    let at = "/etc/systemd/system/x.service.d";
    let node = host(json!({"directories": listed(at)}), json!({}));
    node.put(&format!("root{at}"), "the host's");
    let mut target = spec(json!({"directories": listed(at)}), json!({}));
    let dropins = json!([{"name": "a.conf", "contents": "[Service]\n"}]);
    target["config"]["systemd"] = json!({"units": [{"name": "x.service", "dropins": dropins}]});
    is_refused(&node, &target, &[r#"systemd.units "x.service""#, &format!("move {at} away")]);
    // A link that was never applied stays, and leads the same way as before.
    let link = |text: &str| json!([{"path": "/etc/l", "target": text}]);
    let node = host(json!({"links": link("other")}), json!({}));
    node.put("root/etc/real/x", "");
    std::os::unix::fs::symlink("real", node.path("root/etc/l")).unwrap();
    let files = json!([{"path": "/etc/real/a", "contents": {"source": "data:,x"}}]);
    is_applied(&node, &spec(json!({"links": link("other"), "files": files}), json!({})));
}

/// Files of an Ignition config of another version are read, and leave as those of any config; other sections stay. The plan says so.
#[test]
fn words_on_other_version_agree_with_steps() {
    for version in ["2.2.0", "3.8.0"] {
        let node = host(json!({}), json!({}));
        let list = json!([{"path": "/etc/x", "mode": 420, "contents": {"source": "data:,x"}}]);
        let mut applied = spec(json!({"files": list, "directories": [{"path": "/etc/made"}]}), json!({}));
        applied["config"]["ignition"]["version"] = json!(version);
        node.put(CURRENT, config("rendered-mcd", &applied));
        node.put("root/etc/x", "x");
        node.put("root/etc/made/y", "");
        node.put("b.json", config("rendered-b", &ignition(json!({}))));
        let planned = node.plan("b.json").out;
        let version = planned.lines().find(|line| line.contains("spec.config.ignition.version")).unwrap();
        assert!(version.contains("files, units and users are read"), "{planned}");
        assert!(!version.contains("it is neither compared nor removed"), "{planned}");
        assert!(planned.contains("remove-file  /etc/x"), "{planned}");
        let directory = planned.lines().find(|line| line.contains("storage.directories")).unwrap();
        assert!(directory.contains("it is neither compared nor removed"), "{planned}");
        is_applied(&node, &ignition(json!({})));
        assert!(!node.path("root/etc/x").exists() && node.path("root/etc/made/y").exists(), "{version}");
    }
}
