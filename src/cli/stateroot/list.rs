//! `stateroot list`: what there is.

use serde::Serialize;

use super::super::CliError;
use super::super::output::{Output, print, print_json};
use super::machine::Machine;
use crate::journal::stateroot::{load_record, load_return};
use crate::settings::Environment;
use crate::stateroot::{OpenWork, Return, Stateroot};

/// Flags of `stateroot list`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  machine-config-agent stateroot list --output json")]
pub(super) struct Arguments {
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct Listing<'a> {
    schema_version: u32,
    stateroots: &'a [Stateroot],
    /// Reason of the last return from an activated stateroot.
    #[serde(skip_serializing_if = "Option::is_none")]
    returned: Option<&'a Return>,
    /// Work that has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    open: Option<OpenWork>,
}

/// Returns the schema of the document.
#[cfg(test)]
pub(in crate::cli) fn schema(generator: schemars::SchemaGenerator) -> schemars::Schema {
    generator.into_root_schema_for::<Listing<'static>>()
}

/// Prints the stateroots.
pub(super) async fn run(arguments: &Arguments, environment: &Environment) -> Result<u8, CliError> {
    let machine = Machine::open(environment)?;
    let found = machine.stateroots.list().await?;
    let returned = load_return(&machine.root)?;
    let open = load_record(&machine.root)?.as_ref().map(OpenWork::new);
    match arguments.output {
        Output::Json => {
            print_json(&Listing {
                schema_version: 1,
                stateroots: &found,
                returned: returned.as_ref(),
                open,
            })?;
        }
        Output::Text => {
            let why = returned.map_or_else(String::new, |left| format!("Returned: {}\n", left.fault));
            let open =
                open.map_or_else(String::new, |open| format!("Open: {}\nNext: {}\n", open.line(), open.next));
            print(&format!("{}{why}{open}", text(&found)))?;
        }
    }
    Ok(0)
}

fn text(stateroots: &[Stateroot]) -> String {
    let mut text = String::new();
    for Stateroot { name, booted, boots_next, deployments } in stateroots {
        let mut marks = Vec::new();
        if *booted {
            marks.push("booted");
        }
        if *boots_next {
            marks.push("boots next");
        }
        if deployments.is_empty() {
            marks.push("no deployment");
        }
        let marks = if marks.is_empty() { String::new() } else { format!("  ({})", marks.join(", ")) };
        text += &format!("{name}{marks}\n");
        for deployment in deployments {
            let image = deployment.image.as_ref().map_or_else(|| "no image".to_owned(), ToString::to_string);
            let staged = if deployment.staged { ", staged" } else { "" };
            text += &format!("  {}  {image}{staged}\n", deployment.id);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stateroot::StaterootDeployment;

    #[test]
    fn listing_marks_what_runs_and_what_boots_next() {
        let deployment = StaterootDeployment {
            id: "my-os-0123.0".to_owned(),
            image: None,
            booted: true,
            boots_next: true,
            staged: true,
            kernel_arguments: Vec::new(),
        };
        let stateroot = |name: &str, booted, boots_next, deployments| Stateroot {
            name: name.to_owned(),
            booted,
            boots_next,
            deployments,
        };
        let found = [
            stateroot("my-os", true, true, vec![deployment]),
            stateroot("rhcos_4.17.2", false, false, vec![]),
        ];
        let expected =
            "my-os  (booted, boots next)\n  my-os-0123.0  no image, staged\nrhcos_4.17.2  (no deployment)\n";
        assert_eq!(text(&found), expected);
    }
}
