//! The planner and the differences agree: a matching host needs no plan, and a plan leaves a matching host.
//!
//! Random configs are brought to a host that is pure data (`world`), over a reboot where one is planned.

use std::collections::BTreeSet;

use machine_config_core::model::observation::EmbeddedConfig;
use machine_config_core::model::{DisruptionPolicy, Facts, HostSpec, ImageRef, UnitName};
use machine_config_core::plan::{
    Drain, Mode, Plan, PostActions, already_applied, differences, observed_origin, plan,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::model_host::{self, Image, ModelHost};

const FILES: [&str; 5] = [
    "/etc/a",
    "/etc/containers/policy.json",
    "/var/lib/c",
    "/etc/d/e",
    "/etc/systemd/system/os.service.d/f.conf",
];
/// The OS has the first; nothing else does.
const UNITS: [&str; 3] = ["os.service", "ours.service", "ghost.service"];

fn file(path: &'static str) -> impl Strategy<Value = Value> {
    (0..3_u8, prop_oneof![Just(None), Just(Some(0o600)), Just(Some(0o644))], any::<bool>()).prop_map(
        move |(text, mode, core)| {
            let user = if core { json!({"name": "core"}) } else { json!({"id": 0}) };
            json!({"path": path, "mode": mode, "user": user, "contents": {"source": format!("data:,{text}")}})
        },
    )
}

fn unit(name: &'static str) -> impl Strategy<Value = Value> {
    let enabled = prop_oneof![Just(None), Just(Some(true)), Just(Some(false))];
    let mask = prop_oneof![4 => Just(None), 1 => Just(Some(true)), 1 => Just(Some(false))];
    (enabled, mask, prop::option::of(0..2_u8), prop::option::of(0..2_u8)).prop_map(
        move |(enabled, mask, contents, dropin)| {
            let enabled = enabled.filter(|enabled| !(*enabled && mask == Some(true)));
            let contents = contents.map(|text| format!("{text}"));
            let dropin = dropin.map(|text| json!({"name": "10.conf", "contents": format!("{text}")}));
            let dropins: Vec<Value> = dropin.into_iter().collect();
            json!({"name": name, "enabled": enabled, "mask": mask, "contents": contents, "dropins": dropins})
        },
    )
}

/// Directories and links: parents of files, a path of three kinds, and hard links to files of the config or of the OS.
fn stored() -> impl Strategy<Value = (Vec<Value>, Vec<Value>, Option<Value>)> {
    let owner = any::<bool>().prop_map(|core| if core { json!({"name": "core"}) } else { json!({"id": 0}) });
    let mode = prop::sample::select(vec![None, Some(0o700), Some(0o1777)]);
    let directory = |path: &'static str| {
        prop::option::of((mode.clone(), prop::option::of(owner.clone())).prop_map(
            move |(mode, user)| json!({"path": path, "mode": mode, "user": user, "overwrite": true}),
        ))
    };
    let soft = prop::option::of((prop::sample::select(vec!["a", "../b"]), owner.clone()).prop_map(
        |(target, user)| json!({"path": "/etc/l", "target": target, "user": user, "overwrite": true}),
    ));
    let kinds = (0..5_u8, mode.clone());
    (directory("/etc/d"), directory("/var/lib/d"), soft, kinds, any::<bool>()).prop_map(
        |(parent, var, soft, (kind, mode), hard)| {
            let mut directories: Vec<Value> = parent.into_iter().chain(var).collect();
            let mut links: Vec<Value> = soft.into_iter().collect();
            let mut file = None;
            match kind {
                1 => directories.push(json!({"path": "/etc/k", "mode": mode, "overwrite": true})),
                2 => links.push(json!({"path": "/etc/k", "target": "c", "overwrite": true})),
                3 => file = Some(json!({"path": "/etc/k", "contents": {"source": "data:,k"}})),
                4 => {
                    directories.push(json!({"path": "/etc/k", "mode": mode, "overwrite": true}));
                    file = Some(json!({"path": "/etc/k/f", "contents": {"source": "data:,f"}}));
                }
                _ => {}
            }
            if hard {
                let hard =
                    json!({"path": "/var/lib/h", "target": "/var/lib/c", "hard": true, "overwrite": true});
                links.push(hard);
            }
            (directories, links, file)
        },
    )
}

