//! Origin of a plan on a host that may not be as its config: one that was never managed, that came up wrong, whose config
//! can't be read as a whole, or that an administrator forces.
//! The observation decides which part of the new config is applied already. The old config decides what is removed:
//! anything that only it contains counts as present, so that all ways to the new config end in the same state.

use super::accounts::account_differences;
use super::differences::{already_applied, layers_hold};
use super::late::never_applied;
use super::left::add_left;
use crate::model::units::Mask;
use crate::model::users::{attributes_field, group_field, user_field};
use crate::model::{HostSpec, Karg, LinkSpec, ManagedPath, Observation, PathSpec};

/// Returns the applied part of the new config, and the parts of the old one alone.
pub fn observed_origin(old: &HostSpec, to: &HostSpec, observed: &Observation) -> HostSpec {
    let mut from = already_applied(to, observed);
    if old.is_unmanaged() {
        return from;
    }
    // Entering, keeping or leaving image mode does not depend on the config's content on the host.
    from.image.clone_from(&old.image);
    // What can't be read of the old one counts as held.
    if old.is_opaque() {
        from.fixed.sections.retain(|section, _| old.is_opaque_in(section));
        let read = old.fixed.sections.iter().filter(|(section, _)| !old.is_opaque_in(section));
        from.fixed.sections.extend(read.map(|(section, json)| (*section, json.clone())));
    }
    // Where the entries differ, the steps come from the observation anyway; the old one says what may be left of it.
    let gone =
        old.users.accounts.iter().filter(|(name, account)| to.users.accounts.get(*name) != Some(*account));
    from.users.accounts.extend(gone.map(|(name, account)| (name.clone(), account.clone())));
    let gone = old.users.groups.iter().filter(|(name, group)| to.users.groups.get(*name) != Some(*group));
    from.users.groups.extend(gone.map(|(name, group)| (name.clone(), group.clone())));
    keep_never_applied(&mut from, old, to, observed);
    add_left(&mut from, old, to);
    let gone = |path: &ManagedPath| !to.is_listed(path);
    let applied = |path: &ManagedPath| !old.unapplied.contains(path);
    let directories = old.directories.iter().filter(|(path, _)| applied(path) && gone(path));
    from.directories.extend(directories.map(|(path, directory)| (path.clone(), directory.clone())));
    // What an entry no longer sets is not to be seen on the host.
    let dropping = old.directories.iter().filter(|(path, directory)| {
        let new = to.directories.get(*path).filter(|new| new.drops_attributes_of(directory));
        applied(path) && new.is_some()
    });
    from.directories.extend(dropping.map(|(path, directory)| (path.clone(), directory.clone())));
    let links = old.links.iter().filter(|(path, _)| applied(path) && gone(path));
    from.links.extend(links.map(|(path, link)| (path.clone(), link.clone())));
    // What is there may be an earlier version of ours, which the observation alone does not tell.
    let mut entries = old.entries();
    from.claimed = old.managed().into_iter().map(|path| (path.clone(), entries.remove(&path))).collect();
    let masked = old.units.iter().filter(|(_, unit)| unit.mask == Mask::Masked);
    from.claimed.extend(masked.map(|(name, _)| (name.path(), Some(PathSpec::Link(LinkSpec::mask())))));
    from.kargs = held_kargs(old, to, observed);
    keep_layers(&mut from, old, to, observed);
    from.left.clone_from(&old.left);
    from.led.clone_from(&old.led);
    from
}

/// The layers of what runs, where they are others than the new config's. Those that are there need no step: it would make no
/// deployment.
fn keep_layers(from: &mut HostSpec, old: &HostSpec, to: &HostSpec, observed: &Observation) {
    if layers_hold(to, observed) {
        return;
    }
    let layers = old.left.as_ref().map_or_else(|| old.layers(), |left| left.layers.clone());
    if layers.kernel != to.kernel_type {
        from.kernel_type = layers.kernel;
    }
    if layers.extensions != to.extensions {
        from.extensions = layers.extensions;
    }
}

/// Entries that were never applied, and that do not change, wait for their next change here, too.
fn keep_never_applied(from: &mut HostSpec, old: &HostSpec, to: &HostSpec, observed: &Observation) {
    let fields = never_applied(old, to, observed);
    for (name, account) in &to.users.accounts {
        let is_listed = fields.contains(&user_field(name.as_str()))
            || (fields.contains(&attributes_field(name.as_str()))
                && account_differences(name, account, observed.accounts.get(name.as_str())).is_empty());
        if is_listed {
            from.users.accounts.insert(name.clone(), account.clone());
        }
    }
    for (name, group) in
        to.users.groups.iter().filter(|(name, _)| fields.contains(&group_field(name.as_str())))
    {
        from.users.groups.insert(name.clone(), group.clone());
    }
    from.never_applied = Some(fields);
}

/// Returns the arguments of both configs that the command line has, in its order: a deployment of yet another config may
/// run, which had them in another one. One of the host's own serves a config as well: it is not set again.
fn held_kargs(old: &HostSpec, to: &HostSpec, observed: &Observation) -> Vec<Karg> {
    let mut desired = to.kargs.clone();
    let dropped = old.kargs.iter().filter(|karg| !take(&mut desired, karg));
    let mut configs: Vec<Karg> = dropped.chain(&to.kargs).cloned().collect();
    // Those of a config are the last ones.
    let line = observed.kargs.iter().rev();
    let mut held: Vec<Karg> = line.filter(|karg| take(&mut configs, karg)).cloned().collect();
    held.reverse();
    held
}

/// Takes one instance out; returns true if there was one.
fn take(list: &mut Vec<Karg>, karg: &Karg) -> bool {
    let at = list.iter().position(|one| one == karg);
    at.map(|at| list.remove(at)).is_some()
}
