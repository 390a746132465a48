//! Drift of directories and links: each manual change is named within bounds, gone when it is undone, and repaired where the
//! setting `repair` names the path; nothing else is touched.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, lchown, symlink};

use crate::drift_env::Scene;
use crate::drift_env::mutations::{MANAGED_UNITS, spec};
use machine_config_agent::report::NodeState;
use serde_json::json;

/// Longest reason of one drifted path.
const REASON: usize = 1024;

/// A directory with something in it, an empty one, and a link, below a directory.
async fn scene(below: &str, repair: &[&str]) -> Scene {
    let mut config = spec();
    let storage = config["config"]["storage"].as_object_mut().unwrap();
    let path = |name: &str| format!("{below}/{name}");
    storage.insert(
        "directories".to_owned(),
        json!([{"path": path("full"), "mode": 0o750, "user": {"id": 7}}, {"path": path("empty")}]),
    );
    storage.insert("links".to_owned(), json!([{"path": path("link"), "target": "full"}]));
    let scene = Scene::with(&config, &MANAGED_UNITS, repair).await;
    scene.write(&path("full/foreign"), "of an administrator");
    fs::set_permissions(scene.at(&path("full/foreign")), fs::Permissions::from_mode(0o604)).unwrap();
    scene.write(&path("beside"), "of an administrator");
    scene
}

type Change = fn(&Scene, &str);

/// Name, the change of a path, the path, and the words of the report.
const CHANGES: [(&str, Change, &str, &str); 10] = [
    ("mode", |scene, at| set_mode(scene, at, 0o700), "full", "has another mode (expected 0750, found 0700)"),
    (
        "owner",
        |scene, at| chown(scene.at(at), Some(9), None).unwrap(),
        "full",
        "has another owner (expected 7:",
    ),
    ("directory removed", |scene, at| fs::remove_dir(scene.at(at)).unwrap(), "empty", "is missing"),
    (
        "file for directory",
        file_for_directory,
        "empty",
        "is something else (expected a directory, found a file)",
    ),
    (
        "link for directory",
        link_for_directory,
        "empty",
        "is something else (expected a directory, found a symbolic link",
    ),
    ("link removed", |scene, at| fs::remove_file(scene.at(at)).unwrap(), "link", "is missing"),
    (
        "link retargeted",
        |scene, at| relink(scene, at, "empty"),
        "link",
        "has another value (expected full, found empty)",
    ),
    (
        "link to far away",
        |scene, at| relink(scene, at, &"x/".repeat(2000)),
        "link",
        "has another value (expected full",
    ),
    (
        "link of another owner",
        |scene, at| lchown(scene.at(at), Some(9), None).unwrap(),
        "link",
        "has another owner",
    ),
    (
        "file for link",
        file_for_link,
        "link",
        "is something else (expected a symbolic link to \"full\", found a file)",
    ),
];

fn set_mode(scene: &Scene, at: &str, mode: u32) {
    fs::set_permissions(scene.at(at), fs::Permissions::from_mode(mode)).unwrap();
}

fn relink(scene: &Scene, at: &str, target: &str) {
    fs::remove_file(scene.at(at)).unwrap();
    symlink(target, scene.at(at)).unwrap();
}

fn file_for_directory(scene: &Scene, at: &str) {
    fs::remove_dir(scene.at(at)).unwrap();
    scene.write(at, "hunter2");
}

fn link_for_directory(scene: &Scene, at: &str) {
    fs::remove_dir(scene.at(at)).unwrap();
    symlink("full", scene.at(at)).unwrap();
}

fn file_for_link(scene: &Scene, at: &str) {
    fs::remove_file(scene.at(at)).unwrap();
    scene.write(at, "hunter2");
}

/// What a directory has: kind, mode, owner, and content or target of each name, and of what is in a directory.
fn tree(scene: &Scene, below: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![scene.at(below)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let stat = fs::symlink_metadata(&path).unwrap();
            let what = if stat.is_dir() {
                folders.push(path.clone());
                "a directory".to_owned()
            } else if stat.is_symlink() {
                fs::read_link(&path).unwrap().display().to_string()
            } else {
                fs::read_to_string(&path).unwrap()
            };
            let (mode, uid, gid) = (stat.mode() & 0o7777, stat.uid(), stat.gid());
            found.push(format!("{} {mode:o} {uid}:{gid} {what}", path.display()));
        }
    }
    found.sort();
    found
}

/// Takes a change back, by hand.
fn mend(scene: &Scene, below: &str, name: &str) {
    let at = scene.at(&format!("{below}/{name}"));
    if name == "link" {
        let _gone = fs::remove_file(&at);
        symlink("full", at).unwrap();
        return;
    }
    if !fs::symlink_metadata(&at).is_ok_and(|found| found.is_dir()) {
        let _gone = fs::remove_file(&at);
        fs::create_dir(&at).unwrap();
    }
    if name == "full" {
        fs::set_permissions(&at, fs::Permissions::from_mode(0o750)).unwrap();
        chown(at, Some(7), None).unwrap();
    }
}

