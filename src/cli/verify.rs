//! `verify`: the differences between a config and the host.

use serde::Serialize;

use super::host::{HostFlags, runtime};
use super::output::{Output, print, print_json};
use super::{CliError, input};
use crate::agent::drift::add_diffs;
use crate::host::Host;
use crate::journal::state;
use crate::journal::stored::{Stored, load_record};
use crate::model::HostSpec;
use crate::model::text::counted;
use crate::observe::observe;
use crate::plan::differences::{Difference, differences};
use crate::plan::drift::drift;

/// Flags of `verify`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  machine-config-agent verify\n\nExit code 1 means that something differs."
)]
pub(super) struct Arguments {
    /// The config: a MachineConfig's file, `-`, or `current`
    #[arg(long, value_name = "FILE|current", default_value = "current")]
    config: String,
    /// OS image that goes with the file
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    #[command(flatten)]
    host: HostFlags,
    /// How to print it
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Verified<'a> {
    schema_version: u32,
    config: &'a str,
    differences: &'a [Difference],
}

/// Compares and prints.
pub(super) fn run(arguments: &Arguments) -> Result<u8, CliError> {
    let host = arguments.host.observe()?;
    let spec = spec(arguments, &host)?;
    let seen = runtime()?.block_on(observe(&host, &[&spec]))?;
    // While an update is under way, what is staged is its own.
    let idle = arguments.config == "current" && load_record(&host.root)?.is_none();
    let mut found = if idle { drift(&spec, &seen) } else { differences(&spec, &seen) };
    match arguments.output {
        Output::Json => {
            print_json(&Verified { schema_version: 1, config: spec.name.as_str(), differences: &found })?;
        }
        Output::Text => {
            add_diffs(&host.root, &spec, &seen, &mut found);
            print(&text(&spec, &found))?;
        }
    }
    Ok(u8::from(!found.is_empty()))
}

fn spec(arguments: &Arguments, host: &Host) -> Result<HostSpec, CliError> {
    if arguments.config != "current" {
        let image = input::image(arguments.image.as_deref())?;
        return Ok(input::machine_config(&arguments.config)?.spec(image)?);
    }
    let none =
        || CliError::Usage("nothing is committed on this host yet; name a file with --config".to_owned());
    let stored = match Stored::load(&host.root, &state("current.json"))? {
        Some(stored) => stored,
        None => crate::journal::mcd::read(&host.root)?.ok_or_else(none)?,
    };
    Ok(stored.spec()?)
}

/// The differences, one a line, each followed by a bounded diff of its content.
fn text(spec: &HostSpec, found: &[Difference]) -> String {
    if found.is_empty() {
        return format!("the host is as {} says", spec.name);
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
