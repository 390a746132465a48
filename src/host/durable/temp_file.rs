//! One new version of a file or a link, beside its place: written, dressed, synced, switched.
//!
//! Invariant: its name there is the same at each run, so that a rerun finds the file of a dead one.

use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{Advice, AtFlags, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::change::{Attributes, Change, DesiredPath};
use super::sync;
use crate::host::HostError;
use crate::host::root::{AttributeList, Dir, drop_access_list, mode_bits, set_attributes, unlink};
use crate::model::ids::DRAFT_SUFFIX;

/// So often a name that is taken is freed: an honest host needs one try, and this bounds the tries on a hostile one.
const TRIES: u32 = 16;

/// A new version that is to replace a path.
pub(super) struct TempFile<'a> {
    /// The number of the directory.
    pub(super) place: usize,
    /// Its name until it is switched.
    pub(super) temporary: String,
    name: &'a str,
    change: &'a Change<'a>,
    attributes: AttributeList,
    /// Open from the first byte to the sync.
    fd: Mutex<Option<OwnedFd>>,
    /// Device and number of its inode.
    inode: Mutex<Option<(u64, u64)>>,
}

impl<'a> TempFile<'a> {
    /// Plans a draft; nothing is written yet.
    pub(super) fn new(
        change: &'a Change<'a>,
        name: &'a str,
        place: usize,
        attributes: AttributeList,
    ) -> Self {
        let temporary = temporary(name);
        let (fd, inode) = (Mutex::new(None), Mutex::new(None));
        Self { place, temporary, name, change, attributes, fd, inode }
    }

    fn path(&self) -> &'a str {
        &self.change.path
    }

    /// Makes the new version. A file stays open, and its bytes are on their way to the disk.
    pub(super) fn write(&self, dir: &Dir) -> Result<(), HostError> {
        let mut made = self.make(dir);
        // Left by an interrupted run, or made by another program: it is not written through. The owner of the directory may make
        // it again and again.
        for _ in 0..TRIES {
            if made.as_ref().err() != Some(&Errno::EXIST) {
                break;
            }
            unlink(dir, &self.temporary).map_err(|source| self.failed(source))?;
            made = self.make(dir);
        }
        let fd = made.map_err(|errno| self.failed(errno.into()))?;
        let (Some(fd), DesiredPath::File { bytes, mode, uid, gid, attributes }) = (fd, &self.change.want)
        else {
            return Ok(());
        };
        let exact = matches!(attributes, Attributes::Exactly(_));
        let stat = rustix::fs::fstat(&fd).map_err(|errno| self.failed(errno.into()))?;
        *self.inode.lock().unwrap_or_else(PoisonError::into_inner) = Some((stat.st_dev, stat.st_ino));
        let fd = write(fd, bytes).map_err(|source| self.failed(source))?;
        let set = set_metadata(&fd, (*mode, *uid, *gid))
            .and_then(|()| set_attributes(&fd, &self.attributes, exact));
        set.map_err(|errno| self.failed(errno.into()))?;
        // Linux starts the writing and does not wait. All bytes of a batch are under way before the first sync asks
        // for the file system's log to be written, so one log write carries all of them. Advice only: it may fail.
        let _advised = rustix::fs::fadvise(&fd, 0, None, Advice::DontNeed);
        *self.fd.lock().unwrap_or_else(PoisonError::into_inner) = Some(fd);
        Ok(())
    }

    fn make(&self, dir: &Dir) -> Result<Option<OwnedFd>, Errno> {
        match &self.change.want {
            DesiredPath::Absent
            | DesiredPath::NoDirectory
            | DesiredPath::Directory { .. }
            | DesiredPath::HardLink { .. } => Ok(None),
            DesiredPath::Link { target, owner } => {
                rustix::fs::symlinkat(target.as_str(), dir, self.temporary.as_str())?;
                let Some((uid, gid)) = owner else { return Ok(None) };
                let (uid, gid) = (Some(Uid::from_raw(*uid)), Some(Gid::from_raw(*gid)));
                let name = self.temporary.as_str();
                rustix::fs::chownat(dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW).map(|()| None)
            }
            DesiredPath::File { .. } => {
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                rustix::fs::openat(dir, self.temporary.as_str(), flags, Mode::RUSR | Mode::WUSR).map(Some)
            }
        }
    }

    fn failed(&self, source: std::io::Error) -> HostError {
        let action =
            if matches!(self.change.want, DesiredPath::Link { .. }) { "make the link" } else { "write" };
        HostError::io(action, self.path(), source)
    }

    /// Waits until its bytes are durable, and closes it.
    pub(super) fn sync(&self) -> Result<(), HostError> {
        let fd = self.fd.lock().unwrap_or_else(PoisonError::into_inner).take();
        fd.map_or(Ok(()), |fd| sync::sync(fd.as_fd(), self.path()))
    }

    /// Puts it into its place.
    pub(super) fn rename_into_place(&self, dir: &Dir) -> Result<(), HostError> {
        let failed =
            |source: std::io::Error| HostError::io("switch to the new version of", self.path(), source);
        rustix::fs::renameat(dir, self.temporary.as_str(), dir, self.name)
            .map_err(|errno| failed(errno.into()))?;
        // Its owner may have put something else under the temporary name.
        if dir.account().is_none() || self.is_in_place(dir) {
            return Ok(());
        }
        let cause = "the owner of its directory put another one in its place";
        Err(failed(std::io::Error::new(std::io::ErrorKind::ResourceBusy, cause)))
    }

    fn is_in_place(&self, dir: &Dir) -> bool {
        match &self.change.want {
            DesiredPath::Absent
            | DesiredPath::NoDirectory
            | DesiredPath::Directory { .. }
            | DesiredPath::HardLink { .. } => true,
            DesiredPath::Link { target, .. } => rustix::fs::readlinkat(dir, self.name, Vec::new())
                .is_ok_and(|found| found.to_bytes() == target.as_bytes()),
            DesiredPath::File { .. } => {
                let inode = *self.inode.lock().unwrap_or_else(PoisonError::into_inner);
                rustix::fs::statat(dir, self.name, AtFlags::SYMLINK_NOFOLLOW)
                    .is_ok_and(|stat| Some((stat.st_dev, stat.st_ino)) == inode)
            }
        }
    }
}

/// The name under which a new version waits: the same at each run, so that a rerun finds it; hidden, so that programs
/// that read whole directories (systemd, sysctl, cri-o) skip it.
pub(super) fn temporary(name: &str) -> String {
    // NAME_MAX is 255.
    if name.len() + DRAFT_SUFFIX.len() < 255 {
        format!(".{name}{DRAFT_SUFFIX}")
    } else {
        format!(".{}{DRAFT_SUFFIX}", crate::model::Sha256::digest(name.as_bytes()))
    }
}

fn write(fd: OwnedFd, bytes: &[u8]) -> std::io::Result<OwnedFd> {
    let mut file = std::fs::File::from(fd);
    file.write_all(bytes)?;
    Ok(file.into())
}

/// Gives a new file its owner, then the mode, which a change of owner would clear; attributes come later. What it inherited from its
/// directory goes first.
fn set_metadata(fd: &OwnedFd, (mode, uid, gid): (u32, u32, u32)) -> Result<(), Errno> {
    drop_access_list(fd)?;
    let stat = rustix::fs::fstat(fd)?;
    if (stat.st_uid, stat.st_gid) != (uid, gid) {
        rustix::fs::fchown(fd, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    rustix::fs::fchmod(fd, mode_bits(mode))
}
