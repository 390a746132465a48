//! The kernel arguments that configs of this host have set: what is left of them on the command line can be told from the
//! host's own then, also after somebody booted another deployment.

use std::collections::BTreeSet;

use super::files::STATE_MODE;
use super::stored::load_kargs;
use super::{Journal, JournalError};
use crate::model::ids::FORMER_KARGS;
use crate::model::{HostSpec, Observation};

impl Journal {
    /// Remembers the arguments and packages of the committed config and of the one that comes, before anything of it is done. Only a
    /// change is written.
    pub fn remember_kargs(
        &mut self,
        committed: &HostSpec,
        to: &HostSpec,
        observed: &Observation,
    ) -> Result<(), JournalError> {
        let Some(booted) = observed.os.booted() else { return Ok(()) };
        let known = load_kargs(&self.root)?;
        let mut former = known.clone().unwrap_or_default();
        former.learn_applied(&committed.kargs, &observed.kargs);
        former.learn(&to.kargs, &observed.kargs);
        let packages = |spec: &HostSpec| spec.host_layers().packages().unwrap_or_default();
        former.learn_packages(&packages(committed), &BTreeSet::new());
        former.learn_packages(&packages(to), &booted.local.requested);
        if known.unwrap_or_default() == former {
            return Ok(());
        }
        let unwritable = |error: serde_json::Error| JournalError::Unreadable {
            path: FORMER_KARGS.to_owned(),
            what: "JSON",
            cause: error.to_string(),
        };
        let bytes = serde_json::to_vec(&former).map_err(unwritable)?;
        self.root.replace(FORMER_KARGS, &bytes, STATE_MODE)?;
        self.fail_points.hit("kargs-remembered");
        Ok(())
    }
}
