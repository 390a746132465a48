//! A file that a duty keeps.

use tracing::info;

use crate::host::{HostError, Root};
use crate::model::{FileMode, message};

/// A file as it is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredFile {
    /// Its path.
    pub path: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its mode.
    pub mode: FileMode,
}

/// Writes one file, and logs if it changed.
pub(super) fn write(root: &Root, desired: &DesiredFile) -> Result<(), HostError> {
    let done = root.write_if_changed(&desired.path, &desired.bytes, desired.mode)?;
    if done.changed > 0 {
        info!(
            MESSAGE_ID = message::TRUST,
            MCA_TARGET = desired.path,
            "Wrote {} from the cluster: {} bytes, mode {}",
            desired.path,
            desired.bytes.len(),
            desired.mode
        );
    }
    Ok(())
}

/// Ends a text with a newline, as MCD does.
pub(super) fn ended(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.last() != Some(&b'\n') {
        bytes.push(b'\n');
    }
    bytes
}
