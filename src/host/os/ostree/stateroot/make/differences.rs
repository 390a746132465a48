//! The differences of `/etc` to the image's own, `/usr/etc`: what `ostree admin config-diff` lists, with attributes.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, openat, readlinkat, statat};
use rustix::io::Errno;

use super::super::archive::Entry;
use super::walk::{At, Choice, Contents, Visitor, attributes, open, walk};
use crate::stateroot::{InImage, SeedRules, class};

/// Bytes that are compared at once.
const BUFFER_BYTES: usize = 64 << 10;

/// The attribute that the policy of the new system gives anew.
const LABEL: &str = "security.selinux";

/// Returns the path below the root; a name that is no text is compared as it is shown.
pub(super) fn rooted(top: &str, path: &Path) -> String {
    format!("{top}/{}", path.display())
}

/// The image's own `/etc`.
#[derive(Debug)]
pub(super) struct ImageEtc(OwnedFd);

impl ImageEtc {
    /// Opens it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(openat(CWD, path, directory(), Mode::empty())?))
    }

    /// Compares an entry of `/etc` with the image's.
    pub(super) fn compare(&self, at: &At<'_>) -> io::Result<InImage> {
        if stat(&self.0, at.path)?.is_none() {
            return Ok(InImage::Absent);
        }
        Ok(if is_same(&self.0, at)? { InImage::Same } else { InImage::Differs })
    }

    /// Returns true if it has a directory of this path.
    pub(super) fn has_directory(&self, path: &Path) -> io::Result<bool> {
        let is_directory = |found: Stat| FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        Ok(path.as_os_str().is_empty() || stat(&self.0, path)?.is_some_and(is_directory))
    }

    /// Reads a file of it, up to so many bytes; nothing where there is none.
    pub(super) fn read(&self, path: &Path, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if let Some(file) = open(self.0.as_fd(), path.as_os_str())? {
            file.take(most).read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    }
}

/// Returns the names that the image has and `/etc` has not, as lines of `etc.deletions`: what is below a directory before it, because
/// lifecycle-agent removes each by unlink or rmdir, and fails where that does. A directory of which something can't be named stays.
pub(super) fn deleted(etc: &Path, image: &Path, rules: &SeedRules) -> io::Result<Vec<String>> {
    let etc = openat(CWD, etc, directory(), Mode::empty())?;
    let mut missing = Missing { etc, rules, found: BTreeSet::new() };
    walk(image, &mut missing)?;
    Ok(missing.found.into_iter().rev().collect())
}

struct Missing<'a> {
    etc: OwnedFd,
    rules: &'a SeedRules,
    found: BTreeSet<String>,
}

impl Visitor for Missing<'_> {
    fn choose(&mut self, at: &At<'_>) -> io::Result<Choice> {
        let path = rooted("etc", at.path);
        let is_left = class(&path).is_some() || self.rules.is_excluded(&path);
        // Lines are read without white space at their ends.
        let is_line = at.path.to_str().is_some_and(|path| !path.contains('\n') && path.trim_end() == path);
        if is_left || !is_line {
            for above in at.path.ancestors().skip(1) {
                self.found.remove(&format!("/{}", rooted("etc", above)));
            }
            return Ok(Choice::Skip);
        }
        match stat(&self.etc, at.path)? {
            None => drop(self.found.insert(format!("/{path}"))),
            // What is below a directory goes with it when something else takes its place.
            Some(own) if FileType::from_raw_mode(own.st_mode) != at.kind() => return Ok(Choice::Skip),
            Some(_) => {}
        }
        Ok(Choice::Enter)
    }

    fn take(&mut self, _: Entry, _: &mut Contents<'_>) -> io::Result<()> {
        Ok(())
    }
}

fn directory() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC
}

fn stat(top: &OwnedFd, path: &Path) -> io::Result<Option<Stat>> {
    match statat(top, path, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        found => Ok(Some(found?)),
    }
}

/// Compares an entry with the image's.
fn is_same(image: &OwnedFd, at: &At<'_>) -> io::Result<bool> {
    let Some(other) = stat(image, at.path)? else { return Ok(false) };
    let own = at.stat;
    if (own.st_mode, own.st_uid, own.st_gid) != (other.st_mode, other.st_uid, other.st_gid) {
        return Ok(false);
    }
    let above = at.path.parent().filter(|above| !above.as_os_str().is_empty());
    let there = openat(image, above.unwrap_or(Path::new(".")), directory(), Mode::empty())?;
    let there = there.as_fd();
    if own_attributes(at.here, at.name)? != own_attributes(there, at.name)? {
        return Ok(false);
    }
    match at.kind() {
        FileType::RegularFile => Ok(own.st_size == other.st_size && is_equal(at, there)?),
        FileType::Symlink => {
            Ok(readlinkat(at.here, at.name, Vec::new())? == readlinkat(there, at.name, Vec::new())?)
        }
        FileType::BlockDevice | FileType::CharacterDevice => Ok(own.st_rdev == other.st_rdev),
        FileType::Directory | FileType::Fifo | FileType::Socket | FileType::Unknown => Ok(true),
    }
}

