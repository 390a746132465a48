//! The drift monitor: each kind of change is found, named and gone when it is undone; other changes are not reported; paths
//! of the setting `repair` are repaired, within bounds.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

use crate::drift_env::Scene;
use crate::drift_env::mutations::{
    APP, APP_TEXT, INNER, KEYS, MANAGED_UNITS, Mutation, UNIT, of_files, of_links, of_os, of_units, of_users,
    put_back, scene, section, spec,
};
use crate::test_host;
use machine_config_agent::agent::ExitReason;
use machine_config_agent::report::{NodeReport, NodeState};
use serde_json::json;

/// FIL-007, FIL-008, MCD-166, MCD-168, MCD-169, MCD-178, MCD-179, MCD-180, MCD-182, CRA-010: each manual change is
/// found, named with its path, and gone when it is undone, without a restart.
#[tokio::test(flavor = "current_thread")]
async fn each_kind_of_drift_is_found_named_and_gone_when_undone() {
    let mut scene = scene(&[]).await;
    let all: Vec<Mutation> =
        [of_files(), of_units(), of_links(), of_users(), of_os()].into_iter().flatten().collect();
    assert!(all.len() >= 34, "{}", all.len());
    scene
        .live(async |scene| {
            scene.until_done("rendered-a").await;
            for Mutation { name, make, undo, words } in all {
                let kept = make(scene);
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                let report = scene.until_drift(name, &words).await;
                assert!(!report.reason.contains("hunter"), "{name}: {}", report.reason);
                let events = scene.take_events();
                assert!(
                    events.iter().any(|(reason, _)| *reason == "ConfigDriftDetected"),
                    "{name}: {events:?}"
                );
                assert!(!events.iter().any(|(_, text)| text.contains("hunter")), "{name}: {events:?}");
                drop(kept);
                undo(scene);
                scene.until_done("rendered-a").await;
                scene.take_events();
            }
        })
        .await;
}

/// A changed file is reported beside what was seen of the rest; all of it is looked at soon after, whatever signals it.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn changed_file_is_reported_first_and_rest_is_verified_after() {
    let unit = "late.service";
    let mut config = spec();
    let units = config["config"]["systemd"]["units"].as_array_mut().unwrap();
    units.push(json!({"name": unit, "enabled": true}));
    let mut scene = Scene::with(&config, &[&MANAGED_UNITS[..], &[unit]].concat(), &[]).await;
    scene
        .live(async |scene| {
            scene.write(APP, "by hand");
            scene.until_drift("a drift of this agent's time", &[APP]).await;
            scene.write(APP, APP_TEXT);
            scene.until_done("rendered-a").await;
            scene.next_observation().await;
            // Nothing watches the distribution's directory: the config enables a unit that comes later.
            scene.node.put(&format!("root/usr/lib/systemd/system/{unit}"), section("late"));
            scene.write(APP, "mode = unsafe\n");
            let first = scene.until_drift("the changed file", &["\"/etc/app.conf\""]).await;
            assert!(!first.reason.contains(unit), "{}", first.reason);
            scene.until_drift("the rest", &["\"/etc/app.conf\"", unit]).await;
            scene.write(APP, APP_TEXT);
            scene
                .until("the file is right again", |report| {
                    report.reason.contains(unit) && !report.reason.contains(APP)
                })
                .await;
        })
        .await;
}

/// MCD-167: an argument that the kernel was not booted with is reported; additional ones are not.
#[tokio::test(flavor = "current_thread")]
async fn missing_kernel_argument_is_found_at_next_start() {
    let mut scene = scene(&[]).await;
    scene.node.put("root/proc/cmdline", "quiet more=2\n");
    scene.reboot(2);
    let words = ["missing expected kernel arguments: [audit=1]"];
    scene.live(async |scene| scene.until_drift("kernel arguments", &words).await).await;
    scene.node.put("root/proc/cmdline", "quiet audit=1 more=2\n");
    scene.reboot(3);
    scene.live(async |scene| scene.until_done("rendered-a").await).await;
}

