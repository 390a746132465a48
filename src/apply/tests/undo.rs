//! Undo with changes by others: before the update, or while it was under way.

use std::os::unix::fs::{lchown, symlink};

use super::*;
use crate::host::account_records::AccountRecords;

/// A host with the keys of `core` in place, and its home.
async fn with_keys(at: &Path) -> (Host, PathBuf) {
    fixture(at);
    let host = host(at, FailPoints::off());
    let (batch, steps) = &batches()[1];
    apply_batch(&host, 1, *batch, steps).await.unwrap();
    (host, at.join("var/home/core"))
}

async fn undo(host: &Host, index: usize) -> Result<(), ApplyError> {
    let (old, new) = (old(), new());
    let undo = Undo::RestoreOriginals { batch: index };
    let work = Work::Undo { undo: &undo, steps: &[] };
    apply(&Intent::for_tests(work, &old, &new, originals(index)), host, &|_| {}).await
}

/// Has the user lead `.ssh` elsewhere, to a directory of his own.
fn lead_astray(home: &Path, to: &Path) {
    fs::rename(home.join(".ssh"), home.join(".x")).unwrap();
    symlink(to, home.join(".ssh")).unwrap();
    lchown(home.join(".ssh"), Some(1000), Some(1000)).unwrap();
}

/// Item 2: a link of the user in place of `.ssh` holds no change of his keys, which may take one away; it is moved aside, and his own
/// keys are where he left them.
#[tokio::test(flavor = "current_thread")]
async fn link_of_user_neither_holds_node_nor_loses_his_keys() {
    let dir = tempfile::tempdir().unwrap();
    let (host, home) = with_keys(dir.path()).await;
    let keys = home.join(".ssh/authorized_keys.d/ignition");
    let before = fs::read_to_string(&keys).unwrap();
    fs::create_dir(dir.path().join("tmp")).unwrap();
    lead_astray(&home, Path::new("/tmp"));
    let (batch, steps) = &batches()[1];
    apply_batch(&host, 5, *batch, steps).await.unwrap();
    assert_eq!(fs::read_to_string(&keys).unwrap(), before);
    assert_eq!(fs::read_link(home.join(".ssh.mca-foreign")).unwrap(), Path::new("/tmp"));
    assert_eq!(fs::read_dir(dir.path().join("tmp")).unwrap().count(), 0, "it was not followed");
    let moved = AccountRecords::load(&host.root).unwrap().still_moved(&host.root);
    assert_eq!(moved["/home/core/.ssh.mca-foreign"], "/home/core/.ssh");
    undo(&host, 5).await.unwrap();
    assert!(!keys.exists());
    assert_eq!(fs::read_to_string(home.join(".x/authorized_keys.d/ignition")).unwrap(), before);
    fs::remove_file(home.join(".ssh.mca-foreign")).unwrap();
    assert!(AccountRecords::load(&host.root).unwrap().still_moved(&host.root).is_empty());
}

/// A user who moves his directories while his keys are written does not hold the roll-back.
#[tokio::test(flavor = "current_thread")]
async fn moved_user_directory_does_not_block_rollback() {
    let dir = tempfile::tempdir().unwrap();
    let (host, home) = with_keys(dir.path()).await;
    let elsewhere = dir.path().join("tmp/authorized_keys.d");
    fs::create_dir_all(&elsewhere).unwrap();
    fs::write(elsewhere.join("ignition"), "of somebody else\n").unwrap();
    lead_astray(&home, Path::new("/tmp"));
    undo(&host, 1).await.unwrap();
    assert_eq!(fs::read_to_string(elsewhere.join("ignition")).unwrap(), "of somebody else\n");
    let shadow = fs::read_to_string(dir.path().join("etc/shadow")).unwrap();
    assert!(shadow.contains("core:!:1"), "the password is back all the same");
}

/// Two specs that differ in these files.
fn specs(from: &[&str], to: &[&str]) -> (HostSpec, HostSpec) {
    let with = |name: &str, paths: &[&str]| {
        let mut spec = spec(name);
        for one in paths {
            spec.files.insert(path(one), file(&format!("{name}\n"), 0o644, "root"));
        }
        spec
    };
    (with("rendered-old", from), with("rendered-new", to))
}

/// Item 3: a batch that was refused because of one path is undone, although that path is still in the way.
#[tokio::test(flavor = "current_thread")]
async fn refused_batch_is_rolled_back() {
    for (made, desired, reason) in
        [("file", "/etc/host/bar", "UnexpectedKind"), ("open directory", "/etc/open/x", "UnsafeDirectory")]
    {
        let dir = tempfile::tempdir().unwrap();
        fixture(dir.path());
        fs::write(dir.path().join("etc/foo"), "rendered-old\n").unwrap();
        fs::write(dir.path().join("etc/host"), "the host's\n").unwrap();
        fs::create_dir(dir.path().join("etc/open")).unwrap();
        fs::set_permissions(dir.path().join("etc/open"), fs::Permissions::from_mode(0o777)).unwrap();
        let before = shapes(dir.path());
        let host = host(dir.path(), FailPoints::off());
        let (from, to) = specs(&["/etc/foo"], &["/etc/motd", desired]);
        let steps = steps(vec![
            Op::WriteFile { path: path("/etc/motd") },
            Op::WriteFile { path: path(desired) },
            Op::RemoveFile { path: path("/etc/foo") },
        ]);
        let work = Work::Apply { batch: Batch::Files, steps: &steps };
        let error =
            apply(&Intent::for_tests(work, &from, &to, originals(0)), &host, &|_| {}).await.unwrap_err();
        assert_eq!(error.reason(), reason, "{made}: {error}");
        let saved = dir.path().join("var/lib/machine-config-agent/preimages/update-1/0.json");
        assert!(!saved.exists(), "{made}: what the write refuses is refused before it is saved");
        undo(&host, 0).await.unwrap();
        assert_eq!(shapes(dir.path()), before, "{made}");
    }
}

