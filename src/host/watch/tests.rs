//! Changes of every kind, reported once and never missed.

use std::fs;
use std::path::Path;

use super::*;

async fn changed_by(watch: &mut Watch, change: impl FnOnce()) -> Vec<String> {
    change();
    // Generous: only a miss waits so long.
    tokio::time::timeout(Duration::from_secs(60), watch.changed()).await.expect("no event came").unwrap()
}

#[tokio::test(flavor = "current_thread")]
async fn reports_changes_also_after_directories_came_and_went() {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    fs::create_dir_all(at("etc/a")).unwrap();
    fs::create_dir_all(at("control/machineconfigs")).unwrap();
    fs::write(at("etc/a/one"), "1").unwrap();
    let root = Root::open(dir.path()).unwrap();
    let files = ["/etc/a/one", "/etc/b/c/two"];
    let mut watch = Watch::new(&root, files, ["/control/machineconfigs"]).unwrap();

    assert_eq!(changed_by(&mut watch, || fs::write(at("etc/a/one"), "2").unwrap()).await, ["/etc/a/one"]);
    let names = changed_by(&mut watch, || {
        fs::write(at("control/machineconfigs/.x"), "2").unwrap();
        fs::rename(at("control/machineconfigs/.x"), at("control/machineconfigs/x.yaml")).unwrap();
    });
    assert!(names.await.contains(&"/control/machineconfigs/x.yaml".to_owned()));
    // A parent that did not exist.
    let changed_two = changed_by(&mut watch, || fs::create_dir_all(at("etc/b/c")).unwrap()).await;
    assert_eq!(changed_two, ["/etc/b/c/two"]);
    assert_eq!(changed_by(&mut watch, || fs::write(at("etc/b/c/two"), "2").unwrap()).await, ["/etc/b/c/two"]);
    // A parent that is removed, and made again.
    assert_eq!(changed_by(&mut watch, || fs::remove_dir_all(at("etc/a")).unwrap()).await, ["/etc/a/one"]);
    assert_eq!(changed_by(&mut watch, || fs::create_dir(at("etc/a")).unwrap()).await, ["/etc/a/one"]);
    assert_eq!(changed_by(&mut watch, || fs::write(at("etc/a/one"), "3").unwrap()).await, ["/etc/a/one"]);
    // A parent that is swapped.
    fs::create_dir(at("etc/other")).unwrap();
    let swapped = changed_by(&mut watch, || {
        fs::rename(at("etc/a"), at("etc/old")).unwrap();
        fs::rename(at("etc/other"), at("etc/a")).unwrap();
    });
    assert_eq!(swapped.await, ["/etc/a/one"]);
    assert_eq!(changed_by(&mut watch, || fs::write(at("etc/a/one"), "4").unwrap()).await, ["/etc/a/one"]);
}

#[tokio::test(flavor = "current_thread")]
async fn lost_events_report_every_path() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("etc")).unwrap();
    let root = Root::open(dir.path()).unwrap();
    let mut watch = Watch::new(&root, ["/etc/one", "/etc/two"], ["/etc/d"]).unwrap();
    let overflow = Event { watch: -1, flags: ReadFlags::QUEUE_OVERFLOW, name: None };
    let mut due = Due::default();
    watch.take(&overflow, &mut due);
    assert!(due.survey);
    assert_eq!(watch.changed().await.unwrap(), ["/etc/d", "/etc/one", "/etc/two"]);
}

/// Checks that there is no event: the only one after the marker is about the marker.
async fn silent(watch: &mut Watch, marker: &Path, change: impl FnOnce()) {
    change();
    let names = changed_by(watch, || fs::write(marker, "x").unwrap()).await;
    assert_eq!(names, ["/marker"]);
}

