//! Kernel arguments on a host that boots deployments: what earlier configs set does not stay behind.

use crate::sandbox_node::{Played, VerbResult, config};
use serde_json::{Value, json};

fn ends(ended: &VerbResult, code: i32) {
    assert_eq!(ended.code, code, "{}", ended.text);
}

fn with_arguments(name: &str, kargs: &[&str]) -> String {
    let mut document: Value = serde_json::from_str(&config(name, &[], None)).unwrap();
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
