//! One difference between the host and a spec.

use std::fmt::Display;

use serde::Serialize;

use crate::model::text::escaped;
use crate::model::{ManagedPath, UnitName};

/// Kind of the object that differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The OS image.
    Image,
    /// A kernel argument.
    Karg,
    /// A package that is layered on the image.
    Package,
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A link.
    Link,
    /// A unit.
    Unit,
    /// A unit's drop-in.
    Dropin,
    /// An account.
    User,
    /// A group.
    Group,
}

/// Kind of the difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum DifferenceKind {
    /// It is not there.
    Missing,
    /// It is of another kind: a directory, a link.
    Unexpected,
    /// The bytes.
    Content,
    /// The permission bits.
    Mode,
    /// The owner or the group.
    Owner,
    /// Enablement.
    Enablement,
    /// The mask.
    Mask,
    /// The value.
    Value,
    /// Settings of an account or a group.
    Attributes,
}

/// One difference between spec and host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Difference {
    /// The kind.
    pub kind: Kind,
    /// The path, unit, argument, account, or `os`.
    pub target: String,
    /// Kind of the difference.
    pub what: DifferenceKind,
    /// The spec's value.
    pub expected: String,
    /// The observed value.
    pub found: String,
    /// Further attributes of the path that differ: its mode, its owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub also: Option<String>,
    /// For the contents of a text that is not a secret: a short unified diff, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// Reason why it is not repaired although its path is to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unrepaired: Option<String>,
}

impl Difference {
    /// Returns its path; a unit's own if it concerns the links. The OS and the account have none.
    pub fn path(&self) -> Option<ManagedPath> {
        match self.kind {
            Kind::File | Kind::Directory | Kind::Link | Kind::Dropin => ManagedPath::new(&*self.target).ok(),
            Kind::Unit if self.target.starts_with('/') => ManagedPath::new(&*self.target).ok(),
            Kind::Unit => Some(UnitName::new(&*self.target).ok()?.path()),
            Kind::Image | Kind::Karg | Kind::Package | Kind::User | Kind::Group => None,
        }
    }
}

/// The difference of a path, the expected value and the observed one.
pub(super) type Found = (DifferenceKind, String, String);

pub(super) fn difference(
    kind: Kind,
    target: &dyn Display,
    what: DifferenceKind,
    expected: &dyn Display,
    found: &dyn Display,
) -> Difference {
    // What is on the host, others may have written.
    let (expected, found) = (escaped(&expected.to_string()), escaped(&found.to_string()));
    let target = target.to_string();
    Difference { kind, target, what, expected, found, also: None, diff: None, unrepaired: None }
}

/// Returns the difference of a path: of all that was found, the first is its kind.
pub(super) fn of_path(kind: Kind, path: &ManagedPath, all: Vec<Found>) -> Option<Difference> {
    let mut all = all.into_iter();
    let (what, expected, found) = all.next()?;
    let also = |(what, expected, found): Found| {
        let name = if what == DifferenceKind::Owner { "owner" } else { "mode" };
        format!("{name} {found} in place of {expected}")
    };
    let also: Vec<String> = all.map(also).collect();
    let also = (!also.is_empty()).then(|| escaped(&also.join(", ")));
    Some(Difference { also, ..difference(kind, path, what, &expected, &found) })
}
