//! `history`: past updates.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::CliError;
use super::output::{Output, print, print_json};
use crate::host::power::check_disk;
use crate::host::root::Root;
use crate::journal::history::{Entry, History, load_with_held};
use crate::journal::origin::{State, check_commit};
use crate::model::text::chain;
use crate::model::text::counted;

/// Flags of `history`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  machine-config-agent history --output json")]
pub(super) struct Arguments {
    /// Root of the host
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Past updates, in the order in which they ended.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct Past<'a> {
    schema_version: u32,
    updates: &'a [Entry],
}

/// Returns the document of these updates.
pub(super) fn document(entries: &[Entry]) -> impl Serialize {
    Past { schema_version: 1, updates: entries }
}

/// Returns the schema of the document.
#[cfg(test)]
pub(in crate::cli) fn schema(generator: schemars::SchemaGenerator) -> schemars::Schema {
    generator.into_root_schema_for::<Past<'static>>()
}

/// Prints the updates in the order in which they ended.
pub(super) fn run(arguments: &Arguments) -> Result<u8, CliError> {
    let root = Root::open(&arguments.root)?;
    check_disk(&root)?;
    State::load(&root)?;
    check_commit(&root)?;
    let History { entries, damaged } = load_with_held(&root)?;
    for error in &damaged {
        drop(writeln!(std::io::stderr(), "warning: Skipped a past update: {}", chain(error)));
    }
    match arguments.output {
        Output::Json => print_json(&document(&entries))?,
        Output::Text if entries.is_empty() => print("no updates yet")?,
        Output::Text => print(&text(&entries))?,
    }
    Ok(0)
}

fn text(entries: &[Entry]) -> String {
    let mut text = String::new();
    for entry in entries {
        let from = entry.from.as_ref().map_or("(unmanaged)", |target| target.config.as_str());
        let took: u64 = entry.durations.values().sum();
        let took = Duration::from_micros(took).as_secs_f64();
        let Entry { started, to, steps, reboots, .. } = entry;
        let outcome = entry.outcome.as_str();
        let attempts =
            if entry.attempts == 1 { String::new() } else { format!(", {} attempts", entry.attempts) };
        let held = if entry.held { ", held" } else { "" };
        text += &format!(
            "{started}  {outcome:<11}  {from} -> {}  ({}, {}, {took:.1} s{attempts}{held})\n",
            to.config,
            counted(*steps, "step"),
            counted(*reboots, "reboot"),
        );
        if let Some(fault) = &entry.fault {
            text += &format!("                      {}: {}\n", fault.reason, fault.message);
        }
    }
    text
}
