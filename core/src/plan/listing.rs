//! Differences as text: one line each, and a list that is bounded.

use std::fmt;

use super::differences::{Difference, DifferenceKind, Kind};
use crate::model::text::escaped;

/// Most differences in a reason; `verify` shows the rest.
const NAMED: usize = 5;

impl Kind {
    /// Returns the name of the kind, as in the JSON of `verify`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Package => "package",
            Self::Karg => "kernel argument",
            Self::File => "file",
            Self::Directory => "directory",
            Self::Link => "link",
            Self::Unit => "unit",
            Self::Dropin => "drop-in",
            Self::User => "user",
            Self::Group => "group",
        }
    }
}

impl DifferenceKind {
    /// Returns the difference, as it follows the object.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "is missing",
            Self::Unexpected => "is something else",
            Self::Content => "has another content",
            Self::Mode => "has another mode",
            Self::Owner => "has another owner",
            Self::Enablement => "is enabled otherwise",
            Self::Mask => "is masked otherwise",
            Self::Value => "has another value",
            Self::Attributes => "has other settings",
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, target, what, expected, found, also, diff: _, unrepaired } = self;
        let target = escaped(target);
        // Alerts and tests of other software look for MCD's words (MCD-166 to MCD-169).
        match (kind, what) {
            (Kind::Image, DifferenceKind::Value) => {
                write!(f, "expected target osImageURL \"{expected}\", have \"{found}\"")?;
            }
            (Kind::Karg, DifferenceKind::Missing) => {
                write!(f, "missing expected kernel arguments: [{target}]")?;
            }
            (Kind::File | Kind::Dropin | Kind::Unit, DifferenceKind::Content) => {
                write!(f, "content mismatch for file \"{target}\" (expected {expected}, found {found})")?;
            }
            (Kind::File | Kind::Dropin | Kind::Unit, DifferenceKind::Mode) => {
                write!(f, "mode mismatch for file: \"{target}\"; expected: {expected}; received: {found}")?;
            }
            (
                Kind::Image
                | Kind::Karg
                | Kind::Package
                | Kind::User
                | Kind::Group
                | Kind::Directory
                | Kind::Link,
                DifferenceKind::Missing
                | DifferenceKind::Unexpected
                | DifferenceKind::Content
                | DifferenceKind::Mode
                | DifferenceKind::Owner
                | DifferenceKind::Enablement
                | DifferenceKind::Mask
                | DifferenceKind::Value
                | DifferenceKind::Attributes,
            )
            | (
                Kind::File | Kind::Dropin | Kind::Unit,
                DifferenceKind::Missing
                | DifferenceKind::Unexpected
                | DifferenceKind::Owner
                | DifferenceKind::Enablement
                | DifferenceKind::Mask
                | DifferenceKind::Value
                | DifferenceKind::Attributes,
            ) => {
                let (kind, what) = (kind.as_str(), what.as_str());
                write!(f, "{kind} {target} {what} (expected {expected}, found {found})")?;
            }
        }
        also.as_ref().map_or(Ok(()), |also| write!(f, "; {also}"))?;
        unrepaired.as_ref().map_or(Ok(()), |why| write!(f, "; not repaired: {why}"))
    }
}

/// Lists the first few differences and counts the rest.
pub fn listed(differences: &[Difference]) -> String {
    let shown: Vec<String> = differences.iter().take(NAMED).map(ToString::to_string).collect();
    let more = differences.len().saturating_sub(NAMED);
    let rest = if more == 0 { String::new() } else { format!("; and {more} more") };
    format!("{}{rest}", shown.join("; "))
}