#[tokio::test(flavor = "current_thread")]
async fn drift_of_directory_or_link_is_named_and_gone_when_undone() {
    let mut scene = scene("/etc/kept", &[]).await;
    let before = tree(&scene, "/etc/kept");
    scene
        .live(async |scene| {
            scene.until_done("rendered-a").await;
            for (name, change, at, words) in CHANGES {
                let path = format!("/etc/kept/{at}");
                change(scene, &path);
                let changed = tree(scene, "/etc/kept");
                let kind = if at == "link" { "link" } else { "directory" };
                let words = format!("{kind} {path} {words}");
                let report = scene.until_drift(name, &[&words]).await;
                assert!(report.reason.len() < REASON, "{name}: {} bytes", report.reason.len());
                assert!(!report.reason.contains("hunter"), "{name}: {}", report.reason);
                assert_eq!(tree(scene, "/etc/kept"), changed, "{name}: it is only reported");
                let shown = scene.node.run(&["verify", "--root", "root"]).out;
                assert!(shown.contains(&words) && !shown.contains("hunter"), "{name}: {shown}");
                mend(scene, "/etc/kept", at);
                scene.until_done("rendered-a").await;
            }
            assert_eq!(tree(scene, "/etc/kept"), before);
        })
        .await;
}

#[tokio::test(flavor = "current_thread")]
async fn drift_of_directory_or_link_is_repaired_where_configured() {
    let mut scene = scene("/etc/mended", &["/etc/mended"]).await;
    let before = tree(&scene, "/etc/mended");
    scene
        .live(async |scene| {
            scene.until_done("rendered-a").await;
            for (name, change, at, _) in CHANGES {
                // Repairs of one path are counted by the hour.
                scene.pass_time(3601);
                change(scene, &format!("/etc/mended/{at}"));
                scene
                    .until(name, |report| report.update.is_some() && report.state == NodeState::Working)
                    .await;
                scene.until_done("rendered-a").await;
                assert_eq!(tree(scene, "/etc/mended"), before, "{name}");
            }
            let events = scene.take_events();
            let told = events.iter().filter(|(reason, _)| *reason == "ConfigDriftDetected").count();
            assert!(told >= CHANGES.len(), "{events:?}");
            assert!(!events.iter().any(|(_, text)| text.contains("hunter")), "{events:?}");
        })
        .await;
}

/// A directory that holds what no config brought is no link of the config's, and is not taken away for one.
#[tokio::test(flavor = "current_thread")]
async fn directory_in_place_of_link_is_reported_and_left() {
    let mut scene = scene("/etc/mended", &["/etc/mended"]).await;
    scene
        .live(async |scene| {
            scene.until_done("rendered-a").await;
            fs::remove_file(scene.at("/etc/mended/link")).unwrap();
            fs::create_dir(scene.at("/etc/mended/link")).unwrap();
            scene.write("/etc/mended/link/foreign", "of an administrator");
            let words = ["link /etc/mended/link is something else", "not repaired: a directory is there"];
            scene.until_drift("a directory in place of a link", &words).await;
            assert_eq!(scene.text("/etc/mended/link/foreign"), "of an administrator");
        })
        .await;
}

/// A user leads the path of a managed file in his directory to a file that only root can reach: no line shows what is in it.
#[tokio::test(flavor = "current_thread")]
async fn content_behind_link_of_user_is_not_shown() {
    let mut config = spec();
    let files = config["config"]["storage"]["files"].as_array_mut().unwrap();
    let source = "data:,of%20the%20config";
    files.push(json!({"path": "/etc/own/app/conf", "mode": 0o644, "contents": {"source": source}}));
    let mut scene = Scene::with(&config, &MANAGED_UNITS, &[]).await;
    fs::create_dir_all(scene.at("/root/closed")).unwrap();
    set_mode(&scene, "/root/closed", 0o700);
    scene.write("/root/closed/conf", "hunter2");
    chown(scene.at("/etc/own"), Some(1000), Some(1000)).unwrap();
    scene
        .live(async |scene| {
            scene.until_done("rendered-a").await;
            fs::rename(scene.at("/etc/own/app"), scene.at("/etc/own/away")).unwrap();
            symlink("/root/closed", scene.at("/etc/own/app")).unwrap();
            lchown(scene.at("/etc/own/app"), Some(1000), Some(1000)).unwrap();
            scene.until_drift("a link of the user", &["/etc/own/app/conf"]).await;
            let shown = scene.node.run(&["verify", "--root", "root"]).out;
            assert!(shown.contains("/etc/own/app/conf") && !shown.contains("hunter"), "{shown}");
        })
        .await;
}
