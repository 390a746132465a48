//! Reasons to refuse an image as a seed.

use crate::model::FaultClass;

/// A seed that is refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SeedError {
    /// It has no label of a seed.
    #[error("the image is not a seed image: it has no label {label}")]
    NotSeed {
        /// The label that is missing.
        label: &'static str,
    },
    /// A label says something that this agent does not understand.
    #[error("the label {label} of the image can't be read: {cause}")]
    Label {
        /// The label.
        label: &'static str,
        /// Why.
        cause: String,
    },
    /// This host can't take it.
    #[error("the seed is refused, {field}: {message}")]
    Refused {
        /// The difference.
        field: &'static str,
        /// How.
        message: String,
        /// The seed image.
        image: String,
    },
    /// It is of another format.
    #[error("the seed has format version {found}; this agent reads version {known}")]
    Format {
        /// Its version.
        found: String,
        /// The version that is read.
        known: u32,
    },
    /// A version that can't be a directory's name.
    #[error(
        "{version:?} is not a version: letters, digits, `.`, `_` and `-`, not at its beginning `.` or `-`"
    )]
    Version {
        /// The text.
        version: String,
    },
    /// A name that can't be a directory's.
    #[error(
        "{name:?} is not the name of a stateroot: letters, digits, `.`, `_` and `-`, not at its beginning `.` or `-`"
    )]
    Name {
        /// The text.
        name: String,
    },
    /// A name that an image can't be pushed to.
    #[error("{target:?} is not the name of an image: REGISTRY/NAME or REGISTRY/NAME:TAG")]
    Target {
        /// The text.
        target: String,
    },
    /// A path that can't be left out of a seed.
    #[error("{path:?} is not a path below /etc or /var, like /var/lib/app or /etc/app/*.key")]
    Pattern {
        /// The text.
        path: String,
    },
    /// A path that no seed has.
    #[error("{path} is never in a seed: {because}")]
    NotPortable {
        /// The path.
        path: String,
        /// Why.
        because: &'static str,
    },
    /// Files that a seed would have look like keys, or are more than it takes.
    #[error("the seed is refused because of {}{}", .paths.join("; "), if *more == 0 { String::new() } else { format!("; and {more} more") })]
    Unportable {
        /// Each with its cause.
        paths: Vec<String>,
        /// So many more.
        more: usize,
    },
    /// The running system is no base of a bootc seed.
    #[error("{deployment} was not made from an image, so no bootc seed can be built on it")]
    NoBase {
        /// The running deployment.
        deployment: String,
    },
    /// A file of the seed is missing.
    #[error("the seed is incomplete: {} missing", .members.join(", "))]
    Missing {
        /// The files.
        members: Vec<&'static str>,
    },
    /// A file of the seed can't be read.
    #[error("{member} of the seed can't be read: {cause}")]
    Member {
        /// The file.
        member: &'static str,
        /// Why.
        cause: String,
    },
}

impl SeedError {
    /// Returns what it means: another image, or another version, has to be named.
    pub fn class(&self) -> FaultClass {
        FaultClass::Unreconcilable
    }

    /// Returns a bounded word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotSeed { .. }
            | Self::Label { .. }
            | Self::Format { .. }
            | Self::Refused { .. }
            | Self::Version { .. }
            | Self::Pattern { .. }
            | Self::NotPortable { .. }
            | Self::Unportable { .. }
            | Self::Target { .. }
            | Self::NoBase { .. }
            | Self::Name { .. } => "SeedRefused",
            Self::Missing { .. } | Self::Member { .. } => "SeedDamaged",
        }
    }

    /// Returns what a person does next.
    pub fn next_step(&self) -> String {
        let text = match self {
            Self::NotSeed { .. } | Self::Label { .. } | Self::Format { .. } => {
                "Name a seed image of format version 4; nothing was changed."
            }
            Self::Refused { image, .. } => {
                return format!(
                    "`machine-config-agent stateroot inspect {image}` lists every reason; nothing was changed."
                );
            }
            Self::Version { .. } | Self::Pattern { .. } | Self::Target { .. } | Self::Name { .. } => {
                "Correct it; nothing was changed."
            }
            Self::NotPortable { .. } => {
                "Remove it from the paths of the command or of settings.toml; nothing was changed."
            }
            Self::Unportable { .. } => {
                "Leave each path out (--exclude PATH, or [seed] exclude in settings.toml), remove a named field from the \
                 MachineConfig, or take a secret with `seed create --include-secret PATH`; `machine-config-agent seed create \
                 --list` shows all; nothing was changed."
            }
            Self::NoBase { .. } => "Make a classic seed; nothing was changed.",
            Self::Missing { .. } | Self::Member { .. } => "Make the seed image again; nothing was changed.",
        };
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_seed_has_command_that_lists_reasons() {
        let image = format!("registry.test/seed@sha256:{}", "a".repeat(64));
        let refused = SeedError::Refused {
            field: "architecture",
            message: "it is arm64".to_owned(),
            image: image.clone(),
        };
        let next = refused.next_step();
        assert!(next.starts_with(&format!("`machine-config-agent stateroot inspect {image}`")), "{next}");
    }
}
