//! POSIX ACLs: the text that tar writes, as the kernel's attribute, and back.

/// The version of the attribute, and the id of an entry that has none.
const VERSION: u32 = 2;
const NO_ID: u32 = u32::MAX;

/// Size of one entry.
const ENTRY_BYTES: usize = 8;

/// Turns names of users or groups into ids.
pub(super) trait Ids {
    /// Returns the id of a user.
    fn user(&self, name: &str) -> Option<u32>;
    /// Returns the id of a group.
    fn group(&self, name: &str) -> Option<u32>;
}

/// Turns a text such as `user::rwx,user:core:r--,group::r-x,mask::r-x,other::---` into the attribute; `None` for what is no
/// ACL. An empty text is an ACL without entries, which is none.
pub(super) fn attribute(text: &str, ids: &impl Ids) -> Option<Vec<u8>> {
    let mut entries = Vec::new();
    for entry in text.split([',', '\n']).map(str::trim) {
        // The rest is a comment, for instance `#effective:r--`.
        let entry = entry.split(['#', '\t']).next().unwrap_or_default().trim();
        if entry.is_empty() {
            continue;
        }
        let mut parts = entry.splitn(3, ':');
        let (kind, name, bits) = (parts.next()?, parts.next()?, parts.next()?);
        let (tag, id): (u16, u32) = match (kind, name) {
            ("user" | "u", "") => (0x01, NO_ID),
            ("user" | "u", name) => (0x02, name.parse().ok().or_else(|| ids.user(name))?),
            ("group" | "g", "") => (0x04, NO_ID),
            ("group" | "g", name) => (0x08, name.parse().ok().or_else(|| ids.group(name))?),
            ("mask" | "m", "") => (0x10, NO_ID),
            ("other" | "o", "") => (0x20, NO_ID),
            _ => return None,
        };
        entries.push((tag, id, permissions(bits)?));
    }
    // The kernel wants them so.
    entries.sort_unstable();
    let mut bytes = VERSION.to_le_bytes().to_vec();
    for (tag, id, bits) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(bits.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    Some(bytes)
}

/// Turns an attribute into the text that tar writes, with ids as numbers; `None` for what is no ACL.
pub(super) fn text(attribute: &[u8]) -> Option<String> {
    let (version, entries) = attribute.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*version) != VERSION || entries.len() % ENTRY_BYTES != 0 {
        return None;
    }
    let mut lines = Vec::new();
    for entry in entries.chunks_exact(ENTRY_BYTES) {
        let [tag, tag_high, bits, bits_high, id @ ..] = <[u8; ENTRY_BYTES]>::try_from(entry).ok()?;
        let (tag, bits) = (u16::from_le_bytes([tag, tag_high]), u16::from_le_bytes([bits, bits_high]));
        let id = u32::from_le_bytes(id);
        let (kind, id) = match tag {
            0x01 => ("user", String::new()),
            0x02 => ("user", id.to_string()),
            0x04 => ("group", String::new()),
            0x08 => ("group", id.to_string()),
            0x10 => ("mask", String::new()),
            0x20 => ("other", String::new()),
            _ => return None,
        };
        let bit = |mask: u16, c: char| if bits & mask == 0 { '-' } else { c };
        lines.push(format!("{kind}:{id}:{}{}{}", bit(4, 'r'), bit(2, 'w'), bit(1, 'x')));
    }
    Some(lines.join(","))
}

fn permissions(text: &str) -> Option<u16> {
    let bit = |c: char| match c {
        'r' => Some(4),
        'w' => Some(2),
        'x' => Some(1),
        '-' => Some(0),
        _ => None,
    };
    text.chars().try_fold(0, |bits, c| Some(bits | bit(c)?))
}

/// The accounts of the running host: the names are of a host like it.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    users: Vec<(String, u32)>,
    groups: Vec<(String, u32)>,
}

impl Accounts {
    /// Reads the account files; one that can't be read has no names.
    pub(super) fn load() -> Self {
        let read = |paths: [&str; 2]| {
            let texts = paths.map(|path| std::fs::read_to_string(path).unwrap_or_default());
            texts.iter().flat_map(|text| text.lines()).filter_map(entry).collect()
        };
        Self {
            users: read(["/etc/passwd", "/usr/lib/passwd"]),
            groups: read(["/etc/group", "/usr/lib/group"]),
        }
    }
}

fn entry(line: &str) -> Option<(String, u32)> {
    let mut fields = line.split(':');
    let (name, id) = (fields.next()?, fields.nth(1)?);
    Some((name.to_owned(), id.parse().ok()?))
}

fn id_of(list: &[(String, u32)], name: &str) -> Option<u32> {
    list.iter().find(|(known, _)| known == name).map(|(_, id)| *id)
}

impl Ids for Accounts {
    fn user(&self, name: &str) -> Option<u32> {
        id_of(&self.users, name)
    }

    fn group(&self, name: &str) -> Option<u32> {
        id_of(&self.groups, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts() -> Accounts {
        Accounts { users: vec![("core".to_owned(), 1000)], groups: vec![("wheel".to_owned(), 10)] }
    }

    #[test]
    fn text_becomes_the_attribute_of_the_kernel() {
        let text = "user::rw-,group:wheel:r-x,user:core:r--,group::r--,mask::r-x\t#x,other::---\n";
        let bytes = attribute(text, &accounts()).unwrap();
        assert_eq!(bytes[..4], [2, 0, 0, 0]);
        let entries: Vec<(u8, u8, u32)> = bytes[4..]
            .chunks(8)
            .map(|entry| (entry[0], entry[2], u32::from_le_bytes(entry[4..].try_into().unwrap())))
            .collect();
        let expected =
            [(1, 6, NO_ID), (2, 4, 1000), (4, 4, NO_ID), (8, 5, 10), (16, 5, NO_ID), (32, 0, NO_ID)];
        assert_eq!(entries, expected);
        assert_eq!(attribute("u:77:rwx", &accounts()).unwrap()[8..], 77_u32.to_le_bytes());
    }

    #[test]
    fn attribute_becomes_the_text_of_tar() {
        let expected = "user::rw-,user:1000:r--,group::r--,group:10:r-x,mask::r-x,other::---";
        let bytes = attribute(expected, &accounts()).unwrap();
        assert_eq!(text(&bytes).as_deref(), Some(expected));
        assert_eq!((text(b""), text(&bytes[..11]), text(&[0; 12])), (None, None, None));
    }

    #[test]
    fn rubbish_is_no_acl() {
        for bad in ["user", "user::q", "user:nobody-here:r--", "mask:x:r--", "role::r--", "::"] {
            assert_eq!(attribute(bad, &accounts()), None, "{bad}");
        }
    }

    #[test]
    fn account_lines_are_read() {
        assert_eq!(entry("core:x:1000:1000:Core:/var/home/core:/bin/bash"), Some(("core".to_owned(), 1000)));
        assert_eq!((entry("x"), entry("a:b:c")), (None, None));
    }
}
