//! Identity of the machine on which the state was written.

use serde::{Deserialize, Serialize};
use tracing::warn;

use super::error::JournalError;
use super::files::{STATE_MODE, state};
use super::mcd::replace_if_changed;
use crate::host::root::Root;
use crate::model::Sha256;
use crate::model::text::chain;
use crate::model::yaml::redacted;

const MACHINE_ID: &str = "/etc/machine-id";
const HOST_NAME: &str = "/etc/hostname";

/// File of the identity.
const MACHINE: &str = "machine.json";

/// The machine on which an update was begun or a config was committed. Other programs must not learn a machine-id (machine-id(5)).
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Machine {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<Sha256>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

impl Machine {
    /// Returns this machine; what can't be read of it is unknown.
    pub(super) fn here(root: &Root) -> Self {
        let line = |path: &str| {
            let bytes = root.read(path).ok().flatten()?;
            let text = String::from_utf8(bytes).ok()?.trim().to_owned();
            (!text.is_empty()).then_some(text)
        };
        // Before the first boot it may hold a word instead.
        let id = line(MACHINE_ID).filter(|id| id.len() == 32);
        Self { id: id.map(|id| Sha256::digest(id.as_bytes())), name: line(HOST_NAME) }
    }

    /// Returns the stored identity; unknown in states of earlier agents, and where the file does not say it: the next update writes it.
    pub(super) fn stored(root: &Root) -> Self {
        let path = state(MACHINE);
        let read = match root.read(&path) {
            Ok(None) => return Self::default(),
            Ok(Some(bytes)) => serde_json::from_slice(&bytes).map_err(|error| redacted(&error.to_string())),
            Err(error) => Err(chain(&error)),
        };
        let named = read.and_then(|stored| {
            if stored == Self::default() { Err("it names none".to_owned()) } else { Ok(stored) }
        });
        named.unwrap_or_else(|cause| {
            warn!(
                "{path} does not say on which machine the state was written: {cause}; the next update writes it anew, and a copied disk \
                 is not noticed before"
            );
            Self::default()
        })
    }

    /// Returns true if both have the same machine-id.
    pub(super) fn is_known_as(&self, other: &Self) -> bool {
        self.id.is_some() && self.id == other.id
    }

    /// Returns true if both machine-ids are known, and differ.
    pub(super) fn has_other_id(&self, other: &Self) -> bool {
        differ(self.id.as_ref(), other.id.as_ref())
    }

    /// Returns true if a known part differs.
    pub(super) fn is_another(&self, other: &Self) -> bool {
        self.has_other_id(other) || differ(self.name.as_ref(), other.name.as_ref())
    }
}

fn differ<T: PartialEq>(one: Option<&T>, other: Option<&T>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one != other)
}

/// Stores this machine's identity before an update and before a commit, if it changed.
pub(super) fn note(root: &Root) -> Result<(), JournalError> {
    let here = Machine::here(root);
    if here == Machine::default() || here == Machine::stored(root) {
        return Ok(());
    }
    let path = state(MACHINE);
    let unwritable = |error: serde_json::Error| JournalError::Unreadable {
        path: path.clone(),
        what: "JSON",
        cause: error.to_string(),
    };
    let text = serde_json::to_vec(&here).map_err(unwritable)?;
    Ok(replace_if_changed(root, &path, &text, STATE_MODE)?)
}