/// MCD-176, MCD-186: drift that is there at the start is reported, measured and watched; without drift the metric is 0.
#[tokio::test(flavor = "current_thread")]
async fn drift_before_start_is_reported() {
    let mut scene = scene(&[]).await;
    let drift = |scene: &Scene| {
        let text = scene.metrics.text();
        let line = text.lines().find(|line| line.starts_with("mcd_config_drift ")).unwrap().to_owned();
        line.split(' ').nth(1).unwrap() != "0"
    };
    assert!(!drift(&scene));
    scene.write(APP, "changed while no agent ran\n");
    scene
        .live(async |scene| {
            scene.until_drift("drift at the start", &["\"/etc/app.conf\""]).await;
            assert_eq!(scene.take_events()[0].0, "ConfigDriftDetected");
            assert!(drift(scene));
            scene.write(APP, APP_TEXT);
            scene.until_done("rendered-a").await;
            assert!(!drift(scene));
        })
        .await;
}

/// MCD-177: an update that would build on drift is not begun, and nothing on disk changes.
#[tokio::test(flavor = "current_thread")]
async fn no_update_begins_on_drift() {
    let mut scene = scene(&[]).await;
    let mut next = spec();
    next["config"]["storage"]["files"][1]["contents"]["source"] = json!("data:,other");
    scene.config("rendered-b", &next);
    scene.write(APP, "changed\n");
    scene
        .live(async |scene| {
            scene.until_drift("drift", &["\"/etc/app.conf\""]).await;
            scene.take_events();
            scene.want("rendered-b");
            scene.until_drift("a refusal", &["no update starts", "\"/etc/app.conf\""]).await;
            assert_eq!(scene.take_events()[0].0, "PreflightConfigDriftCheckFailed");
            assert_eq!(scene.text(INNER), "inner");
            scene.write(APP, APP_TEXT);
            scene.until_done("rendered-b").await;
            assert_eq!(scene.text(INNER), "other");
        })
        .await;
}

/// An update that asks for what the drift has made of the host begins: keys that their user removed, for a config that
/// lists no user any more; a password and a unit as the new config wants them.
#[tokio::test(flavor = "current_thread")]
async fn update_to_drifted_state_begins() {
    let mut scene = scene(&[]).await;
    let without_user = {
        let mut next = spec();
        next["config"].as_object_mut().unwrap().remove("passwd");
        next["config"]["systemd"]["units"][1]["enabled"] = json!(true);
        next
    };
    scene.config("rendered-b", &without_user);
    fs::remove_file(scene.at(KEYS)).unwrap();
    let wants = scene.at("/etc/systemd/system/multi-user.target.wants/off.service");
    symlink("../off.service", wants).unwrap();
    scene
        .live(async |scene| {
            scene.until_drift("drift", &["user core", "off.service"]).await;
            scene.want("rendered-b");
            scene.until_done("rendered-b").await;
            assert!(scene.text("/etc/shadow").contains("core:*:"), "{}", scene.text("/etc/shadow"));
        })
        .await;
}

/// MCD-181: unmanaged files are ignored, however many there are, also in a watched directory.
#[tokio::test(flavor = "current_thread")]
async fn unmanaged_files_cause_nothing() {
    let mut scene = scene(&[]).await;
    scene
        .live(async |scene| {
            scene.until_done("rendered-a").await;
            let before = scene.observations();
            for round in 0..2_500 {
                let at = scene.at(&format!("/etc/deep/down/other-{}", round % 7));
                fs::write(&at, round.to_string()).unwrap();
                fs::set_permissions(&at, fs::Permissions::from_mode(0o600)).unwrap();
                fs::rename(&at, scene.at("/etc/deep/down/another")).unwrap();
                fs::remove_file(scene.at("/etc/deep/down/another")).unwrap();
            }
            scene.write(INNER, "drifted");
            scene.until_drift("drift among events of others", &[INNER]).await;
            // Ten thousand events more than fill the kernel's queue: then everything is looked at once.
            assert!(scene.observations() - before <= 3, "{} looks", scene.observations() - before);
            scene.write(INNER, "inner");
            scene.until_done("rendered-a").await;
            assert_eq!(scene.take_events().len(), 1);
        })
        .await;
}

/// A program that writes a managed file again and again is reported, but not each time.
#[tokio::test(flavor = "current_thread")]
async fn flood_is_reported_within_bounds() {
    let mut scene = scene(&[]).await;
    scene
        .live(async |scene| {
            scene.until_done("rendered-a").await;
            let began = std::time::Instant::now();
            for round in 0..40 {
                scene.write(APP, &format!("round {round}\n"));
                scene.until_drift("drift", &["\"/etc/app.conf\""]).await;
                let at = scene.at(APP);
                for more in 0..50 {
                    fs::write(&at, format!("round {round} {more}\n")).unwrap();
                    tokio::task::yield_now().await;
                }
            }
            // Only details differ, which are reported every ten seconds.
            let most = 1 + usize::try_from(began.elapsed().as_secs() / 10).unwrap();
            let events = scene.take_events().len();
            assert!((1..=most).contains(&events), "events {events} times, {most} at most");
            scene.write(APP, APP_TEXT);
            scene.until_done("rendered-a").await;
        })
        .await;
}

