//! Archives of tar, read as a stream: what each entry is, with extended attributes, in bounded memory.
//!
//! The crate `tar` finds the headers. The records of their extensions are read here: it splits them at line ends, which are
//! bytes like others in the value of an attribute, and reads as much as a header says.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use tar::Archive;

use super::acl::{self, Ids};
use crate::model::short;
use crate::model::text::{escaped, shown};

/// The longest extension header: names, and the attributes of one file.
const MAX_EXTENSION_BYTES: u64 = 2 << 20;

/// The largest file, as the numbers of a header without extensions have it.
pub(super) const MAX_FILE_BYTES: u64 = 8 << 30;

/// As much of a name is shown.
const MAX_SHOWN: usize = 200;

/// The deepest path: one descriptor is open for each directory.
const MAX_DEPTH: usize = 128;

/// The attributes that hold ACLs.
const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
const SELINUX: &str = "security.selinux";

/// Type of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// A regular file of so many bytes, which follow.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink(OsString),
    /// Another name of a file that was there before.
    HardLink(PathBuf),
    /// A named pipe.
    Fifo,
    /// A device.
    Device {
        /// True for one of blocks.
        block: bool,
        /// Its numbers.
        major: u32,
        /// Its numbers.
        minor: u32,
    },
}

/// One entry, without its contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its path below the archive's directory; empty for that one itself.
    pub(super) path: PathBuf,
    /// Its type.
    pub(super) kind: Kind,
    /// The permission bits.
    pub(super) mode: u32,
    /// The owner.
    pub(super) user: u32,
    /// The group.
    pub(super) group: u32,
    /// The time of change: seconds and nanoseconds.
    pub(super) modified: (i64, i64),
    /// Extended attributes, ACLs and the label among them.
    pub(super) attributes: Vec<(OsString, Vec<u8>)>,
}

/// Returns the error of an archive that is not as it should be.
pub(super) fn damaged(cause: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, cause.into())
}

/// The crate gives its own complaints no kind; those of reading keep theirs. Its texts have names of the archive as they are.
fn parsed(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::Other {
        return error;
    }
    damaged(escaped(&error.to_string()).replace('\n', "\\n"))
}

/// Contents of the extension headers before an entry.
#[derive(Default)]
struct Extensions {
    name: Option<OsString>,
    link: Option<OsString>,
    user: Option<u32>,
    group: Option<u32>,
    modified: Option<(i64, i64)>,
    attributes: Vec<(OsString, Vec<u8>)>,
    /// The names of these: a header has room for a hundred thousand.
    known: BTreeSet<OsString>,
}

/// Reads all entries of an archive. `inside` is the directory that every name has to begin with, for instance `etc`; with
/// `None` the names are taken as they are. A file of more than `largest` bytes is an error.
pub(super) fn read_entries<R: Read>(
    source: R,
    inside: Option<&str>,
    largest: u64,
    ids: &impl Ids,
    mut each: impl FnMut(Entry, &mut dyn Read) -> io::Result<()>,
) -> io::Result<()> {
    let mut archive = Archive::new(source);
    let mut extensions = Extensions::default();
    for entry in archive.entries()?.raw(true) {
        let mut entry = entry.map_err(parsed)?;
        let (kind, size) = (entry.header().entry_type(), entry.size());
        let is_extension = kind.is_pax_local_extensions() || kind.is_gnu_longname() || kind.is_gnu_longlink();
        if is_extension {
            if size > MAX_EXTENSION_BYTES {
                return Err(damaged(format!("an extension header has {size} bytes")));
            }
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes)?;
            if kind.is_gnu_longname() {
                extensions.name = Some(text(bytes));
            } else if kind.is_gnu_longlink() {
                extensions.link = Some(text(bytes));
            } else {
                extensions.read(&bytes, ids)?;
            }
        }
        if is_extension || kind.is_pax_global_extensions() {
            continue;
        }
        if size > largest {
            return Err(damaged("it has a file of more than 8 GiB, which is not read"));
        }
        let read = read_entry(entry.header(), std::mem::take(&mut extensions), inside).map_err(parsed)?;
        each(read, &mut entry)?;
        // What was not read belongs to it.
        io::copy(&mut entry, &mut io::sink())?;
    }
    // To the end: the checksum of the compression is there.
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    Ok(())
}

