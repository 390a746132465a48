//! `validate`: everything that is wrong with a directory of manifests, in one run.

use schemars::JsonSchema;
use serde::Serialize;

use super::bootstrap::text;
use super::faults::refuse;
use super::input::Left;
use super::plan::Output;
use super::{CliError, Input, VerbOutput};
use crate::api::pool::Configuration;
use crate::bootstrap::bootstrap;
use crate::manifests::Manifests;
use crate::model::NotApplied;
use crate::render::RenderError;

/// Flags of `validate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  machine-config-controller validate --manifests cluster/\n\n\
    Exit status: 0 valid, 2 unreadable, 3 refused by nodes, 4 invalid; each error names the object, the field and the next step.")]
pub(super) struct Arguments {
    #[command(flatten)]
    input: Input,
    #[command(flatten)]
    left: Left,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Valid manifests.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Validated<'a> {
    schema_version: u32,
    pools: Vec<ValidPool<'a>>,
    /// Objects that have no effect.
    notes: &'a [String],
    /// Fields that no node applies, and digests that are dropped because they do not match the contents.
    not_applied: Vec<PoolRemark<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct PoolRemark<'a> {
    pool: &'a str,
    #[serde(flatten)]
    remark: &'a NotApplied,
}

#[derive(Serialize, JsonSchema)]
struct ValidPool<'a> {
    name: &'a str,
    /// The config that its nodes would have.
    config: Option<&'a Configuration>,
}

/// Renders as a bootstrap would, and writes nothing.
pub(super) fn run(arguments: &Arguments) -> Result<VerbOutput, CliError> {
    let input = &arguments.input;
    let (mut manifests, unread) = Manifests::collect(&input.manifests, input.unknown.fields())?;
    manifests.left_to_cluster = arguments.left.leave_to_cluster.iter().cloned().collect();
    let release = manifests.release(input.os_image.as_deref());
    let output = refuse(&manifests, &unread, bootstrap(&manifests, &release));
    let notes = std::mem::take(&mut manifests.notes);
    let output = output.map_err(|error| error.noted(notes.clone()))?;
    Ok(match arguments.output {
        Output::Text => VerbOutput::done(text(&output)).with_notes(notes),
        Output::Json => {
            let pools = output.pools.iter();
            let pools = pools
                .map(|(name, pool)| ValidPool { name, config: pool.spec.configuration.as_ref() })
                .collect();
            let not_applied =
                output.remarks.iter().map(|(pool, remark)| PoolRemark { pool, remark }).collect();
            let document = Validated { schema_version: 1, pools, notes: &notes, not_applied };
            VerbOutput::done(serde_json::to_string_pretty(&document).map_err(RenderError::from)? + "\n")
        }
    })
}
