//! Effects of the batches, twice, and of their undo.

use super::*;
use crate::model::FaultClass;

/// MCD-122, MCD-124, MCD-157, MCD-158: modes, owners and directories, of files and keys. MCD-135, FIL-002: a version of
/// the image comes back. MCD-162: a password field that is right is not written.
#[tokio::test(flavor = "current_thread")]
async fn second_run_gives_same_host_and_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    let host = host(dir.path(), FailPoints::off());
    apply_all(&host).await;
    let (shapes_once, traces_once) = (shapes(dir.path()), traces(dir.path()));
    let what = |path: &str| shapes_once.get(Path::new(path)).map(|shape| shape.what.as_str());
    assert_eq!(what("etc/motd"), Some("the config's\n"));
    assert_eq!(what("etc/new/deep/file"), Some("deep\n"));
    assert_eq!(what("etc/stale"), None);
    assert_eq!(what("etc/restored"), Some("the image's\n"));
    assert_eq!(what("etc/shadow"), Some("root:!:1::::::\ncore:$6$salt$hash:1::::::\n"));
    assert_eq!(
        what("var/home/core/.ssh/authorized_keys.d/ignition"),
        Some("ssh-ed25519 AAAA core@example\n")
    );
    let wants = "etc/systemd/system/multi-user.target.wants";
    assert_eq!(what(&format!("{wants}/kubelet.service")), Some("-> /etc/systemd/system/kubelet.service"));
    assert_eq!(what(&format!("{wants}/chronyd.service")), None);
    assert_eq!(what("etc/systemd/system/crio.service"), Some("-> /dev/null"));
    let owner = |path: &str| {
        let stat = fs::metadata(dir.path().join(path)).unwrap();
        (stat.uid(), stat.mode() & 0o7777)
    };
    assert_eq!(owner("var/home/core/.bashrc"), (1000, 0o644));
    assert_eq!(owner("var/home/core/.ssh"), (1000, 0o700));
    assert_eq!(owner("var/home/core/.ssh/authorized_keys.d"), (1000, 0o700));
    assert_eq!(owner("var/home/core/.ssh/authorized_keys.d/ignition"), (1000, 0o600));
    assert_eq!(owner("etc/motd"), (0, 0o640));
    assert_eq!(owner("etc/new"), (0, 0o755));

    apply_all(&host).await;
    assert_eq!(shapes(dir.path()), shapes_once);
    assert_eq!(traces(dir.path()), traces_once, "a second run touches no file");
}

#[tokio::test(flavor = "current_thread")]
async fn taking_back_restores_bytes_modes_owners_attributes_and_links() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    let motd = dir.path().join("etc/motd");
    let flags = rustix::fs::XattrFlags::empty();
    let labelled = rustix::fs::setxattr(&motd, "user.origin", b"dist\0\xff", flags).is_ok();
    fs::set_permissions(&motd, fs::Permissions::from_mode(0o4755)).unwrap();
    let before = shapes(dir.path());
    let host = host(dir.path(), FailPoints::off());
    apply_all(&host).await;
    assert_ne!(shapes(dir.path()), before);
    for _ in 0..2 {
        undo_all(&host).await;
        assert_eq!(shapes(dir.path()), before);
    }
    if labelled {
        let mut value = [0_u8; 16];
        let length = rustix::fs::getxattr(&motd, "user.origin", &mut value).unwrap();
        assert_eq!(&value[..length], b"dist\0\xff");
    }
}

/// MCD-125.
#[tokio::test(flavor = "current_thread")]
async fn unknown_owner_fails_before_any_write() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    fs::write(dir.path().join("etc/group"), "").unwrap();
    let before = traces(dir.path());
    let host = host(dir.path(), FailPoints::off());
    let (batch, steps) = &batches()[0];
    let error = apply_batch(&host, 0, *batch, steps).await.unwrap_err();
    assert_eq!((error.class(), error.reason()), (FaultClass::Degraded, "UnknownAccount"));
    assert!(error.to_string().contains("/home/core/.bashrc"), "{error}");
    assert_eq!(traces(dir.path()), before);
}

