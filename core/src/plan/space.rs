//! The space that the steps take on the file systems of this host.

use std::collections::BTreeMap;

use super::account_obstacles::changes_databases;
use super::blocked::{is_touched, replaced};
use super::input::PlanInput;
use super::reason::{ReasonKind, Unreachable, unreachable};
use super::{BatchOp, FileOp, Op, Step};
use crate::model::obstacles::{Obstacles, Space};
use crate::model::text::shell_word;
use crate::model::users::Account;
use crate::model::{ObservedFile, UserName};

/// The inodes of one written path: its own, and that of a directory that it may need.
const INODES: u64 = 2;
/// The inodes of the keys of an account: two directories, the file, and its new version.
const OF_KEYS: u64 = 4;
/// Bytes around the config in a file of the state, and of a record without steps.
const AROUND: u64 = 2048;
/// Bytes of a step in the record.
const OF_STEP: u64 = 256;
/// The record, its next version, and the entry of the history.
const RECORDS: u64 = 3;
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
    /// Files take some of it.
    is_of_files: bool,
    /// Accounts do.
    is_of_accounts: bool,
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

    fn add_of_state(&mut self, device: Option<&u64>, bytes: u64) {
        self.add(device, bytes, 1);
    }

    fn add_of_account(&mut self, device: Option<&u64>, bytes: u64, inodes: u64) {
        if let Some(need) = self.add(device, bytes, inodes) {
            need.is_of_accounts = true;
        }
    }

    fn add_of_file(&mut self, device: Option<&u64>, bytes: u64, inodes: u64) {
        if let Some(need) = self.add(device, bytes, inodes) {
            need.is_of_files = true;
        }
    }
}

/// Returns the file systems that lack space. Every new version of a batch waits beside its place before the first is switched; the
/// rest is in the agent's state.
pub(super) fn missing(input: &PlanInput<'_>, steps: &[Step]) -> Vec<Unreachable> {
    let found = &input.facts.obstacles;
    let mut needs = Needs { found, by_device: BTreeMap::new() };
    let makes =
        |op: &Op| matches!(op.in_batch(), BatchOp::File(FileOp::Write | FileOp::Directory | FileOp::Link));
    for step in steps.iter().filter(|step| makes(&step.op)) {
        let Some(path) = step.op.path() else { continue };
        let Some(len) = input.new_len(&path).filter(|_| is_touched(input, &step.op, &path)) else { continue };
        needs.add_of_file(found.devices.get(&path), len, INODES);
    }
    of_state(input, steps, &mut needs);
    of_accounts(input, steps, &mut needs);
    needs.by_device.iter().filter_map(|(device, need)| short(found.spaces.get(device)?, need)).collect()
}

/// Adds the agent's own files: the config of the open update, and the same as the committed one before the first goes; the record with
/// its next version and the entry of the history; the originals, in base64, and once more as they outlive the update. And the
/// config as machine-config-daemon finds it.
fn of_state(input: &PlanInput<'_>, steps: &[Step], needs: &mut Needs<'_>) {
    let is_recorded = !steps.is_empty() || input.from.name != input.to.name;
    let size = input.to.size.0;
    // What is not read from a document is nothing to be stored.
    if !is_recorded || size == 0 {
        return;
    }
    let found = &input.facts.obstacles;
    let state = found.state.as_ref();
    for _ in 0..COPIES {
        needs.add_of_state(state, size.saturating_add(AROUND));
    }
    let each = u64::try_from(steps.len()).unwrap_or(u64::MAX).saturating_mul(OF_STEP);
    for _ in 0..RECORDS {
        needs.add_of_state(state, each.saturating_add(AROUND));
    }
    let encoded = |len: u64| len.saturating_mul(4) / 3;
    let replaced: Vec<u64> = replaced(input, steps).map(|(_, _, len, _)| len).collect();
    if !replaced.is_empty() {
        needs.add_of_state(state, encoded(replaced.iter().fold(0, |sum, len| sum.saturating_add(*len))));
    }
    for len in replaced.into_iter().chain(adopted(input)) {
        needs.add_of_state(state, encoded(len));
    }
    needs.add_of_state(found.mcd.as_ref(), size);
}

/// Returns the sizes of the files that the host has as the new config wants them, and whose originals are kept from now on.
fn adopted<'a>(input: &'a PlanInput<'_>) -> impl Iterator<Item = u64> + 'a {
    let new = input.paths().filter(|path| input.old(path).is_none() && input.is_in_place(path));
    new.filter_map(|path| match input.facts.observed.files.get(path)? {
        ObservedFile::Regular { len, .. } => Some(*len),
        ObservedFile::Absent
        | ObservedFile::Symlink { .. }
        | ObservedFile::Directory { .. }
        | ObservedFile::Special
        | ObservedFile::Unreachable => None,
    })
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
            needs.add_of_account(
                found.homes.get(user.as_str()),
                bytes.saturating_add(1),
                entries.saturating_add(1),
            );
        }
        if let Op::SetSshKeys { user } = &step.op
            && let Some(account) = account(user)
        {
            let text = u64::try_from(account.keys_text().len()).unwrap_or(u64::MAX);
            needs.add_of_account(found.homes.get(user.as_str()), text, OF_KEYS);
        }
    }
    if let Some((device, bytes)) = found.databases.filter(|_| lines > 0) {
        needs.add_of_account(
            Some(&device),
            bytes.saturating_add(lines).saturating_mul(COPIES),
            DATABASES * COPIES,
        );
    }
}

fn short(space: &Space, need: &Need) -> Option<Unreachable> {
    let Space { directory, .. } = space;
    let field = match need {
        Need { is_of_files: true, .. } => "storage.files",
        Need { is_of_accounts: true, .. } => "passwd",
        Need { .. } => "spec",
    };
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
