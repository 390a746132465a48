//! The keys and the password of `core`. On a host without the account nothing is done (MCD-160).

use std::collections::BTreeMap;

use crate::host::accounts::{self, Accounts, User};
use crate::host::durable::{self, Change, DesiredPath};
use crate::host::{Host, HostError, keys};
use crate::journal::Intent;
use crate::model::FileMode;
use crate::model::users::{CORE, KEYS_FILE, PasswordHash};
use crate::plan::{BatchOp, Step, UserOp};

use super::ApplyError;

/// Carries out the steps of one batch of accounts.
pub(super) fn apply_batch(intent: &Intent<'_>, host: &Host, steps: &[Step]) -> Result<(), ApplyError> {
    let failed = || ApplyError::host("the account core");
    let accounts = Accounts::load(&host.root).map_err(failed())?;
    let Some(user) = accounts.user(CORE) else { return Ok(()) };
    let core = intent.to().users.core.as_ref();
    let text = core.map(crate::model::users::Core::keys_text);
    let mut changes = Vec::new();
    let mut password = None;
    for step in steps {
        let BatchOp::User(op) = step.op.in_batch() else {
            return Err(ApplyError::foreign(step, intent.to().name.as_str()));
        };
        match op {
            UserOp::SshKeys => changes.push(keys_change(user, text.as_deref())),
            // A user that is no longer listed is locked; an empty password would let everyone in (W-36).
            UserOp::Password => {
                password = Some(core.map_or_else(PasswordHash::locked, |core| core.password.clone()));
            }
        }
    }
    if !changes.is_empty() {
        // Before the originals are saved: the file moved aside here is not the one that a write would replace.
        keys::prepare(&host.root, user.home.trim_end_matches('/'), user).map_err(failed())?;
        host.fail_points.hit("keys-directory");
    }
    let found = match password {
        Some(_) => accounts::password(&host.root, CORE).map_err(failed())?,
        None => None,
    };
    let saved = intent.originals().save(&host.root, &changes, &BTreeMap::new(), found.as_ref());
    let run = saved.map_err(ApplyError::originals("the account core"))?;
    host.fail_points.hit("originals-saved");
    apply_changes(host, &changes, password.as_ref(), run).map_err(failed())
}

fn apply_changes(
    host: &Host,
    changes: &[Change<'_>],
    password: Option<&PasswordHash>,
    run: durable::Attempt,
) -> Result<(), HostError> {
    if !changes.is_empty() {
        durable::apply_changes(&host.root, changes, run, &host.fail_points)?;
    }
    match password {
        Some(hash) => accounts::set_password(&host.root, CORE, hash, run, &host.fail_points),
        None => Ok(()),
    }
}

fn keys_change<'a>(user: &User, text: Option<&'a str>) -> Change<'a> {
    let path = format!("{}/{KEYS_FILE}", user.home.trim_end_matches('/'));
    let want = match text {
        Some(text) => DesiredPath::file(text.as_bytes(), FileMode::PRIVATE.bits(), user.uid, user.gid),
        None => DesiredPath::Absent,
    };
    Change::new(path, user.uid, want)
}
