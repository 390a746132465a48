//! The settings file of one node, `/etc/machine-config-agent/settings.toml`, read from a host.

use crate::host::{HostError, Root};
use crate::model::settings::{self, MAX_BYTES, SettingsError, unknown_key};
use crate::model::{FaultClass, NodeSettings, NotApplied};

pub use crate::model::settings::SETTINGS_PATH;

/// A settings file that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It can't be read.
    #[error(transparent)]
    Read(#[from] HostError),
    /// It has no settings.
    #[error(transparent)]
    Text(#[from] SettingsError),
}

impl FileError {
    /// Returns a bounded word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Read(_) | Self::Text(_) => "SettingsInvalid",
        }
    }

    /// Returns the class: the node continues with the settings it has.
    pub fn class(&self) -> FaultClass {
        FaultClass::Degraded
    }

    /// Returns the next step beside a running agent.
    pub fn next(&self) -> String {
        format!("{}; then: systemctl reload machine-config-agent", self.correction())
    }

    /// Returns what corrects the file, without a full stop.
    pub fn correction(&self) -> String {
        match self {
            Self::Read(error) => error.next().trim_end_matches('.').to_owned(),
            Self::Text(error) => {
                let file = error.file();
                format!("Correct {file} (keys and values: reference.md), or move {file} away")
            }
        }
    }
}

/// Reads the file; a missing one sets nothing. `shown` is its name for people. It decides about written files and
/// reboots of the host, so only root may have written it.
pub fn read(root: &Root, path: &str, shown: &str) -> Result<NodeSettings, FileError> {
    let Some(bytes) = root.read_trusted(path, MAX_BYTES)? else { return Ok(NodeSettings::default()) };
    Ok(settings::read(&bytes, shown)?)
}

/// Names what the file has that this agent does not know.
pub fn unknown(read: &NodeSettings, shown: &str) -> Vec<NotApplied> {
    read.unknown.iter().map(|key| unknown_key(&format!("{shown} {key}"))).collect()
}

/// Reads the text of the file of this name.
pub fn parse(text: &str, file: &str) -> Result<NodeSettings, FileError> {
    Ok(settings::parse(text, file)?)
}
