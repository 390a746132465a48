//! `stateroot remove`: a stateroot that does not run goes, with all that is its own.

use std::io::{IsTerminal as _, Write as _};

use super::super::CliError;
use super::super::output::print;
use super::machine::{Machine, conclude};
use crate::settings::Environment;
use crate::stateroot::{Job, StaterootName};

/// Flags of `stateroot remove`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  machine-config-agent stateroot remove rhcos_4.17.2 --yes\n\n\
    Removes deployments, /etc, /var, kernels and refs of the stateroot. Refuses the booted stateroot and the one that boots next.")]
pub(super) struct Arguments {
    /// The stateroot
    #[arg(value_name = "STATEROOT")]
    name: String,
    /// Do not ask before removing it
    #[arg(long)]
    yes: bool,
}

/// Removes it.
pub(super) async fn run(arguments: &Arguments, environment: &Environment) -> Result<u8, CliError> {
    let stateroot = StaterootName::new(&arguments.name)?;
    let machine = Machine::open(environment)?;
    let mut journal = machine.journal()?;
    // Work that was cut short may have left no more than files of its own.
    let is_open = journal.record().is_some_and(|record| *record.job.stateroot() == stateroot);
    if !is_open {
        machine.stateroots.ensure_removable(&stateroot).await?;
    }
    if !arguments.yes {
        confirm(&stateroot)?;
    }
    let job = Job::Remove { stateroot: stateroot.clone() };
    match conclude(machine.execute(&mut journal, &job).await?) {
        Ok(_) => print(&format!("{stateroot} is removed"))?,
        Err(code) => return Ok(code),
    }
    Ok(0)
}

/// Asks a person; refuses when there is none.
fn confirm(stateroot: &StaterootName) -> Result<(), CliError> {
    let refused = || CliError::Usage("not confirmed; pass --yes to skip the prompt".to_owned());
    if !std::io::stdin().is_terminal() {
        return Err(refused());
    }
    let mut out = std::io::stdout().lock();
    let question = format!("Remove {stateroot} with its /etc and /var? [y/N] ");
    out.write_all(question.as_bytes()).and_then(|()| out.flush()).map_err(CliError::Output)?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(CliError::Output)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") { Ok(()) } else { Err(refused()) }
}