/// MCD-184: changes of an update itself are never drift.
#[tokio::test(flavor = "current_thread")]
async fn update_is_not_reported_as_drift() {
    let mut scene = scene(&[]).await;
    let mut next = spec();
    for file in next["config"]["storage"]["files"].as_array_mut().unwrap().iter_mut().take(2) {
        file["contents"]["source"] = json!("data:,other");
    }
    next["config"]["systemd"]["units"][0]["enabled"] = json!(false);
    scene.config("rendered-b", &next);
    scene
        .live(async |scene| {
            for _ in 0..5 {
                for name in ["rendered-b", "rendered-a"] {
                    scene.want(name);
                    scene.until_done(name).await;
                }
            }
            let events = scene.take_events();
            assert!(
                events.iter().any(|(reason, _)| *reason == "SkipReboot" || *reason == "ServiceReload"),
                "{events:?}"
            );
            assert!(!events.iter().any(|(reason, _)| reason.contains("Drift")), "{events:?}");
        })
        .await;
}

/// FIL-014: a diff is logged only of content that every user may read.
#[tokio::test(flavor = "current_thread")]
async fn diffs_are_bounded_and_redacted() {
    let mut scene = scene(&[]).await;
    scene
        .live(async |scene| {
            scene.until_done("rendered-a").await;
            scene.write(APP, "mode = unsafe\nlimit = 3\n");
            scene.until_drift("drift", &["\"/etc/app.conf\""]).await;
            let shown = |scene: &Scene| scene.node.run(&["verify", "--root", "root"]).out;
            let text = shown(scene);
            assert!(text.contains("-mode = safe") && text.contains("+mode = unsafe"), "{text}");
            // More people read events than files of nodes.
            let events = scene.take_events();
            assert!(
                !events.is_empty() && events.iter().all(|(_, text)| !text.contains("mode = ")),
                "{events:?}"
            );
            assert!(text.contains(" limit = 3"), "{text}");
            put_back(scene, APP, APP_TEXT, 0o644);
            scene.until_done("rendered-a").await;
            // Content that others put there is not shown: closed to others, or a key in a readable file.
            for (text, mode) in [
                ("token = hunter4\n", 0o600),
                ("-----BEGIN PRIVATE KEY-----\nhunter4\n", 0o644),
                ("core:$6$salt$hunter4:19000\n", 0o644),
                ("{\"auths\": {\"r\": {\"auth\": \"hunter4\"}}}", 0o644),
            ] {
                put_back(scene, APP, text, mode);
                scene.until_drift("drift", &["\"/etc/app.conf\""]).await;
                let text = shown(scene);
                assert!(text.contains("secret, not shown: 22 bytes expected"), "{text}");
                assert!(!text.contains("hunter"), "{text}");
                put_back(scene, APP, APP_TEXT, 0o644);
                scene.until_done("rendered-a").await;
            }
        })
        .await;
}

type Change = &'static dyn Fn(&Scene);

