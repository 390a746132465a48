//! Units that can't be enabled, and those whose unit file comes with the storage of the config: the plan knows, as systemd would,
//! before anything is touched.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::test_host::{Node, config, ignition};

const WANTED: &str = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
const LINK: &str = "root/etc/systemd/system/multi-user.target.wants/x.service";

/// A host whose policy lets these units and files change without a reboot.
fn host() -> Node {
    let node = Node::new();
    let none = json!([{"type": "None"}]);
    let units = ["a.service", "b.service", "x.service", "z@.service", "q@i.service", "m.mount"];
    let units: Vec<Value> = units.iter().map(|name| json!({"name": name, "actions": none})).collect();
    let files = ["/etc", "/run"].map(|path| json!({"path": path, "actions": none}));
    let policy = json!({"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
        "metadata": {"name": "cluster"}, "spec": {"nodeDisruptionPolicy": {"files": files, "units": units}}});
    node.put("policy.json", policy.to_string());
    node
}

fn source(text: &str) -> Value {
    json!({"source": format!("data:,{}", text.replace('%', "%25").replace('\n', "%0A").replace(' ', "%20").replace('"', "%22").replace('[', "%5B").replace(']', "%5D"))})
}

fn unit(name: &str, install: &str) -> Value {
    let contents = format!("[Service]\nExecStart=/bin/true\n[Install]\n{install}\n");
    json!({"name": name, "enabled": true, "contents": contents})
}

fn units(units: &[Value]) -> Value {
    ignition(json!({"systemd": {"units": units}}))
}

/// A unit without contents, and its file in the storage of the same config.
fn stored(path: &str, text: &str) -> Value {
    let files = json!([{"path": path, "mode": 420, "contents": source(text)}]);
    ignition(
        json!({"storage": {"files": files}, "systemd": {"units": [{"name": "x.service", "enabled": true}]}}),
    )
}

#[test]
fn unit_file_of_storage_is_enabled() {
    let node = host();
    let spec = stored("/etc/systemd/system/x.service", WANTED);
    node.put("a.json", config("rendered-a", &spec));
    let planned = node.plan("a.json");
    assert!(planned.code == 0 && !planned.out.contains("Not applied"), "{}", planned.out);
    assert!(planned.out.contains("enable") && planned.out.contains("x.service"), "{}", planned.out);
    node.commit("rendered-a.json", &spec);
    assert!(node.path(LINK).is_symlink());
    // Its section moves, and goes.
    node.commit(
        "rendered-b.json",
        &stored("/etc/systemd/system/x.service", &WANTED.replace("multi-user", "other")),
    );
    assert!(!node.path(LINK).is_symlink());
    assert!(node.path("root/etc/systemd/system/other.target.wants/x.service").is_symlink());
    node.commit("rendered-c.json", &ignition(json!({})));
    assert!(!node.path("root/etc/systemd/system/other.target.wants/x.service").is_symlink());
}

/// By a drop-in, a link, and a directory of units beside `/etc`; a file without the section is named.
#[test]
fn other_sources_of_storage_are_read() {
    let node = host();
    node.put("root/usr/lib/systemd/system/x.service", "[Service]\nExecStart=/bin/true\n");
    let drop_in = "/etc/systemd/system/x.service.d/i.conf";
    node.commit("rendered-a.json", &stored(drop_in, "[Install]\nWantedBy=multi-user.target\n"));
    assert!(node.path(LINK).is_symlink());

    let node = host();
    node.commit("rendered-a.json", &stored("/run/systemd/system/x.service", WANTED));
    assert!(node.path(LINK).is_symlink());

    let node = host();
    node.put("root/opt/x.service", WANTED);
    let links = json!([{"path": "/etc/systemd/system/x.service", "target": "/opt/x.service"}]);
    let spec = ignition(
        json!({"storage": {"links": links}, "systemd": {"units": [{"name": "x.service", "enabled": true}]}}),
    );
    node.put("a.json", config("rendered-a", &spec));
    let (planned, applied) = (node.plan("a.json"), node.apply("a.json"));
    assert_eq!(planned.code, applied.code, "{}{}{}", planned.out, applied.out, applied.err);

    let node = host();
    let bare = stored("/etc/systemd/system/x.service", "[Service]\nExecStart=/bin/true\n");
    node.put("a.json", config("rendered-a", &bare));
    let planned = node.plan("a.json");
    assert!(planned.out.contains("no [Install] section"), "{}", planned.out);
    assert_eq!(node.apply("a.json").code, 0);
}

