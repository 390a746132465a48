//! The image-mode table on a real libostree host: one test per row, from the target to the verified boot.

use crate::sandbox_node::{Played, VerbResult, config, layer};
use serde_json::{Value, json};

fn ends(ended: &VerbResult, code: i32) {
    assert_eq!(ended.code, code, "{}", ended.text);
}

fn verified(node: &Played) {
    let verify = node.verb(&["verify", "--os-backend", "ostree"]);
    assert_eq!(verify.code, 0, "{}", verify.text);
}

#[test]
fn image_with_config_needs_nothing_else() {
    let mut node = Played::new();
    let files = [("/etc/app.conf", "b"), ("/etc/other.conf", "b")];
    let image =
        node.derive("v2", &[layer("etc/app.conf", "b"), layer("etc/other.conf", "b")], Some("rendered-b"));
    let ended = node.apply(&config("rendered-b", &files, None), Some(&image), |_| {});
    ends(&ended, 0);
    assert!(!ended.text.contains("write-file"), "{}", ended.text);
    assert_eq!((node.boots, node.read("/etc/app.conf").unwrap().as_str()), (2, "b"));
    verified(&node);
}

#[test]
fn image_without_config_is_switched_to_and_files_are_written() {
    let mut node = Played::new();
    let image = node.derive("v2", &[layer("usr/share/v2", "2")], None);
    let ended = node.apply(&config("rendered-b", &[("/etc/app.conf", "b")], None), Some(&image), |_| {});
    ends(&ended, 0);
    assert!(ended.text.contains("write-file /etc/app.conf"), "{}", ended.text);
    assert_eq!((node.boots, node.read("/etc/app.conf").unwrap().as_str()), (2, "b"));
    assert!(node.path("/usr/share/v2").exists());
    verified(&node);
}

#[test]
fn image_with_wrong_label_is_corrected_after_boot() {
    let mut node = Played::new();
    let image = node.derive("v2", &[layer("usr/share/v2", "2")], Some("rendered-b"));
    let ended = node.apply(&config("rendered-b", &[("/etc/app.conf", "b")], None), Some(&image), |_| {});
    ends(&ended, 0);
    assert_eq!(node.read("/etc/app.conf").unwrap(), "b");
    verified(&node);
    let history = node.verb(&["history"]).text;
    assert!(history.contains("faulted") && history.contains("committed"), "{history}");
}

#[test]
fn differences_after_two_boots_hold_node_until_target_changes() {
    let mut node = Played::new();
    let image = node.derive("v2", &[layer("etc/app.conf", "b")], Some("rendered-b"));
    // A local boot script removes the file, at each boot.
    let spoil = |node: &Played| std::fs::remove_file(node.path("/etc/app.conf")).unwrap();
    let ended = node.apply(&config("rendered-b", &[("/etc/app.conf", "b")], None), Some(&image), spoil);
    ends(&ended, 4);
    assert!(
        ended.text.contains("VerificationFailed") && ended.text.contains("/etc/app.conf"),
        "{}",
        ended.text
    );
    let boots = node.boots;
    // Held: asked again, nothing is tried.
    ends(&node.apply(&config("rendered-b", &[("/etc/app.conf", "b")], None), Some(&image), spoil), 4);
    assert_eq!(node.boots, boots);
    let ended = node.apply(&config("rendered-c", &[("/etc/other.conf", "c")], None), Some(&image), |_| {});
    ends(&ended, 0);
    assert_eq!(node.read("/etc/other.conf").unwrap(), "c");
    assert_eq!(node.read("/etc/app.conf"), None);
    verified(&node);
}

#[test]
fn file_change_on_same_image_does_not_touch_os() {
    let mut node = Played::new();
    let image = node.derive("v2", &[layer("etc/app.conf", "b")], Some("rendered-b"));
    ends(&node.apply(&config("rendered-b", &[("/etc/app.conf", "b")], None), Some(&image), |_| {}), 0);
    let ended = node.apply(&config("rendered-c", &[("/etc/app.conf", "c")], None), Some(&image), |_| {});
    ends(&ended, 0);
    assert!(!ended.text.contains("stage-os"), "{}", ended.text);
    assert_eq!(node.read("/etc/app.conf").unwrap(), "c");
    verified(&node);
}

/// MCD-191, OCL-004, SEED-011: no pull, no staging, no reboot; the booted image is reported.
#[test]
fn booted_image_is_adopted_without_reboot() {
    let mut node = Played::new();
    let (v1, plain) = (node.v1(), config("rendered-a", &[], None));
    ends(&node.apply(&plain, None, |_| {}), 0);
    let ended = node.apply(&plain, Some(&v1), |_| {});
    ends(&ended, 0);
    assert_eq!(node.boots, 1, "{}", ended.text);
    let status = node.verb(&["status", "--os-backend", "ostree"]).text;
    assert!(status.contains(&v1.to_string()), "{status}");
}

