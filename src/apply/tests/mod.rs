//! Batches on a host in a directory: carried out, repeated, interrupted at every point, undone.

#![expect(clippy::disallowed_methods, reason = "a test looks at the machine from outside")]

mod accounts;
mod crash;
mod foreign;
mod log;
mod os;
mod paths;
mod steps;
mod undo;
mod units;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::host::{FailPoints, Host, Root};
use crate::journal::{Intent, Originals, Work};
use crate::model::units::{Enablement, Mask, UnitSpec};
use crate::model::users::{Account, PasswordHash, SshKey};
use crate::model::{
    ConfigName, Contents, DropinName, FileMode, FileSpec, HostSpec, ManagedPath, Owner, Principal, UnitName,
    UpdateId, UserName,
};
use crate::plan::{Batch, Op, Step, StepReason, Undo};

use super::{ApplyError, apply};

pub(super) fn path(text: &str) -> ManagedPath {
    ManagedPath::new(text).unwrap()
}

pub(super) fn unit(text: &str) -> UnitName {
    UnitName::new(text).unwrap()
}

pub(super) fn contents(text: &str) -> Contents {
    Contents::new(text.as_bytes().to_vec())
}

pub(super) fn file(text: &str, mode: i64, user: &str) -> FileSpec {
    let name = |name: &str| Principal::Name(name.to_owned());
    let owner = if user == "root" { Owner::ROOT } else { Owner { user: name(user), group: name(user) } };
    FileSpec { contents: contents(text), mode: FileMode::new(mode).unwrap(), owner }
}

pub(super) fn spec(name: &str) -> HostSpec {
    HostSpec::empty(ConfigName::new(name).unwrap())
}

