//! Where the worker's file is: the second executable of this crate, the only one that is linked to libostree.
//!
//! Invariant: it is looked for beside the agent and in one system directory, never along `PATH`.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

use super::super::trouble::{Failure, Trouble};
use crate::host::{Entered, HostError};

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
pub(in crate::host) struct Executable(OwnedFd);

impl Executable {
    /// Returns the file that was opened before the host was entered, or finds it.
    pub(super) fn of(entered: &Entered) -> Result<Arc<Self>, HostError> {
        entered.worker().map_or_else(Self::find, Ok)
    }

    /// Finds the file for the running program.
    pub(in crate::host) fn find() -> Result<Arc<Self>, HostError> {
        let absent = |cause: String| Failure::new(Trouble::NotInstalled, NAME, cause).into_error();
        let agent = std::env::current_exe()
            .map_err(|e| absent(format!("the agent's own file can't be found: {e}")))?;
        let places = places(&agent);
        let mut causes = Vec::new();
        for place in &places {
            match rustix::fs::open(place, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
                Ok(file) => return Ok(Arc::new(Self(file))),
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
