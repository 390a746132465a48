//! `stateroot prepare`: a seed becomes a second system, which does not boot by itself.

use serde::Serialize;

use super::super::CliError;
use super::super::output::{Output, print, print_json};
use super::machine::{Machine, conclude};
use crate::agent::{Preparation, SeedRequest, preparation};
use crate::model::ImageRef;
use crate::model::text::escaped;
use crate::settings::Environment;
use crate::stateroot::{Findings, Job, StaterootName, Version};

/// Flags of `stateroot prepare`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  machine-config-agent stateroot prepare registry.example/seed@sha256:DIGEST --version 4.17.2\n\n\
    The running system, and what boots next, stay as they are. Repeat the command to resume an interrupted run."
)]
pub(super) struct Arguments {
    /// The seed image, by digest
    #[arg(value_name = "IMAGE")]
    image: String,
    /// Required version of the seed
    #[arg(long, value_name = "VERSION")]
    version: String,
    /// Kernel argument of this host to keep in the new system; `KARG.*` matches all that begin with `KARG.`
    #[arg(long, value_name = "KARG")]
    keep_karg: Vec<String>,
    /// Print the plan, and change nothing
    #[arg(long)]
    plan: bool,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct Planned<'a> {
    schema_version: u32,
    stateroot: &'a StaterootName,
    image: &'a ImageRef,
    version: &'a Version,
    steps: Vec<PlannedStep>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PlannedStep {
    op: &'static str,
    target: String,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct Made<'a> {
    schema_version: u32,
    stateroot: &'a StaterootName,
    #[serde(flatten)]
    found: &'a Findings,
}

/// Returns the schema of the document.
#[cfg(test)]
pub(in crate::cli) fn schema(generator: schemars::SchemaGenerator) -> schemars::Schema {
    #[expect(dead_code, reason = "its schema alone is used")]
    #[derive(schemars::JsonSchema)]
    #[schemars(untagged)]
    enum Document<'a> {
        /// With `--plan`.
        Planned(Planned<'a>),
        /// Of a stateroot that is there.
        Made(Made<'a>),
    }
    generator.into_root_schema_for::<Document<'static>>()
}

/// Prepares, or prints the plan.
pub(super) async fn run(arguments: &Arguments, environment: &Environment) -> Result<u8, CliError> {
    let image = ImageRef::parse(&arguments.image).map_err(|error| error.in_field("IMAGE", ""))?;
    let version = Version::new(&arguments.version)?;
    let stateroot = StaterootName::from_version(&version);
    let machine = Machine::open(environment)?;
    let journal = if arguments.plan { None } else { Some(machine.journal()?) };
    let open = journal.as_ref().and_then(|journal| journal.record());
    let request = SeedRequest { image, version, carried: arguments.keep_karg.clone() };
    let prepared = preparation(&machine.root, &machine.stateroots, open, request).await;
    let job = match prepared.map_err(CliError::from_work)? {
        Preparation::Made(found) => return shown(arguments.output, &stateroot, &found),
        Preparation::Job(job) => job,
    };
    let Some(mut journal) = journal else {
        plan(arguments.output, &job)?;
        return Ok(0);
    };
    match conclude(machine.execute(&mut journal, &job).await?) {
        Ok(found) => shown(arguments.output, &stateroot, &found),
        Err(code) => Ok(code),
    }
}

fn plan(output: Output, job: &Job) -> Result<(), CliError> {
    let Job::Prepare { stateroot, image, version, .. } = job else { return Ok(()) };
    let targets = [image.to_string(), stateroot.to_string()];
    let steps: Vec<PlannedStep> = job
        .steps()
        .iter()
        .zip(targets)
        .map(|(step, target)| PlannedStep { op: step.as_str(), target })
        .collect();
    match output {
        Output::Json => print_json(&Planned { schema_version: 1, stateroot, image, version, steps }),
        Output::Text => {
            let lines: Vec<String> =
                steps.iter().map(|step| format!("{} {}", step.op, step.target)).collect();
            print(&format!("{}\nWhat runs and what boots next stay as they are", lines.join("\n")))
        }
    }
}

fn shown(output: Output, stateroot: &StaterootName, found: &Findings) -> Result<u8, CliError> {
    match output {
        Output::Json => print_json(&Made { schema_version: 1, stateroot, found })?,
        Output::Text => {
            let deployment = found.deployment.as_deref().unwrap_or_default();
            let mut text = format!("{stateroot} is prepared: {deployment}\n");
            if !found.containers.is_empty() {
                text += &format!("Images to pull before it runs ({}):\n", found.containers.len());
                text.extend(found.containers.iter().map(|image| format!("  {}\n", escaped(image))));
            }
            print(&text)?;
        }
    }
    Ok(0)
}
