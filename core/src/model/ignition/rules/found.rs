//! Violations as they are found, and the words that all rules share.

use std::collections::HashSet;

use super::super::super::text::short;

/// A rule that a config breaks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in super::super) struct Violation {
    /// The field, such as `storage.raid "md0" level`.
    pub(in super::super) field: String,
    /// Cause and next step.
    pub(in super::super) cause: String,
}

/// Collects violations.
#[derive(Debug, Default)]
pub(super) struct Found(pub(super) Vec<Violation>);

impl Found {
    pub(super) fn add(&mut self, field: impl Into<String>, cause: impl Into<String>) {
        self.0.push(Violation { field: field.into(), cause: cause.into() });
    }

    /// Adds the cause, if there is one.
    pub(super) fn add_some(&mut self, cause: Option<impl Into<String>>, field: impl FnOnce() -> String) {
        if let Some(cause) = cause {
            self.add(field(), cause);
        }
    }

    /// Adds each item of a list that is there already. The list is known by the names of its items.
    pub(super) fn add_repeated<'a>(
        &mut self,
        items: impl IntoIterator<Item = &'a str>,
        field: impl Fn(usize, &str) -> String,
    ) {
        let mut known = HashSet::new();
        for (place, item) in items.into_iter().enumerate() {
            if !known.insert(item) {
                self.add(field(place, item), "it is listed twice; keep one entry");
            }
        }
    }
}

/// The longest path that the kernel takes.
pub(super) const MAX_PATH: usize = 4095;

/// Returns why a path is refused: Ignition takes absolute ones in their shortest form.
pub(super) fn broken_path(path: &str) -> Option<&'static str> {
    let Some(relative) = path.strip_prefix('/') else {
        return Some(if path.is_empty() {
            "it is missing; write an absolute path"
        } else {
            "it is relative; write an absolute path"
        });
    };
    if path.len() > MAX_PATH {
        return Some("it is longer than 4095 bytes; shorten it");
    }
    let is_clean = path == "/" || relative.split('/').all(|part| !matches!(part, "" | "." | ".."));
    (!is_clean)
        .then_some("it is not in its shortest form; write it without `//`, `.`, `..` and a `/` at its end")
}

/// Returns an entry as errors name it.
pub(super) fn entry(list: &str, name: &str) -> String {
    format!("{list} {:?}", short(name, 200))
}

/// Returns the text, if there is one: for Ignition, an empty one is none.
pub(super) fn filled(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}
