//! Errors of a verb. The class of the error alone decides the exit code.

use crate::agent::AgentError;
use crate::control::ControlError;
use crate::host::HostError;
use crate::journal::JournalError;
use crate::model::refusal::{self, Refusal};
use crate::model::text::chain;
use crate::model::{FaultClass, ModelError};
use crate::observe::ObserveError;
use crate::plan::Irreconcilable;
use crate::settings::EnvironmentError;
use crate::settings::file::FileError;
use crate::stateroot::SeedError;

/// Added to the exit codes of services: systemd shows 2 to 7 with the names that LSB gives them, `4/NOPERMISSION`.
const OF_SERVICES: u8 = 100;

/// An error of a verb.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The command line does not make sense.
    #[error("{0}")]
    Usage(String),
    /// The environment does not make sense.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// The settings of the node can't be used.
    #[error(transparent)]
    Settings(#[from] FileError),
    /// The loop ended with an error.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// An input is not valid.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The seed is refused.
    #[error(transparent)]
    Seed(#[from] SeedError),
    /// The desired config can't be reached.
    #[error(transparent)]
    Irreconcilable(#[from] Irreconcilable),
    /// The host could not be observed.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// The host.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The agent's own state.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The control plane.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// An input file that is not there.
    #[error("{path} can't be read: {cause}")]
    Input {
        /// The file.
        path: String,
        /// Why.
        cause: String,
        /// The next step.
        next: &'static str,
    },
    /// Standard output is gone, or the process can't be set up.
    #[error("can't write the result: {0}")]
    Output(std::io::Error),
    /// The process can't be set up.
    #[error("can't {what}: {source}")]
    Setup {
        /// The failed action.
        what: &'static str,
        /// The cause.
        source: std::io::Error,
    },
    /// The sandbox can't be built or played here.
    #[error("{0}")]
    Sandbox(String),
}

impl CliError {
    /// Takes an error of work that a verb shares with the agent, as the verb's own.
    #[cfg(feature = "backend-ostree")]
    pub(super) fn from_work(error: AgentError) -> Self {
        match error {
            AgentError::Host(error) => Self::Host(error),
            AgentError::Seed(error) => Self::Seed(error),
            AgentError::Observe(error) => Self::Observe(error),
            AgentError::Journal(error) => Self::Journal(error),
            AgentError::Control(_)
            | AgentError::Apply(_)
            | AgentError::Irreconcilable(_)
            | AgentError::Config(_)
            | AgentError::Drifted { .. } => Self::Agent(error),
        }
    }

    /// Returns the exit code (docs/reference.md, "Exit status"): that of the class.
    pub(super) fn exit_code(&self) -> u8 {
        self.class().map_or(refusal::USAGE_CODE, FaultClass::exit_code)
    }

    /// Returns the exit code of a service.
    pub(super) fn service_exit_code(&self) -> u8 {
        OF_SERVICES + self.exit_code()
    }

    /// Returns true if the kernel refused it for want of a permission.
    pub(super) fn is_denied(&self) -> bool {
        match self {
            Self::Host(error)
            | Self::Journal(
                JournalError::Host(error) | JournalError::Mcd(error) | JournalError::Import(error),
            )
            | Self::Observe(ObserveError::Host { source: error, .. }) => error.is_denied(),
            Self::Usage(_)
            | Self::Environment(_)
            | Self::Settings(_)
            | Self::Agent(_)
            | Self::Model(_)
            | Self::Seed(_)
            | Self::Irreconcilable(_)
            | Self::Observe(_)
            | Self::Journal(_)
            | Self::Control(_)
            | Self::Input { .. }
            | Self::Output(_)
            | Self::Setup { .. }
            | Self::Sandbox(_) => false,
        }
    }

    /// Returns a bounded word.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Usage(_) | Self::Environment(_) | Self::Input { .. } => "InvalidArguments",
            Self::Settings(error) => error.reason(),
            Self::Agent(error) => error.reason(),
            Self::Model(error) => error.reason(),
            Self::Seed(error) => error.reason(),
            Self::Irreconcilable(error) => error.reason(),
            Self::Observe(error) => error.reason(),
            Self::Host(error) => error.reason(),
            Self::Journal(error) => error.reason(),
            Self::Control(error) => error.reason(),
            Self::Output(_) | Self::Setup { .. } | Self::Sandbox(_) => "SetupFailed",
        }
    }

    /// Returns what was refused, for a program: each field that the error names.
    pub(super) fn refusals(&self) -> Vec<Refusal> {
        if let Self::Irreconcilable(refused) = self {
            return refused.refusals();
        }
        match self.input() {
            Some(error @ (ModelError::UnknownFields { .. } | ModelError::Several { .. })) => {
                Refusal::of_input(error, chain(self))
            }
            _ => vec![Refusal {
                class: self.class().map_or(refusal::USAGE, FaultClass::as_str),
                reason: self.reason(),
                field: self.field().map(str::to_owned),
                message: chain(self),
                next: self.next_step(),
            }],
        }
    }

    /// Returns the input that is refused.
    fn input(&self) -> Option<&ModelError> {
        match self {
            Self::Model(error)
            | Self::Control(ControlError::Invalid { source: error, .. })
            | Self::Agent(
                AgentError::Config(error) | AgentError::Control(ControlError::Invalid { source: error, .. }),
            ) => Some(error),
            Self::Usage(_)
            | Self::Environment(_)
            | Self::Settings(_)
            | Self::Input { .. }
            | Self::Agent(_)
            | Self::Seed(_)
            | Self::Irreconcilable(_)
            | Self::Observe(_)
            | Self::Host(_)
            | Self::Journal(_)
            | Self::Control(_)
            | Self::Output(_)
            | Self::Setup { .. }
            | Self::Sandbox(_) => None,
        }
    }

    /// Returns the class; a command line that makes no sense has none.
    fn class(&self) -> Option<FaultClass> {
        Some(match self {
            Self::Usage(_) | Self::Environment(_) | Self::Settings(_) | Self::Input { .. } => return None,
            Self::Agent(error) => error.class(),
            Self::Model(error) => error.class(),
            Self::Seed(error) => error.class(),
            Self::Irreconcilable(_) => FaultClass::Unreconcilable,
            Self::Observe(error) => error.class(),
            Self::Host(error) => error.class(),
            Self::Journal(error) => error.class(),
            Self::Control(error) => error.class(),
            Self::Output(_) | Self::Setup { .. } | Self::Sandbox(_) => FaultClass::Degraded,
        })
    }

    fn field(&self) -> Option<&str> {
        if let Some(error) = self.input() {
            return error.field();
        }
        match self {
            Self::Irreconcilable(error) => error.reasons.first().map(|reason| &*reason.field),
            Self::Usage(text) => refusal::argument(text),
            Self::Environment(_)
            | Self::Settings(_)
            | Self::Input { .. }
            | Self::Agent(_)
            | Self::Model(_)
            | Self::Seed(_)
            | Self::Observe(_)
            | Self::Host(_)
            | Self::Journal(_)
            | Self::Control(_)
            | Self::Output(_)
            | Self::Setup { .. }
            | Self::Sandbox(_) => None,
        }
    }

    /// Returns the text for standard error: object and cause, then the next step.
    pub(super) fn text(&self) -> String {
        let next = self.next_step().map(|next| format!("\nNext: {next}")).unwrap_or_default();
        format!("error: {}{next}", chain(self))
    }

    /// Returns the same as a line of the log.
    pub(super) fn line(&self) -> String {
        let next = self.next_step().map(|next| format!(". Next: {next}")).unwrap_or_default();
        format!("{}: {}{next}", self.reason(), chain(self))
    }

    fn next_step(&self) -> Option<String> {
        match self {
            Self::Settings(error) => Some(format!("{}, then run the command again.", error.correction())),
            Self::Agent(error) => Some(error.next()),
            Self::Control(error) => Some(error.next()),
            Self::Host(error) => Some(error.next()),
            Self::Observe(error) => Some(error.next()),
            Self::Journal(error) => Some(error.next()),
            Self::Model(_) => Some(refusal::NEXT.to_owned()),
            Self::Seed(error) => Some(error.next_step()),
            Self::Input { next, .. } => Some((*next).to_owned()),
            // These name the next step themselves.
            Self::Usage(_)
            | Self::Environment(_)
            | Self::Irreconcilable(_)
            | Self::Output(_)
            | Self::Setup { .. }
            | Self::Sandbox(_) => None,
        }
    }
}