/// A host with accounts, units and a file of the distribution.
pub(super) fn fixture(at: &Path) {
    let write = |path: &str, text: &str| {
        let path = at.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("etc/passwd", "root:x:0:0::/root:/bin/sh\ncore:x:1000:1000::/home/core:/bin/sh\n");
    write("etc/group", "core:x:1000:\n");
    write("etc/shadow", "root:!:1::::::\ncore:!:1::::::\n");
    write("etc/motd", "the distribution's\n");
    write("etc/stale", "no longer managed\n");
    write("usr/etc/restored", "the image's\n");
    write("etc/restored", "the config's\n");
    write("usr/lib/systemd/system/crio.service", "[Install]\nWantedBy=multi-user.target\n");
    write("usr/lib/systemd/system/chronyd.service", "[Install]\nWantedBy=multi-user.target\n");
    write("usr/lib/systemd/system-preset/99.preset", "disable *\n");
    write("proc/sys/kernel/random/boot_id", "boot-1\n");
    write("proc/cmdline", "root=/dev/vda \"a b\"=1\n");
    fs::set_permissions(at.join("etc/shadow"), fs::Permissions::from_mode(0o000)).unwrap();
    fs::create_dir_all(at.join("var/home/core")).unwrap();
    std::os::unix::fs::symlink("var/home", at.join("home")).unwrap();
    std::os::unix::fs::chown(at.join("var/home/core"), Some(1000), Some(1000)).unwrap();
    let wants = at.join("etc/systemd/system/multi-user.target.wants");
    fs::create_dir_all(&wants).unwrap();
    std::os::unix::fs::symlink("/usr/lib/systemd/system/chronyd.service", wants.join("chronyd.service"))
        .unwrap();
}

pub(super) fn host(at: &Path, fail_points: FailPoints) -> Host {
    let root = Root::open(at).unwrap();
    Host::in_directory(root, fail_points)
}

pub(super) fn old() -> HostSpec {
    let mut old = spec("rendered-old");
    old.files.insert(path("/etc/stale"), file("no longer managed\n", 0o644, "root"));
    old.files.insert(path("/etc/restored"), file("the config's\n", 0o644, "root"));
    old
}

pub(super) fn new() -> HostSpec {
    let mut new = spec("rendered-new");
    new.files.insert(path("/etc/motd"), file("the config's\n", 0o640, "root"));
    new.files.insert(path("/etc/new/deep/file"), file("deep\n", 0o600, "root"));
    new.files.insert(path("/home/core/.bashrc"), file("alias ll=ls\n", 0o644, "core"));
    let key = SshKey::new("ssh-ed25519 AAAA core@example").unwrap();
    let core = Account::with(vec![key], PasswordHash::new("$6$salt$hash").unwrap());
    new.users.accounts.insert(UserName::core(), core);
    let dropins = BTreeMap::from([(DropinName::new("10-x.conf").unwrap(), contents("[Service]\nNice=1\n"))]);
    let mask = Mask::Unset;
    let kubelet = contents("[Install]\nWantedBy=multi-user.target\n");
    new.units.insert(
        unit("kubelet.service"),
        UnitSpec { contents: Some(kubelet), dropins, enablement: Enablement::Enabled, mask },
    );
    new.units.insert(unit("crio.service"), UnitSpec { mask: Mask::Masked, ..UnitSpec::empty() });
    new
}

pub(super) fn keys_of(user: &str) -> Op {
    Op::SetSshKeys { user: UserName::new(user).unwrap() }
}

pub(super) fn password_of(user: &str) -> Op {
    Op::SetPassword { user: UserName::new(user).unwrap() }
}

pub(super) fn steps(ops: Vec<Op>) -> Vec<Step> {
    ops.into_iter().map(|op| Step { op, because: StepReason::Changed }).collect()
}

/// One batch of each kind that outlives a boot.
pub(super) fn batches() -> Vec<(Batch, Vec<Step>)> {
    let files = steps(vec![
        Op::WriteFile { path: path("/etc/motd") },
        Op::WriteFile { path: path("/etc/new/deep/file") },
        Op::WriteFile { path: path("/home/core/.bashrc") },
        Op::WriteUnit { unit: unit("kubelet.service") },
        Op::WriteDropin { unit: unit("kubelet.service"), name: DropinName::new("10-x.conf").unwrap() },
        Op::RemoveFile { path: path("/etc/stale") },
        Op::RestoreFile { path: path("/etc/restored") },
    ]);
    let users = steps(vec![keys_of("core"), password_of("core")]);
    let links = steps(vec![
        Op::EnableUnit { unit: unit("kubelet.service") },
        Op::DisableUnit { unit: unit("chronyd.service") },
        Op::MaskUnit { unit: unit("crio.service") },
        Op::PresetUnit { unit: unit("chronyd.service") },
    ]);
    vec![(Batch::Files, files), (Batch::Users, users), (Batch::Links, links)]
}

pub(super) fn originals(index: usize) -> Originals {
    Originals::new(UpdateId::new("update-1").unwrap(), index)
}

pub(super) async fn apply_batch(
    host: &Host,
    index: usize,
    batch: Batch,
    steps: &[Step],
) -> Result<(), ApplyError> {
    let (old, new) = (old(), new());
    let intent = Intent::for_tests(Work::Apply { batch, steps }, &old, &new, originals(index));
    apply(&intent, host, &|_| {}).await
}

pub(super) async fn apply_all(host: &Host) {
    for (index, (batch, steps)) in batches().iter().enumerate() {
        apply_batch(host, index, *batch, steps).await.unwrap();
    }
}

pub(super) async fn undo_all(host: &Host) {
    let (old, new) = (old(), new());
    for (index, (_, steps)) in batches().iter().enumerate().rev() {
        let undo = Undo::RestoreOriginals { batch: index };
        let work = Work::Undo { undo: &undo, steps };
        let intent = Intent::for_tests(work, &old, &new, originals(index));
        apply(&intent, host, &|_| {}).await.unwrap();
    }
}

/// Properties of a file, for comparing whole hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) what: String,
    mode: u32,
    owner: (u32, u32),
}

/// Everything but directories and the agent's own state.
pub(super) fn shapes(at: &Path) -> BTreeMap<PathBuf, Shape> {
    every_file(at)
        .into_iter()
        .map(|path| {
            let stat = fs::symlink_metadata(&path).unwrap();
            let what = match fs::read_link(&path) {
                Ok(target) => format!("-> {}", target.display()),
                Err(_) => String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned(),
            };
            let mode = stat.permissions().mode();
            (path.strip_prefix(at).unwrap().to_owned(), Shape { what, mode, owner: (stat.uid(), stat.gid()) })
        })
        .collect()
}

/// Returns the traces of a write: inode and times of each file.
pub(super) fn traces(at: &Path) -> BTreeMap<PathBuf, (u64, i64, i64)> {
    every_file(at)
        .into_iter()
        .map(|path| {
            let stat = fs::symlink_metadata(&path).unwrap();
            (path, (stat.ino(), stat.ctime(), stat.ctime_nsec()))
        })
        .collect()
}

fn every_file(at: &Path) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![at.to_owned()]);
    while let Some(folder) = folders.pop() {
        if folder.ends_with("var/lib/machine-config-agent") {
            continue;
        }
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let list = if entry.file_type().unwrap().is_dir() { &mut folders } else { &mut files };
            list.push(entry.path());
        }
    }
    // The programs for accounts keep the databases before their change, with a `-`.
    files.retain(|path| !path.ends_with(".pwd.lock") && !path.to_string_lossy().ends_with('-'));
    files
}
