//! Refusals of a change, seen before it is made. Writes nothing.
//!
//! | refusal of a change | seen here |
//! |---|---|
//! | a directory of another account, a link in one, no directory on the way, a name that is too long | yes, by the same walk |
//! | a directory, a device, a pipe or a socket in its place; a mount over it, but for a directory of root's | yes |
//! | a directory at the name of its new version | yes |
//! | a read-only file system; an immutable or append-only file, directory or target of a hard link | yes |
//! | more extended attributes than are kept; a file beyond the process's limit of file sizes | yes |
//! | no space, no inodes; an original that is too large | as numbers, which the plan adds up |
//! | quotas, NFS's `root_squash`, access by SELinux, broken disks | no: only a write tells |

use rustix::fd::AsFd;
use rustix::fs::{IFlags, OFlags, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::temp_file::temporary;
use super::{Change, DesiredPath, in_the_way, is_gone, named};
use crate::host::HostError;
use crate::host::error::{DIRECTORY, OTHERS_MAY_WRITE, Unsafe};
use crate::host::root::{
    Dir, Entry, Hands, LaidPath, Look, READ_ATTRIBUTES, Root, attributes, no_name, not_kept,
    not_kept_of_link, split,
};
use crate::model::obstacles::{Obstacle, Space};
use crate::model::text::{chain, shell_word};

/// Result of the look at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Examined {
    /// The obstacle.
    pub obstacle: Option<Obstacle>,
    /// The device that the path is on, or would be, and its space; `None` where the way is closed.
    pub space: Option<(u64, Space)>,
    /// Attributes and names that no restored copy of it has, for people.
    pub not_kept: Option<String>,
}

impl Examined {
    fn closed(error: &HostError) -> Self {
        Self { obstacle: Some(error.into()), space: None, not_kept: None }
    }
}

impl From<&HostError> for Obstacle {
    fn from(error: &HostError) -> Self {
        Self { cause: chain(error), next: error.next() }
    }
}

/// Looks at a path that is to be changed.
pub fn examine(root: &Root, change: &Change<'_>) -> Result<Examined, HostError> {
    let path = change.path();
    let closed = Examined::closed;
    let Some((directory, name)) = split(path) else { return Ok(closed(&no_name(path))) };
    if let Some(laid) = laid(root, change)? {
        return Ok(laid);
    }
    let (dir, is_whole) = match root.walk_existing(directory, change.hands()) {
        Ok(walked) => walked,
        Err(error) if is_gone(root, change, &error) => {
            return Ok(Examined { obstacle: None, space: None, not_kept: None });
        }
        Err(error) if error.is_lasting() => return Ok(closed(&named(error, path))),
        Err(error) => return Err(named(error, path)),
    };
    let space = space(&dir, path)?;
    let mut lost = None;
    let obstacle = match in_place(&dir, name, change, is_whole) {
        Ok(Standing::Nothing) if change.is_removal() => None,
        Ok(Standing::Fixed(obstacle)) => Some(obstacle),
        Ok(Standing::Kept) => None,
        Ok(Standing::Nothing | Standing::Replaceable) => {
            lost = lost_at(&dir, name, change, is_whole)?;
            let closed = closed_directory(&dir, path)?.or_else(|| limit(change));
            match closed.or_else(|| no_draft(&dir, name, change)) {
                None => no_link(root, change, space.0)?,
                obstacle => obstacle,
            }
        }
        Err(error) if error.is_lasting() => Some((&error).into()),
        Err(error) => return Err(error),
    };
    Ok(Examined { obstacle, space: Some(space), not_kept: lost })
}

