//! Lookup of the file that comes back where a path is no longer managed.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use super::embedded::{self, Embedded};
use super::saved::{self, PathSnapshot};
use super::{HostError, Root};
use crate::model::ManagedPath;
use crate::model::ids::ACCOUNT_DATABASES;

/// The originals of a host, for many paths.
#[derive(Debug)]
pub struct OriginalLookup<'a> {
    root: &'a Root,
    /// The paths of the config in the booted image.
    carried: OnceCell<BTreeSet<ManagedPath>>,
}

impl<'a> OriginalLookup<'a> {
    /// Looks them up on a host.
    pub fn new(root: &'a Root) -> Self {
        Self { root, carried: OnceCell::new() }
    }

    /// Returns the file for a path that is no longer managed: the kept original, else the version of the booted image's base, which a
    /// database of accounts does not go back to, else the original of the machine-config-daemon. `None` when there is no such
    /// thing, or nothing was there.
    pub fn original(&self, path: &ManagedPath) -> Result<Option<PathSnapshot>, HostError> {
        let something = |saved: PathSnapshot| (saved != PathSnapshot::Absent).then_some(saved);
        if let Some(kept) = saved::load_original(self.root, path)? {
            return Ok(something(kept));
        }
        if let Some(kept) = embedded::kept(self.root, "", path)? {
            return Ok(something(kept));
        }
        // The accounts of a host are not those of its image, and what the config in the image brought is not the base's.
        if !ACCOUNT_DATABASES.contains(&path.as_str())
            && let Some(own) = something(saved::of_image(self.root, path)?)
            && !self.carried()?.contains(path)
        {
            return Ok(Some(own));
        }
        let daemons = format!("/etc/machine-config-daemon/orig{path}.mcdorig");
        let Some(put_aside) = something(PathSnapshot::read(self.root, &daemons)?) else { return Ok(None) };
        // One of the image was put aside on another host; beside a config that the image carries it is the base's.
        let of_image = PathSnapshot::read(self.root, &format!("/usr{daemons}"))?;
        let is_of_host = !of_image.is_same_file(&put_aside) || self.carried()?.contains(path);
        Ok(is_of_host.then_some(put_aside))
    }

    /// Returns true if an original is the version that the config in the booted image brought.
    pub fn is_carried(&self, path: &ManagedPath, original: &PathSnapshot) -> Result<bool, HostError> {
        Ok(*original != PathSnapshot::Absent
            && saved::of_image(self.root, path)?.is_same_file(original)
            && self.carried()?.contains(path))
    }

    fn carried(&self) -> Result<&BTreeSet<ManagedPath>, HostError> {
        if let Some(carried) = self.carried.get() {
            return Ok(carried);
        }
        let embedded = Embedded::load(self.root, "")?;
        Ok(self.carried.get_or_init(|| embedded.map(|config| config.paths().clone()).unwrap_or_default()))
    }
}

/// Returns the file for a path that is no longer managed, as [`OriginalLookup::original`].
pub fn original(root: &Root, path: &ManagedPath) -> Result<Option<PathSnapshot>, HostError> {
    OriginalLookup::new(root).original(path)
}
