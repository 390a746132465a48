//! `verify`: the differences between a config and the host.

use serde::Serialize;

use super::host::{HostFlags, runtime};
use super::input::Unknown;
use super::output::{Output, print, print_json};
use super::{CliError, input};
use crate::agent::drift::add_diffs;
use crate::host::{Host, Root};
use crate::journal::origin::{State, check_commit};
use crate::model::text::counted;
use crate::model::{HostSpec, NotApplied, Observation};
use crate::observe::observe;
use crate::plan::differences::{Difference, differences};
use crate::plan::drift::{drift, stray_links};
use crate::plan::explain::not_applied_text;
use crate::plan::not_applied;
use crate::settings::file;

/// The word for the current config.
const CURRENT: &str = "current";
/// The word for the config of the open update.
const TARGET: &str = "target";

/// Flags of `verify`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  machine-config-agent verify\n  machine-config-agent verify --config target\n\n\
    Exit code 1 means that something differs."
)]
pub(super) struct Arguments {
    /// The config: a MachineConfig's file, `-`, `current`, or `target` of the update that is open or held
    #[arg(long, value_name = "FILE|current|target", default_value = "current")]
    config: String,
    /// OS image that goes with the file
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    #[command(flatten)]
    unknown: Unknown,
    #[command(flatten)]
    host: HostFlags,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Verified<'a> {
    schema_version: u32,
    config: &'a str,
    differences: &'a [Difference],
    not_applied: &'a [NotApplied],
}

/// Compares and prints.
pub(super) fn run(arguments: &Arguments) -> Result<u8, CliError> {
    let host = arguments.host.observe()?;
    let state = State::load(&host.root)?;
    check_commit(&host.root)?;
    file::read(&host.root, file::SETTINGS_PATH, file::SETTINGS_PATH)?;
    let spec = spec(arguments, &state, &host.root)?;
    let observed = runtime()?.block_on(observe(&host, &[&spec]))?;
    let mut found = compared(&arguments.config, &state, &spec, &observed);
    let not_applied = not_applied(&spec, &observed);
    match arguments.output {
        Output::Json => {
            print_json(&verified(&spec, &found, &not_applied))?;
        }
        Output::Text => {
            add_diffs(&host.root, &spec, &observed, &mut found);
            print(&format!("{}{}", text(&spec, &found), listed(&not_applied)))?;
        }
    }
    Ok(u8::from(!found.is_empty()))
}

/// Returns the document of `verify` without flags; null where nothing is committed.
pub(super) async fn current(host: &Host) -> Result<serde_json::Value, CliError> {
    let state = State::load(&host.root)?;
    let Some(spec) = committed(&state, &host.root)? else { return Ok(serde_json::Value::Null) };
    let observed = observe(host, &[&spec]).await?;
    let found = compared(CURRENT, &state, &spec, &observed);
    let not_applied = not_applied(&spec, &observed);
    serde_json::to_value(verified(&spec, &found, &not_applied))
        .map_err(|error| CliError::Output(error.into()))
}

fn verified<'a>(spec: &'a HostSpec, found: &'a [Difference], not_applied: &'a [NotApplied]) -> Verified<'a> {
    Verified { schema_version: 1, config: spec.name.as_str(), differences: found, not_applied }
}

/// Names the fields that the host does not get.
fn listed(not_applied: &[NotApplied]) -> String {
    let text = not_applied_text(not_applied);
    if text.is_empty() { text } else { format!("\n{}", text.trim_end()) }
}

fn compared(config: &str, state: &State, spec: &HostSpec, observed: &Observation) -> Vec<Difference> {
    // While an update is under way, the staged deployment is its own.
    if state.open.is_some() || config == TARGET {
        return differences(spec, observed);
    }
    if config == CURRENT {
        return drift(spec, observed);
    }
    // The deployment of the next boot may be that of the file.
    let mut found = differences(spec, observed);
    found.extend(stray_links(spec, observed));
    found
}

fn spec(arguments: &Arguments, state: &State, root: &Root) -> Result<HostSpec, CliError> {
    let none = |what: &str| CliError::Usage(format!("{what}; name a file with --config"));
    match arguments.config.as_str() {
        CURRENT => committed(state, root)?.ok_or_else(|| none("nothing is committed on this host yet")),
        TARGET => {
            let open = state.open.as_ref().map(|open| HostSpec::clone(&open.to));
            open.ok_or_else(|| none("no update is open or held on this host"))
        }
        file => {
            let image = input::image("--image", arguments.image.as_deref())?;
            Ok(input::machine_config(file, arguments.unknown)?.spec(image)?)
        }
    }
}

/// Returns the agent's current config, else MCD's.
fn committed(state: &State, root: &Root) -> Result<Option<HostSpec>, CliError> {
    let stored = match &state.current {
        Some(stored) => Some(stored.clone()),
        None => crate::journal::mcd::read(root)?,
    };
    Ok(stored.map(|stored| stored.known_spec()))
}

/// The differences, one a line, each followed by a bounded diff of its content.
fn text(spec: &HostSpec, found: &[Difference]) -> String {
    if found.is_empty() {
        return format!("the host matches {}", spec.name);
    }
    let mut text = format!("{} from {}:\n", counted(found.len(), "difference"), spec.name);
    for difference in found {
        text += &format!("  {difference}\n");
        for line in difference.diff.iter().flat_map(|diff| diff.lines()) {
            text += &format!("    {line}\n");
        }
    }
    text
}
