//! A node of a hosted cluster is imported.

use super::mcd::{HOSTED, is_of_image, parsed, replace_if_changed};
use super::{Journal, JournalError, STATE_MODE, Stored};
use crate::model::Timestamp;
use crate::model::hosted::SERVED;
use crate::model::machineconfig;

/// Imports the node of a hosted cluster: what MCD committed last, else what the node was served, is committed. The file
/// is there from then on, and [`super::mcd`] keeps it up to date.
pub fn import_node(journal: &mut Journal, now: Timestamp) -> Result<(), JournalError> {
    if journal.current().is_some() || journal.record().is_some() {
        return Ok(());
    }
    for path in [HOSTED, SERVED] {
        // No host committed or was served what came with its image.
        if is_of_image(&journal.root, path)? {
            continue;
        }
        let Some(bytes) = journal.root.read_trusted(path, machineconfig::MAX_BYTES)? else { continue };
        let config = parsed(&bytes, path)?;
        replace_if_changed(&journal.root, HOSTED, config.json().as_bytes(), STATE_MODE)
            .map_err(JournalError::Mcd)?;
        return journal.adopt(Stored::new(config, None, Timestamp::default()).imported(), now);
    }
    Ok(())
}