/// Looks at a path that something is laid over, or over a directory above it; `None` where the disk tells.
fn laid(root: &Root, change: &Change<'_>) -> Result<Option<Examined>, HostError> {
    let path = change.path();
    let Look::Laid(real, will_be) = root.look(path)? else { return Ok(None) };
    let closed = |error: &HostError| Some(Examined::closed(error));
    let Some((above, found)) = root.laid_above(&real) else { return Ok(None) };
    let (directory, _) = split(&above).ok_or_else(|| no_name(path))?;
    let (dir, _) = match root.walk_existing(directory, change.hands()) {
        Ok(walked) => walked,
        Err(error) if error.is_lasting() => return Ok(closed(&named(error, path))),
        Err(error) => return Err(named(error, path)),
    };
    let space = Some(space(&dir, path)?);
    let obstacle = match (found, will_be) {
        (LaidPath::Directory { mode, uid, .. }, _) if real != above => {
            // Its owner is another one then than now: only a walk tells where that leads.
            if *uid != 0 || mode & OTHERS_MAY_WRITE != 0 {
                root.note_unknown(path);
            }
            None
        }
        (LaidPath::File { .. }, _) if real != above => {
            let error = HostError::Kind { path: above, expected: DIRECTORY, found: "a regular file" };
            Some((&named(error, path)).into())
        }
        (LaidPath::Link { .. }, _) if real != above => {
            root.note_unknown(path);
            None
        }
        (LaidPath::Directory { .. }, _) if !change.may_be_directory() => {
            Some((&in_the_way(change, "a directory")).into())
        }
        (
            LaidPath::Absent | LaidPath::File { .. } | LaidPath::Link { .. } | LaidPath::Directory { .. },
            _,
        ) => None,
    };
    let obstacle = match obstacle {
        None if change.is_removal() && *will_be == LaidPath::Absent => None,
        None => closed_directory(&dir, path)?.or_else(|| limit(change)),
        obstacle => obstacle,
    };
    Ok(Some(Examined { obstacle, space, not_kept: None }))
}

/// Returns what of an entry is lost with its replacement.
fn lost_at(dir: &Dir, name: &str, change: &Change<'_>, is_whole: bool) -> Result<Option<String>, HostError> {
    let failed = |errno: Errno| HostError::io(READ_ATTRIBUTES, change.path(), errno);
    if !is_whole {
        return Ok(None);
    }
    let (names, lost) = match Entry::of(dir, name, change.path())? {
        Entry::File { file, stat } => (stat.st_nlink, not_kept(&file, dir).map_err(failed)?),
        Entry::Link { .. } => (1, not_kept_of_link(dir, name).map_err(failed)?),
        Entry::Absent | Entry::Directory { .. } | Entry::Other(_) => return Ok(None),
    };
    let is_linked = names > 1 && !change.may_be_linked();
    let names = is_linked.then(|| {
        format!(
            "it has {names} names (hard links), the other names keep the old content, and no undo joins them again"
        )
    });
    let lost = (!lost.is_empty()).then(|| format!("no undo gives it {} again", lost.join(", ")));
    let parts: Vec<String> = names.into_iter().chain(lost).collect();
    Ok((!parts.is_empty()).then(|| parts.join(", and ")))
}

/// Entry at a path.
enum Standing {
    Nothing,
    Replaceable,
    /// A directory that only gets its mode and owner.
    Kept,
    Fixed(Obstacle),
}

fn in_place(dir: &Dir, name: &str, change: &Change<'_>, is_whole: bool) -> Result<Standing, HostError> {
    let path = change.path();
    if !is_whole {
        return Ok(Standing::Nothing);
    }
    if let Err(mounted) = dir.check_mount(name, path) {
        // A directory that a file system is mounted on is one: of the config, where it is only dressed or left.
        if dir.account().is_some() || !change.is_directory() || !dir.has_directory(name) {
            return Err(mounted);
        }
    }
    Ok(match Entry::of(dir, name, path)? {
        Entry::Absent => Standing::Nothing,
        Entry::Link { .. } => Standing::Replaceable,
        Entry::File { file, .. } => {
            attributes(&file, path)?;
            fixed(rustix::fs::ioctl_getflags(&file), path).map_or(Standing::Replaceable, Standing::Fixed)
        }
        Entry::Directory { .. } if !change.may_be_directory() => {
            return Err(in_the_way(change, "a directory"));
        }
        Entry::Directory { stat } if change.makes_directory() => {
            if change.has_dress_of(&stat) {
                return Ok(Standing::Kept);
            }
            let own = dir.open_directory(name).map_err(|errno| HostError::io("open", path, errno))?;
            closed(&own, path, path)?.map_or(Standing::Kept, Standing::Fixed)
        }
        Entry::Directory { .. } => {
            let own = dir.open_directory(name).map_err(|errno| HostError::io("open", path, errno))?;
            fixed(rustix::fs::ioctl_getflags(&own), path).map_or(Standing::Replaceable, Standing::Fixed)
        }
        Entry::Other(_) if change.is_directory() && change.is_removal() => Standing::Nothing,
        Entry::Other(found) => {
            let expected = "a file, a link or nothing";
            return Err(HostError::Kind { path: path.to_owned(), expected, found });
        }
    })
}

