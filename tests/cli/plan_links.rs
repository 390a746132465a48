//! The links of units at the end of an update: the plan knows them, refuses entries that contradict each other, and says what the
//! presets do to units of the host.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::test_host::{Node, Ran, config, ignition};

const UNITS: &str = "root/etc/systemd/system";
const WANTED: &str = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";

/// A host with a unit of its own, whose policy lets units and files change without a reboot.
fn host() -> Node {
    let node = Node::new();
    let none = json!([{"type": "None"}]);
    let names = [
        "a.service",
        "b.service",
        "c.service",
        "host.service",
        "c@.service",
        "c@i.service",
        "a@.service",
        "a@k.service",
        "z.service",
    ];
    let units: Vec<Value> = names.iter().map(|name| json!({"name": name, "actions": none})).collect();
    let files = ["/etc", "/opt"].map(|path| json!({"path": path, "actions": none}));
    let policy = json!({"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
        "metadata": {"name": "cluster"}, "spec": {"nodeDisruptionPolicy": {"files": files, "units": units}}});
    node.put("policy.json", policy.to_string());
    node.put("root/usr/lib/systemd/system/host.service", WANTED);
    std::fs::create_dir_all(node.path(UNITS)).unwrap();
    node
}

fn unit(name: &str, install: &str) -> Value {
    let contents = format!("[Service]\nExecStart=/bin/true\n[Install]\n{install}\n");
    json!({"name": name, "enabled": true, "contents": contents})
}

fn link(path: &str, target: &str) -> Value {
    json!({"path": format!("/etc/systemd/system/{path}"), "target": target})
}

fn spec(units: &[Value], storage: &Value) -> Value {
    ignition(json!({"systemd": {"units": units}, "storage": storage}))
}

fn link_to(node: &Node, at: &str, target: &str) {
    let path = node.path(&format!("{UNITS}/{at}"));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    symlink(target, path).unwrap();
}

fn verify(node: &Node, words: &[&str]) -> Ran {
    node.run(&[&["verify", "--root", "root", "--os-backend", "none"], words].concat())
}

type Prepare = fn(&Node);
const NOTHING: Prepare = |_| ();

/// A case, what the host has besides, the config, and words of the refusal.
type Case = (&'static str, Prepare, Value, &'static str);

/// Links of storage against what the units of the same config are.
fn of_storage() -> Vec<Case> {
    let off = || json!({"name": "host.service", "enabled": false});
    let on = || json!({"name": "host.service", "enabled": true});
    let own = "/usr/lib/systemd/system/host.service";
    let case = |name, unit: Value, path: &str, target: &str, words| -> Case {
        (name, NOTHING, spec(&[unit], &json!({"links": [link(path, target)]})), words)
    };
    vec![
        case("wants", off(), "multi-user.target.wants/host.service", own, "`enabled: false`"),
        case("other wants", off(), "foo.target.wants/host.service", own, "`enabled: false`"),
        case(
            "wants by another text",
            off(),
            "foo.target.wants/host.service",
            "../host.service",
            "`enabled: false`",
        ),
        case("requires", off(), "foo.target.requires/host.service", own, "`enabled: false`"),
        case("upholds", off(), "foo.target.upholds/host.service", own, "`enabled: false`"),
        case("alias", off(), "other.service", own, "`enabled: false`"),
        case("mask", on(), "host.service", "/dev/null", "host.service"),
        case(
            "mask of what is not masked",
            json!({"name": "host.service", "mask": false}),
            "host.service",
            "/dev/null",
            "`mask: false`",
        ),
    ]
}

