//! Confinement of a process that reads what others made: it sees one directory and nothing else of the host, and can do no more than
//! write files of any owner into it.
//!
//! | taken away | by |
//! |---|---|
//! | the host's files | a mount namespace whose root has the directory and `/proc/self` alone |
//! | the network, other processes' shared memory | namespaces without any |
//! | the host's processes | a user of its own, whom no other process has, and no capability to reach others |
//! | mounts, kernel, devices | capabilities: those of [`KEPT`] are left |
//! | more privileges by a program | `no_new_privs`, no program, and no child |
//! | memory, large files | limits |
//! | the agent's protection from the OOM killer | the score of an ordinary process |
//!
//! # Decisions
//! 1. The process confines itself, before it has read a byte: no program of the host is needed for it.
//! 2. Its root is a file system in memory, not the directory: a directory of a system gets nothing for it.
//! 3. libostree reads attributes by `/proc/self/fd`. Only that directory of `/proc` is there, so no other process is seen.

use std::fs::{DirBuilder, create_dir, read_to_string, write};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use rustix::process::{
    Resource, Rlimit, Signal, chdir, chroot, getpid, pivot_root, set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, Uid, UnshareFlags, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use super::mounts;

/// Capabilities that are left: owners, modes, attributes and devices of files are written.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::MAC_ADMIN)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::SETFCAP);

/// The first of the users that no account and no container has (systemd's `UIDS-GIDS.md`); the process id is added.
const FIRST_USER: u32 = 1_879_048_192;

/// Directory of the host that is covered by the new root, in the own mount namespace.
const COVERED: &str = "/run";

/// The directory, as the process sees it.
pub(crate) const INSIDE: &str = "/inside";

/// Most open files: one for each directory on the way.
const MAX_FILES: u64 = 1024;

/// The file of the score, between -1000 (never killed) and 1000.
const OOM_SCORE: &str = "/proc/self/oom_score_adj";

/// Limits of a confined process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Its address space, in bytes.
    pub(crate) memory: u64,
    /// The largest file that it writes, in bytes.
    pub(crate) file: u64,
}

/// Confines this process, which has one thread only, to a directory: from here on that is [`INSIDE`].
pub(crate) fn confine(directory: &Path, limits: Limits) -> io::Result<()> {
    let step = |what: &str, done: io::Result<()>| {
        done.map_err(|error| io::Error::new(error.kind(), format!("{what}: {error}")))
    };
    step("its OOM score", be_ordinary())?;
    step("its namespaces", own_namespaces())?;
    step("its root", enter(directory))?;
    step("its limits", limit(limits))?;
    step("its user and capabilities", drop_privileges())
}

/// Gives up the protection from the OOM killer that the agent has.
fn be_ordinary() -> io::Result<()> {
    let score = read_to_string(OOM_SCORE)?;
    if score.trim().parse::<i32>().is_ok_and(|score| score < 0) {
        write(OOM_SCORE, "0")?;
    }
    Ok(())
}

/// Takes namespaces. A unit of an earlier version allows mount namespaces alone.
fn own_namespaces() -> io::Result<()> {
    match mounts::unshare(UnshareFlags::NEWNS | UnshareFlags::NEWNET | UnshareFlags::NEWIPC) {
        Err(Errno::PERM) => mounts::unshare(UnshareFlags::NEWNS)?,
        taken => taken?,
    }
    Ok(mounts::detach()?)
}

/// Makes a root with the directory, and enters it. The host's mounts are gone then.
fn enter(directory: &Path) -> io::Result<()> {
    let root = Path::new(COVERED);
    let at = |path: &str| -> PathBuf { root.join(path.trim_start_matches('/')) };
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    // Its name is looked up before the root covers a directory of the host.
    let directory = directory.canonicalize()?;
    mount("tmpfs", root, "tmpfs", flags, Some(c"mode=0755,size=64k,nr_inodes=16"))?;
    create_dir(at(INSIDE))?;
    mount_bind(&directory, at(INSIDE))?;
    mounts::restrict(&at(INSIDE))?;
    DirBuilder::new().recursive(true).mode(0o555).create(at("proc/self"))?;
    mount_bind(format!("/proc/{}", getpid().as_raw_nonzero()), at("proc/self"))?;
    mounts::make_read_only(root)?;
    chdir(root)?;
    match pivot_root(".", ".") {
        Ok(()) => unmount(".", UnmountFlags::DETACH)?,
        // The root is one that a program before has changed to: nothing of it is open, and the capability to leave goes.
        Err(Errno::INVAL) => chroot(".")?,
        Err(errno) => return Err(errno.into()),
    }
    Ok(chdir(INSIDE)?)
}

fn limit(Limits { memory, file }: Limits) -> io::Result<()> {
    let limits = [
        (Resource::As, memory),
        (Resource::Fsize, file),
        (Resource::Core, 0),
        (Resource::Nproc, 0),
        (Resource::Nofile, MAX_FILES),
    ];
    for (resource, most) in limits {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    Ok(())
}

fn drop_privileges() -> io::Result<()> {
    let user = FIRST_USER + getpid().as_raw_nonzero().get().unsigned_abs();
    for number in 0..u64::BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            // The kernel knows no more.
            Err(Errno::INVAL) => break,
            removed => removed?,
        }
    }
    set_keep_capabilities(true)?;
    set_thread_groups(&[])?;
    match change_user(user) {
        // A user namespace without such a user: its root is none of the host's.
        Err(Errno::INVAL) => {}
        changed => changed?,
    }
    let kept = capabilities(None)?.permitted.intersection(KEPT);
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    clear_ambient_capability_set()?;
    set_capabilities(None, sets)?;
    set_no_new_privs(true)?;
    // A change of the user takes it away.
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

fn change_user(user: u32) -> rustix::io::Result<()> {
    let (group, user) = (Gid::from_raw(user), Uid::from_raw(user));
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)
}