fn read_entry(header: &tar::Header, extensions: Extensions, inside: Option<&str>) -> io::Result<Entry> {
    let name = extensions.name.unwrap_or_else(|| OsString::from_vec(header.path_bytes().into_owned()));
    let link = extensions
        .link
        .or_else(|| header.link_name_bytes().map(|bytes| OsString::from_vec(bytes.into_owned())))
        .unwrap_or_default();
    let number = |found: io::Result<Option<u32>>| found.map(Option::unwrap_or_default);
    let of = header.entry_type();
    let kind = if of.is_file() || of.is_contiguous() {
        Kind::File
    } else if of.is_dir() {
        Kind::Directory
    } else if of.is_symlink() && !link.is_empty() {
        Kind::Symlink(link)
    } else if of.is_hard_link() {
        Kind::HardLink(below(&link, inside)?)
    } else if of.is_fifo() {
        Kind::Fifo
    } else if of.is_block_special() || of.is_character_special() {
        let (major, minor) = (number(header.device_major())?, number(header.device_minor())?);
        Kind::Device { block: of.is_block_special(), major, minor }
    } else {
        return Err(damaged(format!("{} is of the kind {of:?}, which is not read", named(&name))));
    };
    let id = |own: Option<u32>, field: io::Result<u64>| match own {
        Some(id) => Ok(id),
        None => u32::try_from(field?).map_err(|_| damaged("an owner's number is too large")),
    };
    let modified = match extensions.modified {
        Some(modified) => modified,
        None => (i64::try_from(header.mtime()?).map_err(|_| damaged("a time is too large"))?, 0),
    };
    Ok(Entry {
        path: below(&name, inside)?,
        kind,
        mode: header.mode()? & 0o7777,
        user: id(extensions.user, header.uid())?,
        group: id(extensions.group, header.gid())?,
        modified,
        attributes: extensions.attributes,
    })
}

/// Returns a name relative to the directory that it has to be in; one that leads elsewhere is an error.
fn below(name: &OsString, inside: Option<&str>) -> io::Result<PathBuf> {
    let outside = || damaged(format!("{} leads out of {}", named(name), inside.unwrap_or("the archive")));
    let mut path = PathBuf::new();
    for part in Path::new(name).components() {
        match part {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(part) if !part.as_bytes().contains(&0) => path.push(part),
            Component::Normal(_) | Component::ParentDir | Component::Prefix(_) => return Err(outside()),
        }
    }
    let path = match inside {
        None => path,
        Some(inside) => path.strip_prefix(inside).map_err(|_| outside())?.to_owned(),
    };
    if path.components().count() > MAX_DEPTH {
        return Err(damaged(format!("{} is deeper than {MAX_DEPTH} directories", named(name))));
    }
    Ok(path)
}

/// Returns a name for an error: in one line, and without what moves a terminal.
pub(super) fn named(name: &std::ffi::OsStr) -> String {
    shown(&name.to_string_lossy(), MAX_SHOWN).replace('\n', "\\n")
}

/// A text that ends with the first zero.
fn text(mut bytes: Vec<u8>) -> OsString {
    if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
        bytes.truncate(end);
    }
    OsString::from_vec(bytes)
}

impl Extensions {
    /// Reads the records `LENGTH KEY=VALUE\n` of a header.
    fn read(&mut self, mut bytes: &[u8], ids: &impl Ids) -> io::Result<()> {
        let broken = || damaged("a record of an extension header can't be read");
        while !bytes.is_empty() {
            let space = bytes.iter().position(|byte| *byte == b' ').ok_or_else(broken)?;
            let length = bytes.get(..space).and_then(|digits| std::str::from_utf8(digits).ok());
            let length: usize = length.and_then(|digits| digits.parse().ok()).ok_or_else(broken)?;
            let record = bytes.get(space + 1..length).ok_or_else(broken)?;
            let record = record.strip_suffix(b"\n").ok_or_else(broken)?;
            let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(broken)?;
            let (key, value) = record.split_at_checked(equals).ok_or_else(broken)?;
            self.take(key, value.get(1..).unwrap_or_default(), ids)?;
            bytes = bytes.get(length..).unwrap_or_default();
        }
        Ok(())
    }

    fn take(&mut self, key: &[u8], value: &[u8], ids: &impl Ids) -> io::Result<()> {
        let own = || OsString::from_vec(value.to_vec());
        let words = || std::str::from_utf8(value).map_err(|_| damaged("an extension header is not text"));
        let number = || words()?.parse::<u32>().map_err(|_| damaged("an owner's number can't be read"));
        let acl = || {
            let text = words()?;
            acl::attribute(text, ids)
                .ok_or_else(|| damaged(format!("the ACL {:?} can't be read here", short(text, MAX_SHOWN))))
        };
        match key {
            b"path" => self.name = Some(own()),
            b"linkpath" => self.link = Some(own()),
            b"uid" => self.user = Some(number()?),
            b"gid" => self.group = Some(number()?),
            b"mtime" => self.modified = Some(time(words()?).ok_or_else(|| damaged("a time can't be read"))?),
            b"size" => return Err(damaged("it has a file of more than 8 GiB, which is not read")),
            b"SCHILY.acl.access" => self.attribute(ACCESS.into(), acl()?),
            b"SCHILY.acl.default" => self.attribute(DEFAULT.into(), acl()?),
            b"RHT.security.selinux" => self.attribute(SELINUX.into(), ended(value)),
            key if key.starts_with(b"GNU.sparse.") => {
                return Err(damaged("it has sparse files, which are not read"));
            }
            key => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    self.attribute(OsString::from_vec(name.to_vec()), value.to_vec());
                }
            }
        }
        Ok(())
    }

    /// Takes an attribute; the first of a name counts.
    fn attribute(&mut self, name: OsString, value: Vec<u8>) {
        if self.known.insert(name.clone()) {
            self.attributes.push((name, value));
        }
    }
}