/// OCL-018: one reboot, also for what only the image had brought, at any depth and with its mode. The same on a host with systemd,
/// and with units: `vm-tests/tests/leave_image_mode.py`.
#[test]
fn leaving_image_mode_goes_to_image_of_config() {
    let mut node = Played::new();
    let v1 = node.v1();
    let layers =
        [layer("etc/app.conf", "b"), layer("etc/app/of/image.conf", "b"), layer("usr/share/v2", "2")];
    let image = node.derive("v2", &layers, Some("rendered-b"));
    let files = [("/etc/app.conf", "b"), ("/etc/app/of/image.conf", "b")];
    let config = config("rendered-b", &files, Some(&v1));
    ends(&node.apply(&config, Some(&image), |_| {}), 0);
    let before = node.boots;
    let ended = node.apply(&config, None, |_| {});
    ends(&ended, 0);
    // The shutdown carries over the paths that the merge of /etc leaves behind, as only the old image had them.
    assert_eq!(node.boots - before, 1, "{}", ended.text);
    assert!(!node.path("/usr/share/v2").exists() && !node.path("/usr/etc/app.conf").exists());
    for (path, text) in files {
        assert_eq!(node.read(path).unwrap(), text);
    }
    verified(&node);
    let history = node.verb(&["history"]).text;
    assert!(!history.contains("faulted"), "{history}");
}

/// The power fails between the finalization and what follows it: the file is missing in the new boot, seen, and written there.
#[test]
fn unmerged_paths_are_written_after_boot() {
    let mut node = Played::new();
    let v1 = node.v1();
    let image = node.derive("v2", &[layer("etc/app.conf", "b")], Some("rendered-b"));
    let config = config("rendered-b", &[("/etc/app.conf", "b")], Some(&v1));
    ends(&node.apply(&config, Some(&image), |_| {}), 0);
    node.going_down = |node| {
        let list = node.booted.as_ref().unwrap().run_dir().join("machine-config-agent/left-behind.json");
        // The second reboot has none.
        drop(std::fs::remove_file(list));
    };
    let before = node.boots;
    let ended = node.apply(&config, None, |_| {});
    ends(&ended, 0);
    assert_eq!(node.boots - before, 2, "{}", ended.text);
    assert_eq!(node.read("/etc/app.conf").unwrap(), "b");
    verified(&node);
}

/// A switch between two images of configs: changed paths have the new version, dropped ones are carried over.
#[test]
fn next_image_brings_its_own_versions_and_loses_nothing() {
    let mut node = Played::new();
    let old = [layer("etc/app.conf", "b"), layer("etc/kept.conf", "k"), layer("etc/gone.conf", "g")];
    let first = node.derive("v2", &old, Some("rendered-b"));
    let files = [("/etc/app.conf", "b"), ("/etc/kept.conf", "k"), ("/etc/gone.conf", "g")];
    ends(&node.apply(&config("rendered-b", &files, None), Some(&first), |_| {}), 0);
    let second = node.derive("v3", &[layer("etc/app.conf", "c")], Some("rendered-c"));
    let before = node.boots;
    let files = [("/etc/app.conf", "c"), ("/etc/kept.conf", "k")];
    let ended = node.apply(&config("rendered-c", &files, None), Some(&second), |_| {});
    ends(&ended, 0);
    assert_eq!(node.boots - before, 1, "{}", ended.text);
    assert_eq!(node.read("/etc/app.conf").unwrap(), "c");
    assert_eq!(node.read("/etc/kept.conf").unwrap(), "k");
    assert_eq!(node.read("/etc/gone.conf"), None, "nobody wants it");
    verified(&node);
}

/// OCL-009: after the boot a unit is enabled, disabled or masked as the config requires, from the config or from the
/// new image; what is enabled of the new image alone takes a second boot. The next image turns each of them round.
#[test]
fn units_match_config_after_boot() {
    const SERVICE: &str = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
    let mut node = Played::new();
    let with = |name: &str, units: Value| {
        let mut config: Value = serde_json::from_str(&config(name, &[], None)).unwrap();
        *config.pointer_mut("/spec/config").unwrap() =
            json!({"ignition": {"version": "3.5.0"}, "systemd": {"units": units}});
        config.to_string()
    };
    let brought = ["usr/lib/systemd/system/vendor.service", "usr/lib/systemd/system/noisy.service"];
    let layers = brought.map(|path| layer(path, SERVICE));
    let state = |node: &Played, unit: &str| {
        let at = node.path(&format!("/etc/systemd/system/{unit}"));
        let wants = node.path(&format!("/etc/systemd/system/multi-user.target.wants/{unit}"));
        let masked = std::fs::read_link(at).is_ok_and(|to| to.as_os_str() == "/dev/null");
        // Links to a unit that is masked start nothing.
        (wants.is_symlink() && !masked, masked)
    };
    let states =
        |node: &Played| ["own.service", "vendor.service", "noisy.service"].map(|unit| state(node, unit));
    let (enabled, disabled, masked) = ((true, false), (false, false), (false, true));

    let image = node.derive("v2", &layers, None);
    let first = json!([{"name": "own.service", "enabled": true, "contents": SERVICE},
        {"name": "vendor.service", "enabled": true}, {"name": "noisy.service", "mask": true}]);
    let ended = node.apply(&with("rendered-b", first), Some(&image), |_| {});
    ends(&ended, 0);
    assert_eq!((node.boots, states(&node)), (3, [enabled, enabled, masked]), "{}", ended.text);
    verified(&node);

    let image = node.derive("v3", &[&layers[..], &[layer("usr/share/v3", "3")]].concat(), None);
    let second = json!([{"name": "own.service", "mask": true}, {"name": "vendor.service", "enabled": false},
        {"name": "noisy.service", "enabled": true}]);
    let ended = node.apply(&with("rendered-c", second), Some(&image), |_| {});
    ends(&ended, 0);
    assert_eq!((node.boots, states(&node)), (4, [masked, disabled, enabled]), "{}", ended.text);
    verified(&node);
}
