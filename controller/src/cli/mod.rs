//! The verbs of `machine-config-controller`. They read files and print; only `run` writes to a cluster, and `build` to a registry.

mod bootstrap;
mod build;
mod build_log;
mod crds;
mod plan;
mod render;
mod run;
mod serve;
mod status;
#[cfg(test)]
mod tests;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use crate::manifests::ManifestError;
use crate::render::RenderError;

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

/// Source of the objects.
#[derive(Debug, clap::Args)]
struct Input {
    /// Directory with MachineConfigs, pools, the ControllerConfig and the disruption policy
    #[arg(long, value_name = "DIR")]
    manifests: PathBuf,
    /// OS image of pools whose MachineConfigs name none, in place of the ControllerConfig's
    #[arg(long, value_name = "IMAGE")]
    os_image: Option<String>,
}

/// Errors of a verb.
#[derive(Debug, thiserror::Error)]
enum CliError {
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Run(#[from] crate::controllers::RunError),
    #[error(transparent)]
    Render(#[from] RenderError),
    #[error(transparent)]
    Image(#[from] crate::image::ImageError),
    #[error(transparent)]
    Local(#[from] crate::image::local::LocalError),
    #[error("{0}")]
    Usage(String),
    #[error("the output can't be written: {0}")]
    Output(std::io::Error),
}

/// Complete output of a verb: a verb that fails in the middle prints no part of it.
#[derive(Debug)]
struct VerbOutput {
    text: String,
    code: ExitCode,
}

impl VerbOutput {
    fn done(text: String) -> Self {
        Self { text, code: ExitCode::SUCCESS }
    }
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

fn print(text: &str) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(CliError::Output)
}

/// Returns an object as a YAML document.
fn yaml(object: &impl serde::Serialize) -> Result<String, CliError> {
    let tree = serde_json::to_value(object).map_err(RenderError::from)?;
    let text = serde_saphyr::to_string(&tree).map_err(|error| CliError::Usage(error.to_string()))?;
    Ok(format!("---\n{text}"))
}
