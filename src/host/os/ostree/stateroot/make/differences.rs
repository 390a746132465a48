//! The differences of `/etc` to the image's own, `/usr/etc`: what `ostree admin config-diff` lists, with attributes.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, openat, readlinkat, statat};
use rustix::io::Errno;

use super::super::archive::Entry;
use super::walk::{At, Choice, Contents, Visitor, attributes, open, walk};
use crate::stateroot::{Exclusion, is_left_out};

/// Bytes that are compared at once.
const BUFFER_BYTES: usize = 64 << 10;

/// The attribute that the policy of the new system gives anew.
const LABEL: &str = "security.selinux";

/// Returns the path below the root; a name that is no text is compared as it is shown.
pub(super) fn rooted(top: &str, path: &Path) -> String {
    format!("{top}/{}", path.display())
}

/// Hands out the entries of `/etc` that the image does not have so.
pub(super) fn changed(
    etc: &Path,
    image: &Path,
    exclusions: &[Exclusion],
    each: &mut dyn FnMut(Entry, &mut Contents<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let image = openat(CWD, image, directory(), Mode::empty())?;
    walk(etc, &mut Changed { image, exclusions, each })
}

struct Changed<'a> {
    image: OwnedFd,
    exclusions: &'a [Exclusion],
    each: &'a mut dyn FnMut(Entry, &mut Contents<'_>) -> io::Result<()>,
}

impl Visitor for Changed<'_> {
    fn choose(&mut self, at: &At<'_>) -> io::Result<Choice> {
        if is_left_out(&rooted("etc", at.path), self.exclusions) {
            return Ok(Choice::Skip);
        }
        Ok(if is_same(&self.image, at)? { Choice::Enter } else { Choice::Take })
    }

    fn take(&mut self, entry: Entry, contents: &mut Contents<'_>) -> io::Result<()> {
        (self.each)(entry, contents)
    }
}

/// Returns the names that the image has and `/etc` has not, as lines of `etc.deletions`.
pub(super) fn deleted(etc: &Path, image: &Path, exclusions: &[Exclusion]) -> io::Result<Vec<String>> {
    let etc = openat(CWD, etc, directory(), Mode::empty())?;
    let mut missing = Missing { etc, exclusions, found: Vec::new() };
    walk(image, &mut missing)?;
    missing.found.sort();
    Ok(missing.found)
}

struct Missing<'a> {
    etc: OwnedFd,
    exclusions: &'a [Exclusion],
    found: Vec<String>,
}

impl Visitor for Missing<'_> {
    fn choose(&mut self, at: &At<'_>) -> io::Result<Choice> {
        let path = rooted("etc", at.path);
        if is_left_out(&path, self.exclusions) {
            return Ok(Choice::Skip);
        }
        if stat(&self.etc, at.path)?.is_some() {
            return Ok(Choice::Enter);
        }
        // A name with a line end can't be written there.
        if !path.contains('\n') {
            self.found.push(format!("/{path}"));
        }
        Ok(Choice::Skip)
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

    #[test]
    fn only_differences_are_handed_out() {
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
        let mut found = Vec::new();
        changed(&etc, &image, &[Exclusion::new("/etc/dir/*").unwrap()], &mut |entry, contents| {
            let mut bytes = Vec::new();
            assert_eq!(u64::try_from(contents.bytes.read_to_end(&mut bytes)?).unwrap(), contents.size);
            found.push(entry.path.display().to_string());
            Ok(())
        })
        .unwrap();
        found.sort();
        assert_eq!(found, ["changed", "large", "link", "mode"]);
        assert_eq!(deleted(&etc, &image, &[]).unwrap(), ["/etc/gone"]);
        assert_eq!(deleted(&etc, &image, &[Exclusion::new("/etc/gone").unwrap()]).unwrap(), [""; 0]);
    }
}
