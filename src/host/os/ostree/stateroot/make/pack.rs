//! Entries as an archive of tar: what GNU tar and this agent read, with attributes, labels and ACLs in extension headers.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use tar::{EntryType, Header};

use super::super::acl;
use super::super::archive::{Entry, Kind, damaged};

/// Size of a block.
const BLOCK: usize = 512;

/// Longest name in a header.
const MAX_NAME_BYTES: usize = 100;

/// The largest file of an archive, as the field of a header holds it.
pub(super) const MAX_FILE_BYTES: u64 = (8 << 30) - 1;

/// The largest number of an owner in a header.
const MAX_OWNER: u32 = 0o777_7777;

/// Bytes that are copied at once.
const BUFFER_BYTES: usize = 128 << 10;

/// An archive that is being written.
pub(super) struct Packer<W> {
    to: W,
    buffer: Vec<u8>,
}

impl<W: Write> Packer<W> {
    /// Begins an archive.
    pub(super) fn new(to: W) -> Self {
        Self { to, buffer: vec![0; BUFFER_BYTES] }
    }

    /// Writes one entry; contents that are shorter than said are filled up with zeros.
    pub(super) fn put(&mut self, entry: &Entry, size: u64, contents: &mut dyn Read) -> io::Result<()> {
        if size > MAX_FILE_BYTES {
            return Err(damaged(format!(
                "it has {size} bytes, and files of more than {MAX_FILE_BYTES} are not read from a seed; leave it out"
            )));
        }
        let mut records = Vec::new();
        let mut header = Header::new_ustar();
        let mut name = entry.path.as_os_str().as_bytes().to_vec();
        header.set_entry_type(match &entry.kind {
            Kind::File => EntryType::Regular,
            Kind::Directory => {
                name.push(b'/');
                EntryType::Directory
            }
            Kind::Symlink(_) => EntryType::Symlink,
            Kind::HardLink(_) => EntryType::Link,
            Kind::Fifo => EntryType::Fifo,
            Kind::Device { block: true, .. } => EntryType::Block,
            Kind::Device { block: false, .. } => EntryType::Char,
        });
        if let Kind::Device { major, minor, .. } = entry.kind {
            header.set_device_major(major)?;
            header.set_device_minor(minor)?;
        }
        set_name(&mut header, 0, &name, b"path", &mut records);
        match &entry.kind {
            Kind::Symlink(target) => set_link(&mut header, target, &mut records),
            Kind::HardLink(target) => set_link(&mut header, target.as_os_str(), &mut records),
            Kind::File | Kind::Directory | Kind::Fifo | Kind::Device { .. } => {}
        }
        header.set_mode(entry.mode);
        header.set_uid(owner(entry.user, b"uid", &mut records));
        header.set_gid(owner(entry.group, b"gid", &mut records));
        let (seconds, nanoseconds) = entry.modified;
        header.set_mtime(u64::try_from(seconds).unwrap_or_default().min(MAX_FILE_BYTES));
        if nanoseconds != 0 || seconds < 0 {
            records.extend(record(b"mtime", time(seconds, nanoseconds).as_bytes()));
        }
        for (attribute, value) in &entry.attributes {
            records.extend(attribute_record(attribute, value));
        }
        if !records.is_empty() {
            self.extension(&records)?;
        }
        header.set_size(size);
        header.set_cksum();
        self.to.write_all(header.as_bytes())?;
        self.contents(size, contents)
    }

    /// Writes the extension header of the next entry.
    fn extension(&mut self, records: &[u8]) -> io::Result<()> {
        let size = u64::try_from(records.len()).unwrap_or(u64::MAX);
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::XHeader);
        set_name(&mut header, 0, b"PaxHeader", b"path", &mut Vec::new());
        header.set_mode(0o600);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(size);
        header.set_cksum();
        self.to.write_all(header.as_bytes())?;
        self.contents(size, &mut &records[..])
    }

    fn contents(&mut self, size: u64, contents: &mut dyn Read) -> io::Result<()> {
        let mut left = size;
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(self.buffer.len());
            let part = self.buffer.get_mut(..most).unwrap_or_default();
            let read = match contents.read(part) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            let written = if read == 0 {
                part.fill(0);
                most
            } else {
                read
            };
            self.to.write_all(part.get(..written).unwrap_or_default())?;
            left -= u64::try_from(written).unwrap_or_default();
        }
        self.to.write_all(&padding(size))
    }

    /// Ends the archive.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.to.write_all(&[0; 2 * BLOCK])?;
        Ok(self.to)
    }
}

/// Returns the zeros that fill the last block.
pub(super) fn padding(size: u64) -> Vec<u8> {
    let over = usize::try_from(size % 512).unwrap_or_default();
    vec![0; if over == 0 { 0 } else { BLOCK - over }]
}

/// Returns the header of a member of a layer: a regular file, or a directory if the name ends with a slash.
pub(super) fn member_header(name: &str, mode: u32, size: u64) -> io::Result<Header> {
    let mut header = Header::new_ustar();
    if size > MAX_FILE_BYTES || name.len() > MAX_NAME_BYTES {
        return Err(damaged(format!("{name} has {size} bytes, more than an image can hold as one file")));
    }
    set_name(&mut header, 0, name.as_bytes(), b"path", &mut Vec::new());
    header.set_entry_type(if name.ends_with('/') { EntryType::Directory } else { EntryType::Regular });
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header.set_cksum();
    Ok(header)
}

