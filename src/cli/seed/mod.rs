//! `seed`: images from which other hosts get their system.

mod containerfile;
mod create;
mod list;
mod restore;

#[cfg(test)]
pub(super) use create::schema;

use clap::Subcommand;

use super::CliError;
use super::host::runtime;
use crate::settings::Environment;

/// Flags of `seed`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  machine-config-agent seed create --image registry.example/seeds/sno:4.17.2 --version 4.17.2 --plan"
)]
pub(super) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a seed image of this host; identity and secrets stay here
    Create(create::Arguments),
    /// Print the Containerfile that adds the configuration of a cluster to a bootc seed
    Containerfile(containerfile::Arguments),
    /// Start services and remove files after an interrupted seed
    Restore(restore::Arguments),
}

impl Arguments {
    /// Returns true if the verb only prints.
    pub(super) fn is_read_only(&self) -> bool {
        match &self.verb {
            Verb::Create(arguments) => arguments.is_preview(),
            Verb::Containerfile(_) => true,
            Verb::Restore(_) => false,
        }
    }
}

/// Runs a verb.
pub(super) fn run(arguments: Arguments, environment: &Environment) -> Result<u8, CliError> {
    match arguments.verb {
        Verb::Create(arguments) => runtime()?.block_on(Box::pin(create::run(&arguments, environment))),
        Verb::Containerfile(arguments) => containerfile::run(&arguments),
        Verb::Restore(arguments) => runtime()?.block_on(restore::run(&arguments, environment)),
    }
}
