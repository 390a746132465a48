//! Kernel arguments.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::text::short;
use super::{NotApplied, NotAppliedReason};

/// One kernel argument, quotes kept: one word of the kernel's command line (MCD-193).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
        self.key_and_value().starts_with("ostree=")
    }

    /// Returns true if boot loaders add it themselves: it names the files that they load.
    pub fn is_of_boot_loader(&self) -> bool {
        ["BOOT_IMAGE=", "initrd="].iter().any(|name| self.key_and_value().starts_with(name))
    }

    /// The kernel drops a quote at the beginning.
    fn key_and_value(&self) -> &str {
        self.0.trim_start_matches('"')
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

/// bootc's directory of the arguments that an image brings.
pub const IMAGE_KARGS_PATH: &str = "/usr/lib/bootc/kargs.d";

/// Most arguments that are remembered: a kernel's command line holds fewer.
const MAX_FORMER: usize = 512;

/// Arguments that configs of this host have set, so that a left-over of them is told from the host's own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FormerKargs {
    /// For each argument the instances on the command line that no config had set when it became a config's.
    own: BTreeMap<Karg, usize>,
    /// Packages that configs of this host have layered; true for those that the host had requested before. Earlier agents left none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    packages: BTreeMap<String, bool>,
}

impl FormerKargs {
    /// Takes the arguments of the config in that the host is at, also one that it had before this agent: MCD, whose config
    /// is imported, had set them. Only what the command line has beyond them is the host's own.
    pub fn learn_applied(&mut self, config: &[Karg], line: &[Karg]) {
        self.remember(config, |karg| count(line, karg).saturating_sub(count(config, karg)));
    }

    /// Takes the arguments of a config in that comes; the command line is the one before it is applied. What is on it was
    /// there before any config set it: the host's own, which stays when the config leaves. That includes what an installer
    /// took from this config: nothing tells it from the host's.
    pub fn learn(&mut self, config: &[Karg], line: &[Karg]) {
        self.remember(config, |karg| count(line, karg));
    }

    /// Known ones stay as they are: what the host had before its first config counts.
    fn remember(&mut self, config: &[Karg], own: impl Fn(&Karg) -> usize) {
        for karg in config {
            if self.own.len() >= MAX_FORMER || self.own.contains_key(karg) {
                continue;
            }
            self.own.insert(karg.clone(), own(karg));
        }
    }

    /// Takes packages of a config in; `requested` are those that the booted deployment requests before it is applied. Known ones stay as
    /// they are.
    pub fn learn_packages(&mut self, config: &BTreeSet<String>, requested: &BTreeSet<String>) {
        for package in config {
            if self.packages.len() < MAX_FORMER {
                self.packages.entry(package.clone()).or_insert(requested.contains(package));
            }
        }
    }

    /// Returns the requested packages that a config has layered and none wants now: somebody has booted another deployment.
    pub fn left_packages(
        &self,
        requested: &BTreeSet<String>,
        desired: &BTreeSet<String>,
    ) -> BTreeSet<String> {
        let is_own = |package: &String| self.packages.get(package).is_none_or(|is_own| *is_own);
        requested.iter().filter(|one| !desired.contains(*one) && !is_own(one)).cloned().collect()
    }

    /// Returns the instances of an argument that stay on the command line whatever configs want: the host's own, or the
    /// booted image's.
    pub fn kept(&self, karg: &Karg, image: &[Karg]) -> usize {
        count(image, karg).max(self.own.get(karg).copied().unwrap_or_default())
    }

    /// Returns the instances on the command line that a config has set and none wants now. `image` are the arguments of
    /// the booted image itself.
    pub fn left_over(&self, line: &[Karg], desired: &[Karg], image: &[Karg]) -> Vec<Karg> {
        let surplus = |karg: &Karg| {
            let known = count(desired, karg) + self.kept(karg, image);
            let surplus = count(line, karg).saturating_sub(known);
            std::iter::repeat_n(karg.clone(), surplus)
        };
        self.own.keys().flat_map(surplus).collect()
    }
}

/// Reads a file of `kargs.d`, by which an image brings arguments to hosts of one architecture. The error is the cause.
pub fn of_image_file(text: &str, architecture: &str) -> Result<Vec<Karg>, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct File {
        kargs: Vec<String>,
        match_architectures: Option<Vec<String>>,
    }
    let file: File = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    let fits = file.match_architectures.is_none_or(|list| list.iter().any(|one| one == architecture));
    Ok(if fits { file.kargs.iter().flat_map(|karg| Karg::split(karg)).collect() } else { Vec::new() })
}

/// Returns the instances of an argument in a list.
pub fn count(list: &[Karg], karg: &Karg) -> usize {
    list.iter().filter(|other| *other == karg).count()
}

/// Names the entries that hold no argument.
pub(super) fn blank_kargs<'a>(
    field: &'a str,
    entries: &'a [String],
) -> impl Iterator<Item = NotApplied> + 'a {
    let blank = entries.iter().filter(|entry| entry.trim().is_empty());
    blank.map(move |entry| {
        let field = format!("{field} {:?}", short(entry, 100));
        NotApplied::new(field, NotAppliedReason::NoEffect, "it is blank, and sets no argument; remove it")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_image_are_read_for_architecture() {
        let text = "kargs = [\"a=1 b\", \"c\"]\nmatch-architectures = [\"x86_64\"]\n";
        assert_eq!(of_image_file(text, "x86_64").unwrap(), Karg::split("a=1 b c"));
        assert_eq!(of_image_file(text, "aarch64").unwrap(), []);
        assert_eq!(of_image_file("kargs = [\"a\"]", "aarch64").unwrap(), Karg::split("a"));
        assert!(of_image_file("kargs = 1", "x86_64").is_err());
    }

    /// Arguments that a config set and none wants are told from those of the host and its image.
    #[test]
    fn left_over_arguments_are_told_from_own_ones() {
        let split = Karg::split;
        let mut former = FormerKargs::default();
        former.learn_applied(&split("a=1 b c"), &split("rw a=1 a=1 c"));
        // The host had one `a=1` beside the config's, and an administrator added `debug`.
        let left = |line: &str, desired: &str, image: &str| {
            let left = former.left_over(&split(line), &split(desired), &split(image));
            left.iter().map(Karg::as_str).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(left("rw a=1 debug", "", ""), "");
        assert_eq!(left("rw a=1 a=1 b b c debug", "b", ""), "a=1 b c");
        assert_eq!(left("rw b b c", "b c", "b"), "");
        // A config that comes later does not take what the first one had found for its own.
        former.learn(&split("a=1 d"), &split("rw a=1 a=1 a=1 b"));
        assert_eq!(former.left_over(&split("a=1 a=1"), &[], &[]).len(), 1);
    }

    /// An argument that was there before any config set it is the host's own, also if a config lists it as well.
    #[test]
    fn argument_before_first_config_is_own() {
        let split = Karg::split;
        let mut former = FormerKargs::default();
        former.learn_applied(&split("applied"), &split("rw quiet applied"));
        former.learn(&split("quiet applied new"), &split("rw quiet applied"));
        let left = former.left_over(&split("rw quiet applied new"), &[], &[]);
        assert_eq!(left, split("applied new"));
        assert_eq!(former.kept(&split("quiet")[0], &[]), 1);
        // The image's stays as well.
        assert_eq!(former.kept(&split("new")[0], &split("new")), 1);
    }

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
