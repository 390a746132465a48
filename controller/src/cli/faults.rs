//! All faults of a directory of manifests, as `validate` and `bootstrap` name them.

use machine_config_core::model::refusal::Refusal;

use super::CliError;
use super::error::{FAILED, of_bootstrap, of_manifest};
use crate::api::Violation;
use crate::bootstrap::{BootstrapError, SeedError, useless_secrets};
use crate::manifests::{ManifestError, Manifests};
use crate::render::RenderError;

/// Refuses a directory with all its faults: what could not be read, what is wrong with its pools and images, and what an API server
/// would refuse. `bootstrap` names the same.
pub(super) fn refuse<T>(
    manifests: &Manifests,
    unread: &[ManifestError],
    outcome: Result<T, Vec<BootstrapError>>,
) -> Result<T, CliError> {
    let said = |fault: &Refusal| manifests.violations.iter().any(|violation| is_same(fault, violation));
    let (known, mut faults): (Vec<Refusal>, Vec<Refusal>) =
        unread.iter().flat_map(of_manifest).partition(said);
    if let Err(errors) = &outcome {
        // What could not be read is missed there as well.
        let is_own = |error: &&BootstrapError| !follows(manifests, error);
        faults.extend(errors.iter().filter(is_own).flat_map(of_bootstrap));
    }
    faults.extend(useless_secrets(manifests).iter().flat_map(of_bootstrap));
    faults.extend(manifests.violations.iter().map(|violation| of_violation(violation, &known)));
    match outcome {
        Ok(output) if faults.is_empty() => Ok(output),
        _ => Err(CliError::Faults(faults)),
    }
}

/// Returns true if an error may be there only because another object can't be read.
fn follows(manifests: &Manifests, error: &BootstrapError) -> bool {
    let unread = &manifests.unread;
    match error {
        BootstrapError::NoPool => unread.any || !unread.pools.is_empty(),
        BootstrapError::NoBase { pool } => unread.controller_config || manifests.lacks_config_of(pool),
        BootstrapError::Render(RenderError::NoConfigs { pool }) => manifests.lacks_config_of(pool),
        BootstrapError::Seed(SeedError::Pool { pool, .. }) => {
            unread.any || unread.pools.iter().any(|name| name.is_empty() || name == pool)
        }
        BootstrapError::Left { .. } => unread.any,
        BootstrapError::Render(_)
        | BootstrapError::Seed(_)
        | BootstrapError::Containerfile { .. }
        | BootstrapError::Secret { .. } => false,
    }
}

/// Returns true if a violation is the fault by which its file could not be read.
fn is_same(fault: &Refusal, violation: &Violation) -> bool {
    let file = violation.text.split(": ").next();
    fault.field.as_deref().is_some_and(|field| !field.is_empty() && field == violation.field)
        && file.is_some_and(|file| fault.message.starts_with(file))
}

/// Returns what an API server would refuse of an object: by its words, and by the class and the reason of the reader that refuses the same.
fn of_violation(violation: &Violation, known: &[Refusal]) -> Refusal {
    let field = Some(violation.field.clone()).filter(|field| !field.is_empty());
    let read = known.iter().find(|fault| is_same(fault, violation));
    let (class, reason) = read.map_or(("degraded", FAILED), |fault| (fault.class, fault.reason));
    Refusal { field, ..Refusal::new(class, reason, violation.text.clone()) }
}
