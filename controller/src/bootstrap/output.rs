//! Writes the rendered objects: the directory appears, or changes, in one instant.
//!
//! It is made beside its path, synced, and put there by one rename, or by an exchange with the one that is there. A kill at
//! any point leaves the old directory or the new one, and at most `.NAME.new` beside it, which the next run removes.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde::Serialize;

use super::Output;
use crate::api::controller_config::CONTROLLER_CONFIG;

/// Pools.
const POOLS: &str = "machine-pools";

/// Rendered configs.
const CONFIGS: &str = "machine-configs";

/// `MachineOSConfig`s that were given an image.
const OS_CONFIGS: &str = "machine-os-configs";

/// The `ControllerConfig`.
const CONTROLLER_CONFIGS: &str = "controller-config";

/// Errors of the output directory; nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The system refused.
    #[error("can't {action} {path}: {source}; nothing is changed")]
    Io {
        /// The failed action.
        action: &'static str,
        /// Its path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It would be lost.
    #[error(
        "{path} was not written by bootstrap and would be removed with its directory; name another one by --output"
    )]
    Foreign {
        /// The file or directory that would be lost.
        path: PathBuf,
    },
    /// It has no name.
    #[error("{path} has no directory above it; name another one by --output")]
    NoParent {
        /// The path.
        path: PathBuf,
    },
    /// Unreachable: an object is text.
    #[error("an object can't be written as YAML: {0}")]
    Yaml(String),
}

fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OutputError {
    let path = path.to_owned();
    move |source| OutputError::Io { action, path, source }
}

/// Writes the directory. It is for its owner alone: configs hold secrets.
pub fn write(output: &Output, directory: &Path) -> Result<(), OutputError> {
    // The target of a link is replaced.
    let directory = match fs::canonicalize(directory) {
        Ok(found) => found,
        Err(_) => std::path::absolute(directory).map_err(io("find", directory))?,
    };
    let no_parent = || OutputError::NoParent { path: directory.clone() };
    let (parent, name) =
        (directory.parent().ok_or_else(no_parent)?, directory.file_name().ok_or_else(no_parent)?);
    let is_there = is_own(&directory)?;
    let new = parent.join([OsStr::new("."), name, OsStr::new(".new")].join(OsStr::new("")));
    remove(&new)?;
    let made = make(output, &new).and_then(|()| put(&new, &directory, is_there));
    if made.is_err() {
        drop(remove(&new));
    }
    made?;
    sync(parent)?;
    // The one that was there, if any.
    remove(&new)
}

/// Returns true if the directory is there; fails where it has files that no bootstrap wrote.
#[expect(clippy::disallowed_methods, reason = "a directory that a person names")]
fn is_own(directory: &Path) -> Result<bool, OutputError> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(io("read", directory)(error)),
    };
    for entry in entries {
        let entry = entry.map_err(io("read", directory))?;
        if ![POOLS, CONFIGS, OS_CONFIGS, CONTROLLER_CONFIGS].iter().any(|own| entry.file_name() == *own) {
            return Err(OutputError::Foreign { path: entry.path() });
        }
    }
    Ok(true)
}

fn make(output: &Output, new: &Path) -> Result<(), OutputError> {
    create(new)?;
    fill(&new.join(CONFIGS), &output.configs)?;
    fill(&new.join(POOLS), &output.pools)?;
    if !output.os_configs.is_empty() {
        fill(&new.join(OS_CONFIGS), &output.os_configs)?;
    }
    if let Some(config) = &output.controller_config {
        fill(&new.join(CONTROLLER_CONFIGS), [(&CONTROLLER_CONFIG.to_owned(), config)])?;
    }
    sync(new)
}

fn fill<'a, T: Serialize + 'a>(
    directory: &Path,
    objects: impl IntoIterator<Item = (&'a String, &'a T)>,
) -> Result<(), OutputError> {
    create(directory)?;
    for (name, object) in objects {
        let tree = serde_json::to_value(object).map_err(|error| OutputError::Yaml(error.to_string()))?;
        let text = serde_saphyr::to_string(&tree).map_err(|error| OutputError::Yaml(error.to_string()))?;
        let path = directory.join(format!("{name}.yaml"));
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = file.as_mut().map_err(|error| io("create", &path)(io::Error::from(error.kind())))?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(io("write", &path))?;
    }
    sync(directory)
}

fn create(directory: &Path) -> Result<(), OutputError> {
    fs::DirBuilder::new().mode(0o700).create(directory).map_err(io("create", directory))
}

/// Puts the new directory at its path; the old one is then at the new one's temporary path.
fn put(new: &Path, directory: &Path, is_there: bool) -> Result<(), OutputError> {
    let flags = if is_there { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
    renameat_with(CWD, new, CWD, directory, flags).map_err(|error| io("replace", directory)(error.into()))
}

#[expect(clippy::disallowed_methods, reason = "a directory that a person names")]
fn sync(directory: &Path) -> Result<(), OutputError> {
    fs::File::open(directory).and_then(|file| file.sync_all()).map_err(io("sync", directory))
}

#[expect(clippy::disallowed_methods, reason = "what an earlier run left, or replaced")]
fn remove(directory: &Path) -> Result<(), OutputError> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io("remove", directory)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}
