//! MCD's own state files: read when the agent takes a node over, kept up to date so that MCD can take it back
//! (docs/contract.md, "Files of MCD").

use super::error::JournalError;
use super::files::STATE_MODE;
use super::stored::Stored;
use crate::host::root::Root;
use crate::host::{HostError, durable};
use crate::model::machineconfig::MachineConfig;
use crate::model::{FileMode, ImageRef, Timestamp};

const DIRECTORY: &str = "/etc/machine-config-daemon";
/// The config that MCD committed last.
pub const CONFIG: &str = "/etc/machine-config-daemon/currentconfig";
const IMAGE: &str = "/etc/machine-config-daemon/currentimage";

/// Reads the config that MCD committed last; `None` on a host it never managed.
pub fn read(root: &Root) -> Result<Option<Stored>, JournalError> {
    let Some(bytes) = root.read(CONFIG)? else { return Ok(None) };
    let machine_config = MachineConfig::parse(&bytes, CONFIG)?;
    let text = root.read(IMAGE)?.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let image = Some(text.trim()).filter(|text| !text.is_empty()).map(ImageRef::parse).transpose()?;
    Ok(Some(Stored::new(machine_config, image, Timestamp::default())))
}

/// The config that MCD committed last on a node of a hosted cluster.
pub(super) const HOSTED: &str = "/etc/mcd-currentconfig.json";

/// Writes the current config as MCD does: the config first, then the image. Only differences are written.
pub(super) fn write(root: &Root, stored: &Stored) -> Result<(), JournalError> {
    write_files(root, stored).map_err(JournalError::Mcd)
}

fn write_files(root: &Root, stored: &Stored) -> Result<(), HostError> {
    let image = stored.target.image.as_ref().map(ToString::to_string).unwrap_or_default();
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
    if root.read(path)?.as_deref() == Some(bytes) {
        return Ok(());
    }
    root.replace(path, bytes, mode)
}
