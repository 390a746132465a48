//! Units that belong together: a template and its instances, a unit and those that its `Also=` names, a unit and its other names. Each
//! entry of a config decides about its own unit, whatever configs the host had before.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::test_host::{Node, Ran, config, ignition};

const UNITS: &str = "root/usr/lib/systemd/system";
const LINKS: &str = "root/etc/systemd/system";
const WANTED: &str = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
const DEFAULT: &str =
    "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\nDefaultInstance=one\n";

/// A host whose units change without a reboot, and whose presets enable none.
fn host() -> Node {
    let node = Node::new();
    let none = json!([{"type": "None"}]);
    let names = [
        "a.service",
        "b.service",
        "c.service",
        "x.service",
        "b.socket",
        "t@.service",
        "t@q.service",
        "t@one.service",
    ];
    let units: Vec<Value> = names.iter().map(|name| json!({"name": name, "actions": none})).collect();
    let policy = json!({"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
        "metadata": {"name": "cluster"}, "spec": {"nodeDisruptionPolicy": {"units": units}}});
    node.put("policy.json", policy.to_string());
    node.put("root/usr/lib/systemd/system-preset/90-default.preset", "disable *\n");
    node
}

fn units(units: &[Value]) -> Value {
    ignition(json!({"systemd": {"units": units}}))
}

/// An entry without contents.
fn turned(name: &str, enabled: bool) -> Value {
    json!({"name": name, "enabled": enabled})
}

fn with(name: &str, contents: &str, enabled: bool) -> Value {
    json!({"name": name, "enabled": enabled, "contents": contents})
}

/// Makes a link as `systemctl enable` does.
fn wanted(node: &Node, name: &str, file: &str) {
    let folder = node.path(&format!("{LINKS}/multi-user.target.wants"));
    std::fs::create_dir_all(&folder).unwrap();
    symlink(format!("/usr/lib/systemd/system/{file}"), folder.join(name)).unwrap();
}

fn is_wanted(node: &Node, name: &str) -> bool {
    node.path(&format!("{LINKS}/multi-user.target.wants/{name}")).is_symlink()
}

/// Every link of units, and its target.
fn links(node: &Node) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut directories = vec![node.path(LINKS)];
    while let Some(directory) = directories.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()) {
            if let Ok(target) = std::fs::read_link(&path) {
                found.insert(
                    path.display().to_string().replace(&node.text("root"), ""),
                    target.display().to_string(),
                );
            } else if path.is_dir() {
                directories.push(path);
            }
        }
    }
    found
}

fn verify(node: &Node) -> Ran {
    node.run(&["verify", "--root", "root", "--os-backend", "none"])
}

/// Plans and applies: both take it, and the host is as the config has it. Returns the plan.
fn taken(node: &Node, name: &str, spec: &Value) -> String {
    let file = format!("{name}.json");
    node.put(&file, config(name, spec));
    let (planned, applied) = (node.plan(&file), node.apply(&file));
    let text = format!("{spec}: {}{}{}", planned.out, planned.err, applied.err);
    assert_eq!((planned.code, applied.code), (0, 0), "{text}");
    let verified = verify(node);
    assert_eq!(verified.code, 0, "{spec}: {}", verified.out);
    planned.out
}

/// As `systemctl disable t@.service`. An instance with an entry of its own goes by that.
#[test]
fn disabled_template_takes_its_instances_along() {
    for contents in [None, Some(WANTED)] {
        let node = host();
        if contents.is_none() {
            node.put(&format!("{UNITS}/t@.service"), WANTED);
        }
        wanted(&node, "t@q.service", "t@.service");
        let template = match contents {
            Some(contents) => with("t@.service", contents, false),
            None => turned("t@.service", false),
        };
        let planned = taken(&node, "rendered-a", &units(std::slice::from_ref(&template)));
        assert!(planned.contains("disable-unit"), "{planned}");
        // A link to a template that the host lacks starts nothing.
        assert_eq!(planned.contains("t@q.service"), contents.is_none(), "{planned}");
        assert!(!is_wanted(&node, "t@q.service"));
        let both = units(&[template.clone(), turned("t@q.service", true)]);
        taken(&node, "rendered-b", &both);
        assert!(is_wanted(&node, "t@q.service"));
        wanted(&node, "t@r.service", "t@.service");
        let verified = verify(&node);
        assert!(verified.code == 1 && verified.out.contains("t@r.service"), "{}", verified.out);
        // From both to the template alone.
        node.put("root/etc/x", "");
        std::fs::remove_file(node.path(&format!("{LINKS}/multi-user.target.wants/t@r.service"))).unwrap();
        taken(&node, "rendered-c", &units(&[template]));
        assert!(!is_wanted(&node, "t@q.service"));
    }
}