/// Drift is repaired where the settings name the path, through the journal; elsewhere it is only reported.
#[tokio::test(flavor = "current_thread")]
async fn drift_is_repaired_where_configured() {
    let mut scene = scene(&["/etc/deep", "/etc/systemd/system"]).await;
    scene
        .live(async |scene| {
            scene.until_done("rendered-a").await;
            let changes: [(&str, Change); 6] = [
                ("content", &|scene| scene.write(INNER, "drifted")),
                ("removed", &|scene| fs::remove_dir_all(scene.at("/etc/deep")).unwrap()),
                ("owner", &|scene| chown(scene.at(INNER), Some(1), None).unwrap()),
                ("unit and its link", &|scene| {
                    scene.write(UNIT, "[Unit]\n");
                    fs::remove_file(scene.at("/etc/systemd/system/multi-user.target.wants/a.service"))
                        .unwrap();
                }),
                ("alias", &|scene| {
                    symlink("off.service", scene.at("/etc/systemd/system/x.service")).unwrap();
                }),
                ("unmasked", &|scene| {
                    fs::remove_file(scene.at("/etc/systemd/system/masked.service")).unwrap();
                }),
            ];
            for (name, change) in changes {
                scene.pass_time(1);
                let updates =
                    fs::read_dir(scene.at(&format!("{}/history", test_host::STATE))).unwrap().count();
                change(scene);
                scene
                    .until(name, |report| report.update.is_some() && report.state == NodeState::Working)
                    .await;
                scene.until_done("rendered-a").await;
                let now = fs::read_dir(scene.at(&format!("{}/history", test_host::STATE))).unwrap().count();
                assert_eq!(now, updates + 1, "{name}: a repair is an update in the history");
            }
            assert_eq!(scene.text(INNER), "inner");
            assert_eq!(scene.text(UNIT), section("a"));
            let events = scene.take_events();
            assert!(
                events.iter().filter(|(reason, _)| *reason == "ConfigDriftDetected").count() >= 6,
                "{events:?}"
            );
            scene.write(APP, "not to be repaired\n");
            scene.until_drift("drift elsewhere", &["\"/etc/app.conf\""]).await;
            // Drift elsewhere does not keep a path from being repaired.
            scene.pass_time(3601);
            scene.write(INNER, "drifted");
            scene.until("a repair", |report| report.update.is_some()).await;
            scene.until_drift("what is left", &["\"/etc/app.conf\""]).await;
            assert_eq!(scene.text(INNER), "inner");
        })
        .await;
}

/// A repair reboots and drains nothing, and one that does not last is given up.
#[tokio::test(flavor = "current_thread")]
async fn repair_has_bounds() {
    let mut scene = scene(&["/etc"]).await;
    scene
        .live(async |scene| {
            scene.until_done("rendered-a").await;
            for (path, old, word) in [
                ("/etc/reboots.conf", "r", "not repaired: the disruption policy requires a reboot"),
                ("/etc/drains.conf", "d", "not repaired: the disruption policy requires a drain"),
            ] {
                scene.write(path, "x");
                scene.until_drift(path, &[path, word]).await;
                scene.write(path, old);
                scene.until_done("rendered-a").await;
            }
            for _ in 0..3 {
                scene.pass_time(1);
                scene.write(APP, "again\n");
                scene.until("a repair", |report| report.update.is_some()).await;
                scene.until_done("rendered-a").await;
            }
            scene.pass_time(1);
            scene.write(APP, "again\n");
            scene
                .until_drift("a repair too many", &["\"/etc/app.conf\"", "repaired 3 times within an hour"])
                .await;
            assert_eq!(scene.text(APP), "again\n");
            // An hour later it is tried again, when something happens.
            scene.pass_time(3601);
            scene.write(APP, "and again\n");
            scene.until("a repair", |report| report.update.is_some()).await;
            scene.until_done("rendered-a").await;
            // A failed repair is reported with its cause, and not repeated.
            scene.pass_time(3601);
            fs::remove_file(scene.at(APP)).unwrap();
            fs::create_dir(scene.at(APP)).unwrap();
            scene.write("/etc/app.conf/x", "");
            scene
                .until_drift("a failed repair", &["file /etc/app.conf", "not repaired: the repair failed"])
                .await;
            fs::remove_dir_all(scene.at(APP)).unwrap();
            put_back(scene, APP, APP_TEXT, 0o644);
            scene.until_done("rendered-a").await;
        })
        .await;
}

/// A reboot that an update needs is no repair's business.
#[tokio::test(flavor = "current_thread")]
async fn update_with_reboot_still_ends_in_one() {
    let mut scene = scene(&["/etc"]).await;
    let mut next = spec();
    next["config"]["storage"]["files"][3]["contents"]["source"] = json!("data:,other");
    scene.config("rendered-b", &next);
    scene.want("rendered-b");
    assert_eq!(Box::pin(scene.end()).await, ExitReason::Reboot);
    scene.reboot(2);
    scene.live(async |scene| scene.until_done("rendered-b").await).await;
}

/// A node whose clock was set back still reports what is new of the same drift.
#[tokio::test(flavor = "current_thread")]
async fn clock_set_back_hides_no_drift() {
    let mut scene = scene(&[]).await;
    scene
        .live(async |scene| {
            scene.until_done("rendered-a").await;
            scene.write(APP, "first\n");
            let first = scene.until_drift("drift", &["\"/etc/app.conf\""]).await;
            scene.set_clock_back(3600);
            scene.pass_time(11);
            scene.write(APP, "second, of another length\n");
            let other =
                |report: &NodeReport| report.state == NodeState::Degraded && report.reason != first.reason;
            scene.until("other details", other).await;
        })
        .await;
}
