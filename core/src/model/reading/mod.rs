//! From a text or a tree to a typed value: what it has, which fields nobody knows, and which field is wrong.
//!
//! Both programs read all their kinds through this, so a field that is mistyped is found once and named alike.

mod metadata;
mod newer;
mod tracked;

use serde::Deserialize;
use serde_json::Value;

use super::error::ModelError;
use super::not_applied::{NotApplied, NotAppliedReason};
use super::text::short;
use super::yaml::redacted;
use tracked::{At, Sink, Tracked, Unknown};

pub(super) use metadata::Metadata;
pub(super) use newer::newer;

/// A value, and the fields beside it that its type does not have.
#[derive(Debug)]
pub struct Found<T> {
    /// The value.
    pub value: T,
    /// The fields.
    pub unknown: Vec<NotApplied>,
}

/// A value of another type than its field has.
#[derive(Debug)]
pub struct Fault {
    /// The field; empty where the text is broken, or the whole is wrong.
    pub field: String,
    error: serde_json::Error,
}

impl Fault {
    /// Returns true if the text is valid, but a value is not.
    pub fn is_data(&self) -> bool {
        self.error.is_data()
    }

    /// Returns the parser's message, without the value that it is about.
    pub fn cause(&self) -> String {
        if missing(&self.error).is_some() {
            return "it is missing".to_owned();
        }
        let text = self.error.to_string();
        // The place in the compact text: the field says more.
        let text = if self.is_data() && !self.field.is_empty() {
            text.split(" at line ").next().unwrap_or_default()
        } else {
            &text
        };
        redacted(text)
    }

    /// Returns the error of a document.
    pub fn in_document(&self, document: &str) -> ModelError {
        let (document, cause) = (short(document, 300), short(&self.cause(), 500));
        if self.field.is_empty() {
            return ModelError::Document { document, cause };
        }
        ModelError::InDocument { document, field: self.field.clone(), cause }
    }
}

/// Reads a JSON text.
pub fn from_text<'de, T: Deserialize<'de>>(text: &'de str) -> Result<Found<T>, Fault> {
    let mut json = serde_json::Deserializer::from_str(text);
    let sink = Sink::default();
    let read = T::deserialize(Tracked { inner: &mut json, at: &At::Root, sink: &sink });
    found(read.and_then(|value| json.end().map(|()| value)), sink)
}

/// Reads a tree.
pub fn from_tree<'de, T: Deserialize<'de>>(tree: &'de Value) -> Result<Found<T>, Fault> {
    let sink = Sink::default();
    found(T::deserialize(Tracked { inner: tree, at: &At::Root, sink: &sink }), sink)
}

fn found<T>(read: Result<T, serde_json::Error>, sink: Sink) -> Result<Found<T>, Fault> {
    let (unknown, more, failed) = sink.into_parts();
    match read {
        Ok(value) => Ok(Found { value, unknown: remarks(&unknown, more) }),
        Err(error) => {
            let at = if error.is_data() { failed.unwrap_or_default() } else { String::new() };
            let field = missing(&error).map_or(at.clone(), |missing| below(&at, &missing));
            Err(Fault { field, error })
        }
    }
}

/// Returns the field that a message misses.
fn missing(error: &serde_json::Error) -> Option<String> {
    let text = error.to_string();
    let name = text.strip_prefix("missing field `")?.split('`').next()?;
    Some(name.to_owned())
}

/// Returns the path of a field below another.
pub fn below(above: &str, name: &str) -> String {
    match (above, name) {
        ("", name) => name.to_owned(),
        (above, "") => above.to_owned(),
        (above, name) => format!("{above}.{name}"),
    }
}

/// Puts the fields below another one.
pub fn all_below(above: &str, fields: Vec<NotApplied>) -> impl Iterator<Item = NotApplied> {
    fields.into_iter().map(move |field| NotApplied { field: below(above, &field.field), ..field })
}

/// Names unknown fields; the last one says how many more there are.
fn remarks(unknown: &[Unknown], more: usize) -> Vec<NotApplied> {
    let mut remarks: Vec<NotApplied> = unknown.iter().map(remark).collect();
    if more > 0
        && let Some(last) = remarks.last_mut()
    {
        last.message += &format!(", and the document has {more} more of them");
    }
    remarks
}

fn remark(unknown: &Unknown) -> NotApplied {
    // In brackets: more text follows in a list of several.
    let meant = suggestion(&unknown.name, unknown.known)
        .map(|meant| format!(" (did you mean {meant}?)"))
        .unwrap_or_default();
    let message = format!("there is no such field{meant}");
    NotApplied::new(unknown.field.clone(), NotAppliedReason::UnknownField, message)
}

/// Refuses fields that nobody knows: what a person gives says what it means.
pub fn refuse_unknown(remarks: &[NotApplied], document: &str) -> Result<(), ModelError> {
    let unknown = remarks.iter().filter(|remark| remark.because == NotAppliedReason::UnknownField);
    let fields: Vec<NotApplied> = unknown.cloned().collect();
    if fields.is_empty() {
        return Ok(());
    }
    Err(ModelError::UnknownFields { document: short(document, 300), fields })
}

/// Returns the known name that a name is nearest to.
fn suggestion(name: &str, known: &[&'static str]) -> Option<&'static str> {
    if name.len() > 64 {
        return None;
    }
    let near = known.iter().map(|known| (distance(name, known), *known));
    // A third of the letters: `kernelArgs` is kernelArguments, and `files` is not `links`.
    let near = near.filter(|(distance, known)| distance * 3 <= known.len().max(name.len()));
    near.min().map(|(_, known)| known)
}

/// Returns the number of letters to insert, drop or replace; capitals are no difference.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.to_lowercase().chars().enumerate() {
        let mut next = vec![index + 1];
        for (&expected, pair) in other.iter().zip(row.windows(2)) {
            let (diagonal, above) = (pair.first().copied().unwrap_or(0), pair.last().copied().unwrap_or(0));
            let left = next.last().copied().unwrap_or(0);
            let replaced = diagonal + usize::from(expected != letter);
            next.push(replaced.min(above + 1).min(left + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests;
