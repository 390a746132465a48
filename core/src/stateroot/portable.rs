//! The parts of `/etc` and `/var` that a seed has: what is known to be portable, and nothing else.
//!
//! # Decisions
//! 1. Taken are files of packages that differ from the image's, files of the committed config, a short list of known ones, links
//!    into the image, and paths that an administrator declares. A list of what is not portable can't be complete.
//! 2. `left_out` comes first: identity is never declared portable.
//! 3. What would be taken and looks like a key refuses the seed, unless it is named by its whole path. A file of the config is left
//!    out: its config brings it to each host.
//! 4. A directory of which nothing is taken is not entered: whoever owns it can't prolong the work.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::left_out::covers;
use super::{LeftOutClass, PortableConfig, SeedError, SeedPath, class};
use crate::model::short;
use crate::model::text::escaped;

/// Portable paths of each host, beside packages and config: accounts (without passwords) and locale.
pub const KNOWN: [&str; 9] = [
    "etc/group",
    "etc/gshadow",
    "etc/locale.conf",
    "etc/machine-config-agent/settings.toml",
    "etc/passwd",
    "etc/shadow",
    "etc/subgid",
    "etc/subuid",
    "etc/vconsole.conf",
];

/// The files of accounts, whose second field is a password or its hash.
const ACCOUNTS: [&str; 4] = ["etc/group", "etc/gshadow", "etc/passwd", "etc/shadow"];

/// The committed config, of which a seed has a copy of its own.
pub const COMMITTED_CONFIG: &str = "etc/machine-config-daemon/currentconfig";

/// Most paths that a refusal names; the list names all.
const MAX_REFUSALS: usize = 20;

/// Reason why a seed has or lacks a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Because {
    /// A file of a package that differs from the image's.
    Package,
    /// A file of the committed config.
    Config,
    /// An administrator has declared it.
    Declared,
    /// It is portable on each host.
    Known,
    /// A link to a file of the image or of the config.
    Link,
    /// A directory above something that is taken.
    Above,
    /// It looks like a key, and was named.
    Named,
    /// Each host has its own.
    Identity,
    /// It is of the seed's cluster.
    Cluster,
    /// It is valid only on this host and at this time.
    Moment,
    /// An administrator leaves it out.
    Excluded,
    /// It is not known as portable.
    Undeclared,
    /// A file of the config that looks like a key: the config brings it.
    ConfigSecret,
    /// It would be taken, and looks like a key: the seed is refused.
    LooksSecret,
    /// It would be taken, and is more than a seed takes: the seed is refused.
    TooMuch,
}

impl Because {
    /// Returns true if a seed has the path.
    pub fn is_taken(self) -> bool {
        matches!(
            self,
            Self::Package
                | Self::Config
                | Self::Declared
                | Self::Known
                | Self::Link
                | Self::Above
                | Self::Named
        )
    }

    /// Returns true if the seed is refused for it.
    pub fn is_refusal(self) -> bool {
        matches!(self, Self::LooksSecret | Self::TooMuch)
    }

    /// Returns it as people read it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Package => "a package's file that differs here",
            Self::Config => "of the committed config",
            Self::Declared => "declared",
            Self::Known => "portable on each host",
            Self::Link => "a link to a file that the seed has",
            Self::Above => "a directory above",
            Self::Named => "named as a secret that is taken",
            Self::Identity => "each host has its own",
            Self::Cluster => "of this cluster",
            Self::Moment => "good for this host and now only",
            Self::Excluded => "excluded",
            Self::Undeclared => "not known to be portable",
            Self::ConfigSecret => "looks like a secret; the config brings it",
            Self::LooksSecret | Self::TooMuch => "refused",
        }
    }
}

impl From<LeftOutClass> for Because {
    fn from(class: LeftOutClass) -> Self {
        match class {
            LeftOutClass::Identity => Self::Identity,
            LeftOutClass::Cluster => Self::Cluster,
            LeftOutClass::Moment => Self::Moment,
        }
    }
}

/// One line of the list: a path outside of packages, or a file of one that differs. A directory of which nothing is taken, whose path
/// ends with a slash, stands for all below it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SeedEntry {
    /// The path.
    pub path: String,
    /// Reason for which the seed has it, or has it not.
    pub because: Because,
    /// The cause of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

/// Kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeenKind<'a> {
    /// A directory.
    Directory,
    /// A link, and its target.
    Link(&'a str),
    /// A file, or anything else.
    File,
}

