//! Errors that end a pass of the loop.

use crate::apply::ApplyError;
use crate::control::ControlError;
use crate::host::HostError;
use crate::journal::{AdvanceError, JournalError};
use crate::model::text::chain;
use crate::model::{FaultClass, ModelError};
use crate::observe::ObserveError;
use crate::plan::Irreconcilable;
use crate::stateroot::SeedError;
use crate::update::Fault;

/// An error of a pass.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The agent's own state.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The host could not be observed.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// The control plane.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The host.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A step.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The desired config can't be reached.
    #[error(transparent)]
    Irreconcilable(#[from] Irreconcilable),
    /// The desired config is not valid.
    #[error(transparent)]
    Config(#[from] ModelError),
    /// The seed is refused.
    #[error(transparent)]
    Seed(#[from] SeedError),
    /// The host drifted outside of the plan, so no update starts.
    #[error("the host differs from {config}, so no update starts: {differences}")]
    Drifted {
        /// The committed config.
        config: String,
        /// The differences.
        differences: String,
    },
}

impl AgentError {
    /// Returns the class.
    pub fn class(&self) -> FaultClass {
        match self {
            Self::Journal(error) => error.class(),
            Self::Observe(error) => error.class(),
            Self::Control(error) => error.class(),
            Self::Host(error) => error.class(),
            Self::Apply(error) => error.class(),
            Self::Irreconcilable(_) => FaultClass::Unreconcilable,
            Self::Config(error) => error.class(),
            Self::Seed(error) => error.class(),
            Self::Drifted { .. } => FaultClass::Degraded,
        }
    }

    /// Returns a bounded word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Journal(error) => error.reason(),
            Self::Observe(error) => error.reason(),
            Self::Control(error) => error.reason(),
            Self::Host(error) => error.reason(),
            Self::Apply(error) => error.reason(),
            Self::Irreconcilable(error) => error.reason(),
            Self::Config(error) => error.reason(),
            Self::Seed(error) => error.reason(),
            Self::Drifted { .. } => "ConfigDrift",
        }
    }

    /// Returns true if the control plane is away.
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Control(error) if error.is_away())
    }

    /// Names what an error of [`Self::is_away`] waits for.
    pub fn awaited(&self) -> String {
        if let Self::Control(error) = self { error.awaited() } else { chain(self) }
    }

    /// Returns true if the agent's own state found no space.
    pub fn is_of_full_disk(&self) -> bool {
        matches!(self, Self::Journal(JournalError::Host(error)) if error.reason() == "DiskFull")
    }

    /// Returns the next step.
    pub fn next(&self) -> String {
        match self {
            Self::Control(error) => error.next(),
            Self::Host(error) => error.next(),
            Self::Apply(error) => error.next(),
            Self::Irreconcilable(error) => error.next_step(),
            Self::Seed(error) => error.next_step(),
            Self::Drifted { .. } => {
                "See `machine-config-agent verify`; restore what differs on the host, or change it in the config (an account in \
                 passwd.users), then the update continues by itself."
                    .to_owned()
            }
            Self::Config(_) => "Correct the MachineConfig; the node is as before.".to_owned(),
            Self::Observe(error) => error.next(),
            Self::Journal(error) => error.next(),
        }
    }

    /// Returns the fault for the record or the report.
    pub fn fault(&self) -> Fault {
        let fault = Fault::from_error(self.class(), self.reason(), self, &self.next());
        match self {
            Self::Irreconcilable(error) => Fault { message: error.cause(), ..fault },
            Self::Journal(_)
            | Self::Observe(_)
            | Self::Control(_)
            | Self::Host(_)
            | Self::Apply(_)
            | Self::Config(_)
            | Self::Seed(_)
            | Self::Drifted { .. } => fault,
        }
    }
}

impl From<AdvanceError<ApplyError>> for AgentError {
    fn from(error: AdvanceError<ApplyError>) -> Self {
        match error {
            AdvanceError::Journal(error) => Self::Journal(error),
            AdvanceError::Effect(error) => Self::Apply(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::ReasonKind;
    use crate::plan::Unreachable;

    /// Only a change of the installation needs one; an account that is missing is created.
    #[test]
    fn next_step_fits_refusal() {
        let next = |is_of_host: bool, field: &str, message: &str| {
            let (field, message) = (field.to_owned(), message.to_owned());
            let reasons = vec![Unreachable { field, message, kind: ReasonKind::Planner }];
            AgentError::from(Irreconcilable { reasons, is_of_host }).next()
        };
        let missing =
            next(true, "storage.files \"/etc/a\" user", "this host has no user \"app\"; create it first");
        assert_eq!(missing, "For storage.files \"/etc/a\" user: create it first.");
        let closed = "can't write /etc/a: Read-only file system; see (findmnt -O ro; dmesg), then remount it";
        let closed = next(true, "storage.files \"/etc/a\"", closed);
        assert_eq!(closed, "For storage.files \"/etc/a\": see (findmnt -O ro; dmesg), then remount it.");
        let untold = next(true, "storage.files \"/etc/a\"", "it is in the way");
        assert!(untold.contains("on this host"), "{untold}");
        let disks = next(false, "storage.disks", "revert the change, or reinstall the node");
        assert!(disks.contains("only an installation"), "{disks}");
    }
}
