//! The verbs of `machine-config-controller`. They read files and print; only `run` writes to a cluster, and `build` to a registry.

mod bootstrap;
mod build;
mod build_accounts;
mod build_log;
mod build_registry;
mod completions;
mod crds;
mod error;
mod faults;
mod input;
mod man;
mod output;
mod plan;
mod render;
mod run;
#[cfg(test)]
mod schemas;
mod serve;
mod status;
#[cfg(test)]
mod tests;
mod validate;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use machine_config_cli::wants_json;
use machine_config_core::model::refusal::{Refusal, Refused};

use error::CliError;
use input::Input;
use output::{VerbOutput, print, yaml};

/// The cluster side of machine-config-agent
#[derive(Debug, Parser)]
#[command(
    name = "machine-config-controller",
    version,
    about,
    max_term_width = 100,
    disable_help_subcommand = true,
    after_help = "Exit status, as for machine-config-agent: 0 done, 2 usage, 3 config refused, 4 failed or a document is invalid."
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print the CRDs, for `kubectl apply`
    Crds,
    /// Render the pools of a directory of manifests
    Render(render::Arguments),
    /// Run the controllers in a cluster
    Run(run::Arguments),
    /// Print the cost of a new or changed MachineConfig for the nodes of a pool
    Plan(plan::Arguments),
    /// Render the pools of a directory for the first nodes, before there is a cluster
    Bootstrap(bootstrap::Arguments),
    /// Check a directory of manifests as `bootstrap` does
    Validate(validate::Arguments),
    /// Build and push an OS image that carries a rendered config, on this machine
    Build(Box<build::Arguments>),
    /// Serve Ignition configs to new nodes
    Serve(serve::Arguments),
    /// Show pools, rollouts and nodes of a cluster on one screen
    Status(status::Arguments),
    /// Print the completions of a shell
    Completions(completions::Arguments),
    /// Print the manual pages
    Man(man::Arguments),
}

/// Runs the program; the exit status is that of the agent (docs/reference.md, "Exit status").
pub fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let matches = Cli::command().try_get_matches_from(&words);
    let parsed = matches.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, wants_json(&matches))));
    let (cli, wants_json) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return unparsed(&error, &words),
    };
    let output = run(&cli);
    let printed = output.and_then(|output| {
        print_notes(&output.notes);
        print(&output.text)?;
        let Some(error) = output.error else { return Ok(output.code) };
        print_error(&error);
        Ok(ExitCode::from(error::exit_code(&error.refusals())))
    });
    match printed {
        Ok(code) => code,
        // The reader closed the pipe: no error.
        Err(CliError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            print_notes(error.notes());
            let refusals = error.refusals();
            if wants_json {
                drop(print(&document(&refusals)));
            }
            print_error(&error);
            ExitCode::from(error::exit_code(&refusals))
        }
    }
}

fn print_notes(notes: &[String]) {
    for note in notes {
        // A closed standard error does not change the result.
        drop(writeln!(std::io::stderr(), "note: {note}"));
    }
}

fn print_error(error: &CliError) {
    drop(writeln!(std::io::stderr(), "machine-config-controller: {error}"));
}

fn run(cli: &Cli) -> Result<VerbOutput, CliError> {
    match &cli.verb {
        Verb::Crds => crds::run(),
        Verb::Render(arguments) => render::run(arguments),
        Verb::Plan(arguments) => plan::run(arguments),
        Verb::Run(arguments) => run::run(arguments),
        Verb::Bootstrap(arguments) => bootstrap::run(arguments),
        Verb::Validate(arguments) => validate::run(arguments),
        Verb::Build(arguments) => build::run(arguments),
        Verb::Serve(arguments) => serve::run(arguments),
        Verb::Status(arguments) => status::run(arguments),
        Verb::Completions(arguments) => Ok(completions::run(arguments, Cli::command())),
        Verb::Man(arguments) => man::run(arguments, Cli::command()),
    }
}

/// The document of an error, for programs.
fn document(refusals: &[Refusal]) -> String {
    serde_json::to_string_pretty(&Refused::new(refusals)).map(|text| text + "\n").unwrap_or_default()
}

/// Prints the help, or the error of the command line: as JSON beside it where that was asked for.
fn unparsed(error: &clap::Error, words: &[OsString]) -> ExitCode {
    if error.use_stderr()
        && let Some(refusal) = machine_config_cli::refusal(error, &Cli::command(), words)
    {
        drop(print(&document(&[refusal])));
    }
    // A broken pipe has no reader for an error.
    drop(error.print());
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}