/// The kernel keeps a label with its zero.
fn ended(value: &[u8]) -> Vec<u8> {
    let mut value = value.to_vec();
    if !value.ends_with(&[0]) {
        value.push(0);
    }
    value
}

/// Reads `SECONDS[.FRACTION]`.
fn time(text: &str) -> Option<(i64, i64)> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let nanoseconds = format!("{:0<9}", fraction.get(..fraction.len().min(9))?);
    let (seconds, nanoseconds): (i64, i64) = (seconds.parse().ok()?, nanoseconds.parse().ok()?);
    // Before 1970 the fraction counts back.
    if text.starts_with('-') && nanoseconds > 0 {
        return Some((seconds.checked_sub(1)?, 1_000_000_000 - nanoseconds));
    }
    Some((seconds, nanoseconds))
}

#[cfg(test)]
mod tests {
    use tar::EntryType;

    use super::*;

    struct Nobody;

    impl Ids for Nobody {
        fn user(&self, _: &str) -> Option<u32> {
            None
        }
        fn group(&self, _: &str) -> Option<u32> {
            None
        }
    }

    fn read(archive: &[u8], inside: Option<&str>) -> io::Result<Vec<Entry>> {
        let mut found = Vec::new();
        read_entries(archive, inside, MAX_FILE_BYTES, &Nobody, |entry, _| {
            found.push(entry);
            Ok(())
        })?;
        Ok(found)
    }

    /// An archive of one entry with a raw name, after an extension header with these bytes.
    fn archive(name: &str, kind: EntryType, link: &str, records: &[u8]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        if !records.is_empty() {
            let mut header = tar::Header::new_ustar();
            header.set_entry_type(EntryType::XHeader);
            header.set_size(u64::try_from(records.len()).unwrap());
            header.set_cksum();
            builder.append(&header, records).unwrap();
        }
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        let bytes = header.as_mut_bytes();
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        bytes[157..157 + link.len()].copy_from_slice(link.as_bytes());
        header.set_size(0);
        header.set_mode(0o640);
        header.set_uid(7);
        header.set_gid(8);
        header.set_mtime(9);
        header.set_cksum();
        builder.append(&header, &[][..]).unwrap();
        builder.into_inner().unwrap()
    }

    fn record(key: &str, value: &[u8]) -> Vec<u8> {
        let rest = [b" ", key.as_bytes(), b"=", value, b"\n"].concat();
        let mut length = rest.len() + 1;
        while length.to_string().len() + rest.len() != length {
            length += 1;
        }
        [length.to_string().as_bytes(), &rest].concat()
    }

    /// A comparison of each with each would take minutes.
    #[test]
    fn header_full_of_attributes_is_read_in_one_pass() {
        let records: Vec<u8> =
            (0..70_000).flat_map(|number| record(&format!("SCHILY.xattr.u{number}"), b"")).collect();
        assert!(u64::try_from(records.len()).unwrap() < MAX_EXTENSION_BYTES);
        let entries = read(&archive("etc/a", EntryType::Regular, "", &records), Some("etc")).unwrap();
        assert_eq!(entries[0].attributes.len(), 70_000);
    }

    #[test]
    fn names_in_errors_are_cut_and_move_no_terminal() {
        let long = format!("path\u{1b}[2J{}", "x".repeat(10_000));
        let records = record("path", format!("../{long}").as_bytes());
        let acl = record("SCHILY.acl.access", long.as_bytes());
        for records in [records, acl] {
            let error = read(&archive("etc/a", EntryType::Regular, "", &records), Some("etc")).unwrap_err();
            let text = error.to_string();
            assert!(text.len() < 1000 && !text.contains(char::is_control), "{text}");
        }
    }

