//! Files of the state that a newer agent wrote, told from damaged ones: they are refused before anything is touched.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::JournalError;
use crate::model::yaml::redacted;

/// A word of a format: longer ones, and those with other characters, are somebody's content.
const MAX_WORD_CHARS: usize = 40;

/// Reads a file of this version or an older one. Its version counts before the rest is read: that may have another form.
pub(super) fn parse<T: DeserializeOwned>(
    path: &str,
    what: &'static str,
    known: u32,
    bytes: &[u8],
) -> Result<T, JournalError> {
    #[derive(Deserialize)]
    struct Versioned {
        #[serde(rename = "schema")]
        _schema: u64,
    }
    let not_understood = |error| not_understood(path, what, &error);
    check(path, known, bytes)?;
    let Versioned { .. } = serde_json::from_slice(bytes).map_err(not_understood)?;
    serde_json::from_slice(bytes).map_err(not_understood)
}

/// Refuses a file of a newer version. One without a version is its reader's to judge.
pub(super) fn check(path: &str, known: u32, bytes: &[u8]) -> Result<(), JournalError> {
    #[derive(Deserialize, Default)]
    struct Version {
        schema: Option<u64>,
        #[serde(rename = "schemaVersion")]
        of_config: Option<u64>,
    }
    let Version { schema, of_config } = serde_json::from_slice(bytes).unwrap_or_default();
    let Some(schema) = schema.or(of_config).filter(|schema| *schema > u64::from(known)) else {
        return Ok(());
    };
    let found = format!("has schema version {schema}, this agent reads up to {known}");
    Err(JournalError::Newer { path: path.to_owned(), found })
}

/// Returns the error of contents that can't be read: a phase, step or field that a newer agent has, or damage.
pub(super) fn not_understood(path: &str, what: &'static str, error: &serde_json::Error) -> JournalError {
    let text = error.to_string();
    let is_unknown = ["unknown variant `", "unknown field `"].iter().any(|start| text.starts_with(start));
    let place = format!("line {}, column {}", error.line(), error.column());
    if is_unknown {
        let word = text.split('`').nth(1).filter(|word| is_word(word));
        let word = word.map_or_else(|| "a word".to_owned(), |word| format!("{word:?}"));
        let found = format!("holds {word} ({place}), which this agent does not know");
        return JournalError::Newer { path: path.to_owned(), found };
    }
    JournalError::Unreadable { path: path.to_owned(), what, cause: redacted(&text) }
}

fn is_word(text: &str) -> bool {
    text.len() <= MAX_WORD_CHARS
        && text.bytes().all(|byte| byte.is_ascii_alphabetic() || b"-_".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::update::Phase;

    #[derive(Debug, Deserialize)]
    struct File {
        #[serde(rename = "phase")]
        _phase: Phase,
    }

    #[test]
    fn newer_file_is_told_from_damaged_one() {
        let told = |text: &str| match parse::<File>("/f", "a test", 1, text.as_bytes()) {
            Ok(_) => "read".to_owned(),
            Err(error) => format!("{}: {error}", error.reason()),
        };
        for (text, expected) in [
            (r#"{"schema": 1, "phase": {"name": "planned"}}"#, "read"),
            (r#"{"phase": {"name": "planned"}}"#, "StateUnreadable: /f can't be read as a test: the field"),
            (r#"{"schema": 2}"#, "StateNewer: /f has schema version 2, this agent reads up to 1; "),
            (r#"{"schemaVersion": 3, "phase": 1}"#, "StateNewer: /f has schema version 3"),
            (
                r#"{"schema": 1, "phase": {"name": "resting"}}"#,
                "StateNewer: /f holds \"resting\" (line 1, column 41), which",
            ),
            (
                r#"{"schema": 1, "phase": {"name": "hunter 2"}}"#,
                "StateNewer: /f holds a word (line 1, column ",
            ),
            (r#"{"schema": 1, "phase": 1}"#, "StateUnreadable: /f can't be read as a test"),
            (r#"{"schema": 1, "#, "StateUnreadable: /f can't be read"),
            ("", "StateUnreadable: /f can't be read"),
            ("[]", "StateUnreadable: /f can't be read"),
        ] {
            let found = told(text);
            assert!(found.starts_with(expected), "{text}: {found}");
        }
    }
}
