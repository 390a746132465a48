//! Desired paths that the merge of `/etc` in the shutdown would skip: the shutdown copies them,
//! so that leaving an image takes one reboot.

use tracing::{info, warn};

use super::{Agent, AgentError, RunMode};
use crate::control::ControlPlane;
use crate::host::etc_merge::{UnmergedPaths, arm, forget};
use crate::model::text::chain;
use crate::model::text::counted;
use crate::model::{ManagedPath, Observation};
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
        let mut left = UnmergedPaths::find(root, deployment, &in_sync.paths, &in_sync.units)?;
        // The config of a first boot says nothing of files.
        if self.mode != RunMode::FirstBoot {
            left = left.with_dropped(root, spec)?;
        }
        if left.is_empty() {
            return Ok(forget(root)?);
        }
        let noted = left.note(root)?;
        arm(root, &self.host.systemd).await?;
        if noted.changed > 0 {
            log("carry over", "that only the old image had", left.paths());
            log("restore or remove", "that only the config of an image has", left.dropped());
        }
        Ok(())
    }
}

/// Logs what the shutdown does with paths, and names some of them.
fn log<'a>(does: &str, which: &str, paths: impl Iterator<Item = &'a ManagedPath>) {
    let all: Vec<String> = paths.map(ToString::to_string).collect();
    if all.is_empty() {
        return;
    }
    let more = all.len().saturating_sub(NAMED);
    let some = all.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    info!("The shutdown will {does} {} {which}: {some}{more}", counted(all.len(), "path"));
}