/// Returns the obstacle of a directory in which no name can be changed.
fn closed_directory(dir: &Dir, path: &str) -> Result<Option<Obstacle>, HostError> {
    closed(dir, path, if dir.path().is_empty() { "/" } else { dir.path() })
}

/// Returns the obstacle of a directory that can't be changed for the sake of a path.
fn closed(dir: impl AsFd, path: &str, directory: &str) -> Result<Option<Obstacle>, HostError> {
    if is_read_only(&dir, path)? {
        return Ok(Some((&HostError::io("write", path, Errno::ROFS)).into()));
    }
    Ok(fixed(rustix::fs::ioctl_getflags(&dir), directory))
}

/// Returns the obstacle of an attribute of chattr(1). Many file systems have none.
fn fixed(flags: rustix::io::Result<IFlags>, object: &str) -> Option<Obstacle> {
    let flags = flags.unwrap_or(IFlags::empty());
    let (word, letter) = if flags.contains(IFlags::IMMUTABLE) {
        ("immutable", 'i')
    } else if flags.contains(IFlags::APPEND) {
        ("append-only", 'a')
    } else {
        return None;
    };
    let cause = format!("{object} is {word} (lsattr -d {quoted})", quoted = shell_word(object));
    Some(Obstacle {
        cause,
        next: format!("Find the program or person that set it, then: chattr -{letter} {object}"),
    })
}

/// Refuses a path of the agent's own that can't be written or replaced, as far as that is seen before: a read-only file system, a
/// mount over it, and an attribute of chattr(1) on it or its directory.
pub fn check_writable(root: &Root, path: &str) -> Result<(), HostError> {
    let (directory, name) = split(path).ok_or_else(|| no_name(path))?;
    match open_writable(root, directory, path)? {
        Some(dir) => check_replaceable(&dir, name, path),
        None => Ok(()),
    }
}

/// Refuses a directory of the agent's own in which files can't be made, or one of whose files can't be replaced.
pub fn check_writable_directory(root: &Root, directory: &str) -> Result<(), HostError> {
    let Some(dir) = open_writable(root, directory, directory)? else { return Ok(()) };
    for name in root.list(directory)? {
        check_replaceable(&dir, &name, &format!("{directory}/{name}"))?;
    }
    Ok(())
}

/// Opens a directory in which names can be changed; `None` if it is to be made.
fn open_writable(root: &Root, directory: &str, path: &str) -> Result<Option<Dir>, HostError> {
    let owner = rustix::process::geteuid().as_raw();
    let (dir, is_whole) = root.walk_existing(directory, owner).map_err(|error| named(error, path))?;
    if is_read_only(&dir, path)? {
        return Err(HostError::io("write", path, Errno::ROFS));
    }
    check_flags(&dir, if dir.path().is_empty() { "/" } else { dir.path() })?;
    Ok(is_whole.then_some(dir))
}

