//! `man`: the manual pages, made from the parser.

use machine_config_cli::man;

use super::CliError;
use super::output::print;

/// Flags of `man`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  machine-config-agent man stateroot prepare | man -l -\n  machine-config-agent man --directory /usr/share/man/man8"
)]
pub(super) struct Arguments {
    #[command(flatten)]
    shared: man::Arguments,
}

/// Prints one page, or writes all of them.
pub(super) fn run(arguments: &Arguments, command: clap::Command) -> Result<u8, CliError> {
    let page = man::run(&arguments.shared, command, EXIT_STATUS).map_err(|error| match error {
        man::Error::Verb(text) => CliError::Usage(text),
        man::Error::Page(source) => CliError::Output(source),
        man::Error::Directory(source) => CliError::Setup {
            what: "write the pages to the directory that --directory names; make it, or name another one",
            source,
        },
    })?;
    page.map_or(Ok(()), |page| print(&page))?;
    Ok(0)
}

/// As docs/reference.md has it, a code a line.
const EXIT_STATUS: &str = "\
0 success, or no difference
1 differences (verify, plan --exit-code)
2 invalid command line, not confirmed, or a named file or directory cannot be read
3 refused: this node, or no node, can reach the config; or the seed does not fit
4 failed: the node is as before, or the message says what is open
5 the agent's state is unreadable; nothing was touched
102-105 daemon, firstboot, stateroot trial: the same as 2 to 5
133 --reboot-by supervisor: the supervisor must reboot the host";
