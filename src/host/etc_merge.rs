//! Files and links that libostree's merge of `/etc` skips, and the unit that copies them.
//!
//! The merge takes into the new deployment the differences from the old image's `/usr/etc`. A file or a link that the
//! old image had brought is no difference: it stays behind, also when the config wants it and the new image has it not.
//! These are listed before the reboot; a unit that the shutdown stops after the finalization copies
//! them. So it is with what a config in an image brings and the target has not ([`super::etc_dropped`]).
//!
//! # Decisions
//! 1. After libostree's finalization, in the same shutdown, and not by an earlier one: files that services write to
//!    `/etc` until they stop are merged as ever, and an update that is undone before has changed nothing that boots.
//! 2. Nothing depends on it. A path that is not copied (a power cut just then, a host without this program) is missing
//!    in the new boot, seen by the verification, and written there.
//! 3. It is the version of the running host that is copied, with its attributes, as libostree does it. Directories are
//!    made as for any file.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::durable::{self, Attempt, Change, DesiredPath, Done};
use super::etc_dropped::{self, Source};
use super::finalization::FINALIZER;
use super::saved::PathSnapshot;
use super::systemd::{ServiceOutcome, ShutdownHook, Systemd, UnitLinks, known};
use super::{HostError, Root, mounts};
use crate::model::{FileMode, HostSpec, ManagedPath, ObservedFile, UnitName};
use crate::stateroot::deployment_directory;

/// The verb of the second executable that brings it over.
pub const BRING_OVER_VERB: &str = "bring-over";

/// The list of paths, valid for this boot.
const LIST: &str = "/run/machine-config-agent/left-behind.json";
/// The unit that is stopped.
const UNIT: &str = "machine-config-agent-bring-over.service";
/// Copy of the program of a container: the host starts it when the container is gone.
const OWN_PROGRAM: &str = "/run/machine-config-agent/bring-over";
const SYSROOT: &str = "/sysroot";

/// Paths that the merge into one deployment skips.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmergedPaths {
    /// The directory of the deployment.
    deployment: String,
    /// The files, links and directories below `/etc`.
    paths: BTreeSet<ManagedPath>,
    /// Files and links that the config in an image has and the target has not, and where their version comes from.
    #[serde(default)]
    dropped: BTreeMap<ManagedPath, Source>,
}

impl UnmergedPaths {
    /// Finds the given paths, and the links to the given units, that the merge into a deployment will skip. A
    /// deployment whose directory is not known has none.
    pub fn find(
        root: &Root,
        deployment: &str,
        desired: &BTreeSet<ManagedPath>,
        units: &BTreeSet<UnitName>,
    ) -> Result<Self, HostError> {
        let Some(deployment) = deployment_directory(deployment) else {
            return Ok(Self { deployment: String::new(), paths: BTreeSet::new(), dropped: BTreeMap::new() });
        };
        let links = UnitLinks::load(root)?;
        let mut all = desired.clone();
        for unit in units {
            all.extend(links.leading_to(unit)?);
        }
        let mut paths = BTreeSet::new();
        for path in all {
            if is_left(root, &deployment, &path)? {
                paths.insert(path);
            }
        }
        Ok(Self { deployment, paths, dropped: BTreeMap::new() })
    }

    /// Adds the paths of configs in images that the target does not have.
    pub fn with_dropped(mut self, root: &Root, to: &HostSpec) -> Result<Self, HostError> {
        if !self.deployment.is_empty() {
            self.dropped = etc_dropped::find(root, &self.deployment, to)?;
            self.dropped.retain(|path, _| !self.paths.contains(path));
        }
        Ok(self)
    }

    /// Returns true if the merge leaves each path right.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.dropped.is_empty()
    }

    /// Returns the files and links that only the old image had.
    pub fn paths(&self) -> impl Iterator<Item = &ManagedPath> {
        self.paths.iter()
    }

    /// Returns the files and links that no config has but one in an image.
    pub fn dropped(&self) -> impl Iterator<Item = &ManagedPath> {
        self.dropped.keys()
    }

    /// Records the paths; returns whether they are new.
    pub fn note(&self, root: &Root) -> Result<Done, HostError> {
        let json = serde_json::to_vec(self).map_err(|error| malformed(&error))?;
        root.write_if_changed(LIST, &json, FileMode::PRIVATE)
    }
}

/// Has the shutdown copy the listed paths. Where no systemd runs, the player of the shutdown does.
pub async fn arm(root: &Root, systemd: &Systemd) -> Result<ServiceOutcome, HostError> {
    let program = root.entered().worker_on_host(root.base(), OWN_PROGRAM)?;
    let command = [program.clone(), BRING_OVER_VERB.to_owned()];
    let (own, finalizer) = (known(UNIT)?, known(FINALIZER)?);
    let last = ShutdownHook {
        unit: &own,
        description: "Files that the merge of /etc leaves behind (for machine-config-agent)",
        command: &command,
        log_name: "machine-config-agent",
        after: &finalizer,
        mounts: &[SYSROOT, &program],
    };
    systemd.at_shutdown(&last).await
}

