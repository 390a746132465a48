//! Entries of a config that are against each other: links of storage and the units that they are about, a group that has to be
//! there and must not exist, an owner likewise.

use super::reason::{ReasonKind, Unreachable, unreachable};
use crate::model::paths::LinkTarget;
use crate::model::units::{Enablement, Mask, UnitSpec};
use crate::model::users::{group_field, user_field};
use crate::model::{HostSpec, LinkSpec, Principal, UnitName};

/// Returns the entries of a config that are against others of it.
pub(super) fn refused(to: &HostSpec) -> Vec<Unreachable> {
    links(to).into_iter().chain(groups(to)).chain(owners(to)).collect()
}

/// Returns the entries of storage that belong to an account which must not exist: no host has it when they are written.
fn owners(to: &HostSpec) -> Vec<Unreachable> {
    let must_not_exist = |user: &str| {
        to.users.accounts.iter().any(|(name, account)| name.as_str() == user && !account.should_exist)
    };
    let entries = to.entries();
    let refused = entries.iter().filter_map(|(path, entry)| match entry.owners().0 {
        Some(Principal::Name(user)) if must_not_exist(user) => {
            let message =
                format!("{} has `shouldExist: false`; remove that entry, or the user here", user_field(user));
            Some(unreachable(
                ReasonKind::ContradictedUser,
                format!("{} {:?} user", entry.section(), path.as_str()),
                message,
            ))
        }
        Some(_) | None => None,
    });
    refused.collect()
}

/// Returns the accounts and the entries of storage that need a group which must not exist. Those that are there are refused by each
/// host: one that lacks the group has no such group, and one that has it would have to remove it.
fn groups(to: &HostSpec) -> Vec<Unreachable> {
    let is_refused = |group: &str| {
        let entry = to.users.groups.iter().find(|(name, _)| name.as_str() == group);
        // An account brings the group of its name.
        let comes = to.users.accounts.keys().any(|name| name.as_str() == group);
        entry.is_some_and(|(_, group)| !group.should_exist) && !comes
    };
    let message = |group: &str| {
        format!("{} has `shouldExist: false`; remove that entry, or the group here", group_field(group))
    };
    let refused =
        |field: String, group: &str| unreachable(ReasonKind::ContradictedGroup, field, message(group));
    // `core` may wait for its account.
    let made = to.users.accounts.iter().filter(|(name, account)| account.should_exist && !name.is_core());
    let of_accounts = made.flat_map(|(name, account)| {
        let primary = account.primary_group.iter().map(|group| ("primaryGroup", group));
        let needed = account.groups.iter().map(|group| ("groups", group)).chain(primary);
        let needed = needed.filter(|(_, group)| is_refused(group));
        needed.map(|(part, group)| refused(format!("{} {part}", user_field(name.as_str())), group))
    });
    let entries = to.entries();
    let of_storage = entries.iter().filter_map(|(path, entry)| match entry.owners().1 {
        Some(Principal::Name(group)) if is_refused(group) => {
            Some(refused(format!("{} {:?} group", entry.section(), path.as_str()), group))
        }
        Some(_) | None => None,
    });
    of_accounts.chain(of_storage).collect()
}

fn links(to: &HostSpec) -> Vec<Unreachable> {
    let of_unit = |(name, unit): (&UnitName, &UnitSpec)| {
        let mut found = Vec::new();
        let is_off = unit.enablement == Enablement::Disabled && unit.mask != Mask::Masked;
        found.extend(to.unit_links(name).filter(|_| is_off).map(|path| {
            let message = format!(
                "this link enables {name}, or is another name of it, and systemd.units has `enabled: false`; remove one of the entries"
            );
            unreachable(ReasonKind::ContradictedLink, format!("storage.links {:?}", path.as_str()), message)
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
            unreachable(ReasonKind::ContradictedLink, format!("storage.links {:?}", path.as_str()), message)
        }));
        found
    };
    to.units.iter().flat_map(of_unit).collect()
}

fn is_mask(link: &LinkSpec) -> bool {
    matches!(&link.target, LinkTarget::Soft(text) if text == "/dev/null")
}