fn own_attributes(here: BorrowedFd<'_>, name: &OsStr) -> io::Result<Vec<(std::ffi::OsString, Vec<u8>)>> {
    let mut found = attributes(here, name)?;
    found.retain(|(name, _)| name != LABEL);
    Ok(found)
}

/// Compares the contents of two files; one that is gone differs.
fn is_equal(at: &At<'_>, there: BorrowedFd<'_>) -> io::Result<bool> {
    let (Some(mut own), Some(mut other)) = (open(at.here, at.name)?, open(there, at.name)?) else {
        return Ok(false);
    };
    let (mut one, mut two) = (vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]);
    loop {
        let read = fill(&mut own, &mut one)?;
        if read != fill(&mut other, &mut two)? || one.get(..read) != two.get(..read) {
            return Ok(false);
        }
        if read < BUFFER_BYTES {
            return Ok(true);
        }
    }
}

/// Reads until the buffer is full, or the file ends.
fn fill(file: &mut std::fs::File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while let Some(rest) = buffer.get_mut(read..).filter(|rest| !rest.is_empty()) {
        match file.read(rest) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use crate::stateroot::SeedPath;

    struct Compared {
        image: ImageEtc,
        found: Vec<String>,
    }

    impl Visitor for Compared {
        fn choose(&mut self, at: &At<'_>) -> io::Result<Choice> {
            let compared = self.image.compare(at)?;
            if compared != InImage::Same {
                self.found.push(format!("{}: {compared:?}", at.path.display()));
            }
            Ok(Choice::Enter)
        }

        fn take(&mut self, _: Entry, _: &mut Contents<'_>) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_differences_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let (etc, image) = (dir.path().join("etc"), dir.path().join("image"));
        let put = |path: &str, text: &str| {
            for top in [&etc, &image] {
                let path = top.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
        };
        let large = "x".repeat(BUFFER_BYTES + 1);
        for path in ["same", "changed", "mode", "gone/a", "gone/b", "dir/same", "hostname", "large"] {
            put(path, if path == "large" { &large } else { "1\n" });
        }
        fs::write(etc.join("changed"), "2\n").unwrap();
        fs::write(etc.join("large"), format!("{}y", "x".repeat(BUFFER_BYTES))).unwrap();
        fs::write(etc.join("dir/new"), "n\n").unwrap();
        fs::set_permissions(etc.join("mode"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::remove_dir_all(etc.join("gone")).unwrap();
        fs::remove_file(etc.join("hostname")).unwrap();
        fs::write(etc.join("machine-id"), "1\n").unwrap();
        symlink("a", etc.join("link")).unwrap();
        symlink("b", image.join("link")).unwrap();
        let mut visitor = Compared { image: ImageEtc::open(&image).unwrap(), found: Vec::new() };
        walk(&etc, &mut visitor).unwrap();
        visitor.found.sort();
        let expected = [
            "changed: Differs",
            "dir/new: Absent",
            "large: Differs",
            "link: Differs",
            "machine-id: Absent",
            "mode: Differs",
        ];
        assert_eq!(visitor.found, expected);
        let rules = |excluded: &[&str]| {
            let excluded = excluded.iter().map(|path| SeedPath::new(path).unwrap()).collect();
            SeedRules { excluded, ..SeedRules::default() }
        };
        assert_eq!(
            deleted(&etc, &image, &rules(&[])).unwrap(),
            ["/etc/gone/b", "/etc/gone/a", "/etc/gone"],
            "contents first"
        );
        assert_eq!(deleted(&etc, &image, &rules(&["/etc/gone"])).unwrap(), [""; 0]);
        assert_eq!(deleted(&etc, &image, &rules(&["/etc/gone/a"])).unwrap(), ["/etc/gone/b"]);
        fs::write(image.join("gone/c "), "").unwrap();
        assert_eq!(deleted(&etc, &image, &rules(&[])).unwrap(), ["/etc/gone/b", "/etc/gone/a"]);
    }
}
