//! `sandbox`: the main job on a throwaway libostree host.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use super::CliError;
use super::host::runtime;
use crate::sandbox::demo::{Style, play};
use crate::sandbox::{SandboxError, scratch};
use crate::settings::Environment;

/// Flags of `sandbox`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  machine-config-agent sandbox --keep\n\n\
    Needs ostree and skopeo, and root or a user namespace. Nothing outside of the directory changes.")]
pub(super) struct Arguments {
    /// New or empty directory to build it in (default: a temporary one)
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Keep the directory for inspection
    #[arg(long)]
    keep: bool,
}

/// Plays the story; 0 only when every check held.
pub(super) fn run(arguments: &Arguments, environment: &Environment) -> Result<u8, CliError> {
    let failed = |error: SandboxError| CliError::Sandbox(crate::model::text::chain(&error));
    let style =
        if environment.plain || !std::io::stdout().is_terminal() { Style::Plain } else { Style::Terminal };
    let agent =
        std::env::current_exe().map_err(|source| CliError::Setup { what: "find the agent", source })?;
    let (directory, made) = scratch(arguments.directory.as_deref()).map_err(failed)?;
    let outcome = runtime()?.block_on(play(&directory, &agent, style)).map_err(failed);
    if made && !arguments.keep {
        crate::sandbox::discard(&directory).map_err(failed)?;
    }
    Ok(if outcome?.failed == 0 { 0 } else { 4 })
}
