//! The worker's executable: the second one of this crate, the only one that is linked to libostree.
//!
//! Invariant: it is looked for beside the agent and in one system directory, never along `PATH`.

use std::fs::{self, File, Permissions};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

use super::super::error::{OsError, OsErrorKind};
use crate::host::HostError;

/// The name of the file.
pub(crate) const NAME: &str = "machine-config-agent-ostree";

/// Directory of programs that are not started by people.
const LIBEXEC: &str = "/usr/libexec/machine-config-agent";

/// The paths of the worker for an agent with this path, in order of preference.
pub(crate) fn candidates(agent: &Path) -> [PathBuf; 2] {
    [agent.with_file_name(NAME), Path::new(LIBEXEC).join(NAME)]
}

/// The worker's file, held open: every worker of one agent is the same, also when the files are replaced meanwhile.
#[derive(Debug)]
pub(in crate::host) struct Executable(OwnedFd);

impl Executable {
    /// Finds the file for the running program.
    pub(in crate::host) fn find() -> Result<Arc<Self>, HostError> {
        let absent = |cause: String| OsError::new(OsErrorKind::NotInstalled, NAME, cause).into_error();
        let agent = std::env::current_exe()
            .map_err(|e| absent(format!("the agent's own file can't be found: {e}")))?;
        let places = candidates(&agent);
        let mut causes = Vec::new();
        for place in &places {
            match rustix::fs::open(place, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
                Ok(file) => return Ok(Arc::new(Self(file))),
                Err(errno) => causes.push(format!("{} can't be opened: {errno}", place.display())),
            }
        }
        Err(absent(causes.join("; ")))
    }

    /// Returns the path of the file where it is still installed: a package may have replaced it since.
    pub(in crate::host) fn installed(&self) -> Option<String> {
        let path = rustix::fs::readlink(self.path(), Vec::new()).ok()?.into_string().ok()?;
        let (there, own) = (rustix::fs::stat(&*path).ok()?, rustix::fs::fstat(&self.0).ok()?);
        ((there.st_dev, there.st_ino) == (own.st_dev, own.st_ino)).then_some(path)
    }

    /// Copies the file, piece by piece: it is larger than all that the agent holds.
    pub(in crate::host) fn copy(&self, at: &Path) -> std::io::Result<()> {
        let draft = at.with_extension("new");
        let mut copy = File::create(&draft)?;
        std::io::copy(&mut File::open(self.path())?, &mut copy)?;
        copy.set_permissions(Permissions::from_mode(0o700))?;
        fs::rename(&draft, at)
    }

    /// Returns a path that a child of this process can execute.
    pub(in crate::host) fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_file_is_not_installed() {
        let dir = tempfile::tempdir().unwrap();
        let (program, newer) = (dir.path().join("program"), dir.path().join("newer"));
        fs::write(&program, "first").unwrap();
        let held = Executable(rustix::fs::open(&program, OFlags::PATH, Mode::empty()).unwrap());
        assert_eq!(held.installed().as_deref(), program.to_str());
        fs::write(&newer, "second").unwrap();
        fs::rename(&newer, &program).unwrap();
        assert_eq!(held.installed(), None);
        // Somebody's file with the kernel's words in its name is not it.
        fs::write(dir.path().join("program (deleted)"), "other").unwrap();
        assert_eq!(held.installed(), None);
    }

    /// For any change of the name: the open file is copied, again over an older copy.
    #[test]
    fn open_file_is_copied_as_program_of_root_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (program, copy) = (dir.path().join("program"), dir.path().join("copy"));
        fs::write(&program, "first").unwrap();
        let open = rustix::fs::open(&program, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        fs::remove_file(&program).unwrap();
        for _ in 0..2 {
            Executable(open.try_clone().unwrap()).copy(&copy).unwrap();
            assert_eq!(fs::read_to_string(&copy).unwrap(), "first");
            assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o7777, 0o700);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no draft stays");
    }
}
