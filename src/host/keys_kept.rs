//! Changes of keys files by persons since an update: the undo keeps lines that they have added, and brings back none that they have removed.

use std::collections::BTreeSet;

use super::account_lines::AccountLines;
use super::accounts::Accounts;
use super::saved::{Bytes, PathSnapshot};
use super::{HostError, Root, keys};
use crate::model::users::{KEYS_FILE, Users, keys_text};
use crate::model::{FileMode, UserName};

/// Returns the account whose keys file a path is, and the file as an undo leaves it, where a person has changed it since; `None` where it
/// goes back as it was saved.
pub fn merged(
    root: &Root,
    users: &Users,
    lines: Option<&AccountLines>,
    (path, saved): (&str, &PathSnapshot),
) -> Result<Option<(String, PathSnapshot)>, HostError> {
    let is_kept = matches!(saved, PathSnapshot::Absent | PathSnapshot::File { .. });
    if !is_kept || !path.ends_with(KEYS_FILE) {
        return Ok(None);
    }
    let accounts = Accounts::load(root)?;
    let Some((name, user)) = accounts.users().find(|(_, user)| keys::path(user) == path) else {
        return Ok(None);
    };
    // Something else in its place is no keys file.
    let Some(now) = keys::read(root, user)? else { return Ok(None) };
    let before = if let PathSnapshot::File { bytes, .. } = saved { bytes.as_slice() } else { &[] };
    let entry = UserName::new(name.as_str()).ok();
    let entry = entry.as_ref().and_then(|name| Some((name, users.accounts.get(name)?)));
    let desired = entry.filter(|(_, entry)| entry.should_exist);
    let desired = desired.and_then(|(name, entry)| entry.desired_keys(name)).map(keys_text);
    // Without keys of the config, it has those of before any.
    let original = lines.and_then(|lines| lines.original_keys(name));
    let written = if let Some(text) = &desired {
        text.as_bytes()
    } else if let Some(PathSnapshot::File { bytes, .. }) = &original {
        bytes.as_slice()
    } else {
        &[]
    };
    let written: BTreeSet<&[u8]> = split(written).collect();
    let text = text(before, &now, &written);
    if text == before {
        return Ok(None);
    }
    let bytes = Bytes::new(&text);
    let file = if let PathSnapshot::File { mode, uid, gid, attributes, flags, .. } = saved.clone() {
        PathSnapshot::File { bytes, mode, uid, gid, attributes, flags }
    } else {
        let (mode, uid, gid) = (FileMode::PRIVATE.bits(), user.uid, user.gid);
        PathSnapshot::File { bytes, mode, uid, gid, attributes: Vec::new(), flags: None }
    };
    Ok(Some((name.clone(), file)))
}

/// Returns the lines of before without those that a person has removed, and those that he has added.
fn text(before: &[u8], now: &[u8], written: &BTreeSet<&[u8]>) -> Vec<u8> {
    let (was, is): (BTreeSet<&[u8]>, BTreeSet<&[u8]>) = (split(before).collect(), split(now).collect());
    let is_removed = |line: &[u8]| written.contains(line) && !is.contains(line);
    let added: Vec<&[u8]> =
        split(now).filter(|line| !was.contains(line) && !written.contains(line)).collect();
    if added.is_empty() && !split(before).any(is_removed) {
        return before.to_vec();
    }
    let left = split(before).filter(|line| !is_removed(line));
    left.chain(added).flat_map(|line| [line, b"\n"].concat()).collect()
}

fn split(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_file_is_merged_by_line() {
        let merged = |before: &str, now: &str, written: &str| {
            let merged = text(before.as_bytes(), now.as_bytes(), &split(written.as_bytes()).collect());
            String::from_utf8(merged).unwrap()
        };
        // The update's own, whether it was written or not; with and without an end.
        assert_eq!(merged("a\nb\n", "b\nc\n", "b\nc\n"), "a\nb\n");
        assert_eq!(merged("a\nb", "a\nb", "b\nc\n"), "a\nb");
        assert_eq!(merged("a\n", "", ""), "a\n");
        // A person's line more, and one less.
        assert_eq!(merged("a\nb\n", "b\nc\nperson\n", "b\nc\n"), "a\nb\nperson\n");
        assert_eq!(merged("a\nb\n", "c\n", "b\nc\n"), "a\n");
        assert_eq!(merged("", "c\nperson\n", "c\n"), "person\n");
    }
}
