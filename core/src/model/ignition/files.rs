//! `storage.files`: decoded contents, mode and owner of each file. Append and remote sources are refused here.

use std::collections::BTreeMap;

use ignition_config::v3_6::{File, NodeGroup, NodeUser};

use super::super::decode::{Decoded, Decoder};
use super::super::error::ModelError;
use super::super::text::short;
use super::super::{
    FileMode, FileSpec, ManagedPath, NotApplied, NotAppliedReason, Owner, Principal, UserName,
};
use super::stale::stale;
use super::within::Entries;

/// Reads all files; each is dropped from the document as soon as it is decoded.
pub(super) fn read(
    entries: &mut Entries<'_>,
    files: Vec<File>,
    decoder: &mut Decoder,
) -> BTreeMap<ManagedPath, FileSpec> {
    let mut read = BTreeMap::new();
    for file in files {
        let field = |part: &str| format!("storage.files {:?}{part}", short(&file.path, 200));
        let within = entries.within;
        let path = path_of(entries, &field(""), &file.path);
        if file.append.as_ref().is_some_and(|append| !append.is_empty()) {
            let cause = "appending is not supported; write the whole file".to_owned();
            entries.faults.add(within.unreachable(field(" append"), cause));
        }
        let decoded = decoder.decode(file.contents.as_ref());
        let decoded = decoded.map_err(|cause| within.error(field(" contents"), cause));
        if file.overwrite == Some(false) {
            let message = "a file that the host has there is replaced all the same, as by MCD, and comes back when the entry leaves; \
                           remove the field";
            entries.remarks.push(NotApplied::new(field(" overwrite"), NotAppliedReason::NoEffect, message));
        }
        let mode = file
            .mode
            .map_or(Some(FileMode::DEFAULT), FileMode::new)
            .ok_or_else(|| within.unreachable(field(" mode"), wrong_mode(file.mode.unwrap_or_default())));
        let decoded = entries.faults.take(decoded);
        let mode = entries.faults.take(mode);
        let owner = owner(entries, field, (file.user, file.group));
        let (Some(path), Some(decoded), Some(mode), Some(owner)) = (path, decoded, mode, owner) else {
            continue;
        };
        let Decoded { contents, is_stale } = decoded;
        if is_stale {
            entries.remarks.push(stale(&file.path));
        }
        if read.insert(path, FileSpec { contents, mode, owner }).is_some() {
            entries.faults.add(within.unreachable(field(""), TWICE));
        }
    }
    read
}

/// The cause of a second entry of a path.
pub(super) const TWICE: &str = "the path is listed twice; keep one entry";

/// Reads the path of an entry.
pub(super) fn path_of(entries: &mut Entries<'_>, field: &str, path: &str) -> Option<ManagedPath> {
    let wrong =
        |error: ModelError| entries.within.unreachable(field, format!("{error}; choose another path"));
    let path = ManagedPath::new(path).map_err(wrong);
    entries.faults.take(path)
}

/// Reads the owner of a file or a link.
pub(super) fn owner(
    entries: &mut Entries<'_>,
    field: impl Fn(&str) -> String,
    (user, group): (Option<NodeUser>, Option<NodeGroup>),
) -> Option<Owner> {
    let (user, group) = (user.unwrap_or_default(), group.unwrap_or_default());
    let user = principal(user.id, user.name).map_err(|cause| entries.within.error(field(" user"), cause));
    let group = principal(group.id, group.name).map_err(|cause| entries.within.error(field(" group"), cause));
    let (user, group) = (entries.faults.take(user), entries.faults.take(group));
    Some(Owner { user: user?, group: group? })
}

/// Returns why a mode is refused. One that is octal digits was meant so: `mode: 644` is 01204.
fn wrong_mode(mode: i64) -> String {
    let rule = "it must be 0 to 0777 (511 in JSON): setuid, setgid and sticky are not supported";
    match i64::from_str_radix(&mode.to_string(), 8) {
        Ok(meant @ 0..=0o777) => {
            format!(
                "{rule}; {mode} is decimal, 0{mode:o} in octal: for 0{meant:o} write 0{meant:o} in YAML, {meant} in JSON"
            )
        }
        Ok(_) | Err(_) => rule.to_owned(),
    }
}

/// A number wins over a name; nothing means root (MCD-124).
fn principal(id: Option<i64>, name: Option<String>) -> Result<Principal, String> {
    Ok(principal_if_set(id, name)?.unwrap_or(Principal::Id(0)))
}

/// As [`principal`]; `None` for nothing.
pub(super) fn principal_if_set(id: Option<i64>, name: Option<String>) -> Result<Option<Principal>, String> {
    match (id, name.filter(|name| !name.is_empty())) {
        (Some(id), _) => {
            // The highest id means "leave as it is" to chown(2).
            let id = u32::try_from(id).ok().filter(|id| *id != u32::MAX);
            id.map(|id| Some(Principal::Id(id))).ok_or_else(|| "its id must be 0 to 4294967294".to_owned())
        }
        (None, Some(name)) => {
            let name = UserName::new(name).map_err(|error| error.to_string())?;
            Ok(Some(Principal::Name(name.into())))
        }
        (None, None) => Ok(None),
    }
}
