//! `validate`: everything that is wrong with a directory of manifests, in one run.

use machine_config_core::model::refusal::Refusal;
use serde_json::json;

use super::bootstrap::text;
use super::error::{FAILED, of_bootstrap, of_manifest};
use super::plan::Output;
use super::{CliError, Input, VerbOutput};
use crate::bootstrap::{BootstrapError, SeedError, bootstrap};
use crate::manifests::Manifests;
use crate::render::RenderError;

/// Flags of `validate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  machine-config-controller validate --manifests cluster/\n\n\
    Exit status: 0 valid, 1 not; each error names the object, the field and the next step.")]
pub(super) struct Arguments {
    #[command(flatten)]
    input: Input,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Renders as a bootstrap would, and writes nothing.
pub(super) fn run(arguments: &Arguments) -> Result<VerbOutput, CliError> {
    let input = &arguments.input;
    let (mut manifests, unread) = Manifests::collect(&input.manifests, input.unknown.fields())?;
    let said = |fault: &Refusal| manifests.violations.iter().any(|violation| is_same(fault, violation));
    let mut faults: Vec<Refusal> = unread.iter().flat_map(of_manifest).filter(|fault| !said(fault)).collect();
    let release = manifests.release(input.os_image.as_deref());
    let output = match bootstrap(&manifests, &release) {
        Ok(output) => output,
        Err(errors) => {
            // What could not be read is missed there as well.
            let is_own = |error: &&BootstrapError| unread.is_empty() || !follows(error);
            faults.extend(errors.iter().filter(is_own).map(of_bootstrap));
            crate::bootstrap::Output::default()
        }
    };
    faults.extend(manifests.violations.iter().map(|violation| of_violation(violation)));
    if !faults.is_empty() {
        return Err(CliError::Faults(faults));
    }
    let notes = std::mem::take(&mut manifests.notes);
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

/// Returns true if an error may be there only because another object can't be read.
fn follows(error: &BootstrapError) -> bool {
    match error {
        BootstrapError::NoPool | BootstrapError::NoBase { .. } => true,
        BootstrapError::Render(error) => matches!(error, RenderError::NoConfigs { .. }),
        BootstrapError::Seed(error) => matches!(error, SeedError::Pool { known, .. } if known.is_empty()),
        BootstrapError::Containerfile { .. } => false,
    }
}

/// Returns true if a violation, `FILE: KIND NAME: FIELD: CAUSE`, is the fault by which its file could not be read.
fn is_same(fault: &Refusal, violation: &str) -> bool {
    let mut parts = violation.split(": ");
    let (file, field) = (parts.next(), parts.nth(1));
    field.is_some()
        && fault.field.as_deref() == field
        && file.is_some_and(|file| fault.message.starts_with(file))
}

/// Returns what an API server would refuse of an object.
fn of_violation(violation: &str) -> Refusal {
    Refusal { class: "degraded", reason: FAILED, field: None, message: violation.to_owned(), next: None }
}
