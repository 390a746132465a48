//! The bundle: parts in the order in which they were read, each bounded, in a compressed archive.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tar::{Builder, Header};

use super::super::CliError;
use super::secrets::Secrets;
use crate::model::Timestamp;

/// As much is taken of a part: a screenful a day for months, or thousands of differences.
pub(super) const MAX_PART_BYTES: usize = 1 << 20;

/// Last line of a part that was cut.
const CUT: &str = "\n[cut here]\n";

/// Contents of a part.
#[derive(Debug)]
pub(super) enum Content {
    /// Lines.
    Text(String),
    /// One document.
    Json(Value),
    /// One document a line.
    Lines(Vec<Value>),
}

/// Parts collected so far.
#[derive(Debug)]
pub(super) struct Bundle {
    secrets: Secrets,
    node: String,
    parts: Vec<(&'static str, String)>,
    unread: Vec<(String, String)>,
}

impl Bundle {
    /// Begins a bundle that hides these.
    pub(super) fn new(secrets: Secrets, node: String) -> Self {
        Self { secrets, node, parts: Vec::new(), unread: Vec::new() }
    }

    /// Returns the node's name.
    pub(super) fn node(&self) -> &str {
        &self.node
    }

    /// Lists unreadable files, and why.
    pub(super) fn unread(&self) -> impl Iterator<Item = (&str, &str)> {
        self.unread.iter().map(|(part, why)| (part.as_str(), why.as_str()))
    }

    /// Adds a part, or why it is not there.
    pub(super) fn add(&mut self, name: &'static str, content: Result<Content, String>) {
        match content {
            Ok(content) => {
                let text = match content {
                    Content::Text(text) => self.secrets.redact(&text),
                    Content::Json(value) => format!("{:#}\n", self.secrets.redact_json(value)),
                    Content::Lines(list) => {
                        let lines = list.into_iter().map(|one| self.secrets.redact_json(one).to_string());
                        lines.collect::<Vec<_>>().join("\n") + "\n"
                    }
                };
                self.parts.push((name, bounded(text)));
            }
            Err(why) => self.note(name, &why),
        }
    }

    /// Notes a gap in a part, or a missing part.
    pub(super) fn note(&mut self, part: &str, why: &str) {
        self.unread.push((part.to_owned(), self.secrets.redact(why)));
    }

    /// Packs everything below one directory, with a list of the parts and the gaps.
    pub(super) fn pack(&self, directory: &str, now: Timestamp) -> Result<Vec<u8>, CliError> {
        let unread: Vec<Value> =
            self.unread.iter().map(|(part, why)| json!({ "part": part, "why": why })).collect();
        let parts: Vec<&str> = self.parts.iter().map(|(name, _)| *name).collect();
        let list = json!({
            "schemaVersion": 1,
            "agent": env!("MCA_VERSION"),
            "node": self.node,
            "collected": now.to_string(),
            "parts": parts,
            "unread": unread,
        });
        let list = ("collect.json", format!("{list:#}\n"));
        let encoder = GzEncoder::new(Vec::new(), Compression::default());
        let mut archive = Builder::new(encoder);
        for (name, text) in std::iter::once(&list).chain(&self.parts) {
            let mut header = Header::new_gnu();
            header.set_size(text.len().try_into().unwrap_or(u64::MAX));
            header.set_mode(0o600);
            header.set_mtime(now.micros() / 1_000_000);
            archive
                .append_data(&mut header, format!("{directory}/{name}"), text.as_bytes())
                .map_err(CliError::Output)?;
        }
        let mut encoder = archive.into_inner().map_err(CliError::Output)?;
        encoder.flush().map_err(CliError::Output)?;
        encoder.finish().map_err(CliError::Output)
    }
}

fn bounded(mut text: String) -> String {
    if text.len() > MAX_PART_BYTES {
        let end = (0..=MAX_PART_BYTES).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
        text.push_str(CUT);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_is_bounded_between_characters() {
        let long = bounded("ä".repeat(MAX_PART_BYTES));
        assert!(long.len() <= MAX_PART_BYTES + CUT.len() && long.ends_with(CUT));
        assert_eq!(bounded("short".to_owned()), "short");
    }
}