type Prepare = fn(&Node);

/// Units, what the host has besides, and the refusal.
fn refused() -> Vec<(Vec<Value>, Prepare, &'static str)> {
    let nothing: Prepare = |_| ();
    vec![
        (
            vec![unit("a.service", "WantedBy=../x")],
            nothing,
            r#""../x" in its WantedBy= is not a valid unit name"#,
        ),
        (vec![unit("a.service", "WantedBy=%H.target")], nothing, "the specifier %H"),
        (
            vec![unit("a.service", "Alias=y.socket")],
            nothing,
            "Alias=y.socket must have the type and instance of a.service",
        ),
        (vec![unit("z@.service", "WantedBy=x.target")], nothing, "it is a template"),
        (vec![unit("a.service", "Also=../x")], nothing, r#""../x" in its Also= is not a valid unit name"#),
        (
            vec![unit("a.service", "Alias=n.service"), unit("b.service", "Alias=n.service")],
            nothing,
            "n.service would lead to b.service, and so a.service would not be enabled",
        ),
        (
            vec![unit("a.service", "Alias=b.service"), unit("b.service", "WantedBy=x.target")],
            nothing,
            "/etc/systemd/system/b.service exists and is not a link; move it away",
        ),
        (
            vec![unit("a.service", "Alias=b.service")],
            |node| node.put("root/etc/systemd/system/b.service", "[Service]\n"),
            "/etc/systemd/system/b.service exists and is not a link",
        ),
        (
            vec![unit("a.service", "WantedBy=x.target")],
            |node| node.put("root/etc/systemd/system/x.target.wants", "x"),
            "x.target.wants exists and is not a directory",
        ),
        (
            vec![unit("a.service", "WantedBy=x.target")],
            |node| node.put("root/etc/systemd/system/x.target.wants/a.service", "x"),
            "x.target.wants/a.service exists and is not a link",
        ),
        (
            vec![unit("a.service", "WantedBy=x.target")],
            |node| symlink("nowhere", node.path("root/etc/systemd/system/x.target.wants")).unwrap(),
            "x.target.wants exists and is not a directory",
        ),
        (
            vec![
                json!({"name": "a.service", "enabled": true, "contents": "[Service]\nExecStart=/bin/true\n",
                "dropins": [{"name": "i.conf", "contents": "[Install]\nRequiredBy=x\n"}]}),
            ],
            nothing,
            r#""x" in its RequiredBy= is not a valid unit name"#,
        ),
        (vec![unit("a.service", "UpheldBy=x/y.target")], nothing, r#""x/y.target" in its UpheldBy="#),
    ]
}

#[test]
fn what_systemd_refuses_is_refused_before_anything_is_touched() {
    for (listed, prepare, words) in refused() {
        let node = host();
        std::fs::create_dir_all(node.path("root/etc/systemd/system")).unwrap();
        prepare(&node);
        node.put("a.json", config("rendered-a", &units(&listed)));
        let before = node.listing("root/etc");
        let planned = node.plan("a.json");
        assert!(
            planned.code == 3 && planned.out.contains(words),
            "{words}: {} {}",
            planned.code,
            planned.out
        );
        let applied = node.apply("a.json");
        assert!(
            applied.code == 3 && applied.err.contains(words),
            "{words}: {} {}",
            applied.code,
            applied.err
        );
        assert_eq!(node.listing("root/etc"), before, "{words}");
    }
}

/// A unit that is not in the update loses its name to one that is: both are named.
#[test]
fn alias_of_unit_that_stays_is_not_taken() {
    let node = host();
    let first = unit("a.service", "Alias=n.service");
    node.commit("rendered-a.json", &units(std::slice::from_ref(&first)));
    node.put("b.json", config("rendered-b", &units(&[first, unit("b.service", "Alias=n.service")])));
    let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
    assert!(planned.code == 3 && planned.out.contains("would lead to b.service"), "{}", planned.out);
    assert_eq!(applied.code, 3, "{}", applied.err);
}

/// What systemd takes is taken: other names of an instance, words in quotes, a directory of links by a link.
#[test]
fn what_systemd_takes_is_applied() {
    let node = host();
    std::fs::create_dir_all(node.path("root/etc/systemd/system/real.wants")).unwrap();
    symlink("real.wants", node.path("root/etc/systemd/system/x.target.wants")).unwrap();
    let listed = [
        unit("a.service", "WantedBy=\"x.target\"\nAlias=a.service"),
        unit("z@.service", "WantedBy=y.target\nDefaultInstance=%p"),
        unit("q@i.service", "Alias=r@.service"),
        unit("m.mount", "Alias=n.mount\nWantedBy=y.target"),
    ];
    node.put("a.json", config("rendered-a", &units(&listed)));
    let planned = node.plan("a.json");
    assert_eq!(planned.code, 0, "{}", planned.out);
    let applied = node.apply("a.json");
    assert_eq!(applied.code, 0, "{}", applied.err);
    for link in
        ["real.wants/a.service", "y.target.wants/z@z.service", "r@i.service", "y.target.wants/m.mount"]
    {
        assert!(node.path(&format!("root/etc/systemd/system/{link}")).is_symlink(), "{link}");
    }
    node.commit("rendered-c.json", &ignition(json!({})));
    assert!(!node.path("root/etc/systemd/system/r@i.service").is_symlink());
}

/// The companion of an enabled unit may be disabled by its own entry, as NetworkManager-wait-online.service beside NetworkManager.service:
/// machine-config-daemon enables all units, then disables others.
#[test]
fn companion_that_config_disables_stays_disabled() {
    let units = |list: Value| ignition(json!({"systemd": {"units": list}}));
    let wait = "root/etc/systemd/system/x.target.wants/b.service";
    let both = json!([{"name": "a.service", "enabled": true}, {"name": "b.service", "enabled": false}]);
    let alone = json!([{"name": "b.service", "enabled": false}]);
    for (was_enabled, first) in [(false, None), (true, None), (false, Some(&alone))] {
        let node = host();
        let at = "root/usr/lib/systemd/system";
        node.put(&format!("{at}/a.service"), format!("{WANTED}Also=b.service\n"));
        node.put(&format!("{at}/b.service"), WANTED.replace("multi-user", "x"));
        node.put("root/usr/lib/systemd/system-preset/90-default.preset", "disable *\n");
        if was_enabled {
            std::fs::create_dir_all(node.path(wait).parent().unwrap()).unwrap();
            symlink("/usr/lib/systemd/system/b.service", node.path(wait)).unwrap();
        }
        if let Some(first) = first {
            node.commit("rendered-a.json", &units(first.clone()));
        }
        node.put("b.json", config("rendered-b", &units(both.clone())));
        let planned = node.plan("b.json");
        assert_eq!(planned.code, 0, "{}", planned.out);
        node.commit("rendered-b.json", &units(both.clone()));
        let enabled = "root/etc/systemd/system/multi-user.target.wants/a.service";
        assert!(node.path(enabled).is_symlink() && !node.path(wait).is_symlink());
        let verified = node.run(&["verify", "--root", "root", "--os-backend", "none"]);
        assert_eq!(verified.code, 0, "{}", verified.out);
        node.commit("rendered-c.json", &ignition(json!({})));
        assert!(!node.path(enabled).is_symlink() && !node.path(wait).is_symlink());
    }
}

fn preset(node: &Node, verdict: &str) {
    node.put("root/usr/lib/systemd/system-preset/90-default.preset", format!("{verdict} *\n"));
}

fn link_target(node: &Node, path: &str) -> Option<String> {
    std::fs::read_link(node.path(path)).ok().map(|target| target.display().to_string())
}

/// `systemctl link` brings a unit file from elsewhere. The link is no enablement: whatever a config does with the unit, and whatever the
/// presets say, it stays; the links that start the unit follow the config, then the presets.
#[test]
fn unit_link_of_administrator_stays() {
    const OWN: &str = "root/etc/systemd/system/x.service";
    let entries = [
        json!({"name": "x.service", "enabled": true}),
        json!({"name": "x.service", "enabled": false}),
        json!({"name": "x.service", "mask": true}),
        json!({"name": "x.service", "enabled": true, "contents": WANTED}),
        json!({"name": "x.service", "enabled": false, "contents": WANTED}),
    ];
    for (verdict, entry) in
        ["disable", "enable"].into_iter().flat_map(|one| entries.iter().map(move |entry| (one, entry)))
    {
        for (at, was_enabled) in
            [("/opt/x.service", false), ("/opt/x.service", true), ("/opt/other.service", false)]
        {
            let case = format!("{verdict} {entry} {at} {was_enabled}");
            let node = host();
            preset(&node, verdict);
            node.put(&format!("root{at}"), WANTED);
            std::fs::create_dir_all(node.path(LINK).parent().unwrap()).unwrap();
            symlink(at, node.path(OWN)).unwrap();
            if was_enabled {
                symlink(at, node.path(LINK)).unwrap();
            }
            node.commit("rendered-a.json", &units(std::slice::from_ref(entry)));
            let is_masked = entry["mask"] == true;
            let is_enabled = entry["enabled"] == true || (is_masked && was_enabled);
            assert_eq!(node.path(LINK).is_symlink(), is_enabled, "{case}");
            if entry["contents"].is_null() && entry["mask"].is_null() {
                assert_eq!(link_target(&node, OWN).as_deref(), Some(at), "{case}");
            }
            node.commit("rendered-b.json", &ignition(json!({})));
            assert_eq!(link_target(&node, OWN).as_deref(), Some(at), "{case}");
            assert_eq!(node.path(LINK).is_symlink(), verdict == "enable", "{case}");
        }
    }
}

/// A config replaced a link that made its unit another name of a unit of the OS: that one is no matter of the config.
#[test]
fn unit_of_replaced_alias_is_left_alone() {
    const OWN: &str = "root/etc/systemd/system/x.service";
    const OTHER: &str = "/usr/lib/systemd/system/y.service";
    for verdict in ["disable", "enable"] {
        for entry in
            [unit("x.service", "WantedBy=multi-user.target"), json!({"name": "x.service", "mask": true})]
        {
            for is_enabled in [true, false] {
                let case = format!("{verdict} {entry} {is_enabled}");
                let node = host();
                preset(&node, verdict);
                node.put(&format!("root{OTHER}"), WANTED);
                let other = "root/etc/systemd/system/multi-user.target.wants/y.service";
                std::fs::create_dir_all(node.path(other).parent().unwrap()).unwrap();
                symlink(OTHER, node.path(OWN)).unwrap();
                if is_enabled {
                    symlink(OTHER, node.path(other)).unwrap();
                }
                node.commit("rendered-a.json", &units(std::slice::from_ref(&entry)));
                node.commit("rendered-b.json", &ignition(json!({})));
                assert_eq!(link_target(&node, OWN).as_deref(), Some(OTHER), "{case}");
                assert_eq!(node.path(other).is_symlink(), is_enabled, "{case}");
                assert!(!node.path(LINK).is_symlink(), "{case}");
            }
        }
    }
}

/// The host has masked a unit, and a config takes the mask away. With the mask back, of the links that start the unit those of the presets
/// are there.
#[test]
fn links_below_restored_mask_are_those_of_presets() {
    const OWN: &str = "root/etc/systemd/system/x.service";
    let entries = [
        json!({"name": "x.service", "enabled": true, "mask": false}),
        json!({"name": "x.service", "enabled": true, "contents": WANTED.replace("multi-user", "other")}),
        json!({"name": "x.service", "enabled": true, "contents": WANTED.replace("[Install]", "[Install]\nAlias=n.service")}),
    ];
    for (verdict, entry) in
        ["disable", "enable"].into_iter().flat_map(|one| entries.iter().map(move |entry| (one, entry)))
    {
        for has_vendor in [true, false] {
            let case = format!("{verdict} {entry} {has_vendor}");
            let node = host();
            preset(&node, verdict);
            if has_vendor {
                node.put("root/usr/lib/systemd/system/x.service", WANTED);
            }
            std::fs::create_dir_all(node.path(OWN).parent().unwrap()).unwrap();
            symlink("/dev/null", node.path(OWN)).unwrap();
            node.commit("rendered-a.json", &units(std::slice::from_ref(entry)));
            assert!(!node.path(OWN).is_symlink(), "{case}");
            node.commit("rendered-b.json", &ignition(json!({})));
            assert_eq!(link_target(&node, OWN).as_deref(), Some("/dev/null"), "{case}");
            assert_eq!(node.path(LINK).is_symlink(), has_vendor && verdict == "enable", "{case}");
            for gone in ["other.target.wants", "n.service"] {
                assert!(
                    std::fs::symlink_metadata(node.path(&format!("root/etc/systemd/system/{gone}"))).is_err(),
                    "{case}"
                );
            }
        }
    }
}

/// systemd takes names of up to 255 characters; the directory of such a unit's drop-ins would have a longer name.
#[test]
fn longest_unit_names_are_applied() {
    let named = |length: usize| format!("{}.service", "a".repeat(length - 8));
    for length in [250, 253, 254, 255] {
        let (node, name) = (host(), named(length));
        let policy = json!({"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
            "metadata": {"name": "cluster"}, "spec": {"nodeDisruptionPolicy": {
            "units": [{"name": name, "actions": [{"type": "None"}]}]}}});
        node.put("policy.json", policy.to_string());
        node.commit("rendered-a.json", &units(&[unit(&name, "WantedBy=x.target")]));
        assert!(
            node.path(&format!("root/etc/systemd/system/x.target.wants/{name}")).is_symlink(),
            "{length}"
        );
        let verified = node.run(&["verify", "--root", "root", "--os-backend", "none"]);
        assert_eq!(verified.code, 0, "{length}: {}{}", verified.out, verified.err);
        node.commit("rendered-b.json", &ignition(json!({})));
        assert!(!node.path("root/etc/systemd/system/x.target.wants").exists(), "{length}");
    }
    let dropin = json!({"name": named(254), "dropins": [{"name": "a.conf", "contents": "[Unit]\n"}]});
    let target = unit("a.service", &format!("WantedBy={}.target", "t".repeat(245)));
    for refused in [dropin, target] {
        let node = host();
        node.put("b.json", config("rendered-b", &units(&[refused])));
        let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
        let text = format!("{}{}{}", planned.out, planned.err, applied.err);
        assert_eq!((planned.code, applied.code), (3, 3), "{text}");
        assert!(text.contains("a name of more than 255 bytes"), "{text}");
    }
}

/// A kill between the last link and its directory.
#[test]
fn directory_of_links_goes_after_kill() {
    let entry = unit("a.service", "WantedBy=x.target");
    let mut kills = 0;
    for point in 1..60 {
        let node = host();
        node.commit("rendered-a.json", &units(std::slice::from_ref(&entry)));
        node.put("b.json", config("rendered-b", &ignition(json!({}))));
        let mut killed = node.command(&crate::test_host::apply("b.json"));
        let killed = killed.env("MCA_FAIL_POINT", format!("kill:{point}")).output().unwrap();
        kills += usize::from(!killed.status.success());
        let again = node.apply("b.json");
        assert_eq!(again.code, 0, "{point}: {}", again.err);
        assert!(!node.path("root/etc/systemd/system/x.target.wants").exists(), "{point}");
    }
    assert!(kills > 20, "{kills}");
}

const UNITS: &str = "root/etc/systemd/system";
const TWO: &str = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=a.target b.target\nAlias=n.service\n";
const LINKS: [&str; 3] = ["a.target.wants/x.service", "b.target.wants/x.service", "n.service"];

/// A host whose unit has only these of its links.
fn partly_enabled(links: &[&str]) -> Node {
    let node = host();
    node.put("root/usr/lib/systemd/system/x.service", TWO);
    for link in links {
        make_link(&node, link);
    }
    node
}

fn make_link(node: &Node, link: &str) {
    let at = node.path(&format!("{UNITS}/{link}"));
    std::fs::create_dir_all(at.parent().unwrap()).unwrap();
    symlink("/usr/lib/systemd/system/x.service", at).unwrap();
}

fn found_links(node: &Node) -> Vec<&'static str> {
    LINKS.into_iter().filter(|link| node.path(&format!("{UNITS}/{link}")).is_symlink()).collect()
}

fn verify(node: &Node) -> crate::test_host::Ran {
    node.run(&["verify", "--root", "root", "--os-backend", "none"])
}

/// systemd starts a unit by each of its links: one with some of them is neither enabled nor disabled.
#[test]
fn unit_with_some_of_its_links_is_turned_as_listed() {
    for (is_enabled, step) in [(true, " enable-unit "), (false, " disable-unit ")] {
        for first in [&LINKS[..1], &LINKS[1..2], &LINKS[2..], &LINKS[..2], &LINKS[1..]] {
            let node = partly_enabled(first);
            let spec = units(&[json!({"name": "x.service", "enabled": is_enabled})]);
            node.put("a.json", config("rendered-a", &spec));
            let planned = node.plan("a.json");
            assert!(planned.code == 0 && planned.out.contains(step), "{first:?}: {}", planned.out);
            node.commit("rendered-a.json", &spec);
            assert_eq!(found_links(&node), if is_enabled { &LINKS[..] } else { &[] }, "{first:?}");
            assert_eq!(verify(&node).code, 0, "{first:?}");
            // Drift of one of the links.
            if is_enabled {
                std::fs::remove_file(node.path(&format!("{UNITS}/{}", LINKS[1]))).unwrap();
            } else {
                make_link(&node, LINKS[1]);
            }
            let drifted = verify(&node);
            assert!(drifted.code != 0 && drifted.out.contains("partly enabled"), "{}", drifted.out);
        }
    }
}

/// The presets decide about such a unit as about another one, where they do.
#[test]
fn unit_with_some_of_its_links_follows_presets() {
    let drop_in = json!({"name": "x.service", "dropins": [{"name": "a.conf", "contents": "[Unit]\n"}]});
    for (verdict, warned, left) in [
        ("enable", "partly enabled on this host, and its presets enable it", &LINKS[..]),
        ("disable", "partly enabled on this host, and its presets disable it", &[]),
        ("ignore", "", &LINKS[..1]),
    ] {
        let node = partly_enabled(&LINKS[..1]);
        preset(&node, verdict);
        node.put("a.json", config("rendered-a", &units(std::slice::from_ref(&drop_in))));
        let planned = node.plan("a.json");
        assert!(planned.code == 0 && planned.out.contains(warned), "{verdict}: {}", planned.out);
        assert_eq!(planned.out.contains("preset"), verdict != "ignore", "{verdict}: {}", planned.out);
        node.commit("rendered-a.json", &units(std::slice::from_ref(&drop_in)));
        assert_eq!(found_links(&node), left, "{verdict}");
        // Somebody turns it meanwhile, which no entry of the config is about; then the entry leaves.
        drop(std::fs::remove_file(node.path(&format!("{UNITS}/{}", LINKS[0]))));
        if found_links(&node).is_empty() {
            make_link(&node, LINKS[2]);
        }
        let now = found_links(&node);
        node.commit("rendered-b.json", &ignition(json!({})));
        assert_eq!(found_links(&node), if verdict == "ignore" { &now[..] } else { left }, "{verdict}");
    }
}

/// A unit without an `enabled` of its own goes by presets: those of its config, and once they leave those of the host.
#[test]
fn presets_of_storage_turn_units_as_they_come_and_go() {
    let node = host();
    node.put("root/usr/lib/systemd/system/x.service", WANTED);
    node.put("root/usr/lib/systemd/system-preset/99-default.preset", "disable *\n");
    let bare = json!([{"name": "x.service"}]);
    let file =
        json!([{"path": "/etc/systemd/system-preset/10-x.preset", "contents": source("enable x.service\n")}]);
    let with_presets = ignition(json!({"storage": {"files": file}, "systemd": {"units": bare}}));
    for after in [ignition(json!({"systemd": {"units": bare}})), ignition(json!({}))] {
        node.commit("rendered-a.json", &with_presets);
        assert!(node.path(LINK).is_symlink());
        node.put("b.json", config("rendered-b", &after));
        let planned = node.plan("b.json");
        assert!(
            planned.out.contains("preset-unit") && planned.out.contains("its presets disable it"),
            "{}",
            planned.out
        );
        node.commit("rendered-b.json", &after);
        assert!(!node.path(LINK).is_symlink(), "{after}");
        let verified = node.run(&["verify", "--root", "root", "--os-backend", "none"]);
        assert_eq!(verified.code, 0, "{}{}", verified.out, verified.err);
    }
}

/// systemd disables the units of `Also=` with a unit: the plan says so, and a config that enables one of them is refused.
#[test]
fn units_that_are_turned_along_are_named() {
    let node = host();
    let unit = format!("{WANTED}Also=b.service\n");
    node.put("root/usr/lib/systemd/system/x.service", &unit);
    node.put("root/usr/lib/systemd/system/b.service", WANTED);
    for name in ["x.service", "b.service"] {
        let target = format!("/usr/lib/systemd/system/{name}");
        let link = node.path(&format!("root/etc/systemd/system/multi-user.target.wants/{name}"));
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(target, link).unwrap();
    }
    let disabled = json!({"name": "x.service", "enabled": false});
    node.put("a.json", config("rendered-a", &units(std::slice::from_ref(&disabled))));
    let planned = node.plan("a.json");
    let words = "disabling it disables b.service, too, which its [Install] section names (Also=)";
    assert!(planned.code == 0 && planned.out.contains(words), "{}", planned.out);
    let both = [disabled.clone(), json!({"name": "b.service", "enabled": false})];
    node.put("both.json", config("rendered-both", &units(&both)));
    assert!(!node.plan("both.json").out.contains("Also="));
    let against = [disabled.clone(), json!({"name": "b.service", "enabled": true})];
    node.put("against.json", config("rendered-against", &units(&against)));
    let planned = node.plan("against.json");
    assert!(planned.code == 0 && !planned.out.contains("Also="), "{}", planned.out);
    node.commit("rendered-a.json", &units(&[disabled]));
    assert!(!node.path("root/etc/systemd/system/multi-user.target.wants/b.service").is_symlink());
}

/// A link that an administrator made is taken away with `enabled` of a unit without `[Install]`: the plan names it.
#[test]
fn links_of_host_that_are_taken_away_are_warned_of() {
    for enabled in [true, false] {
        let node = host();
        node.put("root/usr/lib/systemd/system/x.service", "[Service]\nExecStart=/bin/true\n");
        std::fs::create_dir_all(node.path(LINK).parent().unwrap()).unwrap();
        symlink("/usr/lib/systemd/system/x.service", node.path(LINK)).unwrap();
        let spec = units(&[json!({"name": "x.service", "enabled": enabled})]);
        node.put("a.json", config("rendered-a", &spec));
        let planned = node.plan("a.json");
        let words = "multi-user.target.wants/x.service of this host";
        assert!(planned.code == 0 && planned.out.contains(words), "{}", planned.out);
        node.commit("rendered-a.json", &spec);
        assert!(!node.path(LINK).is_symlink());
    }
}

/// Presets skip another name of a unit, as systemd does: a drop-in for it does not remove it.
#[test]
fn other_name_of_unit_outlives_presets() {
    let install = "[Service]\nExecStart=/bin/true\n[Install]\nAlias=x.service\n";
    for verdict in ["disable", "enable"] {
        let node = host();
        preset(&node, verdict);
        node.put("root/usr/lib/systemd/system/x-broker.service", install);
        let link = node.path("root/etc/systemd/system/x.service");
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink("/usr/lib/systemd/system/x-broker.service", &link).unwrap();
        let drop_in = json!({"name": "x.service", "dropins": [{"name": "a.conf", "contents": "[Unit]\n"}]});
        for (name, entry) in [
            ("rendered-a.json", units(&[drop_in])),
            ("rendered-b.json", ignition(json!({}))),
            ("rendered-c.json", units(&[json!({"name": "x.service", "enabled": true})])),
            ("rendered-d.json", ignition(json!({}))),
        ] {
            node.commit(name, &entry);
            assert!(link.is_symlink(), "{verdict} {name}");
        }
        assert_eq!(verify(&node).code, 0);
    }
}
