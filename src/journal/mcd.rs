//! MCD's own state files: read when the agent takes a node over, kept up to date so that MCD can take it back
//! (docs/contract.md, "Files of MCD").

use super::{Journal, JournalError, STATE_MODE, Stored};
use crate::host::root::Root;
use crate::host::{HostError, durable};
use crate::model::hosted::SERVED;
use crate::model::machineconfig::{self, MachineConfig};
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
const HOSTED: &str = "/etc/mcd-currentconfig.json";

/// Imports the node of a hosted cluster: what MCD committed last, else what the node was served, is committed. The file
/// is there from then on, and [`write()`] keeps it up to date.
pub fn import_hosted(journal: &mut Journal, now: Timestamp) -> Result<(), JournalError> {
    if journal.current().is_some() || journal.record().is_some() {
        return Ok(());
    }
    for path in [HOSTED, SERVED] {
        let Some(bytes) = journal.root.read_trusted(path, machineconfig::MAX_BYTES)? else { continue };
        let config = MachineConfig::parse(&bytes, path)?;
        replace_if_changed(&journal.root, HOSTED, config.json().as_bytes(), STATE_MODE)
            .map_err(JournalError::Mcd)?;
        return journal.adopt(Stored::new(config, None, Timestamp::default()), now);
    }
    Ok(())
}

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

fn replace_if_changed(root: &Root, path: &str, bytes: &[u8], mode: FileMode) -> Result<(), HostError> {
    if root.read(path)?.as_deref() == Some(bytes) {
        return Ok(());
    }
    root.replace(path, bytes, mode)
}
