//! Mounts on the watched paths: a mount hides a file without touching it, so inotify does not report it.
//!
//! The kernel signals each change of the mount table through `/proc/self/mountinfo`. On a node with pods that is often,
//! so only the mount points that matter are compared; other changes are ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use crate::host::HostError;
use crate::host::root::Root;

const TABLE: &str = "/proc/self/mountinfo";
/// A pod brings a dozen mounts at once, and the table of a busy node takes a millisecond to read: it is read once for
/// all that come in this time, so that no churn of pods costs more than a percent of one core.
const GATHER: Duration = Duration::from_millis(100);

/// Mount points below the root, with the ids of their mounts.
pub(super) type Table = BTreeMap<String, BTreeSet<u64>>;

/// The mount table, watched.
#[derive(Debug)]
pub(super) struct Mounts {
    table: AsyncFd<OwnedFd>,
    /// Path of the root.
    place: PathBuf,
    /// The mount points that matter.
    on: Table,
    /// Time of the comparison for the changes signaled so far.
    due: Option<Instant>,
    /// The table as it was opened when the caller began an observation.
    observation: Option<File>,
    /// The table changed during that observation: an observed mount may be over, with the table as before.
    changed_meanwhile: bool,
}

impl Mounts {
    /// Opens the table; `None` where there is none to read.
    pub(super) fn open(root: &Root) -> Option<Self> {
        let fd = rustix::fs::open(TABLE, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        #[expect(
            deprecated,
            reason = "it is unsound for borrowed descriptors; this one is owned (tokio#8587)"
        )]
        let table = AsyncFd::with_interest(fd, Interest::PRIORITY).ok()?;
        Some(Self {
            table,
            place: root.base_path().ok()?,
            on: Table::new(),
            due: None,
            observation: None,
            changed_meanwhile: false,
        })
    }

    /// Begins an observation of the watched paths; returns the table as it is before.
    pub(super) fn begin_observation(&mut self) -> Table {
        let mut table = Vec::new();
        self.observation =
            File::open(TABLE).and_then(|mut file| file.read_to_end(&mut table).map(|_| file)).ok();
        self.taken_apart(&table)
    }

    /// Ends the observation that was begun last.
    fn end_observation(&mut self) {
        let Some(observation) = self.observation.take() else { return };
        let mut fds = [PollFd::new(&observation, PollFlags::PRI)];
        // Each open file remembers the last change of the table that was signaled to it.
        if poll(&mut fds, Some(&Timespec::default())) != Ok(0) {
            self.changed_meanwhile = true;
            self.due.get_or_insert_with(|| Instant::now() + GATHER);
        }
    }

    /// Returns true, once, if the table changed during an observation.
    pub(super) fn take_changed_meanwhile(&mut self) -> bool {
        std::mem::take(&mut self.changed_meanwhile)
    }

    /// Waits until something was mounted or unmounted anywhere. Cancel-safe: a signaled change stays due.
    pub(super) async fn changed(&mut self) -> Result<(), HostError> {
        self.end_observation();
        let failed = |source| HostError::io("watch", TABLE, source);
        let due = if let Some(due) = self.due {
            due
        } else {
            let mut ready = self.table.ready(Interest::PRIORITY).await.map_err(failed)?;
            ready.clear_ready();
            Instant::now() + GATHER
        };
        self.due = Some(due);
        tokio::time::sleep_until(due).await;
        self.due = None;
        Ok(())
    }

    /// Reads the table: the mounts below the root.
    pub(super) fn read(&self) -> Table {
        self.taken_apart(&std::fs::read(TABLE).unwrap_or_default())
    }

    fn taken_apart(&self, table: &[u8]) -> Table {
        let mut now = Table::new();
        for (id, point) in table.split(|byte| *byte == b'\n').filter_map(entry) {
            if let Ok(below) = point.strip_prefix(&self.place) {
                now.entry(format!("/{}", below.display())).or_default().insert(id);
            }
        }
        now
    }

    /// Returns the mount points among `matters` where something else is mounted than was kept.
    pub(super) fn moved(&self, now: &Table, matters: impl Fn(&str) -> bool) -> Vec<String> {
        let points: BTreeSet<&String> = self.on.keys().chain(now.keys()).collect();
        let moved =
            points.into_iter().filter(|point| matters(point) && self.on.get(*point) != now.get(*point));
        moved.cloned().collect()
    }

    /// Keeps the relevant part of the table for the next comparison.
    pub(super) fn keep(&mut self, mut now: Table, matters: impl Fn(&str) -> bool) {
        now.retain(|point, _| matters(point));
        self.on = now;
    }
}

/// Takes a line apart: the mount's id and its mount point.
fn entry(line: &[u8]) -> Option<(u64, PathBuf)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let point = fields.nth(3)?;
    Some((id, std::ffi::OsString::from_vec(plain(point)).into()))
}

/// Decodes the kernel's octal escapes of blanks and backslashes.
fn plain(escaped: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some((byte, tail)) = rest.split_first() {
        let octal = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = octal.filter(|_| *byte == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(code.unwrap_or(*byte));
        rest = if code.is_some() { tail.get(3..).unwrap_or_default() } else { tail };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_table_are_read() {
        let line =
            br"36 35 98:0 /mnt1 /mnt/a\040b\134c rw,noatime master:1 - ext3 /dev/root rw,errors=continue";
        assert_eq!(entry(line), Some((36, PathBuf::from(r"/mnt/a b\c"))));
        assert_eq!(entry(b""), None);
        assert_eq!(plain(br"\09x"), br"\09x");
    }
}
