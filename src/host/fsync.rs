//! The one door to an fsync, so that the negative control of the power cuts can take all of them out.

use rustix::fd::AsFd;
use rustix::io::Errno;

/// Waits until a file or a directory is on the disk.
#[cfg(not(feature = "without-fsync"))]
pub(in crate::host) fn fsync(fd: impl AsFd) -> Result<(), Errno> {
    let done = rustix::fs::fsync(fd);
    #[cfg(test)]
    let done = done.and(failing::next());
    done
}

/// Lets one sync of a test's own thread fail, as a disk does.
#[cfg(test)]
pub(crate) mod failing {
    use std::cell::Cell;

    use rustix::io::Errno;

    thread_local! {
        static LEFT: Cell<u32> = const { Cell::new(0) };
    }

    /// Has the `n`-th sync from now on fail, once; 1 is the next one.
    pub(crate) fn at(n: u32) {
        LEFT.set(n);
    }

    /// Returns true if that sync was reached; it does not fail any more.
    pub(crate) fn hit() -> bool {
        LEFT.replace(0) == 0
    }

    pub(super) fn next() -> Result<(), Errno> {
        match LEFT.get() {
            0 => Ok(()),
            n => {
                LEFT.set(n - 1);
                if n == 1 { Err(Errno::IO) } else { Ok(()) }
            }
        }
    }
}

/// Claims that a file or a directory is on the disk: `vm-tests/power --without-fsync` has to find that out.
#[cfg(feature = "without-fsync")]
#[expect(clippy::unnecessary_wraps, reason = "it stands for the real one")]
pub(in crate::host) fn fsync(_fd: impl AsFd) -> Result<(), Errno> {
    Ok(())
}
