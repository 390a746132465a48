//! The command line: one file per verb, no logic there. Parsed with clap, which also makes `--help`.

mod agent_flags;
mod apply;
mod collect;
mod completions;
mod daemon;
mod desired;
mod earlier_installation;
mod error;
mod first_target;
mod firstboot;
mod history;
mod host;
mod input;
mod last_report;
mod man;
mod mcd;
mod output;
mod plan;
#[cfg(feature = "backend-ostree")]
mod sandbox;
#[cfg(test)]
mod schemas;
#[cfg(feature = "backend-ostree")]
mod seed;
mod settings;
mod stages;
#[cfg(feature = "backend-ostree")]
mod stateroot;
mod status;
mod telemetry;
mod verify;
mod verify_image;

use std::ffi::OsString;
use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use machine_config_cli::wants_json;

use crate::model::message;
use crate::model::refusal::Refused;
use crate::settings::Environment;
use crate::telemetry::log::{self, Format};
pub use error::CliError;

/// Node agent that applies MachineConfigs and OS images: planned, journaled, safe against power cuts.
#[derive(Debug, Parser)]
#[command(
    name = "machine-config-agent",
    version = env!("MCA_VERSION"),
    max_term_width = 100,
    disable_help_subcommand = true,
    disable_help_flag = true
)]
#[command(after_help = "Exit status: 0 done or no differences, 1 differences, 2 usage, 3 config refused,\n\
    4 failed (the node is as before, or the message names what is open), 5 the agent's own state can't be read.\n\
    daemon, firstboot and stateroot trial add 100, because systemd reserves small codes.")]
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
    /// Show the plan between two configs
    Plan(plan::Arguments),
    /// Apply a config once, from files, without a cluster
    Apply(apply::Arguments),
    /// Apply Ignition's MachineConfig before the kubelet starts
    #[command(alias = "firstboot-complete-machineconfig")]
    Firstboot(firstboot::Arguments),
    /// Compare the host with a config
    Verify(verify::Arguments),
    /// Show state, progress, fault and next step
    Status(status::Arguments),
    /// Show past updates
    History(history::Arguments),
    /// Manage stateroots: complete systems beside the running one
    #[cfg(feature = "backend-ostree")]
    Stateroot(stateroot::Arguments),
    /// Make seed images of this host
    #[cfg(feature = "backend-ostree")]
    Seed(seed::Arguments),
    /// Write a support bundle, without secrets
    Collect(collect::Arguments),
    /// Print the completions of a shell
    Completions(completions::Arguments),
    /// Print the manual pages
    Man(man::Arguments),
    /// Run a demo on a throwaway libostree host in a directory
    #[cfg(feature = "backend-ostree")]
    Sandbox(sandbox::Arguments),
}

impl Verb {
    /// Returns true if a unit runs it: its errors are lines of the journal.
    fn is_service(&self) -> bool {
        match self {
            Self::Daemon(_) | Self::Firstboot(_) => true,
            #[cfg(feature = "backend-ostree")]
            Self::Stateroot(arguments) => arguments.is_service(),
            #[cfg(feature = "backend-ostree")]
            Self::Seed(_) | Self::Sandbox(_) => false,
            Self::Plan(_)
            | Self::Apply(_)
            | Self::Verify(_)
            | Self::Status(_)
            | Self::History(_)
            | Self::Collect(_)
            | Self::Completions(_)
            | Self::Man(_) => false,
        }
    }

    /// Returns true if the verb only prints, so that a closed pipe is a success.
    fn is_read_only(&self) -> bool {
        match self {
            Self::Plan(_)
            | Self::Verify(_)
            | Self::Status(_)
            | Self::History(_)
            | Self::Completions(_)
            | Self::Man(_) => true,
            #[cfg(feature = "backend-ostree")]
            Self::Stateroot(arguments) => arguments.is_read_only(),
            #[cfg(feature = "backend-ostree")]
            Self::Seed(arguments) => arguments.is_read_only(),
            #[cfg(feature = "backend-ostree")]
            Self::Sandbox(_) => false,
            Self::Daemon(_) | Self::Apply(_) | Self::Firstboot(_) | Self::Collect(_) => false,
        }
    }
}

