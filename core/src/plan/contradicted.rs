//! Links of storage that are against the entries of the units that they are about.

use super::accounts::{Refusal, refusal};
use crate::model::paths::LinkTarget;
use crate::model::units::{Enablement, Mask, UnitSpec};
use crate::model::{HostSpec, LinkSpec, UnitName};

/// Returns the links of a config that are against what its units say of the same unit.
pub(super) fn refused(to: &HostSpec) -> Vec<Refusal> {
    let of_unit = |(name, unit): (&UnitName, &UnitSpec)| {
        let mut found = Vec::new();
        let is_off = unit.enablement == Enablement::Disabled && unit.mask != Mask::Masked;
        found.extend(to.unit_links(name).filter(|_| is_off).map(|path| {
            let message = format!(
                "this link enables {name}, or is another name of it, and systemd.units has `enabled: false`; remove one of the entries"
            );
            refusal(format!("storage.links {:?}", path.as_str()), &message)
        }));
        let mask = to.links.get_key_value(&name.path()).filter(|(_, link)| is_mask(link));
        let other = match (unit.mask, unit.enablement) {
            (Mask::Unmasked, _) => Some("`mask: false`"),
            (Mask::Unset, Enablement::Enabled) => Some("`enabled: true`"),
            (Mask::Masked, _) | (Mask::Unset, Enablement::Disabled | Enablement::Preset) => None,
        };
        found.extend(mask.zip(other).map(|((path, _), other)| {
            let message =
                format!("this link masks {name}, and systemd.units has {other}; remove one of the entries");
            refusal(format!("storage.links {:?}", path.as_str()), &message)
        }));
        found
    };
    to.units.iter().flat_map(of_unit).collect()
}

fn is_mask(link: &LinkSpec) -> bool {
    matches!(&link.target, LinkTarget::Soft(text) if text == "/dev/null")
}
