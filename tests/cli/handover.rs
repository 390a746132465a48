//! A node changes hands: from machine-config-daemon, whose committed config may hold what this agent refuses, and from an
//! earlier version of this agent. What can't be read is named and stays; the rest is compared, and any valid target ends it.

use serde_json::{Value, json};

use crate::test_host::{Node, Ran, STATE, apply, config, files, ignition};

const CURRENT: &str = "root/etc/machine-config-daemon/currentconfig";
const IMAGE: &str = "root/etc/machine-config-daemon/currentimage";

fn file(path: &str, text: &str) -> Value {
    json!({"path": path, "mode": 420, "contents": {"source": format!("data:,{text}")}})
}

fn with(good: bool, mut others: Vec<Value>) -> Value {
    others.extend(good.then(|| file("/etc/good", "of-mcd")));
    ignition(json!({"storage": {"files": others}}))
}

fn beside(key: &str, value: Value) -> Value {
    let mut spec = with(true, Vec::new());
    spec[key] = value;
    spec
}

fn section(name: &str, value: Value) -> Value {
    let mut spec = with(true, Vec::new());
    spec["config"][name] = value;
    spec
}

fn units(list: Value) -> Value {
    section("systemd", json!({ "units": list }))
}

/// Configs that MCD's code could have committed and that are refused as a target: name, spec, and the field that is named.
fn committed_by_mcd() -> Vec<(&'static str, Value, &'static str)> {
    let mut old = with(true, Vec::new());
    old["config"]["ignition"]["version"] = json!("2.2.0");
    let append = json!({"path": "/etc/opaque", "append": [{"source": "data:,x"}]});
    let remote = json!({"path": "/etc/opaque", "contents": {"source": "https://host.test/x"}});
    let setuid = json!({"path": "/etc/opaque", "mode": 2541, "contents": {"source": "data:,x"}});
    let relative = json!({"path": "etc/opaque", "contents": {"source": "data:,x"}});
    vec![
        ("Ignition 2.2", old, "spec.config.ignition.version"),
        ("append", with(true, vec![append]), "storage.files \"/etc/opaque\" append"),
        ("remote source", with(true, vec![remote]), "storage.files \"/etc/opaque\" contents"),
        ("setuid", with(true, vec![setuid]), "storage.files \"/etc/opaque\" mode"),
        ("relative path", with(true, vec![relative]), "storage.files \"etc/opaque\""),
        (
            "two of one path",
            with(true, vec![file("/etc/opaque", "a"), file("/etc/opaque", "b")]),
            "storage.files \"/etc/opaque\"",
        ),
        (
            "file below file",
            with(true, vec![file("/etc/opaque", "a"), file("/etc/opaque/b", "b")]),
            "storage.files \"/etc/opaque",
        ),
        ("image by tag", beside("osImageURL", json!("quay.io/os:latest")), "quay.io/os:latest"),
        ("open quote", beside("kernelArguments", json!(["a=\"b"])), "spec.kernelArguments"),
        ("extension", beside("extensions", json!(["Not One"])), "spec.extensions"),
        (
            "masked and enabled",
            units(json!([{"name": "a.service", "enabled": true, "mask": true}])),
            "systemd.units \"a.service\"",
        ),
        ("name of unit", units(json!([{"name": "no unit"}])), "systemd.units \"no unit\""),
        (
            "two of one unit",
            units(json!([{"name": "a.service", "enabled": true}, {"name": "a.service", "enabled": false}])),
            "systemd.units \"a.service\"",
        ),
        (
            "password",
            section("passwd", json!({"users": [{"name": "core", "passwordHash": "a:b"}]})),
            "passwd.users \"core\" passwordHash",
        ),
        (
            "disk",
            section("storage", json!({"disks": [7], "files": [file("/etc/good", "of-mcd")]})),
            "storage.disks[0]",
        ),
    ]
}

/// A host as MCD left it.
fn left_by_mcd(spec: &Value, image: &str) -> Node {
    let node = Node::new();
    node.put(CURRENT, config("rendered-worker-mcd", spec));
    node.put(IMAGE, image);
    node.put("root/etc/good", "of-mcd");
    node.put("root/etc/opaque", "of-mcd");
    node.put("new.json", config("rendered-worker-new", &files(&[("/etc/new", "new")])));
    node
}