/// The image's file of the same path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InImage {
    /// There is none.
    Absent,
    /// It is the same.
    Same,
    /// It is another one.
    Differs,
}

/// Decision about a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is taken, if its contents are no secret.
    Take(Because),
    /// It is the image's: it is not taken; what is below it is looked at.
    Image,
    /// It is left out, with all below it.
    Leave(Because),
}

/// Rules by which paths of this host are portable.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SeedRules {
    /// The paths of the committed config, without links on the way.
    pub managed: BTreeSet<String>,
    /// Those of them that look like a key.
    pub withheld: BTreeSet<String>,
    /// The paths that are declared portable.
    pub included: Vec<SeedPath>,
    /// The files that are taken although they look like a key.
    pub named: Vec<SeedPath>,
    /// The paths that are left out.
    pub excluded: Vec<SeedPath>,
}

/// The paths that a person names for a seed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeedPaths {
    /// Those that are declared portable.
    pub included: Vec<SeedPath>,
    /// Files that are taken although they look like a key.
    pub named: Vec<SeedPath>,
    /// Those that are left out.
    pub excluded: Vec<SeedPath>,
}

impl SeedPaths {
    /// Reads the paths; one that no seed has is an error.
    pub fn new(included: &[String], named: &[String], excluded: &[String]) -> Result<Self, SeedError> {
        let read =
            |texts: &[String]| texts.iter().map(|text| SeedPath::new(text)).collect::<Result<Vec<_>, _>>();
        let paths = Self { included: read(included)?, named: read(named)?, excluded: read(excluded)? };
        let taken =
            paths.included.iter().chain(&paths.named).filter(|path| path.as_str() != COMMITTED_CONFIG);
        for path in taken {
            if let Some(class) = class(path.as_str()) {
                return Err(SeedError::NotPortable {
                    path: String::from(path.clone()),
                    because: Because::from(class).as_str(),
                });
            }
        }
        Ok(paths)
    }
}

impl SeedRules {
    /// Takes what the config says, and what a person names.
    pub fn new(config: &PortableConfig, paths: SeedPaths) -> Self {
        let SeedPaths { included, named, excluded } = paths;
        Self { managed: config.managed.clone(), withheld: config.withheld.clone(), included, named, excluded }
    }

    /// Returns the lines that refuse the seed because of the config itself.
    pub fn of_config(&self, config: &PortableConfig) -> Vec<SeedEntry> {
        if self.is_named(COMMITTED_CONFIG) {
            return Vec::new();
        }
        let entry = |(pointer, cause): &(String, &str)| SeedEntry {
            path: format!("/{COMMITTED_CONFIG}"),
            because: Because::LooksSecret,
            cause: Some(format!("its {} looks like {cause}", short(&escaped(pointer), 200))),
        };
        config.suspicious.iter().map(entry).collect()
    }

    /// Decides about a path below the root, without its first slash.
    pub fn decide(&self, path: &str, kind: SeenKind<'_>, image: InImage) -> Verdict {
        if let Some(class) = class(path) {
            return Verdict::Leave(class.into());
        }
        if self.is_excluded(path) {
            return Verdict::Leave(Because::Excluded);
        }
        if self.withheld.contains(path) && !self.is_named(path) {
            return Verdict::Leave(Because::ConfigSecret);
        }
        if image == InImage::Same {
            return Verdict::Image;
        }
        if let Some(because) =
            self.portable(path).filter(|_| image == InImage::Absent || kind != SeenKind::Directory)
        {
            return Verdict::Take(because);
        }
        match (image, kind) {
            (InImage::Differs, _) => Verdict::Take(Because::Package),
            (_, SeenKind::Directory) if self.leads(path) => Verdict::Take(Because::Above),
            (_, SeenKind::Link(target)) if self.is_portable_target(path, target) => {
                Verdict::Take(Because::Link)
            }
            (InImage::Absent | InImage::Same, _) => Verdict::Leave(Because::Undeclared),
        }
    }

    /// Returns why a path is portable by itself.
    fn portable(&self, path: &str) -> Option<Because> {
        match () {
            () if self.is_named(path) => Some(Because::Named),
            () if self.managed.contains(path) => Some(Because::Config),
            () if KNOWN.contains(&path) => Some(Because::Known),
            () if self.included.iter().any(|own| covers(own.as_str(), path)) => Some(Because::Declared),
            () => None,
        }
    }

