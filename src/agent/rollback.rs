//! The deployment that ran before: given up once the new one was healthy for as long as the administrator set.

use tracing::{info, warn};

use super::deployments::ChangeEnd;
use super::{Agent, AgentError};
use crate::control::ControlPlane;
use crate::decide::retention::Retention;
use crate::host::os::OsChange;
use crate::model::message;
use crate::model::text::chain;

impl<C: ControlPlane> Agent<C> {
    /// Removes the previous deployment. A failure is retried later: it is not a fault of the node.
    pub(super) async fn drop_rollback(&mut self) -> Result<(), AgentError> {
        match self.change_deployments(OsChange::DropRollback).await {
            Ok(ChangeEnd::Done) => {
                self.memory.kept = Retention::Given;
                let seconds = self.node_settings.keep_rollback.unwrap_or_default().as_secs();
                info!(
                    MESSAGE_ID = message::ROLLBACK_DROPPED,
                    "Removed the previous deployment: the node was healthy for {seconds} s"
                );
            }
            Ok(ChangeEnd::Left(event)) => self.reload_after(event)?,
            Err(error) => {
                warn!("Failed to remove the previous deployment: {}", chain(&error));
                self.memory.kept.fail(self.host.clock.monotonic());
            }
        }
        Ok(())
    }
}
