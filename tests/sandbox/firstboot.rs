//! A first boot on a real libostree host: one deployment and one reboot for all that Ignition can't apply, or none.

use std::collections::BTreeSet;

use crate::carried_random::{build, install};
use crate::sandbox_node::{Played, VerbResult, config, layer};
use machine_config_agent::model::ImageRef;
use machine_config_agent::sandbox::LayerFile;
use serde_json::{Value, json};

const FILE: &str = "/etc/ignition-machine-config-encapsulated.json";
const REBOOT_REQUIRED: i32 = 133;
/// The agent is killed with this signal at a fail point.
const KILLED: [i32; 2] = [-1, 137];
const WORDS: [&str; 5] = ["firstboot", "--os-backend", "ostree", "--reboot-by", "supervisor"];

/// The encapsulated config that Ignition leaves: its own part is empty.
fn encapsulated(image: &ImageRef, kargs: &[&str]) -> String {
    let mut config: Value = serde_json::from_str(&config("rendered-a", &[], Some(image))).unwrap();
    config["spec"]["kernelArguments"] = json!(kargs);
    config.to_string()
}

/// The same config as its cluster has it.
fn whole(image: &ImageRef, kargs: &[&str]) -> String {
    let mut config: Value =
        serde_json::from_str(&config("rendered-a", &[("/etc/app.conf", "a")], Some(image))).unwrap();
    config["spec"]["kernelArguments"] = json!(kargs);
    config.to_string()
}

/// Plays first boots until one ends otherwise than for a reboot.
pub fn complete(node: &mut Played) -> VerbResult {
    let mut text = String::new();
    for _ in 0..8 {
        let ended = node.verb(&WORDS);
        text += &ended.text;
        if ended.code != REBOOT_REQUIRED {
            return VerbResult { text, ..ended };
        }
        node.reboot();
    }
    VerbResult { code: -2, text }
}

fn cmdline(node: &Played) -> Vec<String> {
    node.booted.as_ref().unwrap().kargs().split_whitespace().map(str::to_owned).collect()
}

/// The daemon's part, for which `apply` of the whole config stands: nothing is written or rebooted, and it is committed.
fn taken_over(node: &mut Played, whole: &str) {
    let boots = node.boots;
    let ended = node.apply(whole, None, |_| {});
    assert_eq!((ended.code, node.boots), (0, boots), "{}", ended.text);
    assert!(!ended.text.contains("is planned"), "{}", ended.text);
    let current: Value =
        serde_json::from_str(&node.read("/etc/machine-config-daemon/currentconfig").unwrap()).unwrap();
    assert_eq!(current["spec"]["config"]["storage"]["files"][0]["path"], "/etc/app.conf");
}

/// BOOT-003, BOOT-009, OCL-015, SEED-014, MCD-223, MCD-228, MCD-229: image and kernel arguments come in one deployment with one reboot, an argument of
/// the boot line is there once, and the daemon takes the node over as it is.
#[test]
fn image_and_arguments_take_one_reboot() {
    let mut node = Played::new();
    let image = node.derive("v2", &[layer("usr/share/v2", "2")], None);
    let present = cmdline(&node).into_iter().find(|karg| !karg.starts_with("ostree=")).unwrap();
    let kargs = ["nosmt", &present];
    node.write(FILE, &encapsulated(&image, &kargs));
    node.write("/etc/app.conf", "a");
    let ended = complete(&mut node);
    assert_eq!((ended.code, node.boots), (0, 2), "{}", ended.text);
    assert!(node.path("/usr/share/v2").exists());
    assert!(node.read(FILE).is_none() && node.read(&format!("{FILE}.bak")).is_some());
    for karg in kargs {
        assert_eq!(cmdline(&node).iter().filter(|one| *one == karg).count(), 1, "{karg}");
    }
    assert!(node.read("/etc/machine-config-daemon/currentconfig").is_none());
    let again = node.verb(&WORDS);
    assert!(again.code == 0 && again.text.contains("nothing to do"), "{}", again.text);
    taken_over(&mut node, &whole(&image, &kargs));
}

