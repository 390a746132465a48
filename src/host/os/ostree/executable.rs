//! Where the worker's file is: the second executable of this crate, the only one that is linked to libostree.
//!
//! Invariant: it is looked for beside the agent and in one system directory, never along `PATH`.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::protocol::{Failure, Trouble};

/// The name of the file.
pub(crate) const NAME: &str = "machine-config-agent-ostree";

/// Where distributions put programs that are not started by people.
const LIBEXEC: &str = "/usr/libexec/machine-config-agent";

/// The places in which an agent with this path looks, in order.
pub(crate) fn places(agent: &Path) -> [PathBuf; 2] {
    [agent.with_file_name(NAME), Path::new(LIBEXEC).join(NAME)]
}

/// The worker's file, held open: every worker of one agent is the same, also when the files are replaced meanwhile.
#[derive(Debug)]
pub(super) struct Executable(OwnedFd);

impl Executable {
    /// Finds the file for the running program.
    pub(super) fn open() -> Result<Self, Failure> {
        let absent = |cause: String| Failure::new(Trouble::NotInstalled, NAME, cause);
        let agent = std::env::current_exe()
            .map_err(|e| absent(format!("the agent's own file can't be found: {e}")))?;
        let places = places(&agent);
        let mut causes = Vec::new();
        for place in &places {
            match rustix::fs::open(place, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
                Ok(file) => return Ok(Self(file)),
                Err(errno) => causes.push(format!("{} can't be opened: {errno}", place.display())),
            }
        }
        Err(absent(causes.join("; ")))
    }

    /// Returns a path that a child of this process can execute.
    pub(super) fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }
}
