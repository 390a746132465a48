//! The image-mode table on a real libostree host: one test per row, from the target to the verified boot.

use crate::sandbox_node::{Played, VerbResult, config, layer};
use crate::set_clock::{PRELOADED, SetClock};
use serde_json::{Value, json};

fn ends(ended: &VerbResult, code: i32) {
    assert_eq!(ended.code, code, "{}", ended.text);
}

fn verified(node: &Played) {
    let verify = node.verb(&["verify", "--os-backend", "ostree"]);
    assert_eq!(verify.code, 0, "{}", verify.text);
}

/// OCL-027: the plan says that the image's label fits the config.
#[test]
fn image_with_config_needs_nothing_else() {
    let mut node = Played::new();
    let files = [("/etc/app.conf", "b"), ("/etc/other.conf", "b")];
    let image =
        node.derive("v2", &[layer("etc/app.conf", "b"), layer("etc/other.conf", "b")], Some("rendered-b"));
    let ended = node.apply(&config("rendered-b", &files, None), Some(&image), |_| {});
    ends(&ended, 0);
    assert!(!ended.text.contains("write-file"), "{}", ended.text);
    assert!(ended.text.contains("the image carries the config"), "{}", ended.text);
    assert_eq!((node.boots, node.read("/etc/app.conf").unwrap().as_str()), (2, "b"));
    verified(&node);
}

/// OCL-027: the plan says that the image's label does not fit the config.
#[test]
fn image_without_config_is_switched_to_and_files_are_written() {
    let mut node = Played::new();
    let image = node.derive("v2", &[layer("usr/share/v2", "2")], None);
    let ended = node.apply(&config("rendered-b", &[("/etc/app.conf", "b")], None), Some(&image), |_| {});
    ends(&ended, 0);
    assert!(ended.text.contains("write-file /etc/app.conf"), "{}", ended.text);
    assert!(!ended.text.contains("the image carries the config"), "{}", ended.text);
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

/// The battery of the clock is empty, and each boot begins ten years back: what was tried last is no older than what was
/// committed before, and the second boot with differences is the last one.
#[test]
fn clock_behind_makes_no_further_reboots() {
    let mut node = Played::new();
    let clock = |node: &Played, years| SetClock::new(&node.booted.as_ref().unwrap().run_dir()).set(years);
    clock(&node, 0);
    node.variable = Some(PRELOADED);
    ends(&node.apply(&config("rendered-a", &[("/etc/app.conf", "a")], None), None, |_| {}), 0);
    let image = node.derive("v2", &[layer("etc/app.conf", "b")], Some("rendered-b"));
    clock(&node, -10);
    let before = node.boots;
    let ended =
        node.apply(&config("rendered-b", &[("/etc/app.conf", "b")], None), Some(&image), |node: &Played| {
            clock(node, -10);
            std::fs::remove_file(node.path("/etc/app.conf")).unwrap();
        });
    ends(&ended, 4);
    assert!(ended.text.contains("VerificationFailed"), "{}", ended.text);
    assert_eq!(node.boots - before, 2, "{}", ended.text);
    // Written last, whatever time it shows.
    let history = node.verb(&["history"]).text;
    let entries: Vec<_> = history.lines().filter(|line| line.contains(" rendered-")).collect();
    assert!(entries[0].contains("committed") && entries[1].contains("faulted"), "{history}");
    let year = |entry: &str| entry[..4].parse::<i32>().unwrap();
    assert!(year(entries[1]) < year(entries[0]), "{history}");
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
    // Of the digest it shows 12 digits.
    let v1 = v1.to_string();
    assert!(status.contains(&v1[..v1.len() - 52]), "{status}");
}

/// OCL-017, OCL-018: one reboot, also for what only the image had brought, at any depth and with its mode. The same on a host with systemd,
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
    assert_eq!(
        node.read("/etc/machine-config-daemon/currentimage").as_deref(),
        Some(""),
        "no image is current"
    );
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

/// OCL-007, OCL-008, OCL-019: an image can't bring what is below `/var` and its links, what was changed on this host, and the account's keys
/// and password: all of it is as the config says after the one reboot.
#[test]
fn image_update_corrects_state_local_changes_and_account() {
    const STATE: [&str; 4] =
        ["/var/lib/app.conf", "/usr/local/etc/app.conf", "/opt/app/app.conf", "/home/app/app.conf"];
    let mut node = Played::new();
    let v1 = node.v1();
    ends(&node.apply(&config("rendered-a", &[("/etc/app.conf", "a")], None), Some(&v1), |_| {}), 0);
    node.write("/etc/app.conf", "of an administrator");
    let image = node.derive("v2", &[layer("etc/app.conf", "b")], Some("rendered-b"));
    let files: Vec<(&str, &str)> =
        STATE.into_iter().map(|path| (path, "b")).chain([("/etc/app.conf", "b")]).collect();
    let mut desired: Value = serde_json::from_str(&config("rendered-b", &files, None)).unwrap();
    let (key, hash) = ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample admin@example", "$6$salt$hash");
    desired["spec"]["config"]["passwd"] =
        json!({"users": [{"name": "core", "sshAuthorizedKeys": [key], "passwordHash": hash}]});
    let before = node.boots;
    let ended = node.apply(&desired.to_string(), Some(&image), |_| {});
    ends(&ended, 0);
    assert_eq!(node.boots - before, 1, "{}", ended.text);
    let var = node.world.dir().join("sysroot/ostree/deploy/sandbox/var");
    for path in ["lib/app.conf", "usrlocal/etc/app.conf", "opt/app/app.conf", "home/app/app.conf"] {
        assert_eq!(std::fs::read_to_string(var.join(path)).unwrap(), "b", "{path}");
    }
    assert_eq!(node.read("/etc/app.conf").as_deref(), Some("b"));
    let keys = std::fs::read_to_string(var.join("home/core/.ssh/authorized_keys.d/ignition")).unwrap();
    assert_eq!(keys.trim_end(), key);
    assert!(node.read("/etc/shadow").unwrap().contains(&format!("core:{hash}:")));
    verified(&node);
}

/// OCL-014: an update that is given up after its staging leaves no staged deployment, and the next boot is the old image.
#[test]
fn abandoned_update_drops_staged_deployment() {
    let mut node = Played::new();
    let first = config("rendered-a", &[("/etc/app.conf", "a")], None);
    ends(&node.apply(&first, None, |_| {}), 0);
    let (boots, image) = (node.boots, node.derive("v2", &[layer("usr/share/v2", "2")], None));
    let to = format!("{}/to.json", machine_config_agent::sandbox::CONTROL);
    std::fs::write(node.world.control().join("to.json"), config("rendered-b", &[], None)).unwrap();
    let image = image.to_string();
    let words = ["apply", "--yes", "--to", &to, "--to-image", &image, "--os-backend", "ostree"];
    // The agent dies when the image is staged, and the target is another one when it is back.
    let killed = node.verb_at(&words, "kill:ran");
    assert!([-1, 137].contains(&killed.code), "{}", killed.text);
    let staged = node.booted.as_ref().unwrap().run_dir().join("ostree/staged-deployment");
    assert!(staged.exists());
    ends(&node.apply(&first, None, |_| {}), 0);
    assert!(!staged.exists());
    node.reboot();
    assert_eq!((node.boots, node.read("/usr/share/v2")), (boots + 1, None));
    assert_eq!(node.read("/etc/app.conf").as_deref(), Some("a"));
    verified(&node);
}
