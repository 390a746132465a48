//! `crds`: the definitions of the kinds.

use super::{CliError, VerbOutput, yaml};
use crate::api::definitions;

/// Prints them.
pub(super) fn run() -> Result<VerbOutput, CliError> {
    let documents: Vec<String> = definitions().iter().map(yaml).collect::<Result<_, _>>()?;
    Ok(VerbOutput::done(documents.concat()))
}