/// Links of one unit against those of another one, or those of the host.
fn of_units() -> Vec<Case> {
    let also = |install: &str| {
        spec(&[unit("a.service", install), json!({"name": "host.service", "enabled": false})], &json!({}))
    };
    let instance = "WantedBy=x.target\nDefaultInstance=i";
    vec![
        (
            "an alias that is disabled",
            NOTHING,
            spec(
                &[unit("a.service", "Alias=c.service"), json!({"name": "c.service", "enabled": false})],
                &json!({}),
            ),
            "c.service",
        ),
        (
            "an instance that is disabled",
            NOTHING,
            spec(
                &[unit("c@.service", instance), json!({"name": "c@i.service", "enabled": false})],
                &json!({}),
            ),
            "c@i.service",
        ),
        (
            "a unit of Also= that is disabled",
            NOTHING,
            also("WantedBy=x.target\nAlso=host.service"),
            "host.service",
        ),
        // To disable it is a step, which comes last.
        (
            "a unit of Also= that was enabled and is disabled",
            |node| {
                link_to(node, "multi-user.target.wants/host.service", "/usr/lib/systemd/system/host.service");
            },
            also("WantedBy=x.target\nAlso=host.service"),
            "",
        ),
        ("a unit of Also= alone that is disabled", NOTHING, also("Also=host.service"), "host.service"),
        (
            "an instance with a unit file of its own",
            NOTHING,
            spec(&[unit("c@.service", instance), unit("c@i.service", "WantedBy=y.target")], &json!({})),
            "c@",
        ),
        (
            "another unit's name on the host",
            |node| link_to(node, "n.service", "/usr/lib/systemd/system/host.service"),
            spec(&[unit("a.service", "Alias=n.service")], &json!({})),
            "n.service leads to host.service",
        ),
        (
            "a mask of the host",
            |node| link_to(node, "n.service", "/dev/null"),
            spec(&[unit("a.service", "Alias=n.service")], &json!({})),
            "n.service leads to /dev/null",
        ),
    ]
}

/// Links of a unit against an entry of storage in their place, or above it.
fn of_places() -> Vec<Case> {
    let directory = |mode: Option<u32>, user: Option<u32>| {
        let mut entry = json!({"path": "/etc/systemd/system/x.target.wants"});
        if let Some(mode) = mode {
            entry["mode"] = json!(mode);
        }
        if let Some(user) = user {
            entry["user"] = json!({ "id": user });
        }
        json!({"directories": [entry]})
    };
    let wanted = || unit("a.service", "WantedBy=x.target");
    vec![
        (
            "an alias at the path of a link",
            NOTHING,
            spec(
                &[unit("a.service", "Alias=n.service")],
                &json!({"links": [link("n.service", "/opt/n.service")]}),
            ),
            "n.service",
        ),
        (
            "a file in place of a directory of links",
            NOTHING,
            spec(
                &[wanted()],
                &json!({"files": [{"path": "/etc/systemd/system/x.target.wants", "contents": {"source": "data:,x"}}]}),
            ),
            "x.target.wants",
        ),
        (
            "a directory that everybody may write",
            NOTHING,
            spec(&[wanted()], &directory(Some(0o777), None)),
            "x.target.wants",
        ),
        (
            "a directory of another account",
            NOTHING,
            spec(&[wanted()], &directory(None, Some(1000))),
            "x.target.wants",
        ),
        (
            "a directory above, of another account",
            NOTHING,
            spec(&[wanted()], &json!({"directories": [{"path": "/etc/systemd", "user": {"id": 1000}}]})),
            "/etc/systemd",
        ),
        (
            "a link in place of a directory of links",
            NOTHING,
            spec(
                &[wanted()],
                &json!({"links": [link("x.target.wants", "/opt/w")], "directories": [{"path": "/opt/w"}]}),
            ),
            "x.target.wants",
        ),
    ]
}

