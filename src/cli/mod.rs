//! The command line: one file per verb, no logic there. Parsed with clap, which also makes `--help`.

mod apply;
mod daemon;
mod error;
mod history;
mod host;
mod input;
mod plan;
#[cfg(feature = "backend-ostree")]
mod sandbox;
mod settings;
mod status;
mod telemetry;
mod verify;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use crate::settings::Settings;
pub use error::CliError;

/// The node agent that brings image-based hosts to their MachineConfig: planned, journaled, safe against power cuts.
#[derive(Debug, Parser)]
#[command(
    name = "machine-config-agent",
    version,
    max_term_width = 100,
    disable_help_subcommand = true,
    disable_help_flag = true
)]
#[command(after_help = "Exit codes: 0 done or no differences, 1 differences, 2 usage, 3 irreconcilable,\n\
    4 failed (the node is as before, or the message says what is open), 5 the agent's own state can't be read.")]
struct Arguments {
    /// Print help
    #[arg(short, long, global = true, display_order = 1000, action = clap::ArgAction::HelpShort)]
    help: Option<bool>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the agent: follow the target, report the state
    #[command(alias = "start")]
    Daemon(daemon::Arguments),
    /// Show what going from one config to another would do; touches nothing
    Plan(plan::Arguments),
    /// Carry a plan out once, from files, without a cluster
    Apply(apply::Arguments),
    /// Compare the host with a config
    Verify(verify::Arguments),
    /// Show what the node is, what it is doing, why, and the next step
    Status(status::Arguments),
    /// Show past updates
    History(history::Arguments),
    /// Show the main job on a throwaway libostree host in a directory
    #[cfg(feature = "backend-ostree")]
    Sandbox(sandbox::Arguments),
}

/// How a verb prints its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Runs the verb of the command line.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // clap knows whether this is help or a mistake; there is nobody left to tell about a broken pipe.
            drop(error.print());
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let outcome =
        Settings::read().map_err(CliError::from).and_then(|settings| run(arguments.verb, &settings));
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            drop(writeln!(std::io::stderr(), "{}", error.text()));
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(verb: Verb, settings: &Settings) -> Result<u8, CliError> {
    match verb {
        Verb::Daemon(arguments) => daemon::run(&arguments, settings),
        Verb::Plan(arguments) => plan::run(&arguments),
        Verb::Apply(arguments) => apply::run(&arguments, settings),
        Verb::Verify(arguments) => verify::run(&arguments),
        Verb::Status(arguments) => status::run(&arguments),
        Verb::History(arguments) => history::run(&arguments),
        #[cfg(feature = "backend-ostree")]
        Verb::Sandbox(arguments) => sandbox::run(&arguments, settings),
    }
}

/// Prints a result.
fn print(text: &str) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", text.trim_end()).map_err(CliError::Output)
}

/// Prints a result as JSON.
fn print_json(value: &impl serde::Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(value).map_err(|error| CliError::Output(error.into()))?;
    print(&text)
}