    #[test]
    fn names_that_lead_out_are_refused() {
        for name in ["../x", "etc/../../x", "usr/x", "/usr/x", "etcx/y", "etc/a/../b", ".."] {
            let error = read(&archive(name, EntryType::Regular, "", b""), Some("etc")).unwrap_err();
            assert!(error.to_string().contains("leads out of etc"), "{name}: {error}");
            let link = archive("etc/a", EntryType::Link, name, b"");
            assert!(read(&link, Some("etc")).is_err(), "{name}");
            let long = archive("etc/a", EntryType::Regular, "", &record("path", name.as_bytes()));
            assert!(read(&long, Some("etc")).is_err(), "{name}");
        }
        for (name, path) in
            [("etc/a/b", "a/b"), ("/etc/a", "a"), ("./etc/a", "a"), ("etc/", ""), ("etc//a", "a")]
        {
            let found = read(&archive(name, EntryType::Regular, "", b""), Some("etc")).unwrap();
            assert_eq!(found[0].path, Path::new(path), "{name}");
        }
        let deep = format!("etc/{}", "a/".repeat(MAX_DEPTH + 1));
        let found =
            read(&archive("etc/a", EntryType::Regular, "", &record("path", deep.as_bytes())), Some("etc"));
        assert!(found.unwrap_err().to_string().contains("deeper"));
    }

    /// Attributes may hold any byte, line ends among them.
    #[test]
    fn attributes_labels_and_acls_are_read() {
        let records = [
            record("SCHILY.xattr.user.a", b"1\n2=\0"),
            record("RHT.security.selinux", b"system_u:object_r:etc_t:s0"),
            record("SCHILY.acl.access", b"user::rw-,user:5:r--,group::r--,mask::r--,other::---"),
            record("mtime", b"12.5"),
            record("comment", b"x"),
        ]
        .concat();
        let found = read(&archive("a", EntryType::Regular, "", &records), None).unwrap();
        let Entry { mode, user, group, modified, attributes, .. } = &found[0];
        assert_eq!((*mode, *user, *group, *modified), (0o640, 7, 8, (12, 500_000_000)));
        let names: Vec<_> = attributes.iter().map(|(name, _)| name.to_str().unwrap()).collect();
        assert_eq!(names, ["user.a", SELINUX, ACCESS]);
        assert_eq!(attributes[0].1, b"1\n2=\0");
        assert_eq!(attributes[1].1, b"system_u:object_r:etc_t:s0\0");
        assert_eq!(attributes[2].1.len(), 4 + 5 * 8);
    }

    #[test]
    fn unreadable_archives_are_refused() {
        for records in [
            record("SCHILY.acl.access", b"user:unknown:r--"),
            record("size", b"9000000000"),
            record("GNU.sparse.major", b"1"),
            record("uid", b"x"),
            b"7 a=b".to_vec(),
            b"x a=b\n".to_vec(),
            b"99 a=b\n".to_vec(),
        ] {
            assert!(read(&archive("a", EntryType::Regular, "", &records), None).is_err(), "{records:?}");
        }
        for (kind, link) in [(EntryType::GNUSparse, ""), (EntryType::Symlink, ""), (EntryType::new(b'V'), "")]
        {
            assert!(read(&archive("a", kind, link, b""), None).is_err(), "{kind:?}");
        }
    }

    /// The header says a gibibyte: it is not read into memory.
    #[test]
    fn large_extension_header_is_refused() {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(EntryType::XHeader);
        header.set_size(1 << 30);
        header.set_cksum();
        let bytes = [header.as_bytes().to_vec(), vec![0; 4096]].concat();
        assert!(
            read(&bytes, None).unwrap_err().to_string().contains("extension header has"),
            "refused by its size"
        );
    }

    /// The number is in base 256, which needs no extension header.
    #[test]
    fn file_beyond_the_limit_is_refused() {
        for (size, is_read) in [(MAX_FILE_BYTES, true), (MAX_FILE_BYTES + 1, false), (1 << 60, false)] {
            let mut header = tar::Header::new_gnu();
            header.set_path("a").unwrap();
            header.set_size(size);
            header.set_mode(0o600);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            header.set_cksum();
            let mut began = false;
            let read = read_entries(&header.as_bytes()[..], None, MAX_FILE_BYTES, &Nobody, |_, _| {
                began = true;
                Ok(())
            });
            assert_eq!((read.is_err(), began), (true, is_read), "{size}");
        }
    }

    #[test]
    fn truncated_archive_is_an_error() {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_ustar();
        header.set_size(5000);
        header.set_mode(0o600);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        builder.append_data(&mut header, "a", &[1_u8; 5000][..]).unwrap();
        let bytes = builder.into_inner().unwrap();
        for length in [100, 512, 2000, 5000] {
            assert!(read(&bytes[..length], None).is_err(), "{length}");
        }
        assert_eq!(read(&bytes, None).unwrap().len(), 1);
    }

    #[test]
    fn times_are_read() {
        assert_eq!(time("5"), Some((5, 0)));
        assert_eq!(time("5.000000001"), Some((5, 1)));
        assert_eq!(time("-5.25"), Some((-6, 750_000_000)));
        assert_eq!(time("5.1234567891"), Some((5, 123_456_789)));
        assert_eq!((time("x"), time("")), (None, None));
    }
}
