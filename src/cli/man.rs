//! `man`: the manual pages, made from the parser.

use machine_config_cli::exit::Exit;
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
    let page = man::run(&arguments.shared, command, &EXITS).map_err(|error| match error {
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

/// As docs/reference.md has it.
const EXITS: [Exit; 10] = [
    Exit::DONE,
    Exit {
        code: "1",
        meaning: "differences (verify, plan --exit-code), or not Done (status --exit-code)",
        verbs: &["plan", "status", "verify"],
    },
    Exit::USAGE,
    Exit::REFUSED,
    Exit { code: "3", meaning: "Unreconcilable (status --exit-code)", verbs: &["status"] },
    Exit::FAILED,
    Exit {
        code: "4",
        meaning: "Degraded, or the host cannot be read (status --exit-code)",
        verbs: &["status"],
    },
    Exit::of_all("5", "the agent's state is unreadable; nothing was touched"),
    Exit {
        code: "102-105",
        meaning: "daemon, firstboot, stateroot trial: the same as 2 to 5",
        verbs: &["daemon", "firstboot", "stateroot trial"],
    },
    Exit {
        code: "133",
        meaning: "--reboot-by supervisor: the supervisor must reboot the host",
        verbs: &[
            "apply",
            "daemon",
            "firstboot",
            "stateroot activate",
            "stateroot roll-back",
            "stateroot trial",
        ],
    },
];