#[tokio::test(flavor = "current_thread")]
async fn redirected_path_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    fs::create_dir_all(at("etc/a/b/c")).unwrap();
    fs::create_dir_all(at("opt/x/y")).unwrap();
    fs::write(at("etc/a/b/c/one"), "1").unwrap();
    fs::write(at("marker"), "").unwrap();
    let root = Root::open(dir.path()).unwrap();
    let mut watch = Watch::new(&root, ["/etc/a/b/c/one", "/marker"], []).unwrap();
    let one = ["/etc/a/b/c/one"];
    // Above the directory, and back.
    assert_eq!(changed_by(&mut watch, || fs::rename(at("etc/a"), at("etc/z")).unwrap()).await, one);
    assert_eq!(changed_by(&mut watch, || fs::rename(at("etc/z"), at("etc/a")).unwrap()).await, one);
    // A link in the place of a directory, its target, and the directory above that.
    let linked = changed_by(&mut watch, || {
        fs::rename(at("etc/a/b/c"), at("opt/x/y/c")).unwrap();
        std::os::unix::fs::symlink("/opt/x/y/c", at("etc/a/b/c")).unwrap();
    });
    assert_eq!(linked.await, one);
    assert_eq!(changed_by(&mut watch, || fs::write(at("opt/x/y/c/one"), "2").unwrap()).await, one);
    assert_eq!(changed_by(&mut watch, || fs::rename(at("opt/x"), at("opt/z")).unwrap()).await, one);
    assert_eq!(changed_by(&mut watch, || fs::rename(at("opt/z"), at("opt/x")).unwrap()).await, one);
    assert_eq!(changed_by(&mut watch, || fs::write(at("opt/x/y/c/one"), "3").unwrap()).await, one);
    // A hard link, written elsewhere.
    fs::hard_link(at("opt/x/y/c/one"), at("opt/other")).unwrap();
    changed_by(&mut watch, || {}).await;
    assert_eq!(changed_by(&mut watch, || fs::write(at("opt/other"), "4").unwrap()).await, one);
    // A path that was moved away is not watched any more; nor is another file beside it.
    let replaced = changed_by(&mut watch, || {
        fs::rename(at("opt/x/y/c/one"), at("opt/gone")).unwrap();
        fs::write(at("opt/x/y/c/one"), "5").unwrap();
    });
    assert_eq!(replaced.await, one);
    let marker = at("marker");
    silent(&mut watch, &marker, || {
        fs::write(at("opt/gone"), "6").unwrap();
        fs::write(at("opt/x/y/c/two"), "6").unwrap();
        fs::write(at("etc/other"), "6").unwrap();
    })
    .await;
}

#[tokio::test(flavor = "current_thread")]
async fn circle_of_links_ends() {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    fs::create_dir(at("etc")).unwrap();
    std::os::unix::fs::symlink("b", at("etc/a")).unwrap();
    std::os::unix::fs::symlink("a", at("etc/b")).unwrap();
    let root = Root::open(dir.path()).unwrap();
    let mut watch = Watch::new(&root, ["/etc/a/one"], []).unwrap();
    let mended = changed_by(&mut watch, || {
        fs::remove_file(at("etc/b")).unwrap();
        fs::create_dir(at("etc/b")).unwrap();
    });
    assert_eq!(mended.await, ["/etc/a/one"]);
    assert_eq!(changed_by(&mut watch, || fs::write(at("etc/b/one"), "2").unwrap()).await, ["/etc/a/one"]);
}

#[tokio::test(flavor = "current_thread")]
async fn links_in_tree_are_reported_and_so_are_its_new_directories() {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    fs::create_dir_all(at("units")).unwrap();
    let root = Root::open(dir.path()).unwrap();
    let watched = WatchSet { trees: BTreeSet::from(["/units".to_owned()]), ..WatchSet::default() };
    let mut watch = Watch::from_set(&root, watched).unwrap();
    assert_eq!(
        changed_by(&mut watch, || fs::create_dir(at("units/x.wants")).unwrap()).await,
        ["/units/x.wants"]
    );
    let linked =
        changed_by(&mut watch, || std::os::unix::fs::symlink("/a", at("units/x.wants/a")).unwrap()).await;
    assert_eq!(linked, ["/units/x.wants/a"]);
    assert_eq!(changed_by(&mut watch, || fs::write(at("units/b"), "").unwrap()).await, ["/units/b"]);
}

#[tokio::test(flavor = "current_thread")]
async fn flood_is_reported_in_between_and_events_of_others_delay_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    fs::create_dir(at("etc")).unwrap();
    fs::write(at("etc/one"), "").unwrap();
    let root = Root::open(dir.path()).unwrap();
    let mut watch = Watch::new(&root, ["/etc/one"], []).unwrap();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    for flooded in ["etc/one", "etc/other"] {
        let (path, stopped) = (at(flooded), std::sync::Arc::clone(&stop));
        stop.store(false, std::sync::atomic::Ordering::Relaxed);
        let flood = std::thread::spawn(move || {
            let mut names = 0_u64;
            while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
                names += 1;
                fs::write(&path, names.to_string()).unwrap();
                fs::rename(&path, path.with_extension("x")).unwrap();
                fs::rename(path.with_extension("x"), &path).unwrap();
            }
            names
        });
        fs::write(at("etc/one"), "1").unwrap();
        assert_eq!(changed_by(&mut watch, || {}).await, ["/etc/one"]);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(flood.join().unwrap() > 0);
        changed_by(&mut watch, || fs::write(at("etc/one"), "2").unwrap()).await;
    }
}

