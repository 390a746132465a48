//! The target of a first boot: the contents of its file, which a person may correct under the same name.

use std::rc::Rc;

use super::{Agent, RunMode};
use crate::control::ControlPlane;
use crate::model::HostSpec;

impl<C: ControlPlane> Agent<C> {
    /// Returns the spec that a first boot applies.
    pub(super) fn provisioned_spec(&self) -> Option<Rc<HostSpec>> {
        self.journal.target_spec().filter(|_| self.mode == RunMode::FirstBoot).cloned()
    }
}

/// Returns true if the file of a first boot has other contents under the same name: a person has corrected it. One that can't
/// be read is reported by the next pass.
pub(super) async fn is_corrected<C: ControlPlane>(control: &mut C, applied: Option<&HostSpec>) -> bool {
    let Some(applied) = applied else { return false };
    let config = control.machine_config(&applied.name).await;
    config.is_ok_and(|config| config.spec(None).is_ok_and(|spec| spec != *applied))
}
