//! `stateroot`: a second, complete system beside the running one.

mod activate;
mod inspect;
mod list;
pub(super) mod machine;
mod prepare;
mod remove;
mod trial;

/// The schemas of the documents.
#[cfg(test)]
pub(super) mod schemas {
    pub(in crate::cli) use super::activate::schema as activate;
    pub(in crate::cli) use super::inspect::schema as inspect;
    pub(in crate::cli) use super::list::schema as list;
    pub(in crate::cli) use super::prepare::schema as prepare;
}

use clap::Subcommand;

use super::CliError;
use super::host::runtime;
use crate::settings::Environment;

/// Flags of `stateroot`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  machine-config-agent stateroot list")]
pub(super) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the stateroots of this host and their deployments
    List(list::Arguments),
    /// Show what a seed image is and whether this host can take it; pulls no layer
    Inspect(inspect::Arguments),
    /// Make a second system from a seed image, without booting it
    Prepare(prepare::Arguments),
    /// Boot a prepared stateroot and run its health trial
    Activate(activate::Arguments),
    /// Boot the previous stateroot again
    RollBack(activate::BackArguments),
    /// Run the health trial of the activated stateroot; started by its unit
    Trial(trial::Arguments),
    /// Remove a stateroot that does not run
    Remove(remove::Arguments),
}

impl Arguments {
    /// Returns true if a unit runs the verb.
    pub(super) fn is_service(&self) -> bool {
        matches!(self.verb, Verb::Trial(_))
    }

    /// Returns true if the verb only prints.
    pub(super) fn is_read_only(&self) -> bool {
        matches!(self.verb, Verb::List(_) | Verb::Inspect(_))
    }
}

/// Runs a verb.
pub(super) fn run(arguments: Arguments, environment: &Environment) -> Result<u8, CliError> {
    runtime()?.block_on(async {
        match arguments.verb {
            Verb::List(arguments) => list::run(&arguments, environment).await,
            Verb::Inspect(arguments) => inspect::run(&arguments, environment).await,
            Verb::Prepare(arguments) => prepare::run(&arguments, environment).await,
            Verb::Activate(arguments) => activate::run(&arguments, environment).await,
            Verb::RollBack(arguments) => activate::roll_back(&arguments, environment).await,
            Verb::Trial(arguments) => trial::run(&arguments, environment).await,
            Verb::Remove(arguments) => remove::run(&arguments, environment).await,
        }
    })
}
