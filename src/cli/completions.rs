//! `completions`: a shell's completions, made from the parser.

use machine_config_cli::completions;

use super::CliError;
use super::output::print;

/// Flags of `completions`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  machine-config-agent completions bash > /usr/share/bash-completion/completions/machine-config-agent"
)]
pub(super) struct Arguments {
    #[command(flatten)]
    shared: completions::Arguments,
}

/// Prints the script.
pub(super) fn run(arguments: &Arguments, command: clap::Command) -> Result<u8, CliError> {
    print(&completions::script(&arguments.shared, command))?;
    Ok(0)
}
