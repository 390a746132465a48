//! From a text or a tree to a typed value: what it has, which fields nobody knows, and which field is wrong.
//!
//! Both programs read all their kinds through this, so a field that is mistyped is found once and named alike. A typed reading ends at the
//! first value that its field does not take. The same text is read again behind it, so that a person corrects a document once; nothing
//! of such a reading is used but its faults.

mod mends;
mod metadata;
mod newer;
mod tracked;

use serde::Deserialize;
use serde_json::Value;

use super::error::ModelError;
use super::faults::{Faults, MAX_FAULTS};
use super::not_applied::{NotApplied, NotAppliedReason};
use super::text::short;
use super::yaml::redacted;
use mends::{Mends, missing};
use tracked::{At, Sink, Tracked, Unknown};

pub use mends::below;
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
    /// Further faults of the document.
    others: Vec<Fault>,
}

impl Fault {
    /// Takes an error, and the place of it.
    fn new(error: serde_json::Error, at: &str) -> Self {
        let field = missing(&error).map_or_else(|| at.to_owned(), |missing| below(at, &missing));
        Self { field, error, others: Vec::new() }
    }

    /// Takes all of a document.
    fn of_all(found: Vec<Self>) -> Option<Self> {
        let mut found = found.into_iter();
        let first = found.next()?;
        Some(Self { others: found.collect(), ..first })
    }

    /// Returns true if the text is valid, but a value is not.
    pub fn is_data(&self) -> bool {
        self.error.is_data()
    }

    /// Returns true if the field is not there.
    pub fn is_missing(&self) -> bool {
        missing(&self.error).is_some()
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

    /// Returns the error of a document: of several faults one that names all.
    pub fn in_document(&self, document: &str) -> ModelError {
        let mut faults = Faults::default();
        faults.add(self.alone_in(document));
        self.others.iter().for_each(|other| faults.add(other.alone_in(document)));
        faults.into_error().unwrap_or_else(|| self.alone_in(document))
    }

    fn alone_in(&self, document: &str) -> ModelError {
        let (document, cause) = (short(document, 300), short(&self.cause(), 500));
        if self.field.is_empty() {
            return ModelError::Document { document, cause };
        }
        ModelError::InDocument { document, field: self.field.clone(), cause }
    }
}

/// Reads a JSON text.
pub fn from_text<'de, T: Deserialize<'de>>(text: &'de str) -> Result<Found<T>, Fault> {
    found(text.len(), |sink| read_text(text, sink))
}

fn read_text<'de, T: Deserialize<'de>>(text: &'de str, sink: &Sink) -> Result<T, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_str(text);
    let read = T::deserialize(Tracked { inner: &mut json, at: &At::Root, sink });
    read.and_then(|value| json.end().map(|()| value))
}

/// Reads a tree.
pub fn from_tree<'de, T: Deserialize<'de>>(tree: &'de Value) -> Result<Found<T>, Fault> {
    // About as much as a usual config.
    const SIZE: usize = 1 << 20;
    found(SIZE, |sink| T::deserialize(Tracked { inner: tree, at: &At::Root, sink }))
}

fn found<T>(size: usize, read: impl Fn(&Sink) -> Result<T, serde_json::Error>) -> Result<Found<T>, Fault> {
    let sink = Sink::default();
    let value = read(&sink);
    let (unknown, more, failed, _) = sink.into_parts();
    match value {
        Ok(value) => Ok(Found { value, unknown: remarks(&unknown, more) }),
        Err(error) if error.is_data() => {
            let first = Fault::new(error, &failed.unwrap_or_default());
            Err(Fault::of_all(mended(size, read).faults).unwrap_or(first))
        }
        Err(error) => Err(Fault::new(error, "")),
    }
}

/// Puts the fields below another one.
pub fn all_below(above: &str, fields: Vec<NotApplied>) -> impl Iterator<Item = NotApplied> {
    fields.into_iter().map(move |field| NotApplied { field: below(above, &field.field), ..field })
}

/// Bytes that the readings of one document may take together: the largest one gets a few readings, each usual one as many as it needs.
const MAX_READ: usize = 64 << 20;

/// A document as far as it can be read.
#[derive(Debug)]
pub struct Mended<T> {
    /// Its value, with stand-ins; `None` where too much is wrong.
    pub value: Option<T>,
    /// The fields that its type does not have.
    pub unknown: Vec<NotApplied>,
    /// All values of another type than their fields have.
    pub faults: Vec<Fault>,
    mends: Mends,
}

impl<T> Mended<T> {
    /// Returns a text about the value for people: stand-ins are no values of the document, and entries that could not be read count.
    pub fn explain(&self, text: &str) -> String {
        let mut text = self.mends.without_stand_ins(text);
        for (list, left_out) in self.mends.left_out() {
            let Some(rest) = text.strip_prefix(list).and_then(|rest| rest.strip_prefix('[')) else {
                continue;
            };
            let Some((index, rest)) = rest.split_once(']') else { continue };
            if let Some(index) = index.parse::<usize>().ok().filter(|index| *index >= left_out) {
                text = format!("{list}[{}]{rest}", index + 1);
            }
        }
        text
    }

    /// Returns true if a field, or one above it, has been told of.
    pub fn is_told(&self, field: &str) -> bool {
        self.faults.iter().any(|fault| {
            let rest = field.strip_prefix(fault.field.as_str()).filter(|_| !fault.field.is_empty());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
    }
}

/// Reads a JSON text as far as it goes.
pub fn mended_text<'de, T: Deserialize<'de>>(text: &'de str) -> Mended<T> {
    mended(text.len(), |sink| read_text(text, sink))
}

/// Reads as far as it goes: `read` is one reading of `size` bytes.
fn mended<T>(size: usize, read: impl Fn(&Sink) -> Result<T, serde_json::Error>) -> Mended<T> {
    let (mut mends, mut faults) = (Mends::default(), Vec::new());
    let most = (MAX_READ / size.max(1)).clamp(4, 2 * MAX_FAULTS);
    for _ in 0..most {
        let sink = Sink::with(mends);
        let value = read(&sink);
        let (unknown, more, failed, used) = sink.into_parts();
        mends = used;
        let unknown = remarks(&unknown, more);
        let error = match value {
            Ok(value) => return Mended { value: Some(value), unknown, faults, mends },
            Err(error) => error,
        };
        let at = if error.is_data() { failed.unwrap_or_default() } else { String::new() };
        let (goes_on, is_new) = mends.add(&error, &at);
        let goes_on = goes_on && error.is_data();
        if is_new {
            faults.push(Fault::new(error, &at));
        }
        if !goes_on {
            return Mended { value: None, unknown, faults, mends };
        }
    }
    Mended { value: None, unknown: Vec::new(), faults, mends }
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