/// Sets a name field; a longer name goes into a record.
fn set_name(header: &mut Header, at: usize, name: &[u8], key: &[u8], records: &mut Vec<u8>) {
    if name.len() > MAX_NAME_BYTES {
        records.extend(record(key, name));
    }
    for (place, byte) in header.as_mut_bytes().iter_mut().skip(at).zip(name.iter().take(MAX_NAME_BYTES)) {
        *place = *byte;
    }
}

fn set_link(header: &mut Header, target: &OsStr, records: &mut Vec<u8>) {
    // The field of the link's target.
    set_name(header, 157, target.as_bytes(), b"linkpath", records);
}

fn owner(id: u32, key: &[u8], records: &mut Vec<u8>) -> u64 {
    if id <= MAX_OWNER {
        return id.into();
    }
    records.extend(record(key, id.to_string().as_bytes()));
    0
}

/// Writes `SECONDS.FRACTION`; before 1970 the fraction counts back.
fn time(seconds: i64, nanoseconds: i64) -> String {
    if seconds < 0 && nanoseconds > 0 {
        let seconds = seconds + 1;
        let sign = if seconds == 0 { "-" } else { "" };
        return format!("{sign}{seconds}.{:09}", 1_000_000_000 - nanoseconds);
    }
    format!("{seconds}.{nanoseconds:09}")
}

fn attribute_record(attribute: &OsStr, value: &[u8]) -> Vec<u8> {
    let text = |key: &[u8]| acl::text(value).map(|text| record(key, text.as_bytes()));
    let known = match attribute.as_bytes() {
        b"security.selinux" => {
            Some(record(b"RHT.security.selinux", value.strip_suffix(&[0]).unwrap_or(value)))
        }
        b"system.posix_acl_access" => text(b"SCHILY.acl.access"),
        b"system.posix_acl_default" => text(b"SCHILY.acl.default"),
        _ => None,
    };
    known.unwrap_or_else(|| record(&[b"SCHILY.xattr.", attribute.as_bytes()].concat(), value))
}

/// Writes the record `LENGTH KEY=VALUE\n`, whose length counts itself.
fn record(key: &[u8], value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length.to_string().len() + rest != length {
        length += 1;
    }
    [length.to_string().as_bytes(), b" ", key, b"=", value, b"\n"].concat()
}

/// Returns an entry that is made up: a file of root.
pub(super) fn file_entry(path: &str, mode: u32) -> Entry {
    let (path, kind) = (Path::new(path).to_owned(), Kind::File);
    Entry { path, kind, mode, user: 0, group: 0, modified: (0, 0), attributes: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::super::super::acl::Accounts;
    use super::super::super::archive::read_entries;
    use super::*;

    /// An archive is read as it was written: by the agent's reader, and by GNU tar.
    #[test]
    fn entries_are_read_as_they_were_written() {
        let long = format!("{}/{}", "d".repeat(120), "f".repeat(120));
        let acl = [
            2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 77, 0, 0, 0, 4, 0, 4, 0, 255, 255, 255,
            255, 16, 0, 4, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
        ];
        let attributes = vec![
            ("security.selinux".into(), b"system_u:object_r:etc_t:s0\0".to_vec()),
            ("system.posix_acl_access".into(), acl.to_vec()),
            ("user.a".into(), b"1\n2=\0".to_vec()),
        ];
        let mut written = Vec::new();
        for (path, kind, modified) in [
            ("a", Kind::File, (12, 500_000_000)),
            (&*long, Kind::File, (-1, 250_000_000)),
            ("dir", Kind::Directory, (7, 0)),
            ("link", Kind::Symlink(long.clone().into()), (-3, 0)),
            ("hard", Kind::HardLink(long.clone().into()), (1, 0)),
            ("pipe", Kind::Fifo, (1, 1)),
            ("null", Kind::Device { block: false, major: 1, minor: 3 }, (1, 0)),
        ] {
            let (user, group) = (4_000_000_000, 8);
            let attributes = attributes.clone();
            written.push(Entry { path: path.into(), kind, mode: 0o640, user, group, modified, attributes });
        }
        let mut packer = Packer::new(Vec::new());
        for entry in &written {
            let size = if entry.kind == Kind::File { 600 } else { 0 };
            // Shorter than it was when it was looked at.
            packer.put(entry, size, &mut &b"contents"[..]).unwrap();
        }
        let archive = packer.finish().unwrap();
        let mut read = Vec::new();
        read_entries(&archive[..], None, u64::MAX, &Accounts::default(), |entry, contents| {
            let mut bytes = Vec::new();
            contents.read_to_end(&mut bytes)?;
            assert!(entry.kind != Kind::File || (bytes.starts_with(b"contents\0") && bytes.len() == 600));
            read.push(entry);
            Ok(())
        })
        .unwrap();
        assert_eq!(read, written);
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.tar"), archive).unwrap();
        let path = dir.path().join("a.tar").display().to_string();
        let output = std::process::Command::new("tar").args(["-tvf", &path]).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && err.is_empty(), "{out}{err}");
        assert!(
            out.contains(&format!("hard link to {long}")) && out.lines().count() == written.len(),
            "{out}"
        );
    }

    #[test]
    fn file_that_is_too_large_is_refused() {
        let error =
            Packer::new(io::sink()).put(&file_entry("a", 0o600), MAX_FILE_BYTES + 1, &mut io::empty());
        assert!(error.unwrap_err().to_string().contains("leave it out"));
    }
}