/// Originals of an older agent name paths that its batch never touched. They do not keep the others from being put back.
#[tokio::test(flavor = "current_thread")]
async fn paths_out_of_reach_do_not_keep_others_from_being_put_back() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    let at = dir.path();
    fs::write(at.join("etc/foo"), "a file\n").unwrap();
    let host = host(at, FailPoints::off());
    let saved = at.join("var/lib/machine-config-agent/preimages/update-1");
    fs::create_dir_all(&saved).unwrap();
    let original = |path: &str, saved: &str| format!(r#"{{"path":"{path}","trusted":0,"saved":{saved}}}"#);
    let old = r#"{"kind":"file","bytes":"b2xkCg==","mode":420,"uid":0,"gid":0,"attributes":[]}"#;
    let absent = r#"{"kind":"absent"}"#;
    let document =
        |paths: &[String]| format!(r#"{{"schema":1,"paths":[{}],"password":null}}"#, paths.join(","));
    let never = original("/etc/foo/bar", absent);
    fs::write(saved.join("0.json"), document(&[never, original("/etc/motd", old)])).unwrap();
    undo(&host, 0).await.unwrap();
    assert_eq!(fs::read_to_string(at.join("etc/motd")).unwrap(), "old\n");

    // Root's own directory, which others may write to now, and a file in it that was changed: put back when it is closed.
    fs::create_dir(at.join("etc/open")).unwrap();
    fs::write(at.join("etc/open/x"), "new\n").unwrap();
    fs::write(at.join("etc/motd"), "new\n").unwrap();
    let mode = |bits| fs::set_permissions(at.join("etc/open"), fs::Permissions::from_mode(bits)).unwrap();
    mode(0o777);
    fs::write(saved.join("1.json"), document(&[original("/etc/open/x", old), original("/etc/motd", old)]))
        .unwrap();
    let error = undo(&host, 1).await.unwrap_err();
    assert_eq!(error.reason(), "UnsafeDirectory", "{error}");
    assert_eq!(fs::read_to_string(at.join("etc/motd")).unwrap(), "old\n");
    mode(0o755);
    undo(&host, 1).await.unwrap();
    assert_eq!(fs::read_to_string(at.join("etc/open/x")).unwrap(), "old\n");
}

/// Item 6: a file that a user puts in the place of his keys is not read into memory, does not block, and holds no update: it is
/// moved aside.
#[tokio::test(flavor = "current_thread")]
async fn rubbish_of_user_is_moved_aside() {
    let dir = tempfile::tempdir().unwrap();
    let (host, home) = with_keys(dir.path()).await;
    let keys = home.join(".ssh/authorized_keys.d/ignition");
    let (batch, steps) = &batches()[1];
    let length = 6 << 30;
    fs::OpenOptions::new().write(true).open(&keys).unwrap().set_len(length).unwrap();
    let observed = host.root.observe("/var/home/core/.ssh/authorized_keys.d/ignition").unwrap();
    assert!(
        matches!(observed, crate::model::ObservedFile::Regular { len, .. } if len == length),
        "{observed:?}"
    );
    // It grew while the update was under way.
    undo(&host, 1).await.unwrap();
    assert!(!keys.exists());
    fs::File::create(&keys).unwrap().set_len(length).unwrap();
    apply_batch(&host, 5, *batch, steps).await.unwrap();
    let written = fs::read_to_string(&keys).unwrap();
    assert_eq!(fs::metadata(home.join(".ssh/ignition.mca-foreign")).unwrap().len(), length);
    undo(&host, 5).await.unwrap();
    assert!(!keys.exists(), "it stays aside");

    rustix::fs::mknodat(
        rustix::fs::CWD,
        &keys,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    apply_batch(&host, 6, *batch, steps).await.unwrap();
    assert_eq!(fs::read_to_string(&keys).unwrap(), written);
    undo(&host, 6).await.unwrap();
    assert!(home.join(".ssh/ignition.mca-foreign.1").exists());
}

/// An original that is root's in a directory of a user is put back by the walk that saved it.
#[tokio::test(flavor = "current_thread")]
async fn original_of_root_in_directory_of_user_is_put_back() {
    let dir = tempfile::tempdir().unwrap();
    let (host, home) = with_keys(dir.path()).await;
    let keys = home.join(".ssh/authorized_keys.d/ignition");
    fs::write(&keys, "by hand\n").unwrap();
    std::os::unix::fs::chown(&keys, Some(0), Some(0)).unwrap();
    let (batch, steps) = &batches()[1];
    apply_batch(&host, 5, *batch, steps).await.unwrap();
    undo(&host, 5).await.unwrap();
    assert_eq!(fs::read_to_string(&keys).unwrap(), "by hand\n");
    assert_eq!(fs::metadata(&keys).unwrap().uid(), 0);
}