/// Only root may mount.
#[tokio::test(flavor = "current_thread")]
async fn mount_over_path_is_reported_and_its_end_too() {
    use rustix::mount::{UnmountFlags, mount_bind, unmount};
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    for made in ["etc/a", "other", "unrelated"] {
        fs::create_dir_all(at(made)).unwrap();
    }
    for (path, text) in [("etc/a/one", "1"), ("other/one", "2"), ("marker", "")] {
        fs::write(at(path), text).unwrap();
    }
    let root = Root::open(dir.path()).unwrap();
    let mut watch = Watch::new(&root, ["/etc/a/one", "/marker"], []).unwrap();
    if mount_bind(at("other"), at("unrelated")).is_err() {
        crate::ran::not_run("mount_over_path_is_reported_and_its_end_too", "to mount (CAP_SYS_ADMIN)");
        return;
    }
    let marker = at("marker");
    silent(&mut watch, &marker, || unmount(at("unrelated"), UnmountFlags::empty()).unwrap()).await;
    for (what, over) in [("other", "etc"), ("other", "etc/a"), ("other/one", "etc/a/one")] {
        assert_eq!(changed_by(&mut watch, || mount_bind(at(what), at(over)).unwrap()).await, ["/etc/a/one"]);
        let path = at("etc/a/one");
        if path.exists() {
            assert_eq!(changed_by(&mut watch, || fs::write(path, over).unwrap()).await, ["/etc/a/one"]);
        }
        let ended = changed_by(&mut watch, || unmount(at(over), UnmountFlags::empty()).unwrap()).await;
        assert_eq!(ended, ["/etc/a/one"]);
    }
}

/// The table is compared some time after it changed: a mount that a look saw counts although it is gone by then.
#[tokio::test(flavor = "current_thread")]
async fn observed_mount_is_reported_after_unmount() {
    use rustix::mount::{UnmountFlags, mount_bind, unmount};
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    for made in ["etc/a", "other"] {
        fs::create_dir_all(at(made)).unwrap();
    }
    fs::write(at("etc/a/one"), "1").unwrap();
    let root = Root::open(dir.path()).unwrap();
    let mut watch = Watch::new(&root, ["/etc/a/one"], []).unwrap();
    if mount_bind(at("other"), at("etc/a")).is_err() {
        crate::ran::not_run("observed_mount_is_reported_after_unmount", "to mount (CAP_SYS_ADMIN)");
        return;
    }
    let end = || unmount(at("etc/a"), UnmountFlags::empty()).unwrap();
    watch.begin_observation().unwrap();
    assert!(!at("etc/a/one").exists());
    assert_eq!(changed_by(&mut watch, end).await, ["/etc/a/one"]);
    let mut watch = Watch::new(&root, ["/etc/a/one"], []).unwrap();
    watch.begin_observation().unwrap();
    mount_bind(at("other"), at("etc/a")).unwrap();
    assert!(!at("etc/a/one").exists());
    assert_eq!(changed_by(&mut watch, end).await, ["/etc/a/one"]);
}

#[tokio::test(flavor = "current_thread")]
async fn touched_directory_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    fs::create_dir_all(at("ostree/deploy")).unwrap();
    let root = Root::open(dir.path()).unwrap();
    let mut watch = Watch::new(&root, ["/ostree/deploy", "/ostree/deploy/x/y", "/marker"], []).unwrap();
    let touched = changed_by(&mut watch, || {
        let deploy = fs::File::open(at("ostree/deploy")).unwrap();
        deploy.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    });
    assert_eq!(touched.await, ["/ostree/deploy"]);
    let marker = at("marker");
    silent(&mut watch, &marker, || fs::write(at("ostree/deploy/other"), "").unwrap()).await;
}

/// Returns the watch's delay by the paused clock, which moves only while everything waits.
async fn delay(watch: &mut Watch, change: impl FnOnce()) -> Duration {
    let start = Instant::now();
    assert_eq!(changed_by(watch, change).await, ["/etc/one"]);
    start.elapsed()
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn prompt_watch_returns_finished_change_at_once_and_unfinished_one_when_quiet() {
    use std::io::Write as _;
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    fs::create_dir(at("etc")).unwrap();
    fs::write(at("etc/one"), "1").unwrap();
    let root = Root::open(dir.path()).unwrap();
    let mut watch = Watch::new(&root, ["/etc/one"], []).unwrap();
    assert_eq!(delay(&mut watch, || fs::write(at("etc/one"), "2").unwrap()).await, QUIET);
    let mut watch = watch.prompt();
    assert_eq!(delay(&mut watch, || fs::write(at("etc/one"), "3").unwrap()).await, Duration::ZERO);
    assert_eq!(delay(&mut watch, || fs::remove_file(at("etc/one")).unwrap()).await, Duration::ZERO);
    fs::write(at("etc/two"), "4").unwrap();
    assert_eq!(delay(&mut watch, || fs::rename(at("etc/two"), at("etc/one")).unwrap()).await, Duration::ZERO);
    let mut open = fs::OpenOptions::new().append(true).open(at("etc/one")).unwrap();
    assert_eq!(delay(&mut watch, || open.write_all(b"5").unwrap()).await, QUIET);
    assert_eq!(delay(&mut watch, || drop(open)).await, Duration::ZERO);
}