    /// Returns the verdict on a path that would be taken and looks like a key.
    pub fn of_secret(because: Because) -> Because {
        match () {
            () if because == Because::Named => because,
            () if because == Because::Config => Because::ConfigSecret,
            () => Because::LooksSecret,
        }
    }

    /// Returns true if a path is left out by an administrator.
    pub fn is_excluded(&self, path: &str) -> bool {
        self.excluded.iter().any(|own| covers(own.as_str(), path))
    }

    /// A secret is named by its whole path: a pattern may stand for what nobody has thought of.
    fn is_named(&self, path: &str) -> bool {
        self.named.iter().any(|own| own.as_str() == path)
    }

    /// Returns true if something below a directory may be taken.
    fn leads(&self, path: &str) -> bool {
        self.candidates().any(|candidate| after(candidate, path).is_some())
    }

    fn candidates(&self) -> impl Iterator<Item = &str> {
        let patterns = self.included.iter().chain(&self.named).map(SeedPath::as_str);
        self.managed
            .iter()
            .chain(&self.withheld)
            .map(String::as_str)
            .chain(patterns)
            .chain(KNOWN)
            .chain([COMMITTED_CONFIG])
    }

    /// Returns the names in a directory that lead on to something that may be taken; `None` if any name does.
    ///
    /// Such a directory is not read: whoever may write into it could fill it with names.
    pub fn names_below(&self, path: &str) -> Option<BTreeSet<String>> {
        if self.included.iter().any(|own| covers(own.as_str(), path)) {
            return None;
        }
        let names = self.candidates().filter_map(|candidate| after(candidate, path));
        let names: BTreeSet<String> = names.map(str::to_owned).collect();
        (!names.iter().any(|name| name.contains('*'))).then_some(names)
    }

    /// Returns true if a link leads into the image, or to a file of the config, or turns a unit off.
    fn is_portable_target(&self, path: &str, target: &str) -> bool {
        let target = resolved(path, target);
        target == "dev/null" || target.starts_with("usr/") || self.managed.contains(&target)
    }
}

/// Refuses a seed for the lines of its list that say so.
pub fn refuse_secrets(entries: &[SeedEntry]) -> Result<(), SeedError> {
    let refusals: Vec<&SeedEntry> = entries.iter().filter(|entry| entry.because.is_refusal()).collect();
    if refusals.is_empty() {
        return Ok(());
    }
    let shown = refusals
        .iter()
        .take(MAX_REFUSALS)
        .map(|entry| format!("{}: {}", short(&entry.path, 200), entry.cause.as_deref().unwrap_or_default()));
    Err(SeedError::Unportable { paths: shown.collect(), more: refusals.len().saturating_sub(MAX_REFUSALS) })
}

/// Returns the name that follows a directory in a pattern below it.
fn after<'a>(pattern: &'a str, directory: &str) -> Option<&'a str> {
    let mut names = pattern.split('/');
    let is_above =
        directory.split('/').all(|name| names.next().is_some_and(|own| super::left_out::matches(own, name)));
    names.next().filter(|_| is_above)
}

/// Returns the target of a link as a path below the root, by its text.
fn resolved(path: &str, target: &str) -> String {
    let mut names: Vec<&str> = if target.starts_with('/') { Vec::new() } else { path.split('/').collect() };
    // The link's own name.
    names.pop();
    for name in target.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    names.join("/")
}

/// Returns true if a path is a file of accounts: it is taken without passwords.
pub fn is_of_accounts(path: &str) -> bool {
    ACCOUNTS.contains(&path)
}

/// Returns a file of accounts without passwords: who had one has none, and logs in by a key or not at all.
pub fn without_passwords(text: &[u8]) -> Vec<u8> {
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    lines.flat_map(|line| without_password(line).into_owned()).collect()
}

