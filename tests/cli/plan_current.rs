//! `plan` from the current config promises what `apply` does: the same steps, or the same drift in the way of them.

use serde_json::{Value, json};

use crate::test_host::{Node, QUIET, Ran, apply, config, files, ignition};

/// A host with a committed config, whose message somebody changed.
fn drifted() -> Node {
    let node = Node::new();
    let spec = files(&[("/etc/motd", "a"), ("/etc/kept", "kept")]);
    node.commit("rendered-a.json", &spec);
    node.put("root/etc/motd", "of-somebody");
    node
}

fn plan(node: &Node, to: &str) -> (Ran, Value) {
    let words = |output| {
        let host = ["--root", "root", "--os-backend", "none", "--policy", "policy.json", "--exit-code"];
        [["plan", "--to", to, "--output", output].as_slice(), &host].concat()
    };
    let json = node.run(&words("json"));
    let text = node.run(&words("text"));
    assert_eq!(json.code, text.code, "{}{}", json.err, text.err);
    (text, serde_json::from_str(&json.out).unwrap())
}

const HEAD: &str =
    "\nDrift: the update starts when this is restored\n  content mismatch for file \"/etc/motd\"";

#[test]
fn drift_of_same_config_is_in_plan() {
    let node = drifted();
    let (text, json) = plan(&node, "rendered-a.json");
    assert!(text.code == 4 && text.out.contains(HEAD), "{}: {}", text.code, text.out);
    assert!(!text.out.contains("nothing differs"), "{}", text.out);
    assert_eq!((&json["drift"][0]["target"], &json["drift"][1]), (&"/etc/motd".into(), &Value::Null));
    let ran = node.apply("rendered-a.json");
    assert!(ran.code == 4 && ran.err.contains("/etc/motd"), "{}: {}", ran.code, ran.err);
    node.put("root/etc/motd", "a");
    let (text, json) = plan(&node, "rendered-a.json");
    assert!(text.code == 0 && json["drift"] == serde_json::json!([]), "{}: {}", text.code, text.out);
}

/// The update neither mends it nor does it want it so.
#[test]
fn drift_that_holds_update_is_in_its_plan() {
    let node = drifted();
    node.put("b.json", config("rendered-b", &files(&[("/etc/motd", "a"), ("/etc/new", "b")])));
    let (text, _) = plan(&node, "b.json");
    assert!(text.code == 4 && text.out.contains(HEAD), "{}: {}", text.code, text.out);
    let ran = node.apply("b.json");
    assert!(
        ran.code == 4 && ran.err.contains("/etc/motd") && !node.path("root/etc/new").exists(),
        "{}",
        ran.err
    );
}

#[test]
fn drift_that_update_mends_is_not_in_its_plan() {
    let node = drifted();
    node.put("c.json", config("rendered-c", &files(&[("/etc/motd", "c")])));
    let (text, json) = plan(&node, "c.json");
    assert!(text.code == 1 && json["drift"] == serde_json::json!([]), "{}", text.out);
    assert!(!text.out.contains("Drift: "), "{}", text.out);
    let ran = node.apply("c.json");
    assert_eq!((ran.code, node.read("root/etc/motd").as_str()), (0, "c"), "{}", ran.err);
}

/// Forced, the update goes on from what is observed: the plan has its steps, the removal of the force file, and its price.
#[test]
fn forced_update_is_planned_as_it_is_applied() {
    let node = drifted();
    node.put("root/run/machine-config-daemon-force", "");
    let (text, json) = plan(&node, "rendered-a.json");
    assert!(text.code == 1 && json["drift"] == serde_json::json!([]), "{}", text.out);
    let steps: Vec<&str> =
        json["steps"].as_array().unwrap().iter().filter_map(|step| step["target"].as_str()).collect();
    assert!(
        steps.contains(&"/etc/motd") && steps.contains(&"/run/machine-config-daemon-force"),
        "{}",
        text.out
    );
    assert_eq!((&json["after"]["kind"], &json["drain"]), (&"reboot".into(), &true.into()), "{}", text.out);
}

/// A config with entries that would be in the way if they were of somebody else.
fn entries(name: &str, text: &str) -> String {
    let storage = json!({
        "files": [{"path": "/etc/app/motd", "mode": 420, "contents": {"source": format!("data:,{text}")}}],
        "directories": [{"path": "/etc/app", "mode": 493}],
        "links": [{"path": "/etc/link", "target": "/etc/app"}, {"path": "/etc/hard", "target": "/etc/app/motd", "hard": true}],
    });
    let users = json!([{"name": "guest", "sshAuthorizedKeys": ["ssh-ed25519 AAAA a"]}]);
    config(name, &ignition(json!({"storage": storage, "passwd": {"users": users}})))
}

