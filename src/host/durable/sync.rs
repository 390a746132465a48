//! The same call for many things, side by side. An fsync that failed is never tried again: the kernel has dropped the
//! pages, and a second call would report success.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::fd::BorrowedFd;

use crate::host::HostError;
use crate::host::fsync::fsync;

/// Enough calls in flight to fill a disk's queue and to share journal commits, few enough to start in well under a
/// millisecond.
const THREADS: usize = 16;

/// So few things are done faster than threads start.
const ALONE: usize = 4;

/// A worker makes a system call and reports its error.
const STACK: usize = 64 * 1024;

/// Syncs one file or directory.
pub(super) fn sync(fd: BorrowedFd<'_>, path: &str) -> Result<(), HostError> {
    fsync(fd).map_err(|errno| HostError::io("sync", path, errno))
}

/// Does `work` for each item; after an error nothing new is begun. The caller's thread works too, so a host that gives
/// no threads is only slower.
pub(super) fn each<T: Sync>(
    items: &[T],
    work: impl Fn(&T) -> Result<(), HostError> + Sync,
) -> Result<(), HostError> {
    if items.len() <= ALONE {
        return items.iter().try_for_each(work);
    }
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
    let worker = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = work(item) {
                next.store(items.len(), Ordering::Relaxed);
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..THREADS.min(items.len()) {
            let thread = thread::Builder::new().name("durable".to_owned()).stack_size(STACK);
            if thread.spawn_scoped(scope, worker).is_err() {
                break;
            }
        }
        worker();
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_is_worked_on_once_and_first_error_is_kept() {
        for count in [0, 1, ALONE, ALONE + 1, 100] {
            let items: Vec<usize> = (0..count).collect();
            let observed = Mutex::new(Vec::new());
            each(&items, |item| {
                observed.lock().unwrap().push(*item);
                Ok(())
            })
            .unwrap();
            let mut observed = observed.into_inner().unwrap();
            observed.sort_unstable();
            assert_eq!(observed, items);
        }
        let items: Vec<usize> = (0..40).collect();
        let broken = each(&items, |item| {
            if *item == 7 { Err(HostError::io("sync", "/x", rustix::io::Errno::IO)) } else { Ok(()) }
        });
        assert_eq!(broken.unwrap_err().to_string(), "can't sync /x");
    }
}
