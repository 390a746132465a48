//! `validate`: everything that is wrong with a directory of manifests, in one run.

use serde_json::json;

use super::bootstrap::text;
use super::faults::refuse;
use super::input::Left;
use super::plan::Output;
use super::{CliError, Input, VerbOutput};
use crate::bootstrap::bootstrap;
use crate::manifests::Manifests;
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
            let pools: Vec<_> = output
                .pools
                .iter()
                .map(|(name, pool)| json!({ "name": name, "config": pool.spec.configuration }))
                .collect();
            let document = json!({ "schemaVersion": 1, "pools": pools, "notes": notes });
            VerbOutput::done(serde_json::to_string_pretty(&document).map_err(RenderError::from)? + "\n")
        }
    })
}