fn plan(node: &Node) -> Ran {
    node.plan("new.json")
}

fn status(node: &Node) -> Value {
    let ran = node.run(&["status", "--output", "json", "--root", "root", "--os-backend", "none"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    serde_json::from_str(&ran.out).unwrap()
}

fn verify(node: &Node) -> Ran {
    node.run(&["verify", "--root", "root", "--os-backend", "none"])
}

#[test]
fn config_of_mcd_that_is_refused_as_target_is_taken_over_and_ended_by_valid_one() {
    for (name, spec, field) in committed_by_mcd() {
        let node = left_by_mcd(&spec, "");
        node.put("old.json", config("rendered-worker-bad", &spec));
        let refused = node.run(&apply("old.json"));
        assert!(refused.code != 0, "{name}: it is a valid target: {}", refused.out);

        assert!(refused.err.contains(field), "{name}: {}", refused.err);
        let ran = verify(&node);
        assert_eq!(ran.code, 0, "{name}: {}{}", ran.out, ran.err);
        assert_eq!(plan(&node).code, 0, "{name}");

        // What is understood is watched.
        node.put("root/etc/good", "drifted");
        assert!(verify(&node).out.contains("/etc/good"), "{name}");
        node.put("root/etc/good", "of-mcd");

        let ran = node.apply("new.json");
        assert_eq!(ran.code, 0, "{name}: {}{}", ran.out, ran.err);
        assert_eq!(node.read("root/etc/new"), "new", "{name}");
        assert!(!node.path("root/etc/good").exists(), "{name}: the understood part is removed");
        assert_eq!(node.read("root/etc/opaque"), "of-mcd", "{name}: the rest stays");
        assert!(node.read(CURRENT).contains("rendered-worker-new"), "{name}");
        assert_eq!(node.apply("new.json").code, 0, "{name}");
        assert_eq!(verify(&node).code, 0, "{name}");
    }
}

/// The verbs that change nothing read MCD's file themselves, before there is a state of the agent's own.
#[test]
fn verbs_read_config_of_mcd_before_import() {
    for (name, spec, field) in committed_by_mcd() {
        let node = left_by_mcd(&spec, "quay.io/os:tag\n");
        let ran = verify(&node);
        assert_eq!(ran.code, 0, "{name}: {}{}", ran.out, ran.err);
        let ran = plan(&node);
        assert_eq!(ran.code, 0, "{name}: {}", ran.err);
        let (steps, left) = ran.out.split_once("\nLeft as it is, of the old config\n").unwrap();
        assert!(steps.contains("/etc/good") && !steps.contains("/etc/opaque"), "{name}: {}", ran.out);
        assert!(left.contains(field) && left.contains("quay.io/os:tag"), "{name}: {}", ran.out);
    }
}

/// Without the databases of accounts not even root is known: they stay where no original of them is.
#[test]
fn databases_of_accounts_of_mcd_stay_and_are_named() {
    let node = Node::new();
    let database = |name: &str| node.read(&format!("root/etc/{name}"));
    let (passwd, shadow) = (database("passwd"), database("shadow"));
    let source = |text: &str| text.replace('%', "%25").replace('\n', "%0A");
    let others = vec![file("/etc/passwd", &source(&passwd)), file("/etc/shadow", &source(&shadow))];
    node.put(CURRENT, config("rendered-worker-mcd", &with(true, others)));
    node.put(IMAGE, "");
    node.put("root/etc/good", "of-mcd");
    node.put("root/usr/etc/passwd", "root:x:0:0::/root:/bin/sh\n");
    node.put("new.json", config("rendered-worker-new", &ignition(json!({}))));
    let planned = plan(&node);
    assert_eq!(planned.code, 0, "{}{}", planned.out, planned.err);
    for path in ["/etc/passwd", "/etc/shadow"] {
        let told = format!("storage.files {path:?}: it is a database of accounts");
        assert!(planned.out.contains(&told), "{}", planned.out);
        assert!(!planned.out.contains(&format!("remove-file {path}")), "{}", planned.out);
    }
    let ran = node.apply("new.json");
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(!node.path("root/etc/good").exists());
    assert_eq!((database("passwd"), database("shadow")), (passwd.clone(), shadow));
    // One that the agent replaced goes back.
    node.put(
        "own.json",
        config(
            "rendered-worker-own",
            &with(false, vec![file("/etc/passwd", &source(&format!("{passwd}x:x:7:7::/:/s\n")))]),
        ),
    );
    assert_eq!(node.apply("own.json").code, 0);
    assert!(database("passwd").contains("x:x:7"));
    let planned = plan(&node);
    assert!(planned.code == 0 && !planned.out.contains("database of accounts"), "{}", planned.out);
    assert_eq!(node.apply("new.json").code, 0);
    assert_eq!(database("passwd"), passwd);
}

/// A directory of links that others can change: its unit can't leave, as links are only made and removed where root alone is. The plan
/// says so before anything is touched, and any target ends it once the directory is root's.
#[test]
fn open_directory_of_links_of_mcd_is_named_before_anything_is_touched() {
    const WANTS: &str = "/etc/systemd/system/x.target.wants";
    let install = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=x.target\n";
    let unit = json!([{"name": "a.service", "enabled": true, "contents": install}]);
    let linked = json!([{"path": format!("{WANTS}/a.service"), "target": "/etc/systemd/system/a.service"}]);
    for (mode, uid, attributes) in
        [(0o777, 0, json!({"mode": 0o777})), (0o755, 1000, json!({"mode": 0o755, "user": {"id": 1000}}))]
    {
        let mut directory = attributes;
        directory["path"] = json!(WANTS);
        for storage in [json!({"directories": [directory]}), json!({"links": linked})] {
            let spec = ignition(json!({"storage": storage, "systemd": {"units": unit}}));
            let node = left_by_mcd(&spec, "");
            node.put("policy.json", crate::test_host::QUIET.replace("crio.service", "a.service"));
            node.put("root/etc/systemd/system/a.service", install);
            node.put(&format!("root{WANTS}/.keep"), "");
            std::fs::remove_file(node.path(&format!("root{WANTS}/.keep"))).unwrap();
            let link = node.path(&format!("root{WANTS}/a.service"));
            std::os::unix::fs::symlink("/etc/systemd/system/a.service", &link).unwrap();
            let at = node.path(&format!("root{WANTS}"));
            std::os::unix::fs::chown(&at, Some(uid), None).unwrap();
            node.mode(&format!("root{WANTS}"), mode);
            let before = node.listing("root/etc/systemd");
            for _ in 0..2 {
                let (planned, applied) = (plan(&node), node.apply("new.json"));
                assert_eq!(
                    planned.code, applied.code,
                    "{spec}: {}{}{}",
                    planned.out, planned.err, applied.err
                );
                if planned.code == 0 {
                    break;
                }
                assert_eq!(planned.code, 3, "{spec}: {}{}", planned.out, applied.err);
                for text in [&planned.out, &applied.err] {
                    assert!(text.contains(&format!("its directory {WANTS}")), "{text}");
                }
                assert_eq!(node.listing("root/etc/systemd"), before, "{spec}");
            }
            std::os::unix::fs::chown(&at, Some(0), None).unwrap();
            node.mode(&format!("root{WANTS}"), 0o755);
            let (planned, applied) = (plan(&node), node.apply("new.json"));
            assert_eq!((planned.code, applied.code), (0, 0), "{spec}: {}{}", planned.out, applied.err);
            assert!(!link.is_symlink() && node.read("root/etc/new") == "new");
        }
    }
}

/// An image that MCD has by its tag is kept as MCD has it, until another target is committed.
#[test]
fn image_of_mcd_by_tag_is_kept_for_mcd() {
    let node = left_by_mcd(&with(true, Vec::new()), "quay.io/os:tag");
    node.put("bad.json", config("rendered-worker-bad", &beside("osImageURL", json!("quay.io/os:tag"))));
    for _ in 0..2 {
        let ran = node.apply("bad.json");
        assert!(ran.code != 0 && ran.err.contains("quay.io/os:tag"), "{}", ran.err);
    }
    assert_eq!(node.read(IMAGE), "quay.io/os:tag");
    let ran = node.apply("new.json");
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert_eq!(node.read(IMAGE), "");
}

/// On a host without an OS each field of the OS is named, whatever image MCD has beside it.
#[test]
fn fields_of_os_are_named_beside_each_image_of_mcd() {
    let digest = format!("quay.io/os@sha256:{}", "1".repeat(64));
    for image in ["", "quay.io/os:tag", &digest] {
        let mut spec = with(true, Vec::new());
        spec["extensions"] = json!(["usbguard"]);
        spec["kernelType"] = json!("realtime");
        spec["osImageURL"] = json!(digest);
        let node = left_by_mcd(&spec, image);
        let none = ["--root", "root", "--os-backend", "none"];
        let (verified, status) = (verify(&node), node.run(&[&["status"][..], &none].concat()));
        for field in ["spec.extensions: ", "spec.kernelType: ", "spec.osImageURL: "] {
            assert!(verified.out.contains(field), "{image} {field}: {}", verified.out);
            assert!(status.out.contains(field), "{image} {field}: {}", status.out);
            let planned = plan(&node);
            assert_eq!(planned.code, 0, "{image}: {}", planned.err);
            assert!(
                image != "quay.io/os:tag" || planned.out.contains(field),
                "{image} {field}: {}",
                planned.out
            );
        }
    }
}

/// The storage of the opaque origin that can be read is still not changed but by an installation.
#[test]
fn storage_of_opaque_origin_is_compared_as_far_as_it_is_read() {
    let storage = json!({"disks": [7], "luks": [{"name": "data", "device": "/dev/sdb"}]});
    let node = left_by_mcd(&section("storage", storage), "");
    let target = |storage: Value| config("rendered-worker-new", &ignition(json!({ "storage": storage })));
    node.put("new.json", target(json!({"luks": [{"name": "other", "device": "/dev/sdb"}]})));
    let ran = node.apply("new.json");
    assert!(ran.code == 3 && ran.err.contains("storage.luks"), "{}", ran.err);
    let disks = json!([{"device": "/dev/sda", "wipeTable": false}]);
    node.put("new.json", target(json!({"disks": disks, "luks": [{"name": "data", "device": "/dev/sdb"}]})));
    let ran = node.apply("new.json");
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
}

/// A file that is no config at all: the next step leads out.
#[test]
fn damaged_config_of_mcd_is_named_and_its_next_step_works() {
    let whole = config("rendered-worker-mcd", &with(true, Vec::new()));
    for text in ["", "{", "[]", "hunter2", r#"{"spec":{}}"#, &whole[..whole.len() / 2]] {
        let node = left_by_mcd(&json!({}), "");
        node.put(CURRENT, text);
        for _ in 0..2 {
            let ran = node.apply("new.json");
            assert_eq!(ran.code, 4, "{text}: {}{}", ran.out, ran.err);
            let told = ["/etc/machine-config-daemon/currentconfig", "can't be read", "or move it away"];
            assert!(told.iter().all(|word| ran.err.contains(word)), "{text}: {}", ran.err);
            assert!(!ran.err.contains("hunter2"), "{}", ran.err);
        }
        std::fs::rename(node.path(CURRENT), node.path("away")).unwrap();
        let ran = node.apply("new.json");
        assert_eq!((ran.code, node.read("root/etc/new").as_str()), (0, "new"), "{text}: {}", ran.err);
    }
}

fn stored(document: &str) -> String {
    format!(r#"{{"schemaVersion":1,"image":null,"at":1795213461751616,"machineConfig":{document}}}"#)
}

/// Another version of the agent committed what this one refuses.
#[test]
fn committed_config_that_is_refused_today_is_opaque_origin() {
    for (name, spec, _) in committed_by_mcd() {
        let node = left_by_mcd(&with(true, Vec::new()), "");
        node.put(&format!("root/{STATE}/current.json"), stored(&config("rendered-worker-mcd", &spec)));
        assert_eq!(status(&node)["state"], "Done", "{name}");
        assert_eq!(verify(&node).code, 0, "{name}");
        let ran = node.apply("new.json");
        assert_eq!(ran.code, 0, "{name}: {}{}", ran.out, ran.err);
        assert!(!node.path("root/etc/good").exists(), "{name}");
        assert_eq!(node.read("root/etc/opaque"), "of-mcd", "{name}");
    }
}

/// Another version of the agent began an update whose config this one refuses: it is undone where nothing else is possible,
/// finished where the node has rebooted for it, and another target is taken.
#[test]
fn open_update_to_config_that_is_refused_today_is_undone_or_finished() {
    let append = json!({"path": "/etc/opaque", "append": [{"source": "data:,x"}]});
    let target = |others: Vec<Value>| {
        let mut list = vec![file("/etc/motd", "b")];
        list.extend(others);
        config("rendered-worker-b", &ignition(json!({"storage": {"files": list}})))
    };
    // It is begun with what is good, and is cut off.
    let begun = |kill: &str, words: &[&str]| {
        let node = Node::new();
        node.put("root/etc/motd", "of the host");
        node.put("b.json", target(Vec::new()));
        node.put("new.json", config("rendered-worker-new", &files(&[("/etc/new", "new")])));
        let words = [&apply("b.json")[..], words].concat();
        let mut command = node.command(&words);
        if !kill.is_empty() {
            command.env("MCA_FAIL_POINT", kill);
        }
        let output = command.output().unwrap();
        let path = format!("root/{STATE}/target.json");
        assert!(node.path(&path).exists(), "{output:?}");
        let other: Value = serde_json::from_str(&target(vec![append.clone()])).unwrap();
        let mut written: Value = serde_json::from_str(&node.read(&path)).unwrap();
        written["machineConfig"] = other;
        node.put(&path, written.to_string());
        node.put("b.json", target(vec![append.clone()]));
        node
    };
    for kill in ["kill:begin", "kill:ran"] {
        let node = begun(kill, &[]);
        let ran = node.apply("b.json");
        assert!(ran.code == 3 && ran.err.contains("append"), "{kill}: {}{}", ran.out, ran.err);
        let ran = node.apply("new.json");
        assert_eq!((ran.code, node.read("root/etc/new").as_str()), (0, "new"), "{kill}: {}", ran.err);
        assert_eq!(node.read("root/etc/motd"), "of the host");
    }
    let node = begun("kill:begin", &[]);
    let ran = node.apply("new.json");
    assert_eq!((ran.code, node.read("root/etc/new").as_str()), (0, "new"), "{}", ran.err);
}

/// The identity of a target is its name and its content.
#[test]
fn edited_file_with_same_name_is_applied() {
    let node = Node::new();
    let put = |text: &str| node.put("a.json", config("rendered-worker-a", &files(&[("/etc/motd", text)])));
    put("1");
    assert_eq!(node.apply("a.json").code, 0);
    put("2");
    let ran = node.apply("a.json");
    assert_eq!((ran.code, node.read("root/etc/motd").as_str()), (0, "2"), "{}{}", ran.out, ran.err);
    let history = node.run(&["history", "--output", "json", "--root", "root"]);
    let history: Value = serde_json::from_str(&history.out).unwrap();
    assert_eq!(history["updates"].as_array().map(Vec::len), Some(2), "{history:#}");

    // Written in another form, with other metadata: nothing is begun.
    let before = node.listing(&format!("root/{STATE}"));
    let mut object: Value = serde_json::from_str(&node.read("a.json")).unwrap();
    object["metadata"]["resourceVersion"] = json!("77");
    object["metadata"]["labels"] = json!({"a": "b"});
    object["spec"]["config"]["storage"]["links"] = json!([]);
    node.put("a.json", serde_json::to_string_pretty(&object).unwrap());
    let ran = node.apply("a.json");
    assert_eq!(ran.code, 0, "{}", ran.err);
    let history = node.run(&["history", "--output", "json", "--root", "root"]);
    let history: Value = serde_json::from_str(&history.out).unwrap();
    assert_eq!(history["updates"].as_array().map(Vec::len), Some(2));
    let unlocked = |mut listing: std::collections::BTreeMap<String, String>| {
        listing.retain(|path, _| path.ends_with(".json"));
        listing
    };
    assert_eq!(unlocked(node.listing(&format!("root/{STATE}"))), unlocked(before));
}

/// Cut off anywhere, the edited file is applied by the next run, and an edit meanwhile is another target again.
#[test]
fn edited_file_is_applied_after_kill() {
    for kill in ["target-saved", "recorded", "begin", "ran", "committed", "archived"] {
        let node = Node::new();
        let put =
            |text: &str| node.put("a.json", config("rendered-worker-a", &files(&[("/etc/motd", text)])));
        put("1");
        assert_eq!(node.apply("a.json").code, 0);
        // As an earlier version of the agent wrote it.
        let path = format!("root/{STATE}/current.json");
        let mut written: Value = serde_json::from_str(&node.read(&path)).unwrap();
        written.as_object_mut().unwrap().remove("content").unwrap();
        node.put(&path, written.to_string());
        put("2");
        let output =
            node.command(&apply("a.json")).env("MCA_FAIL_POINT", format!("kill:{kill}")).output().unwrap();
        assert!(!output.status.success(), "{kill}: {output:?}");
        let ran = node.apply("a.json");
        assert_eq!((ran.code, node.read("root/etc/motd").as_str()), (0, "2"), "{kill}: {}", ran.err);

        put("3");
        drop(node.command(&apply("a.json")).env("MCA_FAIL_POINT", format!("kill:{kill}")).output().unwrap());
        put("4");
        let ran = node.apply("a.json");
        assert_eq!((ran.code, node.read("root/etc/motd").as_str()), (0, "4"), "{kill}: {}", ran.err);
    }
}

/// A target that failed is held; the corrected file under the same name ends that.
#[test]
fn corrected_file_with_same_name_ends_hold() {
    let node = Node::new();
    let owner = |name: &str| {
        let list = json!([{"path": "/etc/motd", "contents": {"source": "data:,x"}, "user": {"name": name}}]);
        config("rendered-worker-a", &ignition(json!({"storage": {"files": list}})))
    };
    node.put("root/etc/blocked/child", "");
    let blocked = |path: &str| config("rendered-worker-a", &files(&[(path, "x")]));
    for (bad, good) in
        [(owner("nobody-here"), owner("core")), (blocked("/etc/blocked"), blocked("/etc/free"))]
    {
        node.put("a.json", bad);
        let ran = node.apply("a.json");
        assert!(ran.code != 0, "{}", ran.out);
        node.put("a.json", good);
        let ran = node.apply("a.json");
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    }
}

/// Directories and links that are as MCD's config lists them need no change to be applied; the others are named, before the import and
/// after it.
#[test]
fn storage_of_mcd_that_host_has_is_not_named() {
    let storage = json!({"directories": [{"path": "/etc/d", "mode": 0o755}, {"path": "/etc/missing"}],
        "links": [{"path": "/etc/l", "target": "good"}], "files": [file("/etc/good", "of-mcd")]});
    let node = left_by_mcd(&ignition(json!({ "storage": storage })), "");
    std::fs::create_dir(node.path("root/etc/d")).unwrap();
    std::os::unix::fs::symlink("good", node.path("root/etc/l")).unwrap();
    let host = ["--output", "json", "--root", "root", "--os-backend", "none"];
    let named = |verb: &[&str]| {
        let ran = node.run(&[verb, &host].concat());
        let document: Value = serde_json::from_str(&ran.out).unwrap();
        let fields = document["notApplied"].as_array().unwrap().iter();
        fields.map(|one| one["field"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(named(&["verify"]), [r#"storage.directories "/etc/missing""#]);
    // Its own config is a target, too: the first run takes it over, and changes nothing.
    node.put("mcd.json", node.read(CURRENT));
    let ran = node.apply("mcd.json");
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    for verb in ["verify", "status"] {
        assert_eq!(named(&[verb]), [r#"storage.directories "/etc/missing""#], "{verb}");
    }
}