/// MCD-160.
#[tokio::test(flavor = "current_thread")]
async fn without_account_users_are_ignored() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    fs::write(dir.path().join("etc/passwd"), "root:x:0:0::/root:/bin/sh\n").unwrap();
    let before = shapes(dir.path());
    let host = host(dir.path(), FailPoints::off());
    let (batch, steps) = &batches()[1];
    apply_batch(&host, 1, *batch, steps).await.unwrap();
    assert_eq!(shapes(dir.path()), before);
}

#[tokio::test(flavor = "current_thread")]
async fn removed_user_is_locked() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    let host = host(dir.path(), FailPoints::off());
    let steps = steps(vec![keys_of("core"), password_of("core")]);
    apply_batch(&host, 1, Batch::Users, &steps).await.unwrap();
    let (from, to) = (new(), spec("rendered-without"));
    let work = Work::Apply { batch: Batch::Users, steps: &steps };
    let intent = Intent::for_tests(work, &from, &to, originals(7));
    apply(&intent, &host, &|_| {}).await.unwrap();
    let shapes = shapes(dir.path());
    assert_eq!(shapes[Path::new("etc/shadow")].what, "root:!:1::::::\ncore:*:1::::::\n");
    assert!(!shapes.contains_key(Path::new("var/home/core/.ssh/authorized_keys.d/ignition")));
}

/// MCD-159: it opens the account no more.
#[tokio::test(flavor = "current_thread")]
async fn foreign_ssh_directory_and_link_are_moved_aside() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    let home = dir.path().join("var/home/core");
    fs::create_dir(home.join(".ssh")).unwrap();
    fs::write(home.join(".ssh/authorized_keys"), "mallory\n").unwrap();
    std::os::unix::fs::chown(home.join(".ssh"), Some(4711), Some(4711)).unwrap();
    // The user may have taken the name, or it is there since the last time.
    fs::create_dir(home.join(".ssh.mca-foreign")).unwrap();
    let host = host(dir.path(), FailPoints::off());
    let (batch, steps) = &batches()[1];
    apply_batch(&host, 1, *batch, steps).await.unwrap();
    assert!(home.join(".ssh.mca-foreign.1/authorized_keys").exists());
    assert!(!home.join(".ssh/authorized_keys").exists());
    assert!(home.join(".ssh/authorized_keys.d/ignition").exists());

    fs::remove_dir_all(home.join(".ssh")).unwrap();
    fs::create_dir(dir.path().join("etc/victim")).unwrap();
    std::os::unix::fs::symlink("/etc/victim", home.join(".ssh")).unwrap();
    std::os::unix::fs::lchown(home.join(".ssh"), Some(1000), Some(1000)).unwrap();
    apply_batch(&host, 2, *batch, steps).await.unwrap();
    assert!(home.join(".ssh.mca-foreign.2").is_symlink());
    assert!(home.join(".ssh/authorized_keys.d/ignition").exists());
    assert_eq!(fs::read_dir(dir.path().join("etc/victim")).unwrap().count(), 0);
}

#[tokio::test(flavor = "current_thread")]
async fn services_are_skipped_without_systemd() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    let host = host(dir.path(), FailPoints::off());
    let steps = steps(vec![Op::DaemonReload, Op::RestartUnit { unit: unit("crio.service") }]);
    apply_batch(&host, 3, Batch::Services, &steps).await.unwrap();
    let mixed = super::steps(vec![Op::DaemonReload]);
    let error = apply_batch(&host, 4, Batch::Links, &mixed).await.unwrap_err();
    assert_eq!((error.class(), error.reason()), (FaultClass::Fatal, "BrokenPlan"));
}

