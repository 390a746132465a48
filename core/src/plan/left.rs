//! The files and units of an old config that a new one does not have, as a part of a plan's origin.

use crate::model::HostSpec;
use crate::model::units::{Enablement, Mask, UnitSpec};

/// Adds the files and the units, or their parts, that an old config alone has.
pub(super) fn add_left(from: &mut HostSpec, old: &HostSpec, to: &HostSpec) {
    let files = old.files.iter().filter(|(path, _)| !to.is_listed(path));
    from.files.extend(files.map(|(path, file)| (path.clone(), file.clone())));
    for (name, unit) in &old.units {
        let held = from.units.get(name);
        if let Some(both) = with_leftovers(held, unit, to.units.get(name)) {
            from.units.insert(name.clone(), both);
        }
    }
}

/// Adds the parts of the old config alone to a unit; `None` if there is neither.
fn with_leftovers(held: Option<&UnitSpec>, old: &UnitSpec, new: Option<&UnitSpec>) -> Option<UnitSpec> {
    let Some(new) = new else { return Some(old.clone()) };
    let held = held.cloned().unwrap_or(UnitSpec::empty());
    let mut both = held.clone();
    let dropped = old.dropins.iter().filter(|(name, _)| !new.dropins.contains_key(*name));
    both.dropins.extend(dropped.map(|(name, contents)| (name.clone(), contents.clone())));
    if new.contents.is_none() {
        both.contents.clone_from(&old.contents);
    }
    match (old.mask, new.mask) {
        (Mask::Masked, Mask::Unset | Mask::Unmasked) | (Mask::Unmasked, Mask::Unset) => both.mask = old.mask,
        (Mask::Unset, _) | (_, Mask::Masked) | (Mask::Unmasked, Mask::Unmasked) => {}
    }
    // A unit that is masked decides nothing about the ones that were enabled with it.
    if new.enablement == Enablement::Preset || new.mask == Mask::Masked {
        both.enablement = old.enablement;
    }
    (both != held).then_some(both)
}
