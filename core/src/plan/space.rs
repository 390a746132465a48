//! The space that the steps take on the file systems of this host.

use std::collections::BTreeMap;

use super::account_obstacles::changes_databases;
use super::blocked::{is_touched, replaced};
use super::input::PlanInput;
use super::reason::{ReasonKind, Unreachable, unreachable};
use super::{BatchOp, FileOp, Op, Step};
use crate::model::UserName;
use crate::model::obstacles::{Obstacles, Space};
use crate::model::text::shell_word;
use crate::model::users::Account;

/// The inodes of one written path: its own, and that of a directory that it may need.
const INODES: u64 = 2;
/// The inodes of the keys of an account: two directories, the file, and its new version.
const OF_KEYS: u64 = 4;
/// useradd keeps a copy of each database (`/etc/passwd-`), and writes the new one beside it.
const COPIES: u64 = 2;
/// The databases of accounts.
const DATABASES: u64 = 6;
/// Bytes of the lines of one account or group in all databases: fields are short, and each line is of at most that.
const LINES: u64 = 1024;

/// Bytes and inodes on one file system.
#[derive(Default)]
struct Need {
    bytes: u64,
    inodes: u64,
    /// Files take some of it; else accounts alone.
    is_of_files: bool,
}

/// Needs by device.
struct Needs<'a> {
    found: &'a Obstacles,
    by_device: BTreeMap<u64, Need>,
}

impl Needs<'_> {
    fn add(&mut self, device: Option<&u64>, bytes: u64, inodes: u64) -> Option<&mut Need> {
        let device = *device?;
        let block = self.found.spaces.get(&device)?.block.max(1);
        let need = self.by_device.entry(device).or_default();
        need.bytes = need.bytes.saturating_add(bytes.div_ceil(block).saturating_mul(block));
        need.inodes = need.inodes.saturating_add(inodes);
        Some(need)
    }

    fn add_of_file(&mut self, device: Option<&u64>, bytes: u64, inodes: u64) {
        if let Some(need) = self.add(device, bytes, inodes) {
            need.is_of_files = true;
        }
    }
}

/// Returns the file systems that lack space. Every new version of a batch waits beside its place before the first is switched; the
/// originals are in the agent's state, in base64, and once more when they outlive the update.
pub(super) fn missing(input: &PlanInput<'_>, steps: &[Step]) -> Vec<Unreachable> {
    let found = &input.facts.obstacles;
    let mut needs = Needs { found, by_device: BTreeMap::new() };
    let mut contents = 0_u64;
    let makes =
        |op: &Op| matches!(op.in_batch(), BatchOp::File(FileOp::Write | FileOp::Directory | FileOp::Link));
    for step in steps.iter().filter(|step| makes(&step.op)) {
        let Some(path) = step.op.path() else { continue };
        let Some(len) = input.new_len(&path).filter(|_| is_touched(input, &step.op, &path)) else { continue };
        needs.add_of_file(found.devices.get(&path), len, INODES);
        if matches!(step.op.in_batch(), BatchOp::File(FileOp::Write)) {
            contents = contents.saturating_add(len);
        }
    }
    let kept: u64 = replaced(input, steps).map(|(_, _, len, _)| len).fold(0, u64::saturating_add);
    if contents + kept > 0 {
        let encoded = kept.saturating_mul(2).saturating_add(contents).saturating_mul(4) / 3;
        needs.add_of_file(found.state.as_ref(), encoded, INODES);
    }
    of_accounts(input, steps, &mut needs);
    needs.by_device.iter().filter_map(|(device, need)| short(found.spaces.get(device)?, need)).collect()
}

/// Adds the homes of new accounts with what they begin with, keys files, and the databases.
fn of_accounts(input: &PlanInput<'_>, steps: &[Step], needs: &mut Needs<'_>) {
    let found = &input.facts.obstacles.accounts;
    let account = |user: &UserName| input.to.users.accounts.get(user);
    let mut lines = 0_u64;
    for step in steps {
        if changes_databases(input, &step.op) {
            lines = lines.saturating_add(LINES);
        }
        if let Op::CreateUser { user } = &step.op
            && account(user).is_some_and(Account::makes_home)
        {
            let (bytes, entries) = found.skeleton;
            // The directory itself takes a block.
            needs.add(found.homes.get(user.as_str()), bytes.saturating_add(1), entries.saturating_add(1));
        }
        if let Op::SetSshKeys { user } = &step.op
            && let Some(account) = account(user)
        {
            let text = u64::try_from(account.keys_text().len()).unwrap_or(u64::MAX);
            needs.add(found.homes.get(user.as_str()), text, OF_KEYS);
        }
    }
    if let Some((device, bytes)) = found.databases.filter(|_| lines > 0) {
        needs.add(Some(&device), bytes.saturating_add(lines).saturating_mul(COPIES), DATABASES * COPIES);
    }
}

fn short(space: &Space, need: &Need) -> Option<Unreachable> {
    let Space { directory, .. } = space;
    let field = if need.is_of_files { "storage.files" } else { "passwd" };
    let kib = |bytes: u64| bytes.div_ceil(1024);
    if need.bytes > space.bytes {
        let message = format!(
            "the update needs {} KiB on the file system of {directory}, which has {} KiB free; free space there (df -h {quoted})",
            kib(need.bytes),
            space.bytes / 1024,
            quoted = shell_word(directory)
        );
        return Some(unreachable(ReasonKind::Space, field, message));
    }
    let free = space.inodes.filter(|free| need.inodes > *free)?;
    let message = format!(
        "the update needs up to {} inodes on the file system of {directory}, which has {free} free; remove files there \
         (df -i {quoted})",
        need.inodes,
        quoted = shell_word(directory)
    );
    Some(unreachable(ReasonKind::Space, field, message))
}
