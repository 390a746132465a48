//! `verify`: the differences between a config and the host.

use serde::Serialize;

use super::host::{HostFlags, runtime};
use super::{CliError, Output, input, print, print_json};
use crate::host::Host;
use crate::journal::state;
use crate::journal::stored::Stored;
use crate::model::HostSpec;
use crate::observe::observe;
use crate::plan::differences::{Difference, What, differences};
use crate::plan::explain::text_diff;
use crate::plan::listing::counted;

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
    let found = differences(&spec, &seen);
    match arguments.output {
        Output::Json => {
            print_json(&Verified { schema_version: 1, config: spec.name.as_str(), differences: &found })?;
        }
        Output::Text => print(&text(&host, &spec, &found)?)?,
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
fn text(host: &Host, spec: &HostSpec, found: &[Difference]) -> Result<String, CliError> {
    if found.is_empty() {
        return Ok(format!("the host is as {} says", spec.name));
    }
    let written = spec.written();
    let mut text = format!("{} from {}:\n", counted(found.len(), "difference"), spec.name);
    for difference in found {
        text += &format!("  {difference}\n");
        if difference.what != What::Content {
            continue;
        }
        let file = written.iter().find(|(path, _)| path.as_str() == difference.target).map(|(_, file)| file);
        if let (Some(file), Some(bytes)) = (file, host.root.read(&difference.target)?) {
            for line in text_diff(file.contents.bytes(), &bytes, file.is_secret()).lines() {
                text += &format!("    {line}\n");
            }
        }
    }
    Ok(text)
}
