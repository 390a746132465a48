//! Storage of the node's installation, compared with its config: only a new installation changes the storage.

use std::cell::OnceCell;

use tracing::warn;

use super::error::AgentError;
use crate::host::Root;
use crate::journal::Journal;
use crate::model::hosted::SERVED;
use crate::model::spec::FixedSections;
use crate::model::text::chain;
use crate::model::{ConfigName, installed_storage, machineconfig};
use crate::report::{LoopState, irreconcilable_changes};

/// Known parts of the installation.
#[derive(Debug, Default)]
pub(super) struct Installed {
    /// The storage, once it was read; `None` in it where the host has no such file, or no good one.
    storage: OnceCell<Option<FixedSections>>,
    /// The committed config that was compared.
    compared: Option<ConfigName>,
}

impl Installed {
    /// Compares the storage of the committed config with that of the installation: once for each config.
    pub(super) fn compare(
        &mut self,
        root: &Root,
        journal: &Journal,
        health: &mut LoopState,
    ) -> Result<(), AgentError> {
        let Some(current) = journal.current().map(|target| target.config.clone()) else { return Ok(()) };
        if self.compared.as_ref() == Some(&current) {
            return Ok(());
        }
        if let Some(storage) = self.storage.get_or_init(|| read(root)) {
            let spec = journal.current_spec()?;
            let is_known = !spec.is_opaque_in("storage");
            health.irreconcilable_changes = is_known.then(|| irreconcilable_changes(storage, &spec.fixed));
        }
        self.compared = Some(current);
        Ok(())
    }
}

/// Nothing depends on the file but a report, so a bad one is logged once, and is no fault of the node.
fn read(root: &Root) -> Option<FixedSections> {
    let ignored = |cause: String| {
        warn!(
            "Ignored {SERVED}: the MachineConfigNode does not say where the storage differs from it: {cause}"
        );
    };
    let bytes = root
        .read_trusted(SERVED, machineconfig::MAX_BYTES)
        .map_err(|error| ignored(chain(&error)))
        .ok()??;
    installed_storage(&bytes, SERVED).map_err(|error| ignored(error.to_string())).ok()
}
