//! The part of the host that the config embedded in the booted image brought.
//!
//! An image is built for one config and may be booted with another: what it brings is the content of the config in it, whatever
//! that is called, not the config that the node is to have.

use std::collections::BTreeSet;

use super::units::{Enablement, Mask, UnitSpec};
use super::users::Users;
use super::{HostSpec, ManagedPath, UnitName};

/// The embedded config of the booted image, as far as the host is still as that brings it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    /// Its files, links, directories, unit files, drop-ins, masks and enablements that the host has from the image, and that a spec of the
    /// observation lacks, and the parts of its accounts and groups. It is a part of a config, under the name of the whole one.
    pub brought: HostSpec,
    /// Paths of these without an original in the image.
    pub unknown: BTreeSet<ManagedPath>,
}

impl Carried {
    /// Keeps the parts of an embedded config whose paths and units the host has from the image, and these parts of its accounts.
    pub fn keep(
        mut embedded: HostSpec,
        is_brought: impl Fn(&ManagedPath) -> bool,
        is_turned: impl Fn(&UnitName) -> bool,
        users: Users,
    ) -> HostSpec {
        embedded.files.retain(|path, _| is_brought(path));
        embedded.links.retain(|path, _| is_brought(path));
        embedded.directories.retain(|path, _| is_brought(path));
        let units = std::mem::take(&mut embedded.units).into_iter();
        let units = units.filter_map(|(name, unit)| {
            let is_of_image = is_brought(&name.path());
            let contents = unit.contents.filter(|_| is_of_image && unit.mask != Mask::Masked);
            let mask = if unit.mask == Mask::Masked && is_of_image { Mask::Masked } else { Mask::Unset };
            let dropins: std::collections::BTreeMap<_, _> = unit
                .dropins
                .into_iter()
                .filter(|(dropin, _)| is_brought(&name.dropin_path(dropin)))
                .collect();
            let is_linked = contents.is_some() || is_turned(&name);
            let enablement = if is_linked { unit.enablement } else { Enablement::Preset };
            let kept = UnitSpec { contents, dropins, enablement, mask };
            (kept != UnitSpec::empty()).then_some((name, kept))
        });
        let units = units.collect();
        let HostSpec { files, links, directories, name, .. } = embedded;
        HostSpec { files, directories, links, units, users, ..HostSpec::empty(name) }
    }
}
