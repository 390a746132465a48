//! Paths and modes of the state's files.

use crate::model::FileMode;
use crate::model::ids::STATE_DIR;

/// Mode of the state's files: configs carry secrets.
pub(super) const STATE_MODE: FileMode = FileMode::PRIVATE;

/// Mode of their directory.
pub(super) const STATE_DIR_MODE: FileMode = FileMode::PRIVATE_DIRECTORY;

/// Returns a path of the state directory.
pub(crate) fn state(name: &str) -> String {
    format!("{STATE_DIR}/{name}")
}
