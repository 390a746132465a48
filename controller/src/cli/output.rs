//! Output of the verbs.

use std::io::Write as _;
use std::process::ExitCode;

use super::error::CliError;
use crate::render::RenderError;

/// Complete output of a verb: a verb that fails in the middle prints no part of it.
#[derive(Debug)]
pub(super) struct VerbOutput {
    pub(super) text: String,
    pub(super) code: ExitCode,
    /// Objects without effect, for standard error.
    pub(super) notes: Vec<String>,
    /// Error of objects that the output is not about.
    pub(super) error: Option<CliError>,
}

impl VerbOutput {
    pub(super) fn done(text: String) -> Self {
        Self { text, code: ExitCode::SUCCESS, notes: Vec::new(), error: None }
    }

    pub(super) fn with_notes(self, notes: Vec<String>) -> Self {
        Self { notes, ..self }
    }
}

pub(super) fn print(text: &str) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(CliError::Output)
}

/// Returns an object as a YAML document.
pub(super) fn yaml(object: &impl serde::Serialize) -> Result<String, CliError> {
    let tree = serde_json::to_value(object).map_err(RenderError::from)?;
    let text = serde_saphyr::to_string(&tree).map_err(|error| CliError::Failed(error.to_string()))?;
    Ok(format!("---\n{text}"))
}
