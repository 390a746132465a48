//! Opens what a lock guards. A program that another test of the process starts has a copy of each descriptor until it
//! runs, the lock of an owner that is gone among them: that one passes.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "shared by tests: it fails by panicking")]

/// Tries again while it is locked, for a bounded time.
pub(crate) fn open<T, E: std::fmt::Debug>(
    mut open: impl FnMut() -> Result<T, E>,
    is_locked: impl Fn(&E) -> bool,
) -> T {
    let since = std::time::Instant::now();
    loop {
        match open() {
            Err(error) if is_locked(&error) && since.elapsed().as_secs() < 20 => std::thread::yield_now(),
            opened => return opened.unwrap(),
        }
    }
}