/// A shell and groups that the OS has.
fn account() -> impl Strategy<Value = (Option<&'static str>, Vec<&'static str>)> {
    let shell = prop::option::of(prop::sample::select(vec!["/bin/sh", "/sbin/nologin"]));
    (shell, prop::sample::subsequence(vec!["sudo", "wheel"], 0..3))
}

fn sections() -> impl Strategy<Value = Value> {
    let files: Vec<_> = FILES.iter().map(|path| prop::option::of(file(path))).collect();
    let units: Vec<_> = UNITS.iter().map(|name| prop::option::of(unit(name))).collect();
    let user = prop::option::of((0..3_u8, prop::option::of(0..2_u8), account()));
    let other =
        prop::option::of((prop::option::of(0..2_u8), prop::option::of(0..2_u8), account(), any::<bool>()));
    let group = prop::option::of(any::<bool>());
    let kargs = prop::collection::vec(prop::sample::select(vec!["a", "b", "c=1"]), 0..4);
    (files, units, user, other, group, kargs, stored()).prop_map(|(files, units, user, other, group, kargs, (directories, links, kind))| {
        let present = |list: Vec<Option<Value>>| list.into_iter().flatten().collect::<Vec<_>>();
        let hash = |hash: Option<u8>| hash.map(|hash| format!("$6${hash}"));
        let user = user.map(|(key, password, (shell, groups))| {
            json!({"name": "core", "sshAuthorizedKeys": [format!("key {key}")], "passwordHash": hash(password),
                   "shell": shell, "groups": groups})
        });
        let other = other.map(|(key, password, (shell, groups), exists)| {
            let keys: Vec<String> = key.iter().map(|key| format!("key {key}")).collect();
            json!({"name": "app", "sshAuthorizedKeys": keys, "passwordHash": hash(password), "shell": shell,
                   "groups": groups, "shouldExist": exists})
        });
        let group = group.map(|exists| json!({"name": "staff", "shouldExist": exists}));
        let groups: Vec<Value> = group.into_iter().collect();
        let users: Vec<Value> = user.into_iter().chain(other).collect();
        let mut files = present(files);
        files.extend(kind);
        if links.iter().any(|link| link["hard"] == true) && !files.iter().any(|file| file["path"] == "/var/lib/c") {
            files.push(json!({"path": "/var/lib/c", "contents": {"source": "data:,linked"}}));
        }
        json!({"directories": directories, "links": links, "files": files, "units": present(units), "users": users,
               "groups": groups, "kernelArguments": kargs})
    })
}

/// The image that a node is to have: none, the booted one, or another one, which carries the config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    None,
    Booted,
    Another,
}

fn desired() -> impl Strategy<Value = Expected> {
    prop::sample::select(vec![Expected::None, Expected::Booted, Expected::Another])
}

fn spec(name: &str, sections: &Value, image: Option<ImageRef>, url: Option<ImageRef>) -> HostSpec {
    let mut sections = sections.clone();
    sections["osImageURL"] = json!(url.map(|url| url.to_string()));
    model_host::config(name, sections).spec(image).unwrap()
}

fn host(spec: &HostSpec) -> ModelHost {
    let mut world = ModelHost::holding(spec);
    world.vendor = BTreeSet::from([UnitName::new("os.service").unwrap()]);
    world
}

fn decide(world: &ModelHost, from: &HostSpec, to: &HostSpec, carries: EmbeddedConfig) -> Plan {
    plan(from, to, &world.facts(from, to, carries), &DisruptionPolicy::defaults()).unwrap()
}

/// Carries the plan out, over the reboot it asks for.
fn bring(world: &mut ModelHost, plan: &Plan, from: &HostSpec, to: &HostSpec, next: &Image) {
    world.apply(plan, from, to);
    if matches!(plan.after(), PostActions::Reboot { .. }) {
        world.reboot(next);
    }
}

