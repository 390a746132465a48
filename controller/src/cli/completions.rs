//! `completions`: a shell's completions, made from the parser.

use machine_config_cli::completions;

use super::output::VerbOutput;

/// Flags of `completions`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  machine-config-controller completions bash > /usr/share/bash-completion/completions/machine-config-controller"
)]
pub(super) struct Arguments {
    #[command(flatten)]
    shared: completions::Arguments,
}

/// Prints the script.
pub(super) fn run(arguments: &Arguments, command: clap::Command) -> VerbOutput {
    VerbOutput::done(completions::script(&arguments.shared, command))
}