/// Deletes the list; a missing list is ignored.
pub fn forget(root: &Root) -> Result<(), HostError> {
    root.remove(LIST)
}

/// Returns true if the merge skips a path. A path reached by a link to a directory is somewhere else.
fn is_left(root: &Root, deployment: &str, path: &ManagedPath) -> Result<bool, HostError> {
    let Some(below) = path.as_str().strip_prefix("/etc/") else { return Ok(false) };
    let live = root.observe(path.as_str())?;
    let is_managed = match &live {
        ObservedFile::Regular { .. } | ObservedFile::Symlink { .. } | ObservedFile::Directory { .. } => true,
        ObservedFile::Absent | ObservedFile::Special | ObservedFile::Unreachable => false,
    };
    Ok(is_managed
        && root.real_path(path.as_str())? == path.as_str()
        && root.observe(&format!("/usr/etc/{below}"))? == live
        && root.observe(&format!("{deployment}/usr/etc/{below}"))? != live)
}

/// Copies the listed paths into the deployment that was finalized; a deployment that was not is left alone.
pub fn bring_over(root: &Root) -> Result<Done, HostError> {
    let Some(bytes) = root.read(LIST)? else { return Ok(Done::default()) };
    let list: UnmergedPaths = serde_json::from_slice(&bytes).map_err(|error| malformed(&error))?;
    if !root.exists(&format!("{}/etc", list.deployment))? {
        return Ok(Done::default());
    }
    let new = Root::open(&root.base().join(list.deployment.trim_start_matches('/')))?;
    let mut found = Vec::new();
    for path in &list.paths {
        let live = PathSnapshot::read(root, path.as_str())?;
        // A path removed meanwhile is not restored.
        if live != PathSnapshot::Absent {
            found.push((path, live.attributes(), live));
        }
    }
    for (path, source) in &list.dropped {
        let version = source.read(root, &list.deployment, path)?;
        found.push((path, version.attributes(), version));
    }
    let changes = found.iter().map(|(path, attributes, version)| {
        if list.dropped.get(*path) == Some(&Source::Emptied) {
            Change::new(path.as_str(), 0, DesiredPath::NoDirectory)
        } else {
            version.put_back(path.as_str(), 0, attributes)
        }
    });
    let changes: Vec<Change<'_>> = changes.collect();
    durable::apply_changes(&new, &changes, Attempt::First, root.fail_points())
}

/// Runs the second executable's verb: in the shutdown, in a mount namespace of its own.
pub fn main() -> ExitCode {
    let writable = || {
        mounts::private()?;
        mounts::make_writable(Path::new(SYSROOT))
    };
    let done = writable()
        .map_err(|errno| HostError::io("make writable", SYSROOT, errno))
        .and_then(|()| bring_over(&Root::open(Path::new("/"))?));
    let (text, code) = match done {
        Ok(Done { changed, .. }) => (format!("copied {changed} files into the new /etc"), ExitCode::SUCCESS),
        Err(error) => (format!("failed to copy files into the new /etc: {error}"), ExitCode::FAILURE),
    };
    // The journal reads it.
    drop(writeln!(std::io::stderr(), "{text}"));
    code
}

