//! MCD's own state files: read when the agent takes a node over, kept up to date so that MCD can take it back
//! (docs/contract.md, "Files of MCD").

use super::error::JournalError;
use super::files::STATE_MODE;
use super::stored::Stored;
use crate::host::root::Root;
use crate::host::{HostError, durable};
use crate::model::ids::MCD_CONFIG;
use crate::model::machineconfig::{self, MachineConfig};
use crate::model::{FaultClass, FileMode, ModelError, ObservedFile, Timestamp};

const DIRECTORY: &str = "/etc/machine-config-daemon";
/// The config that MCD committed last.
pub const CONFIG: &str = MCD_CONFIG;
const IMAGE: &str = "/etc/machine-config-daemon/currentimage";
/// The first annotations of the Node, until they have served.
const PROVISIONED: &str = "/etc/machine-config-daemon/node-annotations.json";
/// The same, once they have.
const SERVED: &str = "/etc/machine-config-daemon/node-annotation.json.bak";
/// Files that tell of a commit on this host.
const OF_COMMIT: [&str; 4] = [IMAGE, SERVED, HOSTED, CONFIG];
/// Far more than the name of an image.
const LARGEST_NAME: u64 = 4096;

/// Returns true if there is a config that was committed on this host. Where each file of a commit is as the booted image has it, or
/// missing, all came with the image: the host was never at it.
pub fn is_committed(root: &Root) -> Result<bool, HostError> {
    if root.observe(CONFIG)? == ObservedFile::Absent {
        return Ok(false);
    }
    for path in OF_COMMIT {
        if !is_of_image(root, path)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns true if a file is missing, or as the booted image has it.
pub(super) fn is_of_image(root: &Root, path: &str) -> Result<bool, HostError> {
    let live = root.observe(path)?;
    if live == ObservedFile::Absent {
        return Ok(true);
    }
    Ok(match (live, root.observe(&format!("/usr{path}"))?) {
        (ObservedFile::Regular { sha256: live, .. }, ObservedFile::Regular { sha256: own, .. }) => {
            live == own
        }
        (
            ObservedFile::Absent
            | ObservedFile::Regular { .. }
            | ObservedFile::Symlink { .. }
            | ObservedFile::Directory { .. }
            | ObservedFile::Special
            | ObservedFile::Unreachable,
            _,
        ) => false,
    })
}

/// Leaves of a commit in an image's root what the image carries: its config. The image of it is a host's.
pub(super) fn leave_image(root: &Root) -> Result<(), HostError> {
    root.remove(IMAGE).map(drop)
}

/// Reads the config that MCD committed last; `None` on a host it never managed.
pub fn read(root: &Root) -> Result<Option<Stored>, JournalError> {
    if !is_committed(root).map_err(JournalError::Import)? {
        return Ok(None);
    }
    // What is committed is taken back by the next update: as root, so from root alone.
    let trusted = |path: &str, limit: u64| root.read_trusted(path, limit).map_err(JournalError::Import);
    let Some(bytes) = trusted(CONFIG, machineconfig::MAX_BYTES)? else { return Ok(None) };
    let machine_config = parsed(&bytes, CONFIG)?;
    let text = trusted(IMAGE, LARGEST_NAME)?.unwrap_or_default();
    let image = String::from_utf8_lossy(&text).trim().to_owned();
    Ok(Some(Stored::applied(machine_config, Some(image), Timestamp::default()).imported()))
}

/// Removes what commits of another machine have left; the config is the last of them, since it tells that they are there.
pub(super) fn forget(root: &Root) -> Result<(), HostError> {
    OF_COMMIT.into_iter().try_for_each(|path| root.remove(path).map(drop))
}

/// Refuses files of MCD that a commit could not write.
pub(super) fn check(root: &Root) -> Result<(), JournalError> {
    for directory in ["/etc", DIRECTORY] {
        root.check_directory(directory).map_err(JournalError::Mcd)?;
    }
    for path in [CONFIG, IMAGE, HOSTED] {
        root.check_replaceable(path).map_err(JournalError::Mcd)?;
    }
    Ok(())
}

/// Refuses files of MCD that can't be written, as far as it is seen before. Those that are never written are left out.
pub(super) fn check_writable(root: &Root) -> Result<(), JournalError> {
    let is_there = |path: &str| root.exists(path).map_err(JournalError::Mcd);
    let hosted: &[&str] = if is_there(HOSTED)? { &[HOSTED] } else { &[] };
    let first: &[&str] = if is_there(PROVISIONED)? { &[PROVISIONED, SERVED] } else { &[] };
    for path in [CONFIG, IMAGE].iter().chain(hosted).chain(first) {
        durable::check_writable(root, path).map_err(JournalError::Mcd)?;
    }
    Ok(())
}

/// Reads a config that MCD has applied: whatever its sections hold, it is where the next update comes from.
pub(super) fn parsed(bytes: &[u8], path: &str) -> Result<MachineConfig, JournalError> {
    MachineConfig::parse_applied(bytes, path).map_err(|error| {
        let cause = match error {
            ModelError::Document { cause, .. } => cause,
            ModelError::Name { .. }
            | ModelError::InDocument { .. }
            | ModelError::UnknownFields { .. }
            | ModelError::Variable { .. }
            | ModelError::Path { .. }
            | ModelError::Image { .. }
            | ModelError::Disagree { .. }
            | ModelError::Layers { .. }
            | ModelError::Unreachable { .. }
            | ModelError::Field { .. }
            | ModelError::Several { .. } => error.to_string(),
        };
        JournalError::NotImported { path: path.to_owned(), cause }
    })
}

/// The config that MCD committed last on a node of a hosted cluster.
pub(super) const HOSTED: &str = "/etc/mcd-currentconfig.json";

/// Writes the current config as MCD does: the config first, then the image. Only differences are written.
pub(super) fn write(root: &Root, stored: &Stored) -> Result<(), JournalError> {
    write_files(root, stored).map_err(JournalError::Mcd)
}

fn write_files(root: &Root, stored: &Stored) -> Result<(), HostError> {
    let image = stored.image_text();
    replace_if_changed(root, CONFIG, stored.machine_config().json().as_bytes(), STATE_MODE)?;
    if root.exists(HOSTED)? {
        replace_if_changed(root, HOSTED, stored.machine_config().json().as_bytes(), STATE_MODE)?;
    }
    replace_if_changed(root, IMAGE, image.as_bytes(), FileMode::DEFAULT)?;
    // A file that is there already may be of a process that died before its names were durable.
    for directory in [DIRECTORY, "/etc"] {
        durable::sync_directory(root, directory)?;
    }
    Ok(())
}

pub(super) fn replace_if_changed(
    root: &Root,
    path: &str,
    bytes: &[u8],
    mode: FileMode,
) -> Result<(), HostError> {
    match root.read(path) {
        Ok(Some(found)) if found == bytes => Ok(()),
        // A link that leads nowhere is replaced; a directory is an error of that.
        Err(error) if error.class() != FaultClass::Degraded => Err(error),
        Ok(_) | Err(_) => root.replace(path, bytes, mode),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use super::*;

    /// Each file of a commit that is as the image has it came with the image, whoever built that.
    #[test]
    fn files_of_the_image_are_no_commit() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let config = br#"{"kind":"MachineConfig","metadata":{"name":"rendered-a"},"spec":{"config":{"ignition":{"version":"3.4.0"}}}}"#;
        let own = format!("/usr{CONFIG}");
        for path in [own.as_str(), CONFIG] {
            root.replace(path, config, FileMode::DEFAULT).unwrap();
        }
        let is_ours = || (is_committed(&root).unwrap(), read(&root).unwrap().is_some());
        assert_eq!(is_ours(), (false, false));
        for evidence in [IMAGE, SERVED, HOSTED] {
            root.replace(evidence, b"", FileMode::DEFAULT).unwrap();
            assert_eq!(is_ours(), (true, true), "{evidence}");
            let own = format!("/usr{evidence}");
            root.replace(&own, b"", FileMode::DEFAULT).unwrap();
            assert_eq!(is_ours(), (false, false), "{evidence} of the image");
            root.replace(evidence, b"r.test/os", FileMode::DEFAULT).unwrap();
            assert_eq!(is_ours(), (true, true), "{evidence} differs from the image's");
            for path in [&own, evidence] {
                root.remove(path).unwrap();
            }
        }
        root.replace(&own, b"{}", FileMode::DEFAULT).unwrap();
        assert_eq!(is_ours(), (true, true), "it was committed on this host");
    }

    /// The committed config decides what the next update removes and puts back, as root.
    #[test]
    fn config_of_another_user_is_not_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let config = br#"{"kind":"MachineConfig","metadata":{"name":"rendered-a"},"spec":{"config":{"ignition":{"version":"3.4.0"}}}}"#;
        root.replace(CONFIG, config, FileMode::DEFAULT).unwrap();
        assert_eq!(read(&root).unwrap().unwrap().target.config.as_str(), "rendered-a");
        for (path, reason) in [(CONFIG, "UnsafeFile"), (DIRECTORY, "UnsafeDirectory")] {
            let at = dir.path().join(path.trim_start_matches('/'));
            chown(&at, Some(1000), None).unwrap();
            let error = read(&root).unwrap_err();
            assert_eq!(error.reason(), reason, "{error}");
            assert!(crate::model::text::chain(&error).contains(path), "{error}");
            chown(&at, Some(0), None).unwrap();
        }
    }
}
