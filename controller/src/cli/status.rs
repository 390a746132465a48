//! `status`: pools, rollouts and nodes of a cluster, on one screen.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;

use machine_config_cli::screen::Screen;

use super::plan::Output;
use super::{CliError, VerbOutput};
use crate::controllers::{StatusOptions, status};
use crate::view::{View, text_on};

/// Goes to the upper left corner and clears the rest.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Flags of `status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  machine-config-controller status --watch\n\n\
    Read-only. The user needs list and watch of pools, nodes, MachineConfigNodes, RolloutPolicies,\n\
    MachineOSConfigs, MachineOSBuilds and CRDs.")]
pub(super) struct Arguments {
    /// Redraw the screen at each change
    #[arg(long, short)]
    watch: bool,
    /// Output format; json is one object, with --watch one a line
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Maximum nodes to list
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u16).range(0..=5000))]
    nodes: u16,
    /// Access to the API server [default: $KUBECONFIG, else the pod's service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// Shows it.
pub(super) fn run(arguments: &Arguments) -> Result<VerbOutput, CliError> {
    let options = StatusOptions {
        kubeconfig: arguments.kubeconfig.clone(),
        watch: arguments.watch,
        limit: usize::from(arguments.nodes),
    };
    let mut outcome = Ok(());
    let mut is_first = true;
    status(&options, &mut |view: &View| {
        let is_first = std::mem::replace(&mut is_first, false);
        // A terminal may get another width meanwhile.
        outcome = screen(view, arguments, Screen::of_output(wants_plain()), is_first).and_then(|text| {
            let mut out = std::io::stdout().lock();
            out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(CliError::Output)
        });
        outcome.is_ok()
    })?;
    outcome.map(|()| VerbOutput::done(String::new()))
}

/// Returns true if the reader wants no colors.
#[expect(clippy::disallowed_methods, reason = "the variables of terminals, as in the agent's settings")]
fn wants_plain() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

fn screen(view: &View, arguments: &Arguments, screen: Screen, is_first: bool) -> Result<String, CliError> {
    let is_terminal = std::io::stdout().is_terminal();
    let json = |text: Result<String, serde_json::Error>| {
        text.map(|text| text + "\n").map_err(|error| CliError::Failed(error.to_string()))
    };
    match arguments.output {
        Output::Json if arguments.watch => json(serde_json::to_string(view)),
        Output::Json => json(serde_json::to_string_pretty(view)),
        Output::Text if arguments.watch && is_terminal => Ok(format!("{CLEAR}{}", text_on(view, screen))),
        // On a pipe one screen follows the other.
        Output::Text if is_first => Ok(text_on(view, screen)),
        Output::Text => Ok(format!("\n{}", text_on(view, screen))),
    }
}
