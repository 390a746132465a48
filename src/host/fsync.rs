//! The one door to an fsync, so that the negative control of the power cuts can take all of them out.

use rustix::fd::AsFd;
use rustix::io::Errno;

/// Waits until a file or a directory is on the disk.
#[cfg(not(feature = "without-fsync"))]
pub(in crate::host) fn fsync(fd: impl AsFd) -> Result<(), Errno> {
    rustix::fs::fsync(fd)
}

/// Claims that a file or a directory is on the disk: what `vm-tests/power --without-fsync` has to find out.
#[cfg(feature = "without-fsync")]
#[expect(clippy::unnecessary_wraps, reason = "it stands for the real one")]
pub(in crate::host) fn fsync(_fd: impl AsFd) -> Result<(), Errno> {
    Ok(())
}
