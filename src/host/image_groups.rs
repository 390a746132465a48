//! Groups that are in `/usr/lib/group` of an OS image alone. useradd and usermod know them by NSS, and add no member to them:
//! their line is copied to `/etc/group` first, where it wins. It goes again when no config has a member there any more.

use std::collections::BTreeSet;

use super::HostError;
use super::account_layout::with_line;
use super::account_lines::{GROUP, edit, whole_line};
use super::account_records::{AccountRecords, GroupRecord};
use super::accounts::Accounts;
use super::durable::Attempt;
use super::failpoint::FailPoints;
use super::root::Root;

const OF_IMAGE: &str = "/usr/lib/group";

/// Returns those of the groups that are in the image alone.
pub fn alone(accounts: &Accounts, groups: &BTreeSet<String>) -> BTreeSet<String> {
    let of_image = |name: &&String| accounts.group_entry(name).is_some_and(|group| !group.is_local);
    groups.iter().filter(of_image).cloned().collect()
}

/// Copies the lines of those of the groups that are in the image alone, and records it before.
pub fn copy(
    root: &Root,
    groups: &BTreeSet<String>,
    run: Attempt,
    fail_points: &FailPoints,
) -> Result<(), HostError> {
    let groups = alone(&Accounts::load(root)?, groups);
    if groups.is_empty() {
        return Ok(());
    }
    let mut records = AccountRecords::load_current(root)?;
    for group in &groups {
        records.set_group(group, Some(GroupRecord::Copied));
    }
    records.save(root)?;
    let image = root.read(OF_IMAGE)?.unwrap_or_default();
    edit(root, run, fail_points, &|path, bytes| {
        let mut bytes = bytes.to_vec();
        for group in groups.iter().filter(|_| path == GROUP) {
            let line = whole_line(&image, group).map(|line| [line, b"\n".to_vec()].concat());
            bytes = with_line(&bytes, group, line.as_deref());
        }
        bytes
    })
}

/// Removes the copies that are as the image has them.
pub fn remove_unused(
    root: &Root,
    groups: &BTreeSet<String>,
    run: Attempt,
    fail_points: &FailPoints,
) -> Result<(), HostError> {
    let mut records = AccountRecords::load_current(root)?;
    let copied: Vec<&String> = groups.iter().filter(|group| records.is_group_copied(group)).collect();
    if copied.is_empty() {
        return Ok(());
    }
    let (image, own) = (root.read(OF_IMAGE)?.unwrap_or_default(), root.read(GROUP)?.unwrap_or_default());
    let is_unused =
        |group: &&&String| whole_line(&own, group).is_none_or(|line| Some(line) == whole_line(&image, group));
    let unused: Vec<String> = copied.iter().filter(is_unused).map(|group| (*group).clone()).collect();
    edit(root, run, fail_points, &|path, bytes| {
        let mut bytes = bytes.to_vec();
        for group in unused.iter().filter(|_| path == GROUP) {
            bytes = with_line(&bytes, group, None);
        }
        bytes
    })?;
    for group in &unused {
        records.set_group(group, None);
    }
    records.save(root)
}
