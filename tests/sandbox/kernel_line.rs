//! Kernel arguments on a host that boots deployments: what earlier configs set does not stay behind.

use crate::sandbox_node::{Played, VerbResult, config, layer};
use machine_config_agent::model::ImageRef;
use serde_json::{Value, json};

fn ends(ended: &VerbResult, code: i32) {
    assert_eq!(ended.code, code, "{}", ended.text);
}

fn with_arguments(name: &str, kargs: &[&str]) -> String {
    with_image(name, kargs, None)
}

fn with_image(name: &str, kargs: &[&str], image: Option<&ImageRef>) -> String {
    let mut document: Value = serde_json::from_str(&config(name, &[], image)).unwrap();
    document["spec"]["kernelArguments"] = json!(kargs);
    document.to_string()
}

fn count(node: &Played, karg: &str) -> usize {
    node.booted.as_ref().unwrap().kargs().split(' ').filter(|word| *word == karg).count()
}

/// Boots the deployment before, as an administrator who makes it the default.
fn boot_previous(node: &mut Played) {
    let entries = node.world.dir().join("sysroot/boot/loader/entries");
    let paths: Vec<_> = std::fs::read_dir(entries).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(paths.len(), 2, "{paths:?}");
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let other = if text.contains("version 2\n") { "version 1\n" } else { "version 2\n" };
        let own = if other == "version 1\n" { "version 2\n" } else { "version 1\n" };
        std::fs::write(&path, text.replace(own, other)).unwrap();
    }
    node.reboot();
}

/// Somebody boots the deployment of an earlier config: its argument is drift, and the next update removes it.
#[test]
fn argument_of_earlier_config_is_reported_and_removed_by_next_update() {
    let mut node = Played::new();
    ends(&node.apply(&with_arguments("rendered-a", &["mca.old=1", "mca.both=1"]), None, |_| {}), 0);
    ends(&node.apply(&with_arguments("rendered-b", &["mca.both=1"]), None, |_| {}), 0);
    assert_eq!((count(&node, "mca.old=1"), count(&node, "mca.both=1")), (0, 1));

    boot_previous(&mut node);
    assert_eq!((count(&node, "mca.old=1"), count(&node, "mca.both=1")), (1, 1));
    let verify = node.verb(&["verify", "--os-backend", "ostree"]);
    ends(&verify, 1);
    let line = "kernel argument mca.old=1 is something else (expected not on the kernel's command line, found a left-over";
    assert!(verify.text.contains(line), "{}", verify.text);

    ends(&node.apply(&with_arguments("rendered-c", &["mca.both=1"]), None, |_| {}), 0);
    assert_eq!((count(&node, "mca.old=1"), count(&node, "mca.both=1")), (0, 1));
    ends(&node.verb(&["verify", "--os-backend", "ostree"]), 0);
}

/// A config that wants what an earlier one left on the line has it once.
#[test]
fn argument_that_is_there_is_not_there_twice() {
    let mut node = Played::new();
    ends(&node.apply(&with_arguments("rendered-a", &["mca.old=1"]), None, |_| {}), 0);
    ends(&node.apply(&with_arguments("rendered-b", &[]), None, |_| {}), 0);
    boot_previous(&mut node);
    ends(&node.apply(&with_arguments("rendered-c", &["mca.old=1"]), None, |_| {}), 0);
    assert_eq!(count(&node, "mca.old=1"), 1);
    ends(&node.verb(&["verify", "--os-backend", "ostree"]), 0);
}

/// An argument that the host had before any config, and that a config lists as well, is not set twice and stays without it.
#[test]
fn own_argument_stays_when_config_that_lists_it_leaves() {
    let mut node = Played::new();
    let line = node.booted.as_ref().unwrap().kargs().to_owned();
    let own = line.split(' ').find(|word| !word.starts_with("ostree=")).unwrap();
    ends(&node.apply(&with_arguments("rendered-a", &[own, "mca.a=1"]), None, |_| {}), 0);
    assert_eq!((count(&node, own), count(&node, "mca.a=1")), (1, 1));
    ends(&node.apply(&with_arguments("rendered-b", &[]), None, |_| {}), 0);
    assert_eq!((count(&node, own), count(&node, "mca.a=1")), (1, 0));
    ends(&node.verb(&["verify", "--os-backend", "ostree"]), 0);
}

/// An argument that the image brings is named while the line lacks it; a config may set it, and it stays without the config.
#[test]
fn argument_of_image_is_named_and_stays() {
    let mut node = Played::new();
    let image = node.derive(
        "v2",
        &[layer("usr/lib/bootc/kargs.d/10-test.toml", "kargs = [\"mca.image=1\"]\n")],
        None,
    );
    let apply = |node: &mut Played, name: &str, kargs: &[&str]| {
        ends(&node.apply(&with_image(name, kargs, Some(&image)), None, |_| {}), 0);
        let verify = node.verb(&["verify", "--os-backend", "ostree"]);
        ends(&verify, 0);
        (count(node, "mca.image=1"), verify.text.contains("lacks mca.image=1, which the image brings"))
    };
    assert_eq!(apply(&mut node, "rendered-a", &[]), (0, true));
    assert_eq!(apply(&mut node, "rendered-b", &["mca.image=1"]), (1, false));
    assert_eq!(apply(&mut node, "rendered-c", &["mca.c=1"]), (1, false));
}
