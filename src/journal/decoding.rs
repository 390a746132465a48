//! The configs of the state, decoded: each once for all its readers, until the memory is freed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::error::JournalError;
use super::files::state;
use super::stored::Stored;
use crate::host::root::Root;
use crate::model::{ConfigName, HostSpec, Target};

/// The committed config.
pub(super) const CURRENT: &str = "current.json";
/// The config that the next update comes from, when that is another one.
pub(super) const FROM: &str = "from.json";

/// A stored config, decoded.
#[derive(Debug, Clone)]
pub(super) struct Decoding {
    pub(super) target: Target,
    pub(super) spec: Rc<HostSpec>,
    /// The deployment of an update that was undone runs.
    pub(super) undone_runs: bool,
}

impl Decoding {
    /// Reads a file of the state; `None` when there is none.
    pub(super) fn load(root: &Root, name: &str) -> Result<Option<Self>, JournalError> {
        let Some(stored) = Stored::load(root, &state(name))? else { return Ok(None) };
        let spec = Rc::new(stored.known_spec());
        let undone_runs = stored.runs_undone_deployment();
        Ok(Some(Self { target: stored.target, spec, undone_runs }))
    }
}

/// Decoded files, by their names.
#[derive(Debug, Default)]
pub(super) struct Decodings(RefCell<BTreeMap<&'static str, Decoding>>);

impl Decodings {
    /// Decodes a file of the state, unless that was done already.
    pub(super) fn of(&self, root: &Root, name: &'static str) -> Result<Option<Decoding>, JournalError> {
        if let Some(decoding) = self.0.borrow().get(name) {
            return Ok(Some(decoding.clone()));
        }
        let decoding = Decoding::load(root, name)?;
        if let Some(decoding) = &decoding {
            self.0.borrow_mut().insert(name, decoding.clone());
        }
        Ok(decoding)
    }

    /// Frees the memory.
    pub(super) fn clear(&self) {
        self.0.borrow_mut().clear();
    }
}

/// Returns the spec, or that of a host that no config manages.
pub(super) fn spec_or_unmanaged(decoding: Option<Decoding>) -> Result<Rc<HostSpec>, JournalError> {
    match decoding {
        Some(decoding) => Ok(decoding.spec),
        None => Ok(Rc::new(HostSpec::empty(ConfigName::new(HostSpec::UNMANAGED)?))),
    }
}