/// The agent's own entries are nobody else's while its update is open: the plan is that of the update, or starts where it leads.
#[test]
fn open_update_is_planned_as_it_goes_on() {
    for ends in ["reboot", "kill:ran", "kill:recorded"] {
        let node = Node::new();
        node.commit("rendered-a.json", &files(&[("/etc/motd", "a")]));
        node.put("policy.json", "");
        node.put("b.json", entries("rendered-b", "b"));
        node.put("c.json", entries("rendered-c", "c"));
        // Without a policy that spares it, the update needs a reboot.
        let words = |to| apply(to).into_iter().filter(|word| !word.contains("policy")).collect::<Vec<_>>();
        let mut left = words("b.json");
        left.push("--no-reboot");
        let point = if ends == "reboot" { "" } else { ends };
        let output = node.command(&left).env("MCA_FAIL_POINT", point).output().unwrap();
        assert_eq!(output.status.code(), (ends == "reboot").then_some(0), "{ends}");
        for (to, then) in
            [("b.json", "goes-on"), ("c.json", if ends == "reboot" { "ends-first" } else { "undone-first" })]
        {
            let plan = ["plan", "--to", to, "--root", "root", "--os-backend", "none", "--output", "json"];
            let ran = node.run(&plan);
            let document: Value = serde_json::from_str(&ran.out).unwrap();
            assert_eq!(ran.code, 0, "{ends} {to}: {}", ran.out);
            assert_eq!(document["openUpdate"]["then"], then, "{ends} {to}: {}", ran.out);
            let text = node.run(&plan[..7]);
            assert!(text.out.contains("Open   update "), "{ends} {to}: {}", text.out);
        }
        // It goes on, and is verified after the boot.
        let mut code = node.run(&left).code;
        assert_eq!(code, 0, "{ends}");
        node.put("root/proc/sys/kernel/random/boot_id", "1f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f0\n");
        code = node.run(&words("b.json")).code;
        assert_eq!((code, node.read("root/etc/app/motd").as_str()), (0, "b"), "{ends}");
        let ran =
            node.run(&["plan", "--to", "b.json", "--root", "root", "--os-backend", "none", "--exit-code"]);
        assert!(ran.code == 0 && !ran.out.contains("Open "), "{ends}: {}", ran.out);
    }
}

/// A config of these sections.
fn sections(name: &str, storage: Value, passwd: Value, units: Value) -> String {
    let mut spec = ignition(json!({"storage": storage, "passwd": passwd}));
    spec["config"]["systemd"] = json!({ "units": units });
    config(name, &spec)
}

fn a_file(path: &str, text: &str) -> Value {
    json!({"path": path, "mode": 420, "overwrite": true, "contents": {"source": format!("data:,{text}")}})
}

