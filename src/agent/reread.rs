//! What reads the settings of this node.

use std::fmt;

use crate::model::Tuning;
use crate::update::Fault;

/// Reads the settings of this node.
pub struct Reread(Box<dyn Fn() -> Result<Tuning, Fault>>);

impl Reread {
    /// Takes what reads them.
    pub fn new(read: impl Fn() -> Result<Tuning, Fault> + 'static) -> Self {
        Self(Box::new(read))
    }

    /// Reads them.
    pub(super) fn read(&self) -> Result<Tuning, Fault> {
        (self.0)()
    }
}

impl Default for Reread {
    fn default() -> Self {
        Self::new(|| Ok(Tuning::default()))
    }
}

impl fmt::Debug for Reread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reread")
    }
}
