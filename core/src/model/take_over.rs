//! Entries that an old config came without, when it was taken over, and that the new one still does not bring in: each waits for its
//! next change.

use std::collections::BTreeMap;

use super::users::{group_field, user_field};
use super::{HostSpec, ManagedPath, PathSpec, UserName};

impl HostSpec {
    /// Leaves out the directories and links that the old spec came without and whose entries are the same, before it is known what the
    /// host has of them.
    pub fn leave_unapplied(&mut self, from: &Self) {
        if from.unapplied.is_empty() {
            return;
        }
        let old: BTreeMap<ManagedPath, PathSpec> = from.stored_paths().collect();
        let same = self.stored_paths().filter(|(path, entry)| old.get(path) == Some(entry));
        let unapplied = same.map(|(path, _)| path).filter(|path| from.unapplied.contains(path)).collect();
        self.unapplied = unapplied;
    }

    /// Returns true if the host has a user of this name, which it lacks, once it has come from the old spec.
    pub fn makes_user(&self, from: &Self, name: &str) -> bool {
        self.users.makes_user(name) && !self.has_waiting_user(from, name)
    }

    /// Returns true if the host has a group of this name, which it lacks, once it has come from the old spec.
    pub fn makes_group(&self, from: &Self, name: &str, has_user: impl Fn(&str) -> bool) -> bool {
        let is_of_user = |user: &str| has_user(user) || self.has_waiting_user(from, user);
        self.users.makes_group(name, is_of_user) && !self.has_waiting_group(from, name)
    }

    /// Returns true if an account waits for the next change of its entry.
    pub fn has_waiting_user(&self, from: &Self, name: &str) -> bool {
        let new = self.users.account(name);
        new.is_some() && new == from.users.account(name) && from.is_unapplied(&user_field(name))
    }

    /// Returns true if a group, or the account that it comes with, waits for the next change of its entry.
    pub fn has_waiting_group(&self, from: &Self, name: &str) -> bool {
        let group =
            |spec: &Self| UserName::new(name).ok().and_then(|name| spec.users.groups.get(&name).cloned());
        let new = group(self);
        new.is_some() && new == group(from) && from.is_unapplied(&group_field(name))
    }

    /// Returns true if an entry of accounts, of which the host has nothing, was never applied.
    fn is_unapplied(&self, field: &str) -> bool {
        self.never_applied.is_none() || self.is_never_applied(field)
    }
}
