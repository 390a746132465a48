//! Loader of this node's settings.

use std::fmt;

use crate::model::{NodeSettings, NotApplied};
use crate::update::Fault;

/// Settings that were read.
#[derive(Debug, Default)]
pub struct ReadSettings {
    /// The settings.
    pub settings: NodeSettings,
    /// Others that the file has, which have no effect.
    pub unknown: Vec<NotApplied>,
}

impl From<NodeSettings> for ReadSettings {
    fn from(settings: NodeSettings) -> Self {
        Self { settings, unknown: Vec::new() }
    }
}

/// Reads the settings of this node.
pub struct SettingsLoader(Box<dyn Fn() -> Result<ReadSettings, Fault>>);

impl SettingsLoader {
    /// Takes the function that reads them.
    pub fn new(read: impl Fn() -> Result<ReadSettings, Fault> + 'static) -> Self {
        Self(Box::new(read))
    }

    /// Reads them.
    pub(super) fn read(&self) -> Result<ReadSettings, Fault> {
        (self.0)()
    }
}

impl Default for SettingsLoader {
    fn default() -> Self {
        Self::new(|| Ok(ReadSettings::default()))
    }
}

impl fmt::Debug for SettingsLoader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SettingsLoader")
    }
}
