//! Loader of this node's settings.

use std::fmt;

use crate::model::NodeSettings;
use crate::update::Fault;

/// Reads the settings of this node.
pub struct SettingsLoader(Box<dyn Fn() -> Result<NodeSettings, Fault>>);

impl SettingsLoader {
    /// Takes the function that reads them.
    pub fn new(read: impl Fn() -> Result<NodeSettings, Fault> + 'static) -> Self {
        Self(Box::new(read))
    }

    /// Reads them.
    pub(super) fn read(&self) -> Result<NodeSettings, Fault> {
        (self.0)()
    }
}

impl Default for SettingsLoader {
    fn default() -> Self {
        Self::new(|| Ok(NodeSettings::default()))
    }
}

impl fmt::Debug for SettingsLoader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SettingsLoader")
    }
}