/// A case: the committed config, the one that is killed, the other one, and how that ends.
type Killed = (&'static str, String, String, String, i32);

fn killed_updates() -> Vec<Killed> {
    let none = || json!({});
    let file = |path: &str| json!({"files": [a_file(path, "text")]});
    let unit = |more: Value| {
        let mut unit = json!({"name": "own.service", "contents": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=a.target\n"});
        unit.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        sections("rendered-x", none(), none(), json!([unit]))
    };
    let storage = |storage: Value| sections("rendered-x", storage, none(), json!([]));
    let passwd = |passwd: Value| sections("rendered-x", none(), passwd, json!([]));
    let of_group = |name: &str| {
        let mut entry = a_file("/etc/of-group", "text");
        entry["group"] = json!({ "name": name });
        storage(json!({"files": [entry]}))
    };
    let deep = || json!({"directories": [{"path": "/etc/k"}], "files": [a_file("/etc/k/t", "text")]});
    vec![
        ("directory for file", storage(file("/etc/k")), storage(deep()), storage(file("/etc/k")), 0),
        ("file for directory", storage(deep()), storage(file("/etc/k")), storage(deep()), 0),
        ("directory for nothing", storage(none()), storage(file("/etc/k/t")), storage(file("/etc/k")), 0),
        ("file for nothing", storage(none()), storage(file("/etc/k")), storage(file("/etc/k/t")), 0),
        (
            "link for the host's directory",
            storage(none()),
            storage(json!({"links": [{"path": "/etc/l", "target": "/etc/real", "overwrite": true}]})),
            storage(file("/etc/l/t")),
            0,
        ),
        (
            "id of a group",
            passwd(none()),
            passwd(json!({"groups": [{"name": "one", "gid": 1900}]})),
            passwd(json!({"groups": [{"name": "two", "gid": 1900}]})),
            0,
        ),
        (
            "name of a group",
            passwd(none()),
            passwd(json!({"groups": [{"name": "one", "gid": 1900}]})),
            of_group("one"),
            3,
        ),
        (
            "id of an account",
            passwd(none()),
            passwd(json!({"users": [{"name": "one", "uid": 1900}]})),
            passwd(json!({"users": [{"name": "two", "uid": 1900}]})),
            0,
        ),
        (
            "uid of an account",
            passwd(none()),
            passwd(json!({"users": [{"name": "one", "uid": 1900}]})),
            passwd(json!({"users": [{"name": "one", "uid": 1901}]})),
            0,
        ),
        ("mask", unit(none()), unit(json!({"mask": true})), unit(json!({"enabled": true})), 0),
    ]
}

/// What the killed update made is gone when the next one is planned, and what it took away is back: a directory in the place of a file
/// and the reverse, accounts and groups with their ids, a mask.
#[test]
fn plan_beside_killed_update_sees_what_its_undo_leaves() {
    for (what, committed, killed, other, code) in killed_updates() {
        let node = Node::new();
        for (file, text) in [("a", &committed), ("b", &killed), ("c", &other)] {
            node.put(&format!("{file}.json"), text.replace("rendered-x", &format!("rendered-{file}")));
        }
        let mut ran = node.apply("a.json");
        if ran.code == 133 {
            node.put("root/proc/sys/kernel/random/boot_id", "1f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f0\n");
            ran = node.apply("a.json");
        }
        assert_eq!(ran.code, 0, "{what}: {}", ran.err);
        let dies = node.command(&apply("b.json")).env("MCA_FAIL_POINT", "kill:ran").output().unwrap();
        assert_eq!(dies.status.code(), None, "{what}: {}", String::from_utf8_lossy(&dies.stderr));
        let words =
            ["plan", "--to", "c.json", "--root", "root", "--os-backend", "none", "--policy", "policy.json"];
        let before = node.listing("root");
        let planned = node.run(&[&words[..], &["--output", "json"]].concat());
        let document: Value = serde_json::from_str(&planned.out).unwrap();
        assert_eq!(document["openUpdate"]["then"], "undone-first", "{what}: {}", planned.out);
        assert_eq!(node.listing("root"), before, "{what}");
        let applied = node.apply("c.json");
        let reached = if applied.code == 133 { 0 } else { applied.code };
        assert_eq!((planned.code, reached), (code, code), "{what}: {}{}", planned.out, applied.err);
    }
}

/// A directory that an open update made, and that its end lets go: another target may have a file there.
#[test]
fn directory_of_update_that_ends_first_gives_way() {
    let node = Node::new();
    node.put("policy.json", QUIET.replace("\"/etc\"", "\"/etc/none\""));
    node.put("a.json", config("rendered-a", &files(&[("/etc/qq/zz", "a")])));
    node.put("b.json", config("rendered-b", &files(&[("/etc/qq", "b")])));
    assert_eq!(node.run(&[&apply("a.json")[..], &["--no-reboot"]].concat()).code, 0);
    let planned = node.plan("b.json");
    assert_eq!(planned.code, 0, "{}{}", planned.out, planned.err);
    assert!(
        planned.out.contains("remove-directory  /etc/qq") || planned.out.contains("write-file"),
        "{}",
        planned.out
    );
    node.put("root/proc/sys/kernel/random/boot_id", "1f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f0\n");
    for _ in 0..2 {
        let applied = node.run(&[&apply("b.json")[..], &["--no-reboot"]].concat());
        assert_eq!(applied.code, 0, "{}", applied.err);
    }
    assert_eq!(node.read("root/etc/qq"), "b");
}

/// The home of an account that the undo removes is no other account's.
#[test]
fn home_of_account_that_undo_removes_is_free() {
    let user = |uid: u32| {
        let users = json!([{"name": "bob", "uid": uid, "sshAuthorizedKeys": ["ssh-ed25519 AAAA a"]}]);
        ignition(json!({"passwd": {"users": users}}))
    };
    let mut seen = 0;
    for point in (40..64).step_by(3) {
        let node = Node::new();
        node.put("a.json", config("rendered-a", &user(1500)));
        node.put("b.json", config("rendered-b", &user(1600)));
        let mut command = node.command(&apply("a.json"));
        let output = command.env("MCA_FAIL_POINT", format!("kill:{point}")).output().unwrap();
        assert!(!output.status.success(), "{point}");
        let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
        assert_eq!(planned.code, applied.code, "{point}: {}{}{}", planned.out, planned.err, applied.err);
        seen += usize::from(planned.code == 0 && planned.out.contains("it is undone before"));
    }
    assert!(seen >= 4, "{seen}");
}
