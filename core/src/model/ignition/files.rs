//! `storage.files`: decoded contents, mode and owner of each file. Append and remote sources are refused here.

use std::collections::BTreeMap;

use ignition_config::v3_6::File;

use super::super::decode::{Decoded, Decoder};
use super::super::error::ModelError;
use super::super::text::short;
use super::super::{FileMode, FileSpec, ManagedPath, NotApplied, Owner, Principal, UserName};
use super::stale::stale;
use super::within::Within;

/// Reads all files; each is dropped from the document as soon as it is decoded.
pub(super) fn read(
    within: Within<'_>,
    files: Vec<File>,
    decoder: &mut Decoder,
    remarks: &mut Vec<NotApplied>,
) -> Result<BTreeMap<ManagedPath, FileSpec>, ModelError> {
    let mut read = BTreeMap::new();
    for file in files {
        let field = |part: &str| format!("storage.files {:?}{part}", short(&file.path, 200));
        let path = ManagedPath::new(file.path.as_str())
            .map_err(|error| within.unreachable(field(""), format!("{error}; choose another path")))?;
        let fail = |part: &str, cause: String| within.error(field(part), cause);
        if file.append.as_ref().is_some_and(|append| !append.is_empty()) {
            let cause = "appending is not supported; write the whole file".to_owned();
            return Err(within.unreachable(field(" append"), cause));
        }
        let Decoded { contents, is_stale } =
            decoder.decode(file.contents.as_ref()).map_err(|cause| fail(" contents", cause))?;
        if is_stale {
            remarks.push(stale(&file.path));
        }
        let mode = file
            .mode
            .map_or(Some(FileMode::DEFAULT), FileMode::new)
            .ok_or_else(|| within.unreachable(field(" mode"), wrong_mode(file.mode.unwrap_or_default())))?;
        let user = file.user.unwrap_or_default();
        let group = file.group.unwrap_or_default();
        let owner = Owner {
            user: principal(user.id, user.name).map_err(|cause| fail(" user", cause))?,
            group: principal(group.id, group.name).map_err(|cause| fail(" group", cause))?,
        };
        if read.insert(path, FileSpec { contents, mode, owner }).is_some() {
            return Err(within.unreachable(field(""), "the path is listed twice; keep one entry"));
        }
    }
    Ok(read)
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
pub(super) fn principal(id: Option<i64>, name: Option<String>) -> Result<Principal, String> {
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
