//! `seed create --list`: what a seed has and leaves out, path by path. No value of a file is shown.

use serde::Serialize;

use super::super::CliError;
use super::super::output::{Output, print, print_json};
use super::super::stateroot::machine::Machine;
use crate::agent::{list_seed, portable};
use crate::stateroot::{Because, SeedEntry, SeedPaths};

/// Exit code of a list with a path for which a seed is refused.
const REFUSED: u8 = 3;

/// The flag that takes or leaves out a path.
const FLAGS: &str = "leave a path out with --exclude PATH, or take a secret with --include-secret PATH";

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct Listed<'a> {
    schema_version: u32,
    refused: usize,
    paths: Vec<Line<'a>>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    path: &'a str,
    taken: bool,
    because: Because,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'a str>,
}

/// Prints the list.
pub(super) async fn run(machine: &Machine, paths: SeedPaths, output: Output) -> Result<u8, CliError> {
    let (config, rules) = portable(&machine.root, paths)?;
    let entries = list_seed(&machine.stateroots, &config, &rules, false).await?;
    let refused = entries.iter().filter(|entry| entry.because.is_refusal()).count();
    match output {
        Output::Json => {
            let paths = entries.iter().map(line).collect();
            print_json(&Listed { schema_version: 1, refused, paths })?;
        }
        Output::Text => print(&text(&entries, refused))?,
    }
    Ok(if refused == 0 { 0 } else { REFUSED })
}

fn line(entry: &SeedEntry) -> Line<'_> {
    let SeedEntry { path, because, cause } = entry;
    Line { path, taken: because.is_taken(), because: *because, cause: cause.as_deref() }
}

fn text(entries: &[SeedEntry], refused: usize) -> String {
    let lines = entries.iter().map(|SeedEntry { path, because, cause }| {
        let mark = if because.is_taken() { "take " } else { "leave" };
        let cause = cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("{mark} {path}  ({}{cause})\n", because.as_str())
    });
    let end = match refused {
        0 => String::new(),
        1 => format!("1 path refuses the seed: {FLAGS}\n"),
        count => format!("{count} paths refuse the seed: {FLAGS}\n"),
    };
    lines.chain([end]).collect()
}
