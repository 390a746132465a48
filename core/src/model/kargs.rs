//! Kernel arguments.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One kernel argument, quotes kept: one word of the kernel's command line (MCD-193).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Karg(String);

impl Karg {
    /// Splits a command line as the kernel does: white space separates unless inside `"`; there is no escape.
    pub fn split(line: &str) -> Vec<Self> {
        let mut quoted = false;
        line.split(|c: char| {
            quoted ^= c == '"';
            !quoted && matches!(c, ' ' | '\x0c' | '\n' | '\r' | '\t' | '\x0b')
        })
        .filter(|word| !word.is_empty())
        .map(|word| Self(word.to_owned()))
        .collect()
    }

    /// Removes one instance of each argument, the last one (ours were added at the end), and adds the new ones.
    pub fn changed(mut line: Vec<Self>, delete: &[Self], append: &[Self]) -> Vec<Self> {
        for gone in delete {
            if let Some(at) = line.iter().rposition(|karg| karg == gone) {
                line.remove(at);
            }
        }
        line.extend_from_slice(append);
        line
    }

    /// Returns true if libostree sets it itself: it names the deployment.
    pub fn is_of_ostree(&self) -> bool {
        self.0.starts_with("ostree=")
    }

    /// Returns true if boot loaders add it themselves: it names the files that they load.
    pub fn is_of_boot_loader(&self) -> bool {
        ["BOOT_IMAGE=", "initrd="].iter().any(|name| self.0.starts_with(name))
    }

    /// Returns the argument.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Karg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_like_kernel() {
        let words = Karg::split("a  b=\"c d\"\te\n\"f g\"=1 ");
        let words: Vec<_> = words.iter().map(Karg::as_str).collect();
        assert_eq!(words, ["a", "b=\"c d\"", "e", "\"f g\"=1"]);
    }

    /// MCD-192: all deletions, one instance each, then all additions in order; duplicates stay duplicates.
    #[test]
    fn deletes_first_and_appends_in_order() {
        let line = Karg::split("rw a=1 quiet a=1 c=\"x y\"");
        let changed = Karg::changed(line, &Karg::split("a=1 absent quiet"), &Karg::split("b b c=\"x y\""));
        let words: Vec<_> = changed.iter().map(Karg::as_str).collect();
        assert_eq!(words, ["rw", "a=1", "c=\"x y\"", "b", "b", "c=\"x y\""]);
    }
}
