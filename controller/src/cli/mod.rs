//! The verbs of `machine-config-controller`. They read files and print; only `run` writes to a cluster, and `build` to a registry.

mod bootstrap;
mod build;
mod build_log;
mod crds;
mod error;
mod input;
mod output;
mod plan;
mod render;
mod run;
mod serve;
mod status;
#[cfg(test)]
mod tests;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;

use error::CliError;
use input::Input;
use output::{VerbOutput, print, yaml};

/// The cluster side of machine-config-agent
#[derive(Debug, Parser)]
#[command(name = "machine-config-controller", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print the definitions of the kinds, for `kubectl apply`
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
    Validate(bootstrap::Checked),
    /// Build and push an OS image that carries a rendered config, on this machine
    Build(Box<build::Arguments>),
    /// Serve Ignition configs to new nodes
    Serve(serve::Arguments),
    /// Show pools, rollouts and nodes of a cluster on one screen
    Status(status::Arguments),
}

/// Runs the program; the exit status is 0 when it is done, 1 for an error, 3 for a change that nodes refuse.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let output = match &cli.verb {
        Verb::Crds => crds::run(),
        Verb::Render(arguments) => render::run(arguments),
        Verb::Plan(arguments) => plan::run(arguments),
        Verb::Run(arguments) => run::run(arguments),
        Verb::Bootstrap(arguments) => bootstrap::run(arguments),
        Verb::Validate(arguments) => bootstrap::validate(arguments),
        Verb::Build(arguments) => build::run(arguments),
        Verb::Serve(arguments) => serve::run(arguments),
        Verb::Status(arguments) => status::run(arguments),
    };
    match output.and_then(|output| print(&output.text).map(|()| output.code)) {
        Ok(code) => code,
        // The reader closed the pipe: no error.
        Err(CliError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let written = writeln!(std::io::stderr(), "machine-config-controller: {error}");
            drop(written);
            ExitCode::FAILURE
        }
    }
}
