//! `crds`: the definitions of the kinds.

use super::{CliError, Said, yaml};
use crate::api::definitions;

/// Prints them.
pub(super) fn run() -> Result<Said, CliError> {
    let documents: Vec<String> = definitions().iter().map(yaml).collect::<Result<_, _>>()?;
    Ok(Said::done(documents.concat()))
}
