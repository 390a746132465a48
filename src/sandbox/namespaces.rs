//! Taking namespaces.
//!
//! Invariant: a process that enters is the only thread of its process, and stays in its namespaces until it ends.

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Command, ExitCode, Stdio};

use rustix::io::Errno;
use rustix::process::{getegid, geteuid, getpid};
use rustix::thread::UnshareFlags;

use super::{MACHINE_VERB, SandboxError};
use crate::host::mounts;

/// The namespaces, besides one for users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// Mounts.
    Mounts,
    /// Mounts and processes: the next child is process 1.
    MountsAndProcesses,
}

/// Takes the namespaces. Root keeps all its user ids; anyone else becomes root, alone.
pub(super) fn enter(scope: Scope) -> Result<(), SandboxError> {
    let flags = match scope {
        Scope::Mounts => UnshareFlags::NEWNS,
        Scope::MountsAndProcesses => UnshareFlags::NEWNS | UnshareFlags::NEWPID,
    };
    if geteuid().is_root() {
        enter_as_root(flags)?;
    } else {
        enter_as_user(flags)?;
    }
    mounts::detach().map_err(|e| match e {
        // pivot_root(2) would refuse it as well.
        Errno::INVAL => SandboxError::NoNamespaces {
            cause: format!(
                "its root is not a mount point, as in a chroot ({e}); outside of the chroot, \
                 mount --bind DIR DIR makes its directory DIR one, and then enter it anew"
            ),
        },
        other => refused("making mounts private", other),
    })
}

/// Returns the error of a machine that does not allow it.
pub(super) fn refused(what: &str, error: impl std::fmt::Display) -> SandboxError {
    SandboxError::NoNamespaces {
        cause: format!(
            "{what}: {error}; run it as root, or allow user namespaces (sysctl user.max_user_namespaces=15000 \
             kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0, as far as they exist; \
             in a container: --privileged)"
        ),
    }
}

/// Root takes a user namespace too, with the same ids: in it the kernel refuses calls that would reach the machine
/// around, such as freezing or remounting its file systems. Where there are no user namespaces, root does without.
fn enter_as_root(flags: UnshareFlags) -> Result<(), SandboxError> {
    // A process can't map more than its own id by itself: a child that stays outside does.
    let pid = getpid().as_raw_nonzero().to_string();
    let mut mapper = Command::new("/proc/self/exe")
        .args([MACHINE_VERB, "map", &pid])
        .stdin(Stdio::piped())
        .spawn()
        .map_err(|e| refused("starting the child that maps ids", e))?;
    let taken = mounts::unshare(flags | UnshareFlags::NEWUSER);
    if let (Ok(()), Some(mut stdin)) = (taken, mapper.stdin.take()) {
        stdin.write_all(b"go").map_err(|e| refused("mapping ids", e))?;
    }
    drop(mapper.stdin.take());
    let ended = mapper.wait().map_err(|e| refused("mapping ids", e))?;
    match taken {
        Ok(()) if ended.success() => Ok(()),
        Ok(()) => Err(refused("mapping ids", ended)),
        Err(_) => mounts::unshare(flags).map_err(|e| refused("unshare of mounts and processes as root", e)),
    }
}

/// Returns true if a user id exists in this process's namespace.
pub(super) fn has_user(id: u32) -> bool {
    let covers = |line: &str| {
        let mut words = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(first)), Some(Ok(count))) = (words.next(), words.nth(1)) else { return false };
        (first..first + count).contains(&u64::from(id))
    };
    fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| map.lines().any(covers))
}

/// Maps every id of this namespace to itself in the namespace of a process, on a line of standard input.
pub(super) fn map(pid: &str) -> ExitCode {
    let mut word = Vec::new();
    let released = std::io::stdin().read_to_end(&mut word).is_ok() && word == b"go";
    let copy = |file: &str| -> std::io::Result<()> {
        let own = fs::read_to_string(format!("/proc/self/{file}"))?;
        let same: String = own
            .lines()
            .filter_map(|line| {
                let mut words = line.split_whitespace();
                let (first, count) = (words.next()?, words.nth(1)?);
                Some(format!("{first} {first} {count}\n"))
            })
            .collect();
        fs::write(format!("/proc/{pid}/{file}"), same)
    };
    match released.then(|| copy("uid_map").and_then(|()| copy("gid_map"))) {
        None | Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(_)) => ExitCode::FAILURE,
    }
}

fn enter_as_user(flags: UnshareFlags) -> Result<(), SandboxError> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    mounts::unshare(flags | UnshareFlags::NEWUSER).map_err(|e| refused("unshare of users", e))?;
    let write = |file: &str, text: String| {
        fs::write(format!("/proc/self/{file}"), text).map_err(|e| refused("mapping the own id", e))
    };
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("0 {uid} 1\n"))?;
    write("gid_map", format!("0 {gid} 1\n"))
}
