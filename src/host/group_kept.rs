//! Changes of groups by persons since an update: the undo leaves their passwords, administrators and members, as it leaves what they have
//! changed of accounts.
//!
//! # Decisions
//! An update sets the password of a group, and the memberships of the accounts that it changes, as their entries have them. All else is a
//! person's. A group on several lines goes back as it was: nobody knows whose line is whose.

use std::collections::{BTreeMap, BTreeSet};

use super::account_kept::Undone;
use super::account_layout::{is_of, line_of, members, with_line, with_member};
use super::accounts::GROUP_MARK;
use crate::model::users::{Account, Users};

const GSHADOW: &str = "/etc/gshadow";
const PASSWORD: usize = 1;
/// The group id in `/etc/group`; the administrators in `/etc/gshadow`.
const THIRD: usize = 2;
const MEMBERS: usize = 3;

/// The names whose lines the undo puts back.
#[derive(Debug, Clone, Copy)]
pub(in crate::host) struct Changed<'a> {
    /// The database.
    pub path: &'a str,
    /// The groups of which all was saved.
    pub groups: &'a BTreeSet<&'a str>,
    /// The accounts, with true for one that the update has made.
    pub users: &'a BTreeMap<&'a str, bool>,
}

/// Returns a database of groups with what persons have changed `now`, where `after` has everything as it was saved, and the names of the
/// parts that stay, by group.
pub(in crate::host) fn with_kept(
    undone: Undone<'_>,
    changed: Changed<'_>,
    (now, after): (&[u8], Vec<u8>),
) -> (Vec<u8>, BTreeMap<String, BTreeSet<&'static str>>) {
    let (mut bytes, mut kept) = (after.clone(), BTreeMap::new());
    for line in after.split(|byte| *byte == b'\n') {
        let Some(end) = line.iter().position(|byte| *byte == b':') else { continue };
        let name = String::from_utf8_lossy(line.get(..end).unwrap_or_default()).into_owned();
        let (Some(found), true, true) =
            (line_of(now, &name), is_single(now, &name), is_single(&after, &name))
        else {
            continue;
        };
        let (new, parts) = kept_line(undone, changed, &name, (found, line));
        if !parts.is_empty() {
            bytes = with_line(&bytes, &name, Some(&[new.as_slice(), b"\n"].concat()));
            kept.insert(name, parts);
        }
    }
    (bytes, kept)
}

fn is_single(bytes: &[u8], name: &str) -> bool {
    bytes.split(|byte| *byte == b'\n').filter(|line| is_of(line, name)).count() == 1
}

/// Returns the line of a group as it is to be, and the names of the parts that stay as they are now.
fn kept_line(
    undone: Undone<'_>,
    changed: Changed<'_>,
    name: &str,
    (now, saved): (&[u8], &[u8]),
) -> (Vec<u8>, BTreeSet<&'static str>) {
    let mut parts = BTreeSet::new();
    let fields = |line| -> Vec<&[u8]> { <[u8]>::split(line, |byte| *byte == b':').collect() };
    let (found, mut new) = (fields(now), fields(saved));
    let is_shadow = changed.path == GSHADOW;
    let is_other = !is_shadow && found.get(THIRD) != new.get(THIRD);
    if found.len() != new.len() || new.len() <= MEMBERS || is_other {
        return (saved.to_vec(), parts);
    }
    if changed.groups.contains(name) {
        let mut keep = |place: usize, word| {
            if let (Some(found), Some(field)) = (found.get(place), new.get_mut(place))
                && found != field
            {
                *field = found;
                parts.insert(word);
            }
        };
        let password = found.get(PASSWORD).map(|field| String::from_utf8_lossy(field)).unwrap_or_default();
        if !is_set(undone, name, &password) {
            keep(PASSWORD, "password");
        }
        if is_shadow {
            keep(THIRD, "administrators");
        }
    }
    let (with_fields, mut line) = (new.join(&b':'), Vec::new());
    line.extend_from_slice(&with_fields);
    let was = |member: &[u8]| members(saved).any(|one| one == member);
    let is = |member: &[u8]| members(now).any(|one| one == member);
    for member in
        members(saved).filter(|member| !is(member)).chain(members(now).filter(|member| !was(member)))
    {
        let text = String::from_utf8_lossy(member);
        if !is_of_update(undone, changed, (&text, name), is(member)) {
            line = with_member(&line, &text, is(member));
            parts.insert("members");
        }
    }
    (line, parts)
}

/// Returns true if the update may have set the password of a group.
fn is_set(undone: Undone<'_>, name: &str, found: &str) -> bool {
    let entry = |users: &Users| {
        let group = users.groups.iter().find(|(one, _)| one.as_str() == name);
        group.map(|(_, group)| group.clone()).filter(|group| group.should_exist)
    };
    let new = entry(undone.users).and_then(|group| group.password);
    if let Some(new) = &new {
        return new.as_str() == found;
    }
    // Neither config has one: the update has set none.
    if entry(undone.before).and_then(|group| group.password).is_none() {
        return false;
    }
    let original = undone.records.group_original(name).flatten();
    ["", "x", "!", GROUP_MARK].contains(&found) || original.is_some_and(|hash| hash.as_str() == found)
}

/// Returns true if the update may have made an account a member of a group, or may have ended that.
fn is_of_update(
    undone: Undone<'_>,
    changed: Changed<'_>,
    (user, group): (&str, &str),
    is_member: bool,
) -> bool {
    let Some(is_made) = changed.users.get(user) else { return false };
    let lists = |users: &Users| {
        let entry = users.accounts.iter().find(|(one, _)| one.as_str() == user);
        let is_listed = |account: &Account| account.should_exist && account.groups.contains(group);
        entry.is_some_and(|(_, account)| is_listed(account))
    };
    *is_made || if is_member { lists(undone.users) } else { lists(undone.before) && !lists(undone.users) }
}
