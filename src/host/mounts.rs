//! Mount and user namespaces, and the mounts in them.
//!
//! Invariant: nothing here reaches the mounts of the rest of the machine. Every caller first takes a mount namespace
//! of its own; only then does it mount.

use std::path::Path;

use rustix::fs::StatVfsMountFlags;
use rustix::io::Result;
#[cfg(feature = "backend-ostree")]
use rustix::mount::mount_bind_recursive;
use rustix::mount::{MountFlags, MountPropagationFlags, mount_change, mount_remount};
use rustix::thread::UnshareFlags;

/// Takes this thread into namespaces of its own. The caller has one thread only.
#[expect(
    deprecated,
    reason = "the unsafe successor exists for UnshareFlags::FILES, which is never passed here; unsafe code is forbidden"
)]
pub(crate) fn unshare(flags: UnshareFlags) -> Result<()> {
    rustix::thread::unshare(flags)
}

/// Moves this thread into a private mount namespace.
pub(crate) fn private() -> Result<()> {
    unshare(UnshareFlags::NEWNS)?;
    detach()
}

/// Stops mounts of this namespace from spreading into others.
pub(crate) fn detach() -> Result<()> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
}

/// Shows a directory, or a file, at a second place where it can't be written.
#[cfg(feature = "backend-ostree")]
pub(crate) fn bind_read_only(from: &Path, to: &Path) -> Result<()> {
    mount_bind_recursive(from, to)?;
    make_read_only(to)
}

/// Makes a mount read-only, not the file system behind it.
#[cfg(feature = "backend-ostree")]
pub(crate) fn make_read_only(place: &Path) -> Result<()> {
    mount_remount(place, current_flags(place)? | MountFlags::BIND | MountFlags::RDONLY, c"")
}

/// Takes set-user-id bits, devices and programs of a mount away.
#[cfg(feature = "backend-ostree")]
pub(crate) fn restrict(place: &Path) -> Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount_remount(place, current_flags(place)? | MountFlags::BIND | flags, c"")
}

/// Returns true if a place can't be written because of its mount.
pub(crate) fn is_read_only(place: &Path) -> Result<bool> {
    Ok(rustix::fs::statvfs(place)?.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Makes a read-only mount writable, in this namespace where that is enough.
///
/// First only the mount is changed, as `ostree-remount` made it read-only; where the file system itself is read-only
/// it is remounted too.
pub(crate) fn make_writable(place: &Path) -> Result<()> {
    if !is_read_only(place)? {
        return Ok(());
    }
    let flags = current_flags(place)?;
    mount_remount(place, flags | MountFlags::BIND, c"")?;
    if is_read_only(place)? {
        mount_remount(place, flags, c"")?;
    }
    Ok(())
}

/// The flags that a remount must repeat: it sets all of them, and those that came from a parent user namespace are
/// locked.
fn current_flags(place: &Path) -> Result<MountFlags> {
    const PAIRS: [(StatVfsMountFlags, MountFlags); 6] = [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ];
    let observed = rustix::fs::statvfs(place)?.f_flag;
    Ok(PAIRS.into_iter().filter(|(flag, _)| observed.contains(*flag)).map(|(_, flag)| flag).collect())
}
