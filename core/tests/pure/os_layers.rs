//! Kernel, extensions and arguments in a plan: their steps, and their verification.

use crate::model_host::{ModelHost, config, image};
use machine_config_core::model::observation::{EmbeddedConfig, ObservedOs};
use machine_config_core::model::{DisruptionPolicy, HostSpec};
use machine_config_core::plan::differences::{DifferenceKind, Kind, differences};
use machine_config_core::plan::{Op, PostActions, plan};
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
