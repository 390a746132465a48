//! The process that holds a file lock, for people. The lock is not touched: another process can take it meanwhile.
//!
//! libostree's lock belongs to an open file and not to a process (`OFDLCK`), so the kernel names no process with it: the
//! holder is looked up among the open files of all processes. One of another PID namespace is not found.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Names the holder of a lock that is held.
#[cfg(feature = "backend-ostree")]
pub(in crate::host) fn name(path: &Path) -> String {
    find(path).unwrap_or_else(|| "another program".to_owned())
}

/// Names the process that holds the lock of a file; `None` where there is none, or none that `/proc` shows.
pub(in crate::host) fn find(path: &Path) -> Option<String> {
    let file = path.file_name()?;
    let inode = format!(":{} ", rustix::fs::stat(path).ok()?.st_ino);
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let pid = process.file_name();
        if !pid.as_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        let opened = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        // By the name alone: to look at a file itself may wait for a server that is gone.
        let same =
            opened.filter(|fd| fs::read_link(fd.path()).is_ok_and(|opened| opened.file_name() == Some(file)));
        for fd in same {
            let info = process.path().join("fdinfo").join(fd.file_name());
            let info = fs::read_to_string(info).unwrap_or_default();
            if info.lines().any(|line| line.starts_with("lock:") && line.contains(&inode)) {
                let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
                return Some(format!("process {} ({})", pid.display(), name.trim()));
            }
        }
    }
    None
}
