//! The rules of Ignition's own validation (`config/v3_x/types` of github.com/coreos/ignition): what they refuse would strand a new
//! machine, so it is refused before a node or a machine gets it.
//!
//! One pass over the config, which is borrowed; all violations are found, in the order of the schema. `minor` is that of the spec
//! version: rules came and went with it, and a field that the version does not know is ignored, as Ignition ignores it.
//!
//! Left to the readers beside this folder, which are stricter than Ignition: names and paths of units and drop-ins, the contents of
//! files, entries of the same path or name that these have. A few rules go further, because Ignition would fail on the machine: a
//! node below a file, a link without a target in old versions, a path of over 4095 bytes, a partition without a number
//! beside one that is to go (before 2.27), a digest that is not hexadecimal.

mod disks;
mod header;
mod luks;
mod nodes;
mod passwd;
mod resource;
mod unit_text;
mod units;
mod url;

use std::collections::HashSet;

use ignition_config::v3_6::Config;

use super::super::text::short;

pub(super) use header::names_configs;

/// A rule that a config breaks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Violation {
    /// The field, such as `storage.raid "md0" level`.
    pub(super) field: String,
    /// Cause and next step.
    pub(super) cause: String,
}

/// Collects violations.
#[derive(Debug, Default)]
struct Found(Vec<Violation>);

impl Found {
    fn add(&mut self, field: impl Into<String>, cause: impl Into<String>) {
        self.0.push(Violation { field: field.into(), cause: cause.into() });
    }

    /// Adds the cause, if there is one.
    fn add_some(&mut self, cause: Option<impl Into<String>>, field: impl FnOnce() -> String) {
        if let Some(cause) = cause {
            self.add(field(), cause);
        }
    }

    /// Adds each item of a list that is there already. The list is known by the names of its items.
    fn add_repeated<'a>(
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

/// Returns every rule that the config breaks.
pub(super) fn check(config: &Config, minor: u32) -> Vec<Violation> {
    let mut found = Found::default();
    header::check(&mut found, &config.ignition, minor);
    if let Some(arguments) = config.kernel_arguments.as_ref().filter(|_| minor >= 3) {
        header::check_arguments(&mut found, arguments);
    }
    if let Some(passwd) = &config.passwd {
        passwd::check(&mut found, passwd);
    }
    let units = config.systemd.as_ref().and_then(|systemd| systemd.units.as_deref()).unwrap_or_default();
    if let Some(storage) = &config.storage {
        nodes::check(&mut found, storage, units, minor);
        disks::check(&mut found, storage, minor);
        let luks = storage.luks.as_deref().filter(|_| minor >= 2).unwrap_or_default();
        luks::check(&mut found, luks, minor);
    }
    units::check(&mut found, units);
    found.0
}

/// The longest path that the kernel takes.
const MAX_PATH: usize = 4095;

/// Returns why a path is refused: Ignition takes absolute ones in their shortest form.
fn broken_path(path: &str) -> Option<&'static str> {
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
fn entry(list: &str, name: &str) -> String {
    format!("{list} {:?}", short(name, 200))
}

/// Returns the text, if there is one: for Ignition, an empty one is none.
fn filled(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}
