//! Kernel, extensions and arguments in a plan: their steps, and their verification.

use crate::model_host::{ModelHost, config, image};
use machine_config_core::model::observation::{EmbeddedConfig, ObservedOs};
use machine_config_core::model::os::{KernelType, LeftOs};
use machine_config_core::model::{DisruptionPolicy, HostSpec};
use machine_config_core::plan::differences::{DifferenceKind, Kind, differences};
use machine_config_core::plan::{Op, PostActions, already_applied, observed_origin, plan};
use serde_json::{Value, json};

pub(crate) fn spec(name: &str, sections: Value) -> HostSpec {
    config(name, sections).spec(None).unwrap()
}

fn layered(name: &str) -> HostSpec {
    spec(
        name,
        json!({"kernelType": "realtime", "extensions": ["usbguard"], "osImageURL": image('a').to_string()}),
    )
}

/// MCD-202: a package that the booted deployment does not request is a difference: the config is not held.
/// MCD-204: in image mode packages are the image's business.
#[test]
fn packages_are_verified() {
    let desired = layered("rendered-a");
    let mut host = ModelHost::holding(&desired);
    assert_eq!(differences(&desired, &host.observe(&[&desired])), []);
    host.packages.remove("usbguard");
    host.packages.remove("kernel-rt-modules");
    let found = differences(&desired, &host.observe(&[&desired]));
    let found: Vec<_> = found.iter().map(|one| (one.kind, one.what, one.target.as_str())).collect();
    let missing = |name| (Kind::Package, DifferenceKind::Missing, name);
    assert_eq!(found, [missing("kernel-rt-modules"), missing("usbguard")]);

    let mut in_image = desired.clone();
    in_image.image = Some(image('a'));
    assert_eq!(differences(&in_image, &host.observe(&[&in_image])), []);
}

/// Somebody has booted the deployment of an earlier config (`rpm-ostree rollback`): what only that one had is named, and goes with the
/// next update; what an administrator layered, before or since, stays.
#[test]
fn layers_of_earlier_config_are_left_over() {
    let old = layered("rendered-a");
    let plain = |name: &str| spec(name, json!({"osImageURL": image('a').to_string()}));
    let (current, next) = (plain("rendered-b"), plain("rendered-c"));
    let mut host = ModelHost::holding(&old);
    host.packages.extend(["vim", "sysstat"].map(str::to_owned));
    let mut facts = host.facts(&current, &next, EmbeddedConfig::Unknown);
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    facts.observed.former_kargs.learn_packages(&old.host_layers().packages().unwrap(), &set(&["vim"]));
    facts.observed.former_kargs.learn_packages(&set(&["sysstat"]), &set(&["sysstat"]));
    let found = differences(&current, &facts.observed);
    let left: Vec<_> = found.iter().filter(|one| one.kind == Kind::Package).collect();
    assert!(left.iter().all(|one| one.what == DifferenceKind::Unexpected), "{left:?}");
    let names: Vec<_> = left.iter().map(|one| one.target.as_str()).collect();
    assert!(names.contains(&"usbguard") && names.contains(&"kernel-rt-core"), "{names:?}");
    assert!(!names.contains(&"vim") && !names.contains(&"sysstat"), "{names:?}");
    let planned = plan(&current, &next, &facts, &DisruptionPolicy::defaults()).unwrap();
    let steps: Vec<String> = planned.steps().iter().map(ToString::to_string).collect();
    assert_eq!(steps, ["switch-kernel default", "install-extensions none"]);
    // In image mode they go with the next deployment.
    let mut in_image = current.clone();
    in_image.image = Some(image('a'));
    assert_eq!(differences(&in_image, &facts.observed), []);
}

/// MCD-194: other arguments are a reboot, also with a policy for everything else.
#[test]
fn arguments_reboot() {
    let (from, to) =
        (spec("rendered-a", json!({})), spec("rendered-b", json!({"kernelArguments": ["nosmt"]})));
    let facts = ModelHost::holding(&from).facts(&from, &to, EmbeddedConfig::Unknown);
    let plan = plan(&from, &to, &facts, &DisruptionPolicy::defaults()).unwrap();
    let PostActions::Reboot { because, .. } = plan.after() else { panic!("{plan:?}") };
    assert_eq!(because, &["kernelArguments"]);
}

/// MCD-207, otherwise: a host that boots no images gets no changes of the OS, so a config with some is refused, by field.
#[test]
fn os_fields_are_refused_on_hosts_without_images() {
    let (from, mut to) = (spec("rendered-a", json!({})), layered("rendered-b"));
    to.kargs = machine_config_core::model::Karg::split("nosmt");
    let mut facts = ModelHost::holding(&from).facts(&from, &to, EmbeddedConfig::Unknown);
    facts.observed.os = ObservedOs::NotImageBased;
    let refused = plan(&from, &to, &facts, &DisruptionPolicy::defaults()).unwrap_err();
    let fields: Vec<_> = refused.reasons.iter().map(|reason| reason.field.as_str()).collect();
    assert_eq!(fields, ["spec.osImageURL", "spec.kernelArguments", "spec.kernelType", "spec.extensions"]);
    let without = spec("rendered-b", json!({}));
    assert!(plan(&from, &without, &facts, &DisruptionPolicy::defaults()).unwrap().is_empty());
}