/// The host is as desired, by every check.
fn arrived(world: &ModelHost, to: &HostSpec) {
    let observed = world.observe(&[to]);
    assert_eq!(differences(to, &observed), vec![], "after the plan");
    let carries = EmbeddedConfig::Config(to.name.clone());
    let again = decide(world, to, to, carries.clone());
    assert!(again.is_empty(), "planned again: {:?}", again.steps());
    let fresh = decide(world, &already_applied(to, &observed), to, carries);
    assert!(fresh.is_empty(), "taken over: {:?}", fresh.steps());
}

/// Two files do not show the host between them; the costliest state is assumed: MCD reboots for any change of a
/// unit, and so may this plan when it is carried out.
#[test]
fn plan_between_files_assumes_costlier_unit_state() {
    let contents = "[Install]\nWantedBy=a.target\n";
    let rows = [
        (json!([]), json!([{"name": "os.service", "enabled": false}]), "disable-unit os.service"),
        (json!([]), json!([{"name": "os.service", "enabled": true}]), "enable-unit os.service"),
        (json!([]), json!([{"name": "os.service", "mask": false}]), "unmask-unit os.service"),
        (
            json!([{"name": "a.service", "contents": contents, "enabled": false}]),
            json!([{"name": "a.service", "contents": contents}]),
            "preset-unit a.service",
        ),
        (
            json!([{"name": "os.service"}]),
            json!([{"name": "os.service", "enabled": false}]),
            "disable-unit os.service",
        ),
        (json!([{"name": "os.service", "enabled": false}]), json!([]), "preset-unit os.service"),
    ];
    for (old, new, expected) in rows {
        let a = Some(model_host::image('a'));
        let (from, to) = (
            spec("old", &json!({"units": old}), None, a.clone()),
            spec("new", &json!({"units": new}), None, a),
        );
        let facts = Facts::assumed(&from, &to).unwrap();
        let plan = plan(&from, &to, &facts, &DisruptionPolicy::defaults()).unwrap();
        let steps: Vec<String> = plan.steps().iter().map(ToString::to_string).collect();
        assert!(steps.iter().any(|step| step == expected), "{expected}: {steps:?}");
        assert_eq!(plan.drain(), Drain::Needed, "{expected}");
        let same = Facts::assumed(&to, &to).unwrap();
        let again = machine_config_core::plan::plan(&to, &to, &same, &DisruptionPolicy::defaults()).unwrap();
        assert!(again.is_empty(), "{expected}: {:?}", again.steps());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn matching_host_needs_no_plan(sections in sections(), in_image in any::<bool>()) {
        let a = Some(model_host::image('a'));
        let spec = if in_image { spec("same", &sections, a, None) } else { spec("same", &sections, None, a) };
        arrived(&host(&spec), &spec);
    }

    #[test]
    fn files_arrive(old in sections(), new in sections(), switches in any::<bool>()) {
        let url = |letter| Some(model_host::image(letter));
        let from = spec("old", &old, None, url('a'));
        let to = spec("new", &new, None, url(if switches { 'b' } else { 'a' }));
        let mut world = host(&from);
        let plan = decide(&world, &from, &to, EmbeddedConfig::Unknown);
        prop_assert!(matches!(plan.mode(), Mode::Files | Mode::Nothing));
        bring(&mut world, &plan, &from, &to, &Image::default());
        arrived(&world, &to);
    }

    /// A host that is forced, or came up wrong, ends where the update ends: nothing of the old config stays.
    #[test]
    fn observed_origin_leads_where_old_config_leads(
        old in sections(), new in sections(), was_in_image in any::<bool>(), desired in desired(),
    ) {
        let [a, b] = ['a', 'b'].map(|letter| Some(model_host::image(letter)));
        let from = if was_in_image { spec("old", &old, a.clone(), None) } else { spec("old", &old, None, a.clone()) };
        let (to, next) = match desired {
            Expected::None => (spec("new", &new, None, if was_in_image { b } else { a }), Image::default()),
            Expected::Booted => (spec("new", &new, a, None), Image::default()),
            Expected::Another => {
                let to = spec("new", &new, b, None);
                let next = Image::new(&to);
                (to, next)
            }
        };
        let carries = if desired == Expected::Another { EmbeddedConfig::Config(to.name.clone()) } else { EmbeddedConfig::Unknown };
        let mut ends = Vec::new();
        for forced in [false, true] {
            let mut world = host(&from);
            let facts = world.facts(&from, &to, carries.clone());
            let origin = if forced { observed_origin(&from, &to, &facts.observed) } else { from.clone() };
            let plan = plan(&origin, &to, &facts, &DisruptionPolicy::defaults());
            // A unit that can't be enabled is refused either way.
            let Ok(plan) = plan else { continue };
            bring(&mut world, &plan, &origin, &to, &next);
            let held = already_applied(&to, &world.observe(&[&to]));
            let second = decide(&world, &held, &to, EmbeddedConfig::Unknown);
            bring(&mut world, &second, &held, &to, &next);
            arrived(&world, &to);
            let mut kargs = world.kargs.clone();
            kargs.sort();
            let mode = if plan.mode() == Mode::Nothing { Mode::Files } else { plan.mode() };
            ends.push((mode, world.made(), world.files, world.enabled, world.masked, kargs, world.accounts, world.groups));
        }
        prop_assert_eq!(ends.len(), 2);
        prop_assert_eq!(&ends[0], &ends[1]);
    }

    #[test]
    fn unmanaged_host_reaches_target(there in sections(), new in sections()) {
        let mut world = host(&spec("there", &there, None, Some(model_host::image('a'))));
        // A mask that no config made stays: a config can't enable such a unit.
        world.masked.clear();
        let to = spec("new", &new, None, Some(model_host::image('a')));
        let from = already_applied(&to, &world.observe(&[&to]));
        let facts = world.facts(&from, &to, EmbeddedConfig::Unknown);
        let plan = match plan(&from, &to, &facts, &DisruptionPolicy::defaults()) {
            Ok(plan) => plan,
            // A directory that no config made gives way to nothing.
            Err(refused) => {
                prop_assert!(refused.reasons.iter().all(|reason| reason.message.starts_with("a directory is there")));
                return Ok(());
            }
        };
        prop_assert!(plan.from().is_none());
        bring(&mut world, &plan, &from, &to, &Image::default());
        arrived(&world, &to);
    }

    #[test]
    fn image_with_config_reaches_target(old in sections(), new in sections(), was_in_image in any::<bool>()) {
        let a = Some(model_host::image('a'));
        let from = if was_in_image { spec("old", &old, a, None) } else { spec("old", &old, None, a) };
        let to = spec("new", &new, Some(model_host::image('b')), None);
        let mut world = host(&from);
        let plan = decide(&world, &from, &to, EmbeddedConfig::Config(to.name.clone()));
        prop_assert_eq!(plan.mode(), Mode::Image);
        bring(&mut world, &plan, &from, &to, &Image::new(&to));
        arrived(&world, &to);
    }

    /// A config that the old image carried and the new one does not is dropped by the merge of `/etc`, which knows
    /// only changes: what is the same before and after the plan can't be kept by writing it. What is missing after
    /// the boot is planned from what is seen.
    #[test]
    fn image_without_config_arrives_in_two_rounds(old in sections(), new in sections(), leaves in any::<bool>()) {
        let from = spec("old", &old, Some(model_host::image('a')), None);
        let b = Some(model_host::image('b'));
        let to = if leaves { spec("new", &new, None, b) } else { spec("new", &new, b, None) };
        let mut world = host(&from);
        let plan = decide(&world, &from, &to, EmbeddedConfig::Unknown);
        prop_assert_eq!(plan.mode(), if leaves { Mode::LeaveImage } else { Mode::ImageAndFiles });
        bring(&mut world, &plan, &from, &to, &Image::default());
        let held = already_applied(&to, &world.observe(&[&to]));
        let second = decide(&world, &held, &to, EmbeddedConfig::Unknown);
        bring(&mut world, &second, &held, &to, &Image::default());
        arrived(&world, &to);
    }
}