fn without_password(line: &[u8]) -> Cow<'_, [u8]> {
    let mut colons = line.iter().enumerate().filter(|(_, byte)| **byte == b':').map(|(at, _)| at);
    let (Some(begin), Some(end)) = (colons.next(), colons.next()) else { return Cow::Borrowed(line) };
    let password = line.get(begin + 1..end).unwrap_or_default();
    let locks = password.iter().take_while(|byte| matches!(byte, b'!' | b'*')).count();
    let rest = password.get(locks..).unwrap_or_default();
    // A group's mark is a name; of a hash no part is.
    let is_name = rest.iter().all(|byte| byte.is_ascii_lowercase() || *byte == b'-');
    if rest.is_empty() || rest == b"x" || (locks > 0 && is_name) {
        return Cow::Borrowed(line);
    }
    let mark: &[u8] = if locks > 0 { b"!" } else { b"*" };
    let (head, tail) = (line.get(..=begin).unwrap_or_default(), line.get(end..).unwrap_or_default());
    Cow::Owned([head, mark, tail].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> SeedRules {
        let paths =
            |texts: &[&str]| texts.iter().map(|text| SeedPath::new(text).unwrap()).collect::<Vec<_>>();
        let managed = [
            "etc/app/a.conf",
            "etc/systemd/system/app.service",
            "var/home/core/.ssh/authorized_keys.d/ignition",
        ];
        SeedRules {
            managed: managed.map(str::to_owned).into(),
            withheld: ["etc/app/token".to_owned()].into(),
            included: paths(&["/var/lib/app", "/etc/own/*.d"]),
            named: paths(&["/etc/own/key"]),
            excluded: paths(&["/var/lib/app/cache"]),
        }
    }

    #[test]
    fn only_portable_paths_are_taken() {
        use Because::*;
        use InImage::{Absent, Differs, Same};
        use SeenKind::{Directory, File, Link};
        use Verdict::{Image, Leave, Take};
        let rules = rules();
        for (path, kind, image, expected) in [
            ("etc/chrony.conf", File, Differs, Take(Package)),
            ("etc/chrony.conf", File, Same, Image),
            ("etc/app", Directory, Absent, Take(Above)),
            ("etc/app/a.conf", File, Absent, Take(Config)),
            ("etc/app/a.conf", File, Differs, Take(Config)),
            ("etc/app/b.conf", File, Absent, Leave(Undeclared)),
            ("etc/app/token", File, Differs, Leave(ConfigSecret)),
            ("etc/machine-id", File, Differs, Leave(Identity)),
            ("etc/shadow", File, Differs, Take(Known)),
            ("etc/shadow-", File, Absent, Leave(Moment)),
            ("etc/other", Directory, Absent, Leave(Undeclared)),
            ("etc/systemd", Directory, Same, Image),
            ("etc/own/key", File, Absent, Take(Named)),
            ("etc/own/a.d/x", File, Absent, Take(Declared)),
            ("etc/localtime", Link("../usr/share/zoneinfo/UTC"), Absent, Take(Link_)),
            ("etc/x", Link("/var/lib/token"), Absent, Leave(Undeclared)),
            (
                "etc/systemd/system/a.wants/app.service",
                Link("/etc/systemd/system/app.service"),
                Absent,
                Take(Link_),
            ),
            ("etc/systemd/system/b.service", Link("/dev/null"), Absent, Take(Link_)),
            ("var/lib/app/data", File, Absent, Take(Declared)),
            ("var/lib/app/cache/x", File, Absent, Leave(Excluded)),
            ("var/lib", Directory, Absent, Take(Above)),
            ("var/lib/other", Directory, Absent, Leave(Undeclared)),
            ("var/home/core", Directory, Absent, Take(Above)),
            ("var/home/core/.ssh/id_rsa", File, Absent, Leave(Cluster)),
            ("var/lib/etcd/db", File, Absent, Leave(Cluster)),
        ] {
            assert_eq!(rules.decide(path, kind, image), expected, "{path}");
        }
    }

    use Because::Link as Link_;

    #[test]
    fn directories_above_are_not_read() {
        let names = |path: &str| rules().names_below(path).map(|names| names.into_iter().collect::<Vec<_>>());
        assert_eq!(names("var").unwrap(), ["home", "lib"]);
        assert_eq!(names("var/home/core").unwrap(), [".ssh"]);
        assert_eq!((names("var/lib/app"), names("var/lib/app/x"), names("etc/own")), (None, None, None));
    }

    #[test]
    fn accounts_have_no_passwords() {
        let shadow = b"root:!:1::\nbin:*:1::\ncore:$6$a$b:1::\nx:!$6$a$b:1::\nold:abJnggxhB/yWI:1::\nd:!!:1::\nno line\n";
        let expected = "root:!:1::\nbin:*:1::\ncore:*:1::\nx:!:1::\nold:*:1::\nd:!!:1::\nno line\n";
        assert_eq!(String::from_utf8(without_passwords(shadow)).unwrap(), expected);
        let kept = b"root:x:0:0:root:/root:/bin/sh\nwheel:!machine-config-agent::core\n";
        assert_eq!(without_passwords(kept), kept);
    }
}
