//! A refusal, for programs: the document that a verb prints where JSON was asked for.

use serde::Serialize;

use super::ModelError;

/// The word of a command line that makes no sense; the others are those of fault classes.
pub const USAGE: &str = "usage";

/// One thing that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// The class of the fault, or [`USAGE`].
    pub class: &'static str,
    /// A bounded word.
    pub reason: &'static str,
    /// The field, where it is about one.
    pub field: Option<String>,
    /// Object and cause.
    pub message: String,
    /// The next step, where the message does not name it.
    pub next: Option<String>,
}

/// The document.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refused<'a> {
    schema_version: u32,
    refused: &'a [Refusal],
}

impl<'a> Refused<'a> {
    /// Creates it.
    pub fn new(refused: &'a [Refusal]) -> Self {
        Self { schema_version: 1, refused }
    }
}

impl Refusal {
    /// Takes an input that is refused.
    pub fn of_input(error: &ModelError, message: String) -> Self {
        Self {
            class: error.class().as_str(),
            reason: error.reason(),
            field: error.field().map(str::to_owned),
            message,
            next: Some(NEXT.to_owned()),
        }
    }
}

/// The next step after an input that is refused.
pub const NEXT: &str = "Correct the document and run it again; nothing was touched.";