/// Runs the verb of the command line.
pub fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let (arguments, wants_json) = match parse(words.clone()) {
        Ok(Parsed::Arguments(arguments, wants_json)) => (*arguments, wants_json),
        Ok(Parsed::Text(text)) => {
            // A broken pipe has no reader for an error.
            drop(output::print(&text));
            return ExitCode::SUCCESS;
        }
        Err(error) => return unparsed(&error, &words),
    };
    let (is_service, is_read_only) = (arguments.verb.is_service(), arguments.verb.is_read_only());
    let outcome =
        Environment::read().map_err(CliError::from).and_then(|environment| run(arguments.verb, &environment));
    match outcome {
        Ok(code) => ExitCode::from(code),
        // The reader closed the pipe: it has what it wants.
        Err(CliError::Output(error)) if is_read_only && error.kind() == ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) if is_service => {
            // If the log has started already this changes nothing.
            log::start(if Environment::under_journal() { Format::Journal } else { Format::Text });
            log_end(&error);
            ExitCode::from(error.service_exit_code())
        }
        Err(error) => {
            if wants_json {
                // A reader that is gone needs no document.
                drop(output::print_json(&Refused::new(&error.refusals())));
            }
            drop(writeln!(std::io::stderr(), "{}", error.text()));
            ExitCode::from(error.exit_code())
        }
    }
}

/// Result of parsing a command line.
enum Parsed {
    /// The arguments, and whether JSON was asked for.
    Arguments(Box<Arguments>, bool),
    Text(String),
}

/// Parses the command line, which is MCD's under MCD's name.
fn parse(words: Vec<OsString>) -> Result<Parsed, clap::Error> {
    let own = if mcd::is_program_name(words.first()) {
        let node = Environment::node_name();
        let is_directory = |path: &Path| crate::host::Root::open(path).is_ok();
        match mcd::translate(words, node.as_deref(), is_directory)? {
            mcd::Meaning::Words(own) => own,
            mcd::Meaning::Text(text) => return Ok(Parsed::Text(text)),
        }
    } else {
        words
    };
    let matches = Arguments::command().try_get_matches_from(own)?;
    let arguments = Arguments::from_arg_matches(&matches)?;
    Ok(Parsed::Arguments(Box::new(arguments), wants_json(&matches)))
}

/// Logs the error that ended the agent.
fn log_end(error: &CliError) {
    tracing::error!(MESSAGE_ID = message::FAILED, MCA_FAULT = error.reason(), "{}", error.line());
}

/// Prints the help, or the error of the command line: with its priority where standard error is the journal, and as JSON beside it
/// where that was asked for.
fn unparsed(error: &clap::Error, words: &[OsString]) -> ExitCode {
    let is_own = !mcd::is_program_name(words.first());
    if error.use_stderr()
        && is_own
        && let Some(refusal) = machine_config_cli::refusal(error, &Arguments::command(), words)
    {
        drop(output::print_json(&Refused::new(&[refusal])));
    }
    if error.use_stderr() && Environment::under_journal() {
        log::start(Format::Journal);
        let text = error.to_string();
        let text = text.trim_end().strip_prefix("error: ").unwrap_or(&text).trim_end();
        log_end(&CliError::Usage(text.to_owned()));
    } else {
        // A broken pipe has no reader for an error.
        drop(error.print());
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

fn run(verb: Verb, environment: &Environment) -> Result<u8, CliError> {
    crate::host::limits::raise_open_files();
    match verb {
        Verb::Daemon(arguments) => daemon::run(&arguments, environment),
        Verb::Plan(arguments) => plan::run(&arguments, environment),
        Verb::Apply(arguments) => apply::run(&arguments, environment),
        Verb::Firstboot(arguments) => firstboot::run(&arguments, environment),
        Verb::Verify(arguments) => verify::run(&arguments),
        Verb::Status(arguments) => status::run(&arguments, environment),
        Verb::History(arguments) => history::run(&arguments),
        #[cfg(feature = "backend-ostree")]
        Verb::Stateroot(arguments) => stateroot::run(arguments, environment),
        #[cfg(feature = "backend-ostree")]
        Verb::Seed(arguments) => seed::run(arguments, environment),
        Verb::Collect(arguments) => collect::run(&arguments, environment),
        Verb::Completions(arguments) => completions::run(&arguments, Arguments::command()),
        Verb::Man(arguments) => man::run(&arguments, Arguments::command()),
        #[cfg(feature = "backend-ostree")]
        Verb::Sandbox(arguments) => sandbox::run(&arguments, environment),
    }
}
