//! Files, unit files and drop-ins: written, removed, restored, all in one durable batch.

use std::collections::BTreeMap;

use crate::host::accounts::Accounts;
use crate::host::durable::{self, Change, DesiredPath};
use crate::host::saved::{self, PathSnapshot};
use crate::host::{Host, HostError};
use crate::journal::Intent;
use crate::model::{FileSpec, ManagedPath, Owner, Principal};
use crate::plan::{BatchOp, FileOp, Step};

use super::ApplyError;

/// The extended attributes of a file.
type Attributes = Vec<(String, Vec<u8>)>;

/// Outcome of one path.
enum Outcome<'a> {
    Write { file: &'a FileSpec, uid: u32, gid: u32 },
    Restore { saved: PathSnapshot, attributes: Attributes, trusted: u32 },
    Remove { trusted: u32 },
}

/// Carries out the steps of one batch of files.
pub(super) fn apply_batch(intent: &Intent<'_>, host: &Host, steps: &[Step]) -> Result<(), ApplyError> {
    let (old, new) = (intent.from().written(), intent.to().written());
    let accounts = Accounts::load(&host.root).map_err(ApplyError::host("the files"))?;
    let ids = |step: &Step, owner: &Owner| ids(&accounts, owner).map_err(ApplyError::host(step.to_string()));
    let mut outcomes = BTreeMap::new();
    for step in steps {
        let not_in = || ApplyError::foreign(step, intent.to().name.as_str());
        let (BatchOp::File(op), Some(path)) = (step.op.in_batch(), step.op.path()) else {
            return Err(not_in());
        };
        let outcome = match op {
            FileOp::Write => {
                let file = new.get(&path).ok_or_else(not_in)?;
                let (uid, gid) = ids(step, &file.owner)?;
                Outcome::Write { file, uid, gid }
            }
            FileOp::Remove | FileOp::Restore => {
                let old = old.get(&path).map_or(Ok((0, 0)), |file| ids(step, &file.owner));
                // An owner that the host has forgotten can't be trusted with directories; root can.
                let trusted = old.map_or(0, |(uid, _)| uid);
                take_away(host, step, &path, op == FileOp::Restore, trusted)?
            }
        };
        outcomes.insert(path, outcome);
    }
    let changes: Vec<Change<'_>> = outcomes.iter().map(|(path, outcome)| change(path, outcome)).collect();
    let run =
        intent.originals().save(&host.root, &changes, None).map_err(ApplyError::originals("the files"))?;
    host.fail_points.hit("originals-saved");
    let done = durable::apply_changes(&host.root, &changes, run, &host.fail_points);
    done.map(|_| ()).map_err(ApplyError::host("the files"))
}

fn take_away<'a>(
    host: &Host,
    step: &Step,
    path: &ManagedPath,
    restore: bool,
    trusted: u32,
) -> Result<Outcome<'a>, ApplyError> {
    let original = if restore { saved::original(&host.root, path) } else { Ok(None) };
    Ok(match original.map_err(ApplyError::host(step.to_string()))? {
        Some(saved) => Outcome::Restore { attributes: saved.attributes(), saved, trusted },
        None => Outcome::Remove { trusted },
    })
}

fn change<'a>(path: &ManagedPath, outcome: &'a Outcome<'_>) -> Change<'a> {
    match outcome {
        Outcome::Write { file, uid, gid } => {
            let want = DesiredPath::file(file.contents.bytes(), file.mode.bits(), *uid, *gid);
            Change::new(path.as_str(), *uid, want)
        }
        Outcome::Restore { saved, attributes, trusted } => {
            saved.put_back(path.as_str(), *trusted, attributes)
        }
        Outcome::Remove { trusted } => Change::new(path.as_str(), *trusted, DesiredPath::Absent),
    }
}

fn ids(accounts: &Accounts, owner: &Owner) -> Result<(u32, u32), HostError> {
    let unknown = |kind: &'static str, name: &str| HostError::UnknownAccount { kind, name: name.to_owned() };
    let uid = match &owner.user {
        Principal::Id(uid) => *uid,
        Principal::Name(name) => accounts.user(name).ok_or_else(|| unknown("user", name))?.uid,
    };
    let gid = match &owner.group {
        Principal::Id(gid) => *gid,
        Principal::Name(name) => accounts.group(name).ok_or_else(|| unknown("group", name))?,
    };
    Ok((uid, gid))
}
