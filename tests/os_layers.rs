//! What the planner makes of kernel, extensions and arguments: their steps, and how they are verified.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test: it fails by panicking"
)]

mod world;

use machine_config_agent::model::observation::{Carries, OsSeen};
use machine_config_agent::model::{DisruptionPolicy, HostSpec};
use machine_config_agent::plan::differences::{Kind, What, differences};
use machine_config_agent::plan::{After, Op, plan};
use serde_json::{Value, json};
use world::{World, config, image};

fn spec(name: &str, sections: Value) -> HostSpec {
    config(name, sections).spec(None).unwrap()
}

fn layered(name: &str) -> HostSpec {
    spec(
        name,
        json!({"kernelType": "realtime", "extensions": ["usbguard"], "osImageURL": image('a').to_string()}),
    )
}

/// MCD-202: a package that the booted deployment was not asked for is a difference: the config is not held.
/// MCD-204: in image mode packages are the image's business.
#[test]
fn packages_are_verified() {
    let wanted = layered("rendered-a");
    let mut host = World::holding(&wanted);
    assert_eq!(differences(&wanted, &host.seen(&[&wanted])), []);
    host.packages.remove("usbguard");
    host.packages.remove("kernel-rt-modules");
    let found = differences(&wanted, &host.seen(&[&wanted]));
    let found: Vec<_> = found.iter().map(|one| (one.kind, one.what, one.target.as_str())).collect();
    let missing = |name| (Kind::Package, What::Missing, name);
    assert_eq!(found, [missing("kernel-rt-modules"), missing("usbguard")]);

    let mut in_image = wanted.clone();
    in_image.image = Some(image('a'));
    assert_eq!(differences(&in_image, &host.seen(&[&in_image])), []);
}

/// MCD-194: other arguments are a reboot, also with a policy for everything else.
#[test]
fn arguments_reboot() {
    let (from, to) =
        (spec("rendered-a", json!({})), spec("rendered-b", json!({"kernelArguments": ["nosmt"]})));
    let facts = World::holding(&from).facts(&from, &to, Carries::Unknown);
    let plan = plan(&from, &to, &facts, &DisruptionPolicy::defaults()).unwrap();
    let After::Reboot { because } = plan.after() else { panic!("{plan:?}") };
    assert_eq!(because, &["kernelArguments"]);
}

/// MCD-207: a host that boots no images has nothing of the OS done to it, whatever the config says.
#[test]
fn hosts_without_images_are_left_alone() {
    let (from, mut to) = (spec("rendered-a", json!({})), layered("rendered-b"));
    to.kargs = machine_config_agent::model::Karg::split("nosmt");
    let mut facts = World::holding(&from).facts(&from, &to, Carries::Unknown);
    facts.seen.os = OsSeen::NotImageBased;
    let plan = plan(&from, &to, &facts, &DisruptionPolicy::defaults()).unwrap();
    assert!(plan.is_empty(), "{plan:?}");
}

/// MCD-203: packages that are pulled without another image need the credentials, too.
#[test]
fn packages_are_pulled_with_credentials() {
    let from = spec("rendered-a", json!({"osImageURL": image('a').to_string()}));
    let mut to = layered("rendered-b");
    let mut facts = World::holding(&from).facts(&from, &to, Carries::Unknown);
    let secret = machine_config_agent::model::ManagedPath::new("/var/lib/kubelet/config.json").unwrap();
    facts.pull_secret = Some(secret.clone());
    let words = |to: &HostSpec| {
        let plan = plan(&from, to, &facts, &DisruptionPolicy::defaults()).unwrap();
        plan.steps().iter().map(|step| step.op.word()).collect::<Vec<_>>()
    };
    assert_eq!(words(&to), ["switch-kernel", "install-extensions"]);
    to.extensions_image = Some(image('e'));
    let link = Op::LinkPullSecret { path: secret }.word();
    assert_eq!(words(&to), [link, "switch-kernel", "install-extensions"]);
}