/// Returns true if the file system of a path's directory is read-only.
fn is_read_only(dir: impl AsFd, path: &str) -> Result<bool, HostError> {
    let failed = |errno| HostError::io("inspect the directory of", path, errno);
    Ok(rustix::fs::fstatvfs(dir).map_err(failed)?.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// An entry of another kind is refused by itself.
fn check_replaceable(dir: &Dir, name: &str, path: &str) -> Result<(), HostError> {
    match Entry::of(dir, name, path)? {
        Entry::File { file, .. } => {
            dir.check_mount(name, path)?;
            check_flags(&file, path)
        }
        Entry::Absent | Entry::Link { .. } | Entry::Directory { .. } | Entry::Other(_) => Ok(()),
    }
}

fn check_flags(of: impl AsFd, object: &str) -> Result<(), HostError> {
    let flags = rustix::fs::ioctl_getflags(of);
    let is_fixed = flags.is_ok_and(|flags| flags.intersects(IFlags::IMMUTABLE | IFlags::APPEND));
    if is_fixed { Err(HostError::io("change", object, Errno::PERM)) } else { Ok(()) }
}

/// Returns the obstacle of a file that this process may not write.
fn limit(change: &Change<'_>) -> Option<Obstacle> {
    let DesiredPath::File { bytes, .. } = &change.want else { return None };
    let limit = getrlimit(Resource::Fsize).current?;
    let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    (len > limit).then(|| Obstacle {
        cause: format!("{} has {len} bytes, and the agent may write files of {limit}", change.path()),
        next: "Raise LimitFSIZE= of the agent's unit (systemctl edit machine-config-agent).".to_owned(),
    })
}

/// Returns why a hard link can't be made to its file from a device.
fn no_link(root: &Root, change: &Change<'_>, device: u64) -> Result<Option<Obstacle>, HostError> {
    let Some(target) = change.hard_target() else { return Ok(None) };
    let (directory, name) = split(target).ok_or_else(|| no_name(target))?;
    let (dir, is_whole) = match root.walk_existing(directory, change.hands()) {
        Ok(walked) => walked,
        Err(error @ HostError::UnsafeDirectory { .. }) => return Ok(Some((&named(error, target)).into())),
        // What is in the way there may go before the link is made.
        Err(error) if error.is_lasting() => return Ok(None),
        Err(error) => return Err(named(error, target)),
    };
    if space(&dir, target)?.0 != device {
        return Ok(Some(Obstacle {
            cause: format!("{} and {target} are on different file systems", change.path()),
            next: "Make it a symbolic link (hard: false).".to_owned(),
        }));
    }
    if !is_whole {
        return Ok(None);
    }
    match Entry::of(&dir, name, target) {
        // The kernel gives no further name to a file that is fixed.
        Ok(Entry::File { file, .. }) => Ok(fixed(rustix::fs::ioctl_getflags(&file), target)),
        Ok(Entry::Absent | Entry::Link { .. } | Entry::Directory { .. } | Entry::Other(_)) => Ok(None),
        Err(error) if error.is_lasting() => Ok(Some((&error).into())),
        Err(error) => Err(error),
    }
}

/// Returns the link in a directory of another account on the way to a directory, if one is the first that is not followed there.
pub fn link_of_account(root: &Root, directory: &str) -> Result<Option<String>, HostError> {
    match root.walk_existing(directory, Hands::entering(0)) {
        Err(HostError::UnsafeDirectory { directory, rule: Unsafe::LinkOfAccount { .. }, .. }) => {
            Ok(Some(directory))
        }
        Ok(_) => Ok(None),
        Err(error) if error.is_lasting() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns true if something is mounted on a path. One that can't be walked to is looked at by itself.
pub fn is_mounted(root: &Root, path: &str) -> Result<bool, HostError> {
    let (directory, name) = split(path).ok_or_else(|| no_name(path))?;
    match root.walk_existing(directory, Hands::entering(0)) {
        Ok((dir, is_whole)) => Ok(is_whole && dir.check_mount(name, path).is_err()),
        Err(error) if error.is_lasting() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the obstacle of an attribute of chattr(1) on the file or the directory at a path.
pub fn fixed_at(root: &Root, path: &str) -> Result<Option<Obstacle>, HostError> {
    match Entry::at(root, path)? {
        Entry::File { file, .. } => Ok(fixed(rustix::fs::ioctl_getflags(&file), path)),
        Entry::Directory { .. } => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
            Ok(root.resolve(path, flags).ok().and_then(|fd| fixed(rustix::fs::ioctl_getflags(&fd), path)))
        }
        Entry::Absent | Entry::Link { .. } | Entry::Other(_) => Ok(None),
    }
}

/// Returns the obstacle of a directory in the place of the new version, which is no leftover of a run.
fn no_draft(dir: &Dir, name: &str, change: &Change<'_>) -> Option<Obstacle> {
    let draft = temporary(name);
    let is_written = !change.is_removal() && !change.is_directory();
    (is_written && dir.has_directory(&draft)).then(|| {
        let draft = format!("{}/{draft}", dir.path());
        let cause = format!("{draft}, the name of the new version of {}, is a directory", change.path());
        Obstacle { cause, next: format!("Move it away (ls -ld {quoted}).", quoted = shell_word(&draft)) }
    })
}

fn space(dir: &Dir, path: &str) -> Result<(u64, Space), HostError> {
    let failed = |errno| HostError::io("inspect the directory of", path, errno);
    let (stat, of) = (rustix::fs::fstat(dir).map_err(failed)?, rustix::fs::fstatvfs(dir).map_err(failed)?);
    let directory = if dir.path().is_empty() { "/".to_owned() } else { dir.path().to_owned() };
    let space = Space {
        directory,
        // The agent is root, who may use the reserved blocks.
        bytes: of.f_bfree.saturating_mul(of.f_frsize),
        inodes: (of.f_files > 0).then_some(of.f_ffree),
        block: of.f_frsize,
    };
    Ok((stat.st_dev, space))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use rustix::mount::{MountFlags, mount_bind, mount_remount};

    use super::*;
    use crate::host::mounts;

    fn seen(root: &Root, path: &str) -> Option<Obstacle> {
        let want = DesiredPath::file(b"new", 0o644, 0, 0);
        examine(root, &Change::new(path, 0, want).entering(true)).unwrap().obstacle
    }

    /// A host with `/etc/a` and a directory of another account.
    fn host(at: &Path) -> Root {
        fs::create_dir_all(at.join("etc/own/sub")).unwrap();
        fs::write(at.join("etc/a"), "old").unwrap();
        for name in ["etc/own", "etc/own/sub"] {
            std::os::unix::fs::chown(at.join(name), Some(4711), Some(4711)).unwrap();
        }
        Root::open(at).unwrap()
    }

    #[test]
    fn plain_paths_have_no_obstacle_and_name_their_space() {
        let dir = tempfile::tempdir().unwrap();
        let root = host(dir.path());
        for path in ["/etc/a", "/etc/new/deep/file", "/etc/own/sub/x", "/x"] {
            assert_eq!(seen(&root, path), None, "{path}");
        }
        let absent = Change::new("/etc/a/x/y", 0, DesiredPath::Absent);
        assert_eq!(examine(&root, &absent).unwrap().obstacle, None, "nothing is below a file");
        assert!(seen(&root, "/etc/a/x/y").unwrap().cause.contains("not a directory"), "a parent is a file");
        let (_, space) =
            examine(&root, &Change::new("/etc/b", 0, DesiredPath::Absent)).unwrap().space.unwrap();
        assert!(space.directory == "/etc" && space.bytes > 0 && space.block > 0, "{space:?}");
        let long = format!("/etc/{}", "x".repeat(300));
        assert!(seen(&root, &long).is_some(), "a name that is too long");
    }

    #[test]
    fn mounts_are_obstacles() {
        if mounts::private().is_err() {
            crate::ran::not_run("mounts_are_obstacles", "to mount (CAP_SYS_ADMIN)");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let root = host(dir.path());
        let at = |path: &str| dir.path().join(path);
        mount_bind(at("etc/a"), at("etc/a")).unwrap();
        let over = seen(&root, "/etc/a").unwrap();
        assert!(over.cause.contains("a mount point") && over.next.starts_with("Unmount"), "{over:?}");
        mount_bind(at("etc/own/sub"), at("etc/own/sub")).unwrap();
        let between = seen(&root, "/etc/own/sub/x").unwrap();
        assert!(between.cause.contains("/etc/own/sub is a mount point"), "{between:?}");
        fs::create_dir(at("etc/fixed")).unwrap();
        mount_bind(at("etc/fixed"), at("etc/fixed")).unwrap();
        assert_eq!(seen(&root, "/etc/fixed/x"), None, "a mount of root's");
        mount_remount(at("etc/fixed"), MountFlags::BIND | MountFlags::RDONLY, c"").unwrap();
        let read_only = seen(&root, "/etc/fixed/new/x").unwrap();
        assert!(read_only.cause.contains("Read-only") && read_only.next.contains("remount"), "{read_only:?}");
    }
}
