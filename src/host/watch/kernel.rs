//! Events of inotify, as they come from the kernel.

use std::io;
use std::mem::MaybeUninit;

use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use super::HostError;
use crate::host::root::KernelName;

/// Room for some hundred events at once; one event needs at most 16 + 256 bytes.
const BUFFER: usize = 16 * 1024;

/// One event of one watched inode.
pub(super) struct Event {
    pub(super) watch: i32,
    pub(super) flags: ReadFlags,
    pub(super) name: Option<String>,
}

/// Waits for events and reads them.
pub(super) async fn events(inotify: &AsyncFd<OwnedFd>) -> Result<Vec<Event>, HostError> {
    let failed = |source: io::Error| HostError::io("watch", "the configuration", source);
    loop {
        let mut ready = inotify.readable().await.map_err(failed)?;
        if let Ok(read) = ready.try_io(|fd| read(fd.get_ref())) {
            return read.map_err(failed);
        }
    }
}

/// Reads the available events; "nothing" is the error that has the caller wait again.
fn read(fd: &OwnedFd) -> io::Result<Vec<Event>> {
    let mut buffer = vec![MaybeUninit::uninit(); BUFFER];
    let mut reader = inotify::Reader::new(fd, &mut buffer);
    let mut events = Vec::new();
    loop {
        match reader.next() {
            Ok(event) => events.push(Event {
                watch: event.wd(),
                flags: event.events(),
                name: event.file_name().map(|name| name.to_string_lossy().into_owned()),
            }),
            Err(Errno::AGAIN) if !events.is_empty() => return Ok(events),
            Err(errno) => return Err(errno.into()),
        }
        if reader.is_buffer_empty() {
            return Ok(events);
        }
    }
}

/// Adds a watch. An inode may be watched for several reasons: flags are added to those it has.
pub(super) fn add(
    inotify: &AsyncFd<OwnedFd>,
    shown: &str,
    name: &KernelName,
    flags: WatchFlags,
) -> Result<i32, HostError> {
    inotify::add_watch(inotify.get_ref(), name.path(), flags | WatchFlags::MASK_ADD)
        .map_err(|errno| HostError::io("watch", shown, errno))
}