fn malformed(error: &serde_json::Error) -> HostError {
    HostError::Malformed { path: LIST.to_owned(), format: "JSON", cause: error.to_string() }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    const ID: &str = "my-os-0123.1";
    const NEW: &str = "ostree/deploy/my-os/deploy/0123.1";
    const WANTS: &str = "systemd/system/multi-user.target.wants/a.service";

    fn put(at: &Path, path: &str, text: &str) {
        let path = at.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(at: &Path, path: &str, target: &str) {
        fs::create_dir_all(at.join(path).parent().unwrap()).unwrap();
        symlink(target, at.join(path)).unwrap();
    }

    fn paths(names: &[&str]) -> BTreeSet<ManagedPath> {
        names.iter().map(|name| ManagedPath::new(*name).unwrap()).collect()
    }

    /// A host whose image brought files, one of them changed since, and an enabled unit; the next image has some of it.
    fn host() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        for name in ["only-old", "in-both", "other-in-new", "changed", "other-mode", "sub/dir/deep"] {
            put(at, &format!("usr/etc/{name}"), "1");
            put(at, &format!("etc/{name}"), if name == "changed" { "2" } else { "1" });
        }
        fs::set_permissions(at.join("etc/other-mode"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(at.join("etc/sub/dir/deep"), fs::Permissions::from_mode(0o4750)).unwrap();
        fs::set_permissions(at.join("usr/etc/sub/dir/deep"), fs::Permissions::from_mode(0o4750)).unwrap();
        put(at, "etc/own", "1");
        for tree in ["usr/etc", "etc"] {
            put(at, &format!("{tree}/systemd/system/a.service"), "[Install]\nWantedBy=multi-user.target\n");
            link(at, &format!("{tree}/{WANTS}"), "/etc/systemd/system/a.service");
            link(at, &format!("{tree}/elsewhere"), "sub");
            link(at, &format!("{tree}/systemd/system/masked.service"), "/dev/null");
        }
        put(at, &format!("{NEW}/usr/etc/in-both"), "1");
        put(at, &format!("{NEW}/usr/etc/other-in-new"), "3");
        let root = Root::open(at).unwrap();
        (dir, root)
    }

    fn find(root: &Root) -> UnmergedPaths {
        let names = [
            "/etc/only-old",
            "/etc/in-both",
            "/etc/other-in-new",
            "/etc/changed",
            "/etc/other-mode",
            "/etc/own",
            "/etc/sub/dir/deep",
            "/etc/elsewhere/dir/deep",
            "/etc/none",
            "/etc/sub",
            "/var/lib/x",
            "/etc/systemd/system/a.service",
        ];
        let units = ["a.service", "masked.service", "none.service"].map(|name| UnitName::new(name).unwrap());
        UnmergedPaths::find(root, ID, &paths(&names), &units.into()).unwrap()
    }

    /// OCL-018: paths that equal the old image's own and not the new one's. The rest is merged, or there.
    #[test]
    fn unmerged_etc_paths_are_found() {
        let (_dir, root) = host();
        let left = find(&root);
        let expected = [
            "/etc/only-old",
            "/etc/other-in-new",
            "/etc/sub",
            "/etc/sub/dir/deep",
            "/etc/systemd/system/a.service",
            "/etc/systemd/system/masked.service",
            &format!("/etc/{WANTS}"),
        ];
        assert_eq!(left.paths, paths(&expected));
        assert!(
            UnmergedPaths::find(&root, "strange", &paths(&["/etc/only-old"]), &BTreeSet::new())
                .unwrap()
                .is_empty()
        );
    }

    /// Bytes, modes, owners and links; a path removed meanwhile stays away; a second run changes nothing.
    #[test]
    fn carry_over_requires_finalized_deployment() {
        let (dir, root) = host();
        let new = dir.path().join(NEW);
        assert_eq!(bring_over(&root).unwrap(), Done::default(), "nothing is written down");
        let left = find(&root);
        assert_eq!(left.note(&root).unwrap().changed, 1);
        assert_eq!(left.note(&root).unwrap().changed, 0, "it is written down already");
        assert_eq!(bring_over(&root).unwrap(), Done::default(), "it is not finalized");
        assert!(!new.join("etc").exists());

        put(&new, "etc/other-in-new", "3");
        put(&new, "etc/in-both", "1");
        fs::remove_file(dir.path().join("etc/only-old")).unwrap();
        assert_eq!(bring_over(&root).unwrap().changed, 6);
        assert_eq!(bring_over(&root).unwrap(), Done { changed: 0, right: 6, left: vec![] });
        assert_eq!(fs::read_to_string(new.join("etc/other-in-new")).unwrap(), "1");
        let deep = fs::metadata(new.join("etc/sub/dir/deep")).unwrap();
        assert_eq!(deep.mode() & 0o7777, 0o4750);
        assert_eq!(
            fs::read_link(new.join("etc").join(WANTS)).unwrap(),
            Path::new("/etc/systemd/system/a.service")
        );
        assert!(!new.join("etc/only-old").exists() && !new.join("usr/etc/sub").exists());

        forget(&root).unwrap();
        forget(&root).unwrap();
        fs::remove_dir_all(new.join("etc/sub")).unwrap();
        assert_eq!(bring_over(&root).unwrap(), Done::default());
    }

    /// A list that can't be read copies nothing and is named; the next staging writes it anew.
    #[test]
    fn damaged_list_is_named_and_written_anew() {
        let (dir, root) = host();
        let new = dir.path().join(NEW);
        let left = find(&root);
        put(&new, "etc/in-both", "1");
        for bytes in [&b"{"[..], b"", b"hunter2\xff\x00", br#"{"schema":99}"#, b"null", b"[]"] {
            left.note(&root).unwrap();
            fs::write(dir.path().join(LIST.trim_start_matches('/')), bytes).unwrap();
            let error = bring_over(&root).unwrap_err().to_string();
            assert!(error.contains(LIST) && !error.contains("hunter2"), "{bytes:?}: {error}");
            assert_eq!(fs::read_dir(new.join("etc")).unwrap().count(), 1, "{bytes:?}");
            assert_eq!(left.note(&root).unwrap().changed, 1, "{bytes:?}");
        }
        assert_eq!(bring_over(&root).unwrap().changed, 7);
    }
}
