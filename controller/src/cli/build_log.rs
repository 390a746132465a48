//! Output of builds on this machine, for the agent's `collect`: appended to, and bounded.
#![expect(clippy::disallowed_methods, reason = "the builder's own directory; `host` is the agent's")]

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::CliError;

/// The largest file; the one before it is kept, so that `collect` has the last lines whatever a build says.
const MAX_LOG: u64 = 256 << 10;

/// Build output.
#[derive(Debug)]
pub(super) struct BuildLog {
    path: PathBuf,
    file: File,
    len: u64,
}

impl BuildLog {
    /// Opens the log of the builds in a directory.
    pub(super) fn open(directory: &Path) -> Result<Self, CliError> {
        let path = directory.join("build.log");
        let failed = |error: std::io::Error| {
            CliError::Failed(format!("{}: {error}; name another --work-dir", path.display()))
        };
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len();
        Ok(Self { path, file, len })
    }

    /// Adds a line. A disk that is full stops no build: the same lines are on standard error.
    pub(super) fn line(&mut self, line: &str) {
        let text = format!("{line}\n");
        let added = u64::try_from(text.len()).unwrap_or(u64::MAX);
        if self.len > 0 && self.len.saturating_add(added) > MAX_LOG {
            drop(self.restart());
        }
        if self.file.write_all(text.as_bytes()).is_ok() {
            self.len = self.len.saturating_add(added);
        }
    }

    fn restart(&mut self) -> std::io::Result<()> {
        std::fs::rename(&self.path, self.path.with_extension("log.1"))?;
        self.file = OpenOptions::new().create_new(true).append(true).mode(0o600).open(&self.path)?;
        self.len = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn log_is_appended_to_and_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().join("work");
        BuildLog::open(&directory).unwrap().line("first");
        let mut log = BuildLog::open(&directory).unwrap();
        log.line("second");
        let path = directory.join("build.log");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "first\nsecond\n");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for number in 0..3000 {
            log.line(&format!("{number} {}", "x".repeat(400)));
        }
        let (new, old) = (&path, directory.join("build.log.1"));
        assert!([new, &old].iter().all(|path| std::fs::metadata(path).unwrap().len() <= MAX_LOG));
        assert!(std::fs::read_to_string(new).unwrap().lines().last().unwrap().starts_with("2999 "));
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 2);
    }
}