/// A node of an image that a build made, with a config that a build has something to do for, and one whose kernel arguments are all.
/// Also of one that left MCD's files of a commit in it. Nothing was committed on this host: its kernel arguments come with one reboot.
#[test]
fn image_of_own_builder_is_no_commit_of_the_host() {
    let left = layer("etc/machine-config-daemon/currentimage", "");
    for (files, is_left) in [(&[("/etc/app.conf", "a")][..], true), (&[], true), (&[], false)] {
        let mut node = Played::new();
        let carried: Value = serde_json::from_str(&config("rendered-a", files, None)).unwrap();
        let mut layers = build(&node, &[], &carried);
        assert!(!layers.iter().any(|file| file.path == left.path), "a build leaves it");
        if is_left {
            layers.push(LayerFile { path: left.path.clone(), mode: left.mode, contents: Vec::new() });
        }
        let image = node.derive("a", &layers, Some("rendered-a"));
        install(&mut node, &carried, &image);
        assert_eq!(node.read("/etc/machine-config-daemon/currentimage").is_some(), is_left);
        node.write(FILE, &encapsulated(&image, &["nosmt"]));
        let before = node.boots;
        let ended = complete(&mut node);
        assert_eq!((ended.code, node.boots - before), (0, 1), "{}", ended.text);
        assert!(ended.text.contains("the first boot is complete"), "{}", ended.text);
        assert!(cmdline(&node).contains(&"nosmt".to_owned()), "{}", ended.text);
        let mut whole: Value = serde_json::from_str(&config("rendered-a", files, Some(&image))).unwrap();
        whole["spec"]["kernelArguments"] = json!(["nosmt"]);
        let (boots, ended) = (node.boots, node.apply(&whole.to_string(), None, |_| {}));
        assert_eq!((ended.code, node.boots), (0, boots), "{}", ended.text);
    }
}

/// BOOT-002, SEED-012: the image is the booted one.
#[test]
fn right_image_takes_no_reboot() {
    let mut node = Played::new();
    let v1 = node.v1();
    node.write(FILE, &encapsulated(&v1, &[]));
    node.write("/etc/app.conf", "a");
    let ended = complete(&mut node);
    assert_eq!((ended.code, node.boots), (0, 1), "{}", ended.text);
    assert!(node.read(FILE).is_none());
    taken_over(&mut node, &whole(&v1, &[]));
}

/// BOOT-017: no OS can be staged on live media.
#[test]
fn live_media_is_refused() {
    let mut node = Played::new();
    let image = node.derive("v2", &[layer("usr/share/v2", "2")], None);
    let run = node.booted.as_ref().unwrap().run_dir();
    std::fs::write(run.join("ostree-live"), "").unwrap();
    let ended = node.apply(&config("rendered-a", &[], Some(&image)), None, |_| {});
    assert_eq!(ended.code, 3, "{}", ended.text);
    assert!(ended.text.contains("osImageURL: this host runs from live media"), "{}", ended.text);
    assert_eq!(node.boots, 1);
}

/// BOOT-005, BOOT-006: killed at every fail point by name, in each boot, it goes on, and takes one reboot all the same.
#[test]
fn killed_first_boot_continues() {
    let mut node = Played::new();
    let points =
        ["target-saved", "recorded", "ran", "originals-kept", "from-saved", "archived", "record-removed"];
    let mut killed = BTreeSet::new();
    for (number, point) in points.iter().enumerate() {
        let image = node.derive(&format!("v{}", number + 2), &[layer("usr/share/version", point)], None);
        node.write(FILE, &encapsulated(&image, &[]));
        let before = node.boots;
        loop {
            let mut ended = node.verb_at(&WORDS, &format!("kill:{point}"));
            if KILLED.contains(&ended.code) {
                killed.insert(*point);
                ended = node.verb(&WORDS);
            }
            if ended.code != REBOOT_REQUIRED {
                assert_eq!(ended.code, 0, "{point}: {}", ended.text);
                break;
            }
            node.reboot();
        }
        assert_eq!(node.boots - before, 1, "{point}");
        assert_eq!(node.read("/usr/share/version").unwrap(), *point);
        assert!(node.read(FILE).is_none(), "{point}");
    }
    assert_eq!(killed.len(), points.len(), "{killed:?}");
}
