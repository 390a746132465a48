//! The process that holds a file lock, for people. The lock is not touched: another process can take it meanwhile.
//!
//! libostree's lock belongs to an open file and not to a process (`OFDLCK`), so the kernel names no process with it: the
//! holder is looked up among the open files of all processes. One of another PID namespace is not found.
//!
//! The unit has no `CAP_SYS_PTRACE`, which would let it read the memory of each process: the files of a process with more capabilities are
//! closed to it. Of those, the programs that change a sysroot are named, each by its pid.

use std::fs;
#[cfg(feature = "backend-ostree")]
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Names the holder of a lock that is held.
#[cfg(feature = "backend-ostree")]
pub(in crate::host) fn name(path: &Path) -> String {
    find(path).or_else(suspects).unwrap_or_else(|| "another program".to_owned())
}

/// Programs that lock a sysroot, by their names in `/proc/PID/comm`.
#[cfg(feature = "backend-ostree")]
const TOOLS: [&str; 4] = ["bootc", "ostree", "rpm-ostree", "rpm-ostreed"];

/// Names the programs whose open files this process may not read, and that lock a sysroot.
#[cfg(feature = "backend-ostree")]
fn suspects() -> Option<String> {
    let is_denied = |error: std::io::Error| error.kind() == ErrorKind::PermissionDenied;
    // The names of the descriptors may be listed, and what they lead to is closed.
    let is_closed = |process: &fs::DirEntry| match fs::read_dir(process.path().join("fd")) {
        Ok(opened) => opened.flatten().any(|fd| fs::read_link(fd.path()).is_err_and(is_denied)),
        Err(error) => is_denied(error),
    };
    let named = |process: fs::DirEntry| {
        let name = fs::read_to_string(process.path().join("comm")).ok()?;
        let is_tool = TOOLS.contains(&name.trim()) && is_closed(&process);
        is_tool.then(|| format!("process {} ({})", process.file_name().display(), name.trim()))
    };
    let named: Vec<String> = fs::read_dir("/proc").ok()?.flatten().filter_map(named).collect();
    (!named.is_empty()).then(|| format!("another program, perhaps {}", named.join(" or ")))
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

#[cfg(all(test, feature = "backend-ostree"))]
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a holder and a restricted process are played from outside"
)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// The variable that names the lock to the restricted process.
    const LOCK: &str = "MCA_TEST_LOCK";

    /// Runs in the process of `holder_is_named_with_capabilities_of_unit`.
    #[test]
    fn restricted() {
        if let Some(lock) = std::env::var_os(LOCK) {
            let told = format!("holder: {}\n", name(Path::new(&lock)));
            std::io::Write::write_all(&mut std::io::stdout(), told.as_bytes()).unwrap();
        }
    }

    /// The unit's bounding set closes the files of a process that has all capabilities; program and pid are named all the same.
    #[test]
    fn holder_is_named_with_capabilities_of_unit() {
        let unit = include_str!("../../systemd/machine-config-agent.service");
        let sets = unit.lines().filter_map(|line| line.strip_prefix("CapabilityBoundingSet="));
        let kept = sets.flat_map(str::split_whitespace).filter_map(|one| one.strip_prefix("CAP_"));
        let kept = kept.fold(String::new(), |kept, one| kept + ",+" + &one.to_lowercase());
        let dir = tempfile::tempdir().unwrap();
        let (tool, lock) = (dir.path().join("ostree"), dir.path().join("lock"));
        if fs::copy("/usr/bin/flock", &tool).is_err() || !rustix::process::geteuid().is_root() {
            return crate::ran::not_run("holder_is_named_with_capabilities_of_unit", "flock and root");
        }
        fs::write(&lock, "").unwrap();
        let mut holder = Command::new(&tool)
            .arg(&lock)
            .args(["sh", "-c", "echo held; read line"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0; 5];
        std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut line).unwrap();
        let expected = format!("process {} (ostree)", holder.id());
        let named = name(&lock);
        let mut restricted = Command::new("setpriv");
        restricted.args([format!("--bounding-set=-all{kept}"), format!("--inh-caps=-all{kept}")]);
        restricted.arg(std::env::current_exe().unwrap());
        restricted.args(["--exact", "host::lock_holder::tests::restricted", "--nocapture"]);
        let output = restricted.env(LOCK, &lock).output().unwrap();
        holder.kill().unwrap();
        holder.wait().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(named.contains("(ostree)") || named.contains("(sh)"), "{named}");
        assert!(text.contains(&expected), "{text}{}", String::from_utf8_lossy(&output.stderr));
    }
}