/// MCD-134, MCD-135, FIL-002: gone, or back as it was. MCD-139: directories stay, also empty ones.
#[tokio::test(flavor = "current_thread")]
async fn originals_are_kept_at_commit_for_day_path_is_no_longer_managed() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    let host = host(dir.path(), FailPoints::off());
    apply_all(&host).await;
    let update = UpdateId::new("update-1").unwrap();
    for _ in 0..2 {
        crate::journal::originals::promote(&host.root, Some(&update), &old(), &new()).unwrap();
    }
    crate::journal::originals::discard_all(&host.root).unwrap();
    crate::journal::originals::discard_all(&host.root).unwrap();
    let original = |path: &ManagedPath| crate::host::restore::original(&host.root, path).unwrap();
    assert!(original(&path("/etc/motd")).is_some());
    // The next update writes it again: the replaced file is the config's, not the distribution's.
    let changed = super::steps(vec![Op::WriteFile { path: path("/etc/motd") }]);
    let mut newer = new();
    newer.files.insert(path("/etc/motd"), file("the newer config's\n", 0o640, "root"));
    let work = Work::Apply { batch: Batch::Files, steps: &changed };
    let between = UpdateId::new("update-between").unwrap();
    let intent_originals = Originals::new(between.clone(), 0);
    apply(&Intent::for_tests(work, &new(), &newer, intent_originals), &host, &|_| {}).await.unwrap();
    crate::journal::originals::promote(&host.root, Some(&between), &new(), &newer).unwrap();
    crate::journal::originals::discard_all(&host.root).unwrap();
    assert_eq!(original(&path("/etc/new/deep/file")), None, "nothing was there");
    // The way back: no longer managed, so the distribution's version returns.
    let steps = steps(vec![
        Op::RestoreFile { path: path("/etc/motd") },
        Op::RemoveFile { path: path("/etc/new/deep/file") },
        Op::RemoveUnit { unit: unit("kubelet.service") },
    ]);
    let (from, to) = (new(), old());
    let work = Work::Apply { batch: Batch::Files, steps: &steps };
    let second = Originals::new(UpdateId::new("update-2").unwrap(), 0);
    apply(&Intent::for_tests(work, &from, &to, second), &host, &|_| {}).await.unwrap();
    let shapes = shapes(dir.path());
    assert_eq!(shapes[Path::new("etc/motd")].what, "the distribution's\n");
    assert!(!shapes.contains_key(Path::new("etc/new/deep/file")));
    assert_eq!(fs::read_dir(dir.path().join("etc/new/deep")).unwrap().count(), 0);
    assert!(!shapes.contains_key(Path::new("etc/systemd/system/kubelet.service")));
    let update = UpdateId::new("update-2").unwrap();
    crate::journal::originals::promote(&host.root, Some(&update), &new(), &old()).unwrap();
    let kept = || crate::host::saved::load_original(&host.root, &path("/etc/motd")).unwrap();
    assert!(kept().is_some(), "another target may still come");
    crate::journal::originals::drop_left(&host.root, &new(), &old()).unwrap();
    assert_eq!(kept(), None);
}

/// A process that died while it saved an original leaves a draft: the commit does not read it. The first of the batches that
/// touched a path saw its original, the tenth after the ninth.
#[test]
fn draft_of_dead_process_does_not_hold_commit() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    let host = host(dir.path(), FailPoints::off());
    let saved = dir.path().join("var/lib/machine-config-agent/preimages/update-1");
    fs::create_dir_all(&saved).unwrap();
    let document = |bytes: &str| {
        format!(
            r#"{{"schema":1,"paths":[{{"path":"/etc/new/deep/file","trusted":0,"saved":{{"kind":"file","bytes":"{bytes}",
            "mode":420,"uid":0,"gid":0,"attributes":[]}}}}],"password":null}}"#
        )
    };
    fs::write(saved.join("9.json"), document("Zmlyc3QK")).unwrap();
    fs::write(saved.join("10.json"), document("bGF0ZXIK")).unwrap();
    fs::write(saved.join(".10.json.mca-new"), "").unwrap();
    let update = UpdateId::new("update-1").unwrap();
    crate::journal::originals::promote(&host.root, Some(&update), &old(), &new()).unwrap();
    let kept = crate::host::restore::original(&host.root, &path("/etc/new/deep/file")).unwrap();
    assert!(serde_json::to_string(&kept).unwrap().contains("Zmlyc3QK"), "{kept:?}");
}
