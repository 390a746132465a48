//! `man`: the manual pages, made from the parser.

use machine_config_cli::exit::Exit;
use machine_config_cli::man;

use super::error::CliError;
use super::output::VerbOutput;

/// Flags of `man`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  machine-config-controller man plan | man -l -\n  machine-config-controller man --directory /usr/share/man/man8"
)]
pub(super) struct Arguments {
    #[command(flatten)]
    shared: man::Arguments,
}

/// Prints one page, or writes all of them.
pub(super) fn run(arguments: &Arguments, command: clap::Command) -> Result<VerbOutput, CliError> {
    let page = man::run(&arguments.shared, command, &EXITS);
    page.map(|page| VerbOutput::done(page.unwrap_or_default())).map_err(|error| match error {
        man::Error::Verb(text) => CliError::Usage(text),
        man::Error::Page(source) => CliError::Output(source),
        man::Error::Directory(source) => {
            let text =
                format!("the pages can't be written: {source}; make the directory, or name another one");
            CliError::Failed(text)
        }
    })
}

/// Those of the agent that occur here: no verb compares, and there is no state on disk.
const EXITS: [Exit; 4] = [Exit::DONE, Exit::USAGE, Exit::REFUSED, Exit::FAILED];
