//! Reports of errors of a pass or of a wait; and a fault, as a line of the journal.

use tracing::{info, warn};

use super::fields::update_line;
use super::{Agent, AgentError, RunMode};
use crate::control::{ControlError, ControlPlane};
use crate::model::text::chain;
use crate::model::{FaultClass, message};
use crate::report::Event;
use crate::update::ending::ended_by;
use crate::update::{Fault, Record};

impl<C: ControlPlane> Agent<C> {
    /// Reports an error. During a shutdown other services stop before the agent does: that is no fault.
    pub(super) async fn report_error(&mut self, error: &AgentError, fault: Fault, goes_down: bool) {
        let why = chain(error);
        if goes_down {
            info!("The machine is going down, so this is not a fault: {why}");
        } else if error.is_away() {
            // Not a fault of the node: requests to the control plane wait, and its return is a change. Each
            // try fails the same way.
            if self.logged_away.as_ref() != Some(&why) {
                warn!(MESSAGE_ID = message::WAITING, MCA_FAULT = fault.reason, "{why}");
                self.logged_away = Some(why.clone());
            }
            self.health.awaited = Some(error.awaited());
        } else {
            // `apply` ends with it, unless its update has another.
            let has_other = self.journal.record().is_some_and(|record| record.fault.is_some());
            log(&fault, None, self.mode, !self.mode.is_service() && !has_other);
            self.emit_refusal(error).await;
            self.health.fault = Some(fault);
        }
    }

    /// Emits why an update was not begun, once for each cause.
    async fn emit_refusal(&mut self, error: &AgentError) {
        let cause = chain(error);
        let event = match error {
            AgentError::Irreconcilable(_) => Event::FailedToReconcile { cause: cause.clone() },
            AgentError::Config(config) if config.class() == FaultClass::Unreconcilable => {
                Event::FailedToReconcile { cause: cause.clone() }
            }
            AgentError::Drifted { .. } => Event::PreflightDrift { cause: cause.clone() },
            AgentError::Control(ControlError::NotCordoned { .. }) => {
                Event::FailedToDrain { cause: cause.clone() }
            }
            AgentError::Journal(_)
            | AgentError::Observe(_)
            | AgentError::Control(_)
            | AgentError::Host(_)
            | AgentError::Apply(_)
            | AgentError::Config(_)
            | AgentError::Seed(_) => return,
        };
        if self.emitted_fault.as_ref() != Some(&cause) {
            self.control.emit(&event).await;
            self.emitted_fault = Some(cause);
        }
    }

    /// Watches the objects of a failed update: their change on the host is a reason for another look.
    pub(super) fn watch_target(&mut self) -> Result<(), AgentError> {
        let Some(spec) = self.journal.target_spec().cloned() else { return Ok(()) };
        self.watch_over(&spec)?;
        Ok(())
    }
}

/// Logs a fault; `update`: the update that has failed with it. The catalog's text needs each of the fields.
pub fn log_fault(fault: &Fault, update: Option<&Record>, mode: RunMode) {
    log(fault, update, mode, false);
}

/// Logs a fault; `is_told`: a person reads it as the verb's error as well.
fn log(fault: &Fault, update: Option<&Record>, mode: RunMode, is_told: bool) {
    let ends = ended_by(fault, update, mode.is_service());
    macro_rules! line {
        ($level:ident) => {
            update_line!(
                $level,
                update,
                MESSAGE_ID = message::FAULT,
                MCA_FAULT = fault.reason,
                MCA_CAUSE = fault.message,
                MCA_ENDED_BY = ends,
                MCA_NEXT = fault.next,
                "{fault}"
            )
        };
    }
    match update {
        Some(_) => line!(error),
        None if is_told => line!(debug),
        None => line!(warn),
    }
}