/// As `systemctl enable t@.service`: other instances stay. The one of an earlier `DefaultInstance=` of the config goes.
#[test]
fn enabled_template_leaves_other_instances() {
    let node = host();
    node.put(&format!("{UNITS}/t@.service"), DEFAULT);
    wanted(&node, "t@two.service", "t@.service");
    let planned = taken(&node, "rendered-a", &units(&[turned("t@.service", true)]));
    assert!(!planned.contains("t@two"), "{planned}");
    assert!(is_wanted(&node, "t@one.service") && is_wanted(&node, "t@two.service"));

    let node = host();
    taken(&node, "rendered-a", &units(&[with("t@.service", DEFAULT, true)]));
    wanted(&node, "t@two.service", "t@.service");
    let moved = DEFAULT.replace("=one", "=three");
    taken(&node, "rendered-b", &units(&[with("t@.service", &moved, true)]));
    assert!(is_wanted(&node, "t@three.service") && is_wanted(&node, "t@two.service"));
    assert!(!is_wanted(&node, "t@one.service"));
    // Another target: the instance's earlier link goes.
    let other = moved.replace("multi-user", "other");
    taken(&node, "rendered-c", &units(&[with("t@.service", &other, true)]));
    assert!(!is_wanted(&node, "t@three.service") && is_wanted(&node, "t@two.service"));
}

/// A template whose file changes, and an instance of it that the config enables and that does not.
#[test]
fn instance_stays_enabled_as_its_template_changes() {
    let bare = json!({"name": "t@.service", "contents": WANTED});
    for (first, second) in [
        (bare.clone(), json!({"name": "t@.service", "contents": format!("{WANTED}# 2\n")})),
        (with("t@.service", WANTED, false), with("t@.service", &format!("{WANTED}# 2\n"), false)),
        (with("t@.service", DEFAULT, true), with("t@.service", &format!("{DEFAULT}# 2\n"), true)),
    ] {
        let node = host();
        taken(&node, "rendered-a", &units(&[first, turned("t@q.service", true)]));
        assert!(is_wanted(&node, "t@q.service"));
        taken(&node, "rendered-b", &units(&[second, turned("t@q.service", true)]));
        assert!(is_wanted(&node, "t@q.service"));
    }
}

/// A template that goes by presets, and one that leaves: `systemctl preset t@.service` removes the links of all instances.
#[test]
fn presets_of_template_name_the_instances_that_go() {
    let dropin = json!({"name": "t@.service", "dropins": [{"name": "a.conf", "contents": "[Install]\nRequiredBy=x.target\n"}]});
    let node = host();
    node.put(&format!("{UNITS}/t@.service"), DEFAULT);
    wanted(&node, "t@two.service", "t@.service");
    let planned = taken(&node, "rendered-a", &units(&[dropin]));
    assert_eq!(planned.contains("t@two.service"), !is_wanted(&node, "t@two.service"), "{planned}");

    let node = host();
    taken(&node, "rendered-a", &units(&[with("t@.service", DEFAULT, true)]));
    wanted(&node, "t@two.service", "t@.service");
    let planned = taken(&node, "rendered-b", &units(&[]));
    assert_eq!(planned.contains("t@two.service"), !is_wanted(&node, "t@two.service"), "{planned}");
}

/// `systemctl enable` says that there is nothing to enable.
#[test]
fn unit_that_only_names_unit_without_section_is_named() {
    for also in ["Also=b.socket", "Also=a.service", "Also=none.service"] {
        let node = host();
        node.put(
            &format!("{UNITS}/a.service"),
            format!("[Service]\nExecStart=/bin/true\n[Install]\n{also}\n"),
        );
        node.put(&format!("{UNITS}/b.socket"), "[Socket]\nListenStream=1\n");
        let planned = taken(&node, "rendered-a", &units(&[turned("a.service", true)]));
        assert!(planned.contains("no [Install] section that makes a link"), "{also}: {planned}");
        taken(&node, "rendered-b", &units(&[turned("a.service", false)]));
    }
    // Of several, all count.
    let node = host();
    node.put(
        &format!("{UNITS}/a.service"),
        "[Service]\nExecStart=/bin/true\n[Install]\nAlso=b.service c.service\n",
    );
    node.put(&format!("{UNITS}/b.service"), WANTED);
    node.put(&format!("{UNITS}/c.service"), WANTED);
    wanted(&node, "b.service", "b.service");
    taken(&node, "rendered-a", &units(&[turned("a.service", true)]));
    assert!(is_wanted(&node, "c.service"));
}