/// Plan and apply give one answer, and nothing is touched where it is no.
#[test]
fn contradictions_are_refused_before_anything_is_touched() {
    let mut wrong = Vec::new();
    for (case, prepare, spec, words) in of_storage().into_iter().chain(of_units()).chain(of_places()) {
        let node = host();
        prepare(&node);
        node.put("a.json", config("rendered-a", &spec));
        let before = node.listing("root/etc");
        let (planned, applied) = (node.plan("a.json"), node.apply("a.json"));
        if words.is_empty() {
            if (planned.code, applied.code) != (0, 0) {
                wrong.push(format!(
                    "{case}: {} {} {}{}",
                    planned.code, applied.code, planned.out, applied.err
                ));
            }
        } else if (planned.code, applied.code) != (3, 3)
            || !planned.out.contains(words)
            || !applied.err.contains(words)
            || node.listing("root/etc") != before
        {
            wrong.push(format!("{case}: {} {} {}{}", planned.code, applied.code, planned.out, applied.err));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// An entry of a unit's name on this host may be the unit of the config, which gives it up.
#[test]
fn name_moves_between_units_of_configs() {
    let node = host();
    node.commit("rendered-a.json", &spec(&[unit("a.service", "Alias=n.service")], &json!({})));
    let mut given_up = unit("a.service", "Alias=n.service");
    given_up["enabled"] = json!(false);
    for (name, units) in [
        ("rendered-b.json", vec![unit("b.service", "Alias=n.service")]),
        ("rendered-c.json", vec![unit("a.service", "Alias=n.service")]),
        ("rendered-d.json", vec![given_up, unit("b.service", "Alias=n.service")]),
    ] {
        node.commit(name, &spec(&units, &json!({})));
        assert!(node.path(&format!("{UNITS}/n.service")).is_symlink(), "{name}");
        assert_eq!(verify(&node, &[]).code, 0, "{name}");
    }
}

/// A second run has nothing to do, and nothing was named that is there.
fn converges(node: &Node, spec: &Value, links: &[&str]) {
    node.put("a.json", config("rendered-a", spec));
    let planned = node.plan("a.json");
    assert!(planned.code == 0 && !planned.out.contains("Not applied"), "{}", planned.out);
    node.commit("rendered-a.json", spec);
    for link in links {
        assert!(node.path(&format!("{UNITS}/{link}")).is_symlink(), "{link}");
    }
    node.put("b.json", config("rendered-b", spec));
    let again = node.plan("b.json");
    assert!(again.out.contains("nothing"), "{}", again.out);
    let verified = verify(node, &[]);
    assert!(verified.code == 0 && !verified.out.contains("not applied"), "{}", verified.out);
    node.commit("rendered-z.json", &ignition(json!({})));
    for link in links {
        assert!(!node.path(&format!("{UNITS}/{link}")).is_symlink(), "{link} after an empty config");
    }
}

#[test]
fn instance_of_template_of_config_is_enabled_with_it() {
    let text = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=x.target\n";
    let template = json!({"name": "a@.service", "contents": text});
    let instance = json!({"name": "a@k.service", "enabled": true});
    converges(&host(), &spec(&[template, instance], &json!({})), &["x.target.wants/a@k.service"]);
    // Its drop-ins are the instance's, too.
    let node = host();
    node.put("root/usr/lib/systemd/system/a@.service", "[Service]\nExecStart=/bin/true\n");
    let dropin = json!({"name": "i.conf", "contents": "[Install]\nWantedBy=x.target\n"});
    let template = json!({"name": "a@.service", "dropins": [dropin]});
    let instance = json!({"name": "a@k.service", "enabled": true});
    converges(&node, &spec(&[template, instance], &json!({})), &["x.target.wants/a@k.service"]);
}

#[test]
fn template_that_leaves_takes_links_of_instances() {
    let node = host();
    let text = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=x.target\n";
    let template = json!({"name": "a@.service", "contents": text});
    let instance = json!({"name": "a@k.service", "enabled": true});
    node.commit("rendered-a.json", &spec(&[template, instance.clone()], &json!({})));
    node.commit("rendered-b.json", &spec(&[instance], &json!({})));
    assert!(!node.path(&format!("{UNITS}/x.target.wants/a@k.service")).is_symlink());
    assert!(verify(&node, &[]).out.contains("no such unit file"));
}

#[test]
fn name_of_unit_of_config_is_enabled_with_it() {
    for (name, alias) in [("a.service", "z.service"), ("z.service", "a.service")] {
        let listed = [unit(name, &format!("Alias={alias}")), json!({"name": alias, "enabled": true})];
        converges(&host(), &spec(&listed, &json!({})), &[alias]);
    }
}

/// A link of storage goes, and the unit stays enabled.
#[test]
fn link_of_storage_leaves_and_unit_stays_enabled() {
    let node = host();
    let path = "multi-user.target.wants/host.service";
    let storage = json!({"links": [link(path, "/usr/lib/systemd/system/host.service")]});
    node.commit("rendered-a.json", &spec(&[], &storage));
    let on = json!({"name": "host.service", "enabled": true});
    node.put("b.json", config("rendered-b", &spec(&[on], &json!({}))));
    let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
    assert_eq!((planned.code, applied.code), (0, 0), "{}{}", planned.out, applied.err);
    assert!(node.path(&format!("{UNITS}/{path}")).is_symlink());
    assert_eq!(verify(&node, &[]).code, 0);
}

#[test]
fn presets_that_turn_unit_of_host_are_warned_of() {
    for (rule, is_on, words) in [
        ("disable *\n", true, "it is enabled on this host, and its presets disable it"),
        ("enable *\n", false, "it is disabled on this host, and its presets enable it"),
        ("enable *\n", true, ""),
        ("disable *\n", false, ""),
        ("ignore *\n", true, ""),
    ] {
        let node = host();
        node.put("root/usr/lib/systemd/system-preset/99.preset", rule);
        let path = "multi-user.target.wants/host.service";
        if is_on {
            link_to(&node, path, "/usr/lib/systemd/system/host.service");
        }
        let dropin = json!({"name": "i.conf", "contents": "[Unit]\nDescription=x\n"});
        let listed = spec(&[json!({"name": "host.service", "dropins": [dropin]})], &json!({}));
        node.put("a.json", config("rendered-a", &listed));
        let planned = node.plan("a.json");
        let is_warned = planned.out.contains(r#"systemd.units "host.service" enabled: it is "#);
        assert_eq!(is_warned, !words.is_empty(), "{rule} {is_on}: {}", planned.out);
        assert!(planned.out.contains(words), "{rule} {is_on}: {}", planned.out);
        node.commit("rendered-a.json", &listed);
        let is_turned = node.path(&format!("{UNITS}/{path}")).is_symlink() != is_on;
        assert_eq!(is_turned, is_warned, "{rule} {is_on}");
    }
}

/// An entry leaves, and the presets decide about what the administrator had enabled.
#[test]
fn presets_that_decide_about_unit_that_leaves_are_warned_of() {
    let node = host();
    node.put("root/usr/lib/systemd/system-preset/99.preset", "disable *\n");
    link_to(&node, "multi-user.target.wants/host.service", "/usr/lib/systemd/system/host.service");
    node.commit("rendered-a.json", &spec(&[json!({"name": "host.service", "enabled": true})], &json!({})));
    node.put("z.json", config("rendered-z", &ignition(json!({}))));
    let planned = node.plan("z.json");
    assert!(
        planned.out.contains("it is enabled on this host, and its presets disable it"),
        "{}",
        planned.out
    );
}

/// `verify` of a file sees what `verify` of the same config sees once it is committed.
#[test]
fn verify_of_file_is_verify_of_config() {
    let node = host();
    link_to(&node, "foo.target.wants/host.service", "/usr/lib/systemd/system/host.service");
    let off = spec(&[json!({"name": "host.service", "enabled": false})], &json!({}));
    node.put("a.json", config("rendered-a", &off));
    let of_file = verify(&node, &["--config", "a.json"]);
    assert!(of_file.code == 1 && of_file.out.contains("foo.target.wants"), "{}", of_file.out);
    let planned = node.plan("a.json");
    assert!(planned.out.contains("disable"), "{}", planned.out);
    node.commit("rendered-a.json", &off);
    assert!(!node.path(&format!("{UNITS}/foo.target.wants/host.service")).is_symlink());
    assert_eq!((verify(&node, &[]).code, verify(&node, &["--config", "a.json"]).code), (0, 0));

    let node = host();
    let own = json!({"name": "c@i.service", "enabled": true, "contents": WANTED});
    let own = spec(&[own], &json!({}));
    node.put("a.json", config("rendered-a", &own));
    node.commit("rendered-a.json", &own);
    let (one, other) = (verify(&node, &[]), verify(&node, &["--config", "a.json"]));
    assert_eq!((one.code, other.code), (0, 0), "{}{}", one.out, other.out);
}

/// An `[Install]` section that makes no link is as good as none, in every form.
#[test]
fn section_without_link_is_named() {
    for (install, is_named) in [
        ("Also=nowhere.service", true),
        ("Wantedby=x.target", true),
        ("requiredBy=x.target", true),
        ("WantedBy=", true),
        ("WantedBy=x.target\nWantedBy=", true),
        ("Alias=a.service", true),
        ("Foo=x", true),
        ("", true),
        ("Also=host.service", false),
        ("RequiredBy=x.target", false),
        ("UpheldBy=x.target", false),
        ("WantedBy=x.target", false),
        ("Alias=n.service", false),
    ] {
        let node = host();
        let spec = spec(&[unit("a.service", install)], &json!({}));
        node.put("a.json", config("rendered-a", &spec));
        let words = "no [Install] section";
        let planned = node.plan("a.json");
        assert_eq!((planned.code, planned.out.contains(words)), (0, is_named), "{install}: {}", planned.out);
        let file = verify(&node, &["--config", "a.json"]);
        if install != "Also=nowhere.service" {
            assert_eq!(file.out.contains(words), is_named, "{install}: {}", file.out);
        }
        node.commit("rendered-a.json", &spec);
        let verified = verify(&node, &[]);
        assert_eq!(
            (verified.code, verified.out.contains(words)),
            (0, is_named),
            "{install}: {}",
            verified.out
        );
        let status = node.run(&["status", "--root", "root", "--os-backend", "none"]);
        assert_eq!(status.out.contains(words), is_named, "{install}: {}", status.out);
        assert_eq!(
            node.path(&format!("{UNITS}/x.target.requires/a.service")).is_symlink(),
            install.starts_with('R')
        );
    }
}
