//! Below a directory that passes an access list on, what is written is open to those of its mode, and to no others.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use machine_config_agent::host::durable::{Attempt, Attributes, Change, DesiredPath, apply_changes};
use machine_config_agent::host::{FailPoints, Root};
use machine_config_agent::model::FileMode;

use crate::access_list::{give, lists, pass_on};

fn run(root: &Root, changes: &[Change<'_>]) -> usize {
    apply_changes(root, changes, Attempt::First, &FailPoints::off()).unwrap().changed
}

fn host() -> (tempfile::TempDir, Root) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("etc")).unwrap();
    pass_on(&dir.path().join("etc"));
    let root = Root::open(dir.path()).unwrap();
    (dir, root)
}

#[test]
fn what_is_written_inherits_none() {
    let (dir, root) = host();
    let directory = DesiredPath::Directory { mode: Some(0o750), uid: None, gid: None };
    let changes = [
        Change::new("/etc/file", 0, DesiredPath::file(b"x", 0o640, 0, 0)),
        Change::new("/etc/on/the/way", 0, DesiredPath::file(b"x", 0o644, 0, 0)),
        Change::new("/etc/directory", 0, directory),
        Change::new("/etc/above/link", 0, DesiredPath::link("/dev/null")),
    ];
    run(&root, &changes);
    root.replace("/etc/own", b"x", FileMode::DEFAULT).unwrap();
    root.create_dir("/etc/state/deep", FileMode::PRIVATE_DIRECTORY).unwrap();
    for (path, mode) in [
        ("file", 0o640),
        ("on", 0o755),
        ("on/the", 0o755),
        ("on/the/way", 0o644),
        ("directory", 0o750),
        ("above", 0o755),
        ("own", 0o644),
        ("state", 0o755),
        ("state/deep", 0o700),
    ] {
        let at = dir.path().join("etc").join(path);
        assert_eq!((lists(&at), fs::metadata(&at).unwrap().mode() & 0o7777), (vec![], mode), "{path}");
    }
    assert_eq!(run(&root, &changes), 0);
}

/// Its mode is the config's, and yet another may read it.
#[test]
fn file_with_list_is_not_right() {
    let (dir, root) = host();
    let at = dir.path().join("etc/file");
    let change = [Change::new("/etc/file", 0, DesiredPath::file(b"x", 0o650, 0, 0))];
    run(&root, &change);
    give(&at);
    assert_eq!(fs::metadata(&at).unwrap().mode() & 0o7777, 0o650);
    assert_eq!(run(&root, &change), 1);
    assert!(lists(&at).is_empty());
}

#[test]
fn restored_file_has_the_list_of_its_original_only() {
    let (dir, root) = host();
    let restore = |attributes: &[(String, Vec<u8>)]| {
        let attributes = Attributes::Exactly(attributes);
        let want = DesiredPath::File { bytes: b"x", mode: 0o650, uid: 0, gid: 0, attributes };
        run(&root, &[Change::new("/etc/file", 0, want)]);
    };
    let at = dir.path().join("etc/file");
    restore(&[]);
    assert!(lists(&at).is_empty(), "inherited");
    give(&at);
    let mut value = vec![0_u8; 256];
    let length = rustix::fs::getxattr(&at, "system.posix_acl_access", &mut value).unwrap();
    value.truncate(length);
    fs::write(&at, "other").unwrap();
    restore(&[("system.posix_acl_access".to_owned(), value)]);
    assert_eq!(lists(&at), ["system.posix_acl_access"]);
    assert_eq!(fs::metadata(&at).unwrap().mode() & 0o7777, 0o650);
}

/// An edited file remains what it is to others: `/etc/shadow`, with a password set.
#[test]
fn edited_file_keeps_its_own() {
    let (dir, root) = host();
    let at = dir.path().join("etc/shadow");
    fs::write(&at, "core:*:1::::::\n").unwrap();
    fs::set_permissions(&at, fs::Permissions::from_mode(0o640)).unwrap();
    give(&at);
    let edited = DesiredPath::edited(b"core:!:1::::::\n", 0o650, 0, 0);
    run(&root, &[Change::new("/etc/shadow", 0, edited)]);
    assert_eq!(fs::read_to_string(&at).unwrap(), "core:!:1::::::\n");
    assert_eq!(lists(&at), ["system.posix_acl_access"]);
}
