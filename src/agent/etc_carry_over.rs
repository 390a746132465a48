//! Desired paths that the merge of `/etc` in the shutdown would skip: the shutdown copies them,
//! so that leaving an image takes one reboot.

use tracing::{info, warn};

use super::{Agent, AgentError};
use crate::control::ControlPlane;
use crate::host::etc_merge::{UnmergedPaths, arm, forget};
use crate::model::Observation;
use crate::model::text::chain;
use crate::model::text::counted;
use crate::plan::in_sync::in_sync;

/// Most paths that are logged; `verify` shows the rest.
const NAMED: usize = 5;

impl<C: ControlPlane> Agent<C> {
    /// Has the shutdown copy the paths that the merge into a staged deployment skips. A failure keeps no node from its
    /// reboot: the verification finds missing paths in the new boot.
    pub(super) async fn carry_over_etc(&self, deployment: &str, machine: &Observation) {
        if let Err(error) = self.arm_etc_carry_over(deployment, machine.clone()).await {
            warn!("Failed to arrange the copy of what the merge of /etc leaves behind: {}", chain(&error));
        }
    }

    async fn arm_etc_carry_over(&self, deployment: &str, machine: Observation) -> Result<(), AgentError> {
        let root = &self.host.root;
        let Some(spec) = self.journal.target_spec() else { return Ok(()) };
        let in_sync = in_sync(spec, &self.observe_for(spec, machine)?);
        let left = UnmergedPaths::find(root, deployment, &in_sync.paths, &in_sync.units)?;
        if left.is_empty() {
            return Ok(forget(root)?);
        }
        let noted = left.note(root)?;
        arm(root, &self.host.systemd).await?;
        if noted.changed > 0 {
            let some: Vec<String> = left.paths().take(NAMED).map(ToString::to_string).collect();
            let (count, more) = (counted(left.paths().count(), "file"), left.paths().count() - some.len());
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            info!("The shutdown carries over {count} that only the old image had: {}{more}", some.join(", "));
        }
        Ok(())
    }
}
