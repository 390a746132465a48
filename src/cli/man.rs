//! `man`: the manual pages, made from the parser: one of the program and one of each verb.

use std::path::PathBuf;

use clap_mangen::Man;

use super::CliError;
use super::output::print;

/// The section of the pages: commands of an administrator.
const SECTION: &str = "8";

/// Flags of `man`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  machine-config-agent man plan | man -l -\n  machine-config-agent man --directory /usr/share/man/man8"
)]
pub(super) struct Arguments {
    /// The verb that the page is of (default: the program)
    #[arg(value_name = "VERB", conflicts_with = "directory")]
    verb: Option<String>,
    /// Write all pages to this directory
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

/// Prints one page, or writes all of them.
pub(super) fn run(arguments: &Arguments, mut command: clap::Command) -> Result<u8, CliError> {
    // The names of the verbs' pages come with it.
    command.build();
    if let Some(directory) = &arguments.directory {
        let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set()).map(page);
        for page in std::iter::once(Man::new(command.clone()).section(SECTION)).chain(verbs) {
            page.generate_to(directory).map_err(|source| CliError::Setup {
                what: "write the pages to the directory that --directory names; make it, or name another one",
                source,
            })?;
        }
        return Ok(0);
    }
    let page = match &arguments.verb {
        None => Man::new(command).section(SECTION),
        Some(name) => command.find_subcommand(name).map(page).ok_or_else(|| {
            CliError::Usage(format!("there is no verb {name}; `machine-config-agent --help` lists them"))
        })?,
    };
    let mut text = Vec::new();
    page.render(&mut text).map_err(CliError::Output)?;
    print(&String::from_utf8_lossy(&text))?;
    Ok(0)
}

fn page(verb: &clap::Command) -> Man {
    Man::new(verb.clone()).section(SECTION)
}