/// A config disables one unit, and enables another one that the first one's `Also=` names: each is as its entry has it, as with presets.
#[test]
fn entry_decides_about_unit_that_another_one_names() {
    let also = format!("{WANTED}Also=b.service\n");
    let (a, b) = (with("a.service", &also, false), with("b.service", WANTED, true));
    let both = units(&[a.clone(), b.clone()]);
    let rewritten = units(&[with("a.service", &format!("{also}# 2\n"), false), b.clone()]);
    let c = with("c.service", &also.replace("[Service]", "[Service]\nNice=1"), true);
    let ways: [&[Value]; 6] = [
        &[],
        &[units(std::slice::from_ref(&a))],
        &[units(std::slice::from_ref(&b))],
        &[units(&[with("a.service", &also, true)])],
        &[units(&[with("a.service", &also, true), b.clone()]), rewritten.clone()],
        &[units(&[c])],
    ];
    for before in ways {
        let node = host();
        for (place, spec) in before.iter().chain([&both, &rewritten]).enumerate() {
            taken(&node, &format!("rendered-{place}"), spec);
        }
        assert!(is_wanted(&node, "b.service") && !is_wanted(&node, "a.service"), "{before:?}");
    }
}

/// The links of units are those of the config alone: those of the way to it don't matter.
#[test]
fn links_do_not_depend_on_earlier_configs() {
    let also = format!("{WANTED}Also=b.service\n");
    let again = format!("{also}# 2\n");
    let silent = |text: &str| json!({"name": "b.service", "dropins": [{"name": "a.conf", "contents": text}]});
    let (enabled, disabled) = (with("a.service", &also, true), with("c.service", &also, false));
    let install = "[Install]\nRequiredBy=x.target\n";
    let configs = [
        units(&[with("a.service", &also, false), silent("[Service]\n")]),
        units(&[enabled.clone(), silent(install)]),
        units(&[enabled.clone(), disabled.clone()]),
        units(&[with("a.service", &again, true), disabled.clone(), silent("[Service]\n")]),
        units(&[enabled, with("c.service", &again, false), silent(install)]),
        units(&[]),
    ];
    for verdict in ["disable", "enable"] {
        let fresh = || {
            let node = host();
            node.put("root/usr/lib/systemd/system-preset/90-default.preset", format!("{verdict} *\n"));
            node.put(&format!("{UNITS}/b.service"), WANTED);
            node.commit("rendered-0.json", &units(&[]));
            node
        };
        for last in &configs {
            let direct = fresh();
            direct.commit("rendered-last.json", last);
            for first in configs.iter().filter(|first| *first != last) {
                let node = fresh();
                node.commit("rendered-first.json", first);
                node.commit("rendered-last.json", last);
                let case = format!("{verdict}: {first} then {last}");
                let is_left = *last == units(&[]);
                if is_left {
                    // Units that leave go by their presets.
                    assert_eq!(is_wanted(&node, "b.service"), verdict == "enable", "{case}");
                } else {
                    assert_eq!(links(&node), links(&direct), "{case}");
                }
            }
        }
    }
}

/// An alias of one unit would hide the file of another one that the config enables.
#[test]
fn alias_does_not_hide_enabled_unit() {
    let x = with("x.service", &format!("{WANTED}Alias=b.service\n"), true);
    let both = units(&[x.clone(), turned("b.service", true)]);
    for before in [vec![], vec![units(std::slice::from_ref(&x))], vec![units(&[turned("b.service", true)])]] {
        let node = host();
        node.put(&format!("{UNITS}/b.service"), WANTED);
        for (place, spec) in before.iter().enumerate() {
            taken(&node, &format!("rendered-{place}"), spec);
        }
        node.put("both.json", config("rendered-both", &both));
        let (planned, applied) = (node.plan("both.json"), node.apply("both.json"));
        let text = format!("{before:?}: {}{}", planned.out, applied.err);
        assert_eq!((planned.code, applied.code), (3, 3), "{text}");
        assert!(planned.out.contains("b.service") && planned.out.contains("x.service"), "{text}");
    }
    // One without a file of its own is the other's name.
    taken(&host(), "rendered-a", &both);
}

/// An entry that sets nothing changes nothing as it leaves.
#[test]
fn entry_that_sets_nothing_leaves_without_a_step() {
    for is_enabled in [true, false] {
        let node = host();
        let verdict = if is_enabled { "disable" } else { "enable" };
        node.put("root/usr/lib/systemd/system-preset/90-default.preset", format!("{verdict} *\n"));
        node.put(&format!("{UNITS}/a.service"), WANTED);
        taken(&node, "rendered-a", &units(&[json!({"name": "a.service"})]));
        let link = node.path(&format!("{LINKS}/multi-user.target.wants/a.service"));
        if is_enabled {
            wanted(&node, "a.service", "a.service");
        } else {
            assert!(!link.is_symlink());
        }
        let planned = taken(&node, "rendered-b", &units(&[]));
        assert!(planned.contains("Steps  none"), "{planned}");
        assert_eq!(is_wanted(&node, "a.service"), is_enabled);
    }
}