/// MCD-203: packages that are pulled without another image need the credentials, too.
#[test]
fn packages_are_pulled_with_credentials() {
    let from = spec("rendered-a", json!({"osImageURL": image('a').to_string()}));
    let mut to = layered("rendered-b");
    let mut facts = ModelHost::holding(&from).facts(&from, &to, EmbeddedConfig::Unknown);
    let secret = machine_config_core::model::ManagedPath::new("/var/lib/kubelet/config.json").unwrap();
    facts.pull_secret = Some(secret.clone());
    let words = |to: &HostSpec| {
        let plan = plan(&from, to, &facts, &DisruptionPolicy::defaults()).unwrap();
        plan.steps().iter().map(|step| step.op.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(words(&to), ["switch-kernel", "install-extensions"]);
    to.extensions_image = Some(image('e'));
    let link = Op::LinkPullSecret { path: secret }.as_str();
    assert_eq!(words(&to), [link, "switch-kernel", "install-extensions"]);
}

/// After an update that was given up while its deployment runs, its layers go, those of the target come, and what is there already
/// makes no deployment. Packages that an administrator layered stay.
#[test]
fn layers_are_planned_from_deployment_of_update_that_was_given_up() {
    let url = || image('a').to_string();
    let plain = |name: &str| spec(name, json!({"osImageURL": url()}));
    let usbguard = |name: &str| spec(name, json!({"osImageURL": url(), "extensions": ["usbguard"]}));
    let realtime = |name: &str| spec(name, json!({"osImageURL": url(), "kernelType": "realtime"}));
    let steps = |old: &HostSpec, given_up: &HostSpec, to: &HostSpec| {
        let host = ModelHost::holding(given_up);
        let mut facts = host.facts(old, to, EmbeddedConfig::Unknown);
        if let ObservedOs::Deployments { booted, .. } = &mut facts.observed.os {
            booted.local.requested.extend(["vim", "sysstat"].map(str::to_owned));
            let removed: &[&str] = match given_up.kernel_type {
                KernelType::Default => &[],
                KernelType::Realtime | KernelType::Pages64k => &[
                    "kernel",
                    "kernel-core",
                    "kernel-modules",
                    "kernel-modules-core",
                    "kernel-modules-extra",
                ],
            };
            booted.local.removed = removed.iter().map(|name| (*name).to_owned()).collect();
        }
        let mut old = old.clone();
        old.left = Some(LeftOs { layers: given_up.host_layers(), before: None });
        let origin = observed_origin(&old, to, &facts.observed);
        let plan = plan(&origin, to, &facts, &DisruptionPolicy::defaults()).unwrap();
        plan.steps().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let none: [&str; 0] = [];
    let (a, b, c) = ("rendered-a", "rendered-b", "rendered-c");
    for to in [plain(a), plain(c)] {
        assert_eq!(steps(&plain(a), &usbguard(b), &to), ["install-extensions none"]);
        assert_eq!(steps(&plain(a), &realtime(b), &to), ["switch-kernel default"]);
        assert_eq!(steps(&usbguard(a), &plain(b), &to), none, "sysstat is not of the update");
    }
    assert_eq!(steps(&usbguard(a), &plain(b), &usbguard(a)), ["install-extensions usbguard"]);
    assert_eq!(steps(&realtime(a), &plain(b), &realtime(c)), ["switch-kernel realtime"]);
    assert_eq!(steps(&realtime(a), &usbguard(b), &plain(c)), ["install-extensions none"]);
}

/// What is there already makes no deployment: a reboot would end in the one that runs.
#[test]
fn layers_that_are_there_need_no_step() {
    let to = spec("rendered-b", json!({"osImageURL": image('a').to_string(), "extensions": ["usbguard"]}));
    let facts = ModelHost::holding(&to).facts(&to, &to, EmbeddedConfig::Unknown);
    let unmanaged = already_applied(&to, &facts.observed);
    for old in [unmanaged, spec("rendered-a", json!({})), to.clone()] {
        let origin = observed_origin(&old, &to, &facts.observed);
        let plan = plan(&origin, &to, &facts, &DisruptionPolicy::defaults()).unwrap();
        assert!(plan.is_empty(), "{:?}", plan.steps());
    }
}

/// The image that ran before an update that was given up comes back where the target names none.
#[test]
fn image_before_update_that_was_given_up_comes_back() {
    let (mut old, to) = (spec("rendered-a", json!({})), spec("rendered-c", json!({})));
    let mut host = ModelHost::holding(&old);
    host.booted = Some(image('b'));
    let facts = host.facts(&old, &to, EmbeddedConfig::Unknown);
    let staged = |old: &HostSpec, to: &HostSpec| {
        let origin = observed_origin(old, to, &facts.observed);
        let plan = plan(&origin, to, &facts, &DisruptionPolicy::defaults()).unwrap();
        plan.steps().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(staged(&old, &to), [""; 0]);
    old.left = Some(LeftOs { layers: to.layers(), before: Some(image('a')) });
    assert_eq!(staged(&old, &to), [format!("stage-os {}", image('a'))]);
    let named = spec("rendered-c", json!({"osImageURL": image('b').to_string()}));
    assert_eq!(staged(&old, &named), [""; 0]);
}

/// The kernel's command line ends as if the update that was given up had not been, in its order, with the host's own arguments.
#[test]
fn arguments_are_planned_from_deployment_of_update_that_was_given_up() {
    for (old, to, line, expected) in [
        ("a", "c", "rw b=1 b=2", "rw c"),
        ("a", "a", "rw b=1 b=2", "rw a"),
        ("a x", "a x", "rw x a", "rw a x"),
        ("a", "a", "rw own b=1", "rw own a"),
        ("own", "c", "rw own b=1", "rw own c"),
        ("own", "own", "rw own b=1", "rw own"),
    ] {
        let with = |name: &str, kargs: &str| {
            spec(name, json!({"kernelArguments": kargs.split(' ').collect::<Vec<_>>()}))
        };
        let (old, to) = (with("rendered-a", old), with("rendered-c", to));
        let mut facts = ModelHost::holding(&old).facts(&old, &to, EmbeddedConfig::Unknown);
        let split = machine_config_core::model::Karg::split;
        facts.observed.kargs = split(line);
        facts.observed.former_kargs.learn_applied(&split("a x b=1 b=2 own"), &split("rw own own"));
        let origin = observed_origin(&old, &to, &facts.observed);
        let plan = plan(&origin, &to, &facts, &DisruptionPolicy::defaults()).unwrap();
        let Some(Op::SetKargs { delete, append }) = plan.steps().first().map(|step| step.op.clone()) else {
            panic!("{line}: {:?}", plan.steps())
        };
        let after = machine_config_core::model::Karg::changed(split(line), &delete, &append);
        assert_eq!(after, split(expected), "{line}");
    }
}

/// MCD-204, OCL-016: into image mode the requests go with the switch, in one plan that names it. Layers of an administrator stay,
/// and leaving restores the requests of the config.
#[test]
fn image_mode_takes_kernel_and_extensions_from_image() {
    let from = layered("rendered-a");
    let mut to = from.clone();
    to.image = Some(image('b'));
    let mut host = ModelHost::holding(&from);
    let words = |host: &ModelHost, from: &HostSpec, to: &HostSpec, removed: &[&str]| {
        let mut facts = host.facts(from, to, EmbeddedConfig::Unknown);
        if let ObservedOs::Deployments { booted, .. } = &mut facts.observed.os {
            booted.local.requested.insert("vim".to_owned());
            booted.local.removed = removed.iter().map(|name| (*name).to_owned()).collect();
        }
        let plan = plan(from, to, &facts, &DisruptionPolicy::defaults()).unwrap();
        let lines = plan.steps().iter().map(|step| format!("{step}: {}", step.because.as_str()));
        (lines.collect::<Vec<_>>(), plan)
    };
    let (lines, entered) = words(&host, &from, &to, &["kernel", "kernel-core"]);
    let staged = format!("stage-os {}: changed", image('b'));
    assert_eq!(lines, [&staged, "switch-kernel default: in-image", "install-extensions none: in-image"]);
    let PostActions::Reboot { because, .. } = entered.after() else { panic!("{entered:?}") };
    assert_eq!(because, &["osImageURL"], "what rides along needs no reboot of its own");

    // Without an OS step nothing is made for it; a change of arguments takes it along.
    host.booted = Some(image('b'));
    assert_eq!(words(&host, &to, &to, &[]).0, [""; 0]);
    let mut more = to.clone();
    more.kargs = machine_config_core::model::Karg::split("nosmt");
    let lines = words(&host, &to, &more, &[]).0;
    assert_eq!(lines, ["install-extensions none: in-image", "set-kargs +nosmt: added"]);

    // The way out: requests of an older agent are dropped, those of the config return.
    let mut plain = spec("rendered-c", json!({"osImageURL": image('a').to_string()}));
    let back = format!("stage-os {}: changed", image('a'));
    let mut bare = to.clone();
    (bare.extensions, bare.kernel_type) = (plain.extensions.clone(), plain.kernel_type);
    assert_eq!(words(&host, &bare, &plain, &[]).0, [&back, "install-extensions none: removed"]);
    plain.extensions = from.extensions.clone();
    assert_eq!(words(&host, &bare, &plain, &[]).0, [&back, "install-extensions usbguard: added"]);
}
