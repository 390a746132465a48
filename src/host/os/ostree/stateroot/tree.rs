//! Trees that go: links are removed, never followed, and a directory that is swapped meanwhile is not the one that is emptied.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, IFlags, Mode, OFlags, ioctl_getflags, ioctl_setflags, openat, unlinkat};
use rustix::io::Errno;

/// Deeper trees than this are refused: each directory on the way is open.
const MAX_DEPTH: u32 = 512;

/// Removes a name with all that is below it; a missing one is ignored.
pub(super) fn remove(here: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    remove_at(here, name, 0)
}

/// The same for a path.
pub(super) fn remove_path(path: &Path) -> io::Result<()> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::INVAL.into());
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat(CWD, above, flags, Mode::empty()) {
        Err(Errno::NOENT) => Ok(()),
        above => remove(above?.as_fd(), name),
    }
}

fn remove_at(here: BorrowedFd<'_>, name: &OsStr, depth: u32) -> io::Result<()> {
    match unlinkat(here, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        // Linux says so of a directory.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno.into()),
    }
    if depth > MAX_DEPTH {
        return Err(Errno::LOOP.into());
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = openat(here, name, flags, Mode::empty())?;
    mutable(&directory)?;
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let bytes = entry.file_name().to_bytes();
        if !matches!(bytes, b"." | b"..") {
            remove_at(directory.as_fd(), std::os::unix::ffi::OsStrExt::from_bytes(bytes), depth + 1)?;
        }
    }
    match unlinkat(here, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// libostree makes the directory of a deployment immutable. A file system without such flags has none to take away.
fn mutable(directory: &OwnedFd) -> io::Result<()> {
    let Ok(flags) = ioctl_getflags(directory) else { return Ok(()) };
    if flags.contains(IFlags::IMMUTABLE) {
        ioctl_setflags(directory, flags - IFlags::IMMUTABLE)?;
    }
    Ok(())
}
