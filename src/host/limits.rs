//! The process's own limits.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More open files than this are of no use: a batch of thousands of new directories has a few for each. Programs that the
/// agent starts inherit the limit, and some go through all descriptors there could be.
const MAX_OPEN_FILES: u64 = 65_536;

/// Raises the number of files that may be open, as far as the hard limit lets it. A batch that needs more than there may
/// be fails whole, and reports it.
pub fn raise_open_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let limit = maximum.map_or(MAX_OPEN_FILES, |hard| hard.min(MAX_OPEN_FILES));
    if current.is_some_and(|soft| soft < limit) {
        // Below the hard limit the kernel allows it; a sandbox may refuse it, and then the old limit holds.
        setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum }).unwrap_or_default();
    }
}
