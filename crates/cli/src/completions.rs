//! `completions`: the completions of a shell.

use clap::Command;
use clap_complete::Shell;

use crate::bash;

/// Flags of `completions`.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Returns the script.
#[must_use]
pub fn script(arguments: &Arguments, mut command: Command) -> String {
    if arguments.shell == Shell::Bash {
        return bash::script(command);
    }
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}
