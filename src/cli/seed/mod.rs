//! `seed`: images from which other hosts get their system.

mod containerfile;

use clap::Subcommand;

use super::CliError;
use crate::settings::Environment;

/// Flags of `seed`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  machine-config-agent seed containerfile --config DIR --image registry.example/seed@sha256:DIGEST"
)]
pub(super) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Print the Containerfile that adds the configuration of a cluster to a bootc seed
    Containerfile(containerfile::Arguments),
}

/// Runs a verb.
pub(super) fn run(arguments: Arguments, _environment: &Environment) -> Result<u8, CliError> {
    match arguments.verb {
        Verb::Containerfile(arguments) => containerfile::run(&arguments),
    }
}
