//! Directories of other accounts, and content that the old config wrote.

use super::*;

const MIB: usize = 1024 * 1024;

/// Carries out a batch of files between two specs, or undoes it.
async fn run(
    host: &Host,
    (from, to): (&HostSpec, &HostSpec),
    ops: Vec<Op>,
    undo: bool,
) -> Result<(), ApplyError> {
    let steps = steps(ops);
    let restore = Undo::RestoreOriginals { batch: 0 };
    let work = if undo {
        Work::Undo { undo: &restore, steps: &steps }
    } else {
        Work::Apply { batch: Batch::Files, steps: &steps }
    };
    apply(&Intent::for_tests(work, from, to, originals(0)), host, &|_| {}).await
}

fn written(paths: &[&str]) -> Vec<Op> {
    paths.iter().map(|text| Op::WriteFile { path: path(text) }).collect()
}

fn owned(at: &Path, uid: u32, mode: u32) {
    fs::create_dir_all(at).unwrap();
    fs::set_permissions(at, fs::Permissions::from_mode(mode)).unwrap();
    std::os::unix::fs::chown(at, Some(uid), Some(uid)).unwrap();
}

/// `/etc/polkit-1/rules.d` is polkitd's: files are written, made in new directories, undone, and the directory stays as it is.
#[tokio::test(flavor = "current_thread")]
async fn files_in_directory_of_other_account_are_written_and_undone() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    let rules = dir.path().join("etc/polkit-1/rules.d");
    owned(&rules, 4711, 0o700);
    fs::write(rules.join("50.rules"), "the account's\n").unwrap();
    std::os::unix::fs::chown(rules.join("50.rules"), Some(4711), Some(4711)).unwrap();
    let before = shapes(dir.path());
    let host = host(dir.path(), FailPoints::off());
    let (from, mut to) = (spec("rendered-old"), spec("rendered-new"));
    let paths = ["/etc/polkit-1/rules.d/50.rules", "/etc/polkit-1/rules.d/new/60.rules"];
    for text in paths {
        to.files.insert(path(text), file("the config's\n", 0o600, "root"));
    }
    run(&host, (&from, &to), written(&paths), false).await.unwrap();
    for name in ["50.rules", "new/60.rules"] {
        let found = fs::metadata(rules.join(name)).unwrap();
        assert_eq!((found.uid(), found.mode() & 0o7777), (0, 0o600), "{name}");
    }
    let directory = fs::metadata(&rules).unwrap();
    assert_eq!((directory.uid(), directory.mode() & 0o7777), (4711, 0o700));
    run(&host, (&from, &to), written(&paths), true).await.unwrap();
    assert_eq!(shapes(dir.path()), before);
}

/// A way out of such a directory, or one that could be anybody's, is refused; no advice changes the owner of a program's directory.
#[tokio::test(flavor = "current_thread")]
async fn ways_out_of_directory_of_other_account_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    let at = dir.path();
    owned(&at.join("etc/own"), 4711, 0o755);
    owned(&at.join("etc/own/third"), 4712, 0o755);
    std::os::unix::fs::symlink("/etc", at.join("etc/own/link")).unwrap();
    owned(&at.join("etc/shared"), 4711, 0o775);
    owned(&at.join("tmp"), 0, 0o1777);
    owned(&at.join("tmp/first"), 4711, 0o755);
    owned(&at.join("etc/systemd/system/a.service.d"), 4711, 0o755);
    let host = host(at, FailPoints::off());
    let (from, mut to) = (spec("rendered-old"), spec("rendered-new"));
    for text in ["/etc/own/third/x", "/etc/own/link/x", "/etc/shared/x", "/tmp/first/x"] {
        to.files.insert(path(text), file("the config's\n", 0o644, "root"));
        let error = run(&host, (&from, &to), written(&[text]), false).await.unwrap_err();
        assert_eq!(error.reason(), "UnsafeDirectory", "{text}: {error}");
        let next = error.next();
        assert!(!next.contains("chown") && next.contains("MachineConfig"), "{text}: {next}");
    }
    let dropins = BTreeMap::from([(DropinName::new("10-x.conf").unwrap(), contents("[Service]\n"))]);
    let (contents, enablement, mask) = (None, Enablement::Preset, Mask::Unset);
    to.units.insert(unit("a.service"), UnitSpec { contents, dropins, enablement, mask });
    let write = Op::WriteDropin { unit: unit("a.service"), name: DropinName::new("10-x.conf").unwrap() };
    let error = run(&host, (&from, &to), vec![write], false).await.unwrap_err();
    assert_eq!(error.reason(), "UnsafeDirectory", "what is there runs as root: {error}");
    assert!(!at.join("etc/x").exists());
}

/// The copy of a program that the account has a hard link to has no privileges.
#[tokio::test(flavor = "current_thread")]
async fn original_in_directory_of_other_account_has_no_privileges_of_others() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    let (own, program) = (dir.path().join("etc/own"), dir.path().join("usr/program"));
    owned(&own, 4711, 0o755);
    fs::write(&program, "a program").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    fs::hard_link(&program, own.join("x")).unwrap();
    let host = host(dir.path(), FailPoints::off());
    let (from, mut to) = (spec("rendered-old"), spec("rendered-new"));
    to.files.insert(path("/etc/own/x"), file("the config's\n", 0o644, "root"));
    run(&host, (&from, &to), written(&["/etc/own/x"]), false).await.unwrap();
    run(&host, (&from, &to), written(&["/etc/own/x"]), true).await.unwrap();
    assert_eq!(fs::read_to_string(own.join("x")).unwrap(), "a program");
    assert_eq!(fs::metadata(own.join("x")).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(fs::metadata(&program).unwrap().mode() & 0o7777, 0o4755);
}

/// Whatever a config wrote, the next can replace and remove: a file of more than 1 MiB in a user's directory, and more than
/// 32 MiB together. The undo brings them back.
#[tokio::test(flavor = "current_thread")]
async fn own_content_of_any_size_can_be_left_and_is_undone() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    let host = host(dir.path(), FailPoints::off());
    let large = |byte: u8, len: usize, user: &str| {
        let text = String::from_utf8(vec![byte; len]).unwrap();
        file(&text, 0o644, user)
    };
    let (mut old, mut new) = (spec("rendered-old"), spec("rendered-new"));
    old.files.insert(path("/home/core/large"), large(b'a', 2 * MIB, "core"));
    old.files.insert(path("/etc/first"), large(b'b', 17 * MIB, "root"));
    old.files.insert(path("/etc/second"), large(b'c', 17 * MIB, "root"));
    new.files.insert(path("/etc/first"), large(b'd', 1, "root"));
    let all = ["/home/core/large", "/etc/first", "/etc/second"];
    run(&host, (&spec("unmanaged"), &old), written(&all), false).await.unwrap();
    crate::journal::originals::discard_all(&host.root).unwrap();
    let before = shapes(dir.path());
    let change = || {
        let mut ops = written(&["/etc/first"]);
        ops.extend(["/home/core/large", "/etc/second"].map(|text| Op::RemoveFile { path: path(text) }));
        ops
    };
    run(&host, (&old, &new), change(), false).await.unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("etc/first")).unwrap(), "d");
    assert!(!dir.path().join("etc/second").exists() && !dir.path().join("var/home/core/large").exists());
    run(&host, (&old, &new), change(), true).await.unwrap();
    crate::journal::originals::discard_all(&host.root).unwrap();
    assert_eq!(shapes(dir.path()), before);
}
