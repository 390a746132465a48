//! `completions`: a shell's completions, made from the parser.

use clap_complete::Shell;

use super::CliError;
use super::output::print;

/// Flags of `completions`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  machine-config-agent completions bash > /usr/share/bash-completion/completions/machine-config-agent"
)]
pub(super) struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script.
pub(super) fn run(arguments: &Arguments, mut command: clap::Command) -> Result<u8, CliError> {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, name, &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(0)
}
