//! The identity of this host, for a seed that has none: names, keys and certificates of the running system go into the new one.
//!
//! A seed that does not say that it has no identity, as those of lifecycle-agent, is left as it is.

use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::FileType;

use super::archive::Entry;
use super::files::MANIFEST_FILE;
use super::make::{At, Choice, Contents, Visitor, walk};
use super::unpack::{Unpacker, set_refused};
use crate::stateroot::{LeftOutClass, class, is_without_identity, leads_to_identity};

/// Returns true if a fetched seed has no identity.
pub(super) fn is_missing(directory: &Path) -> io::Result<bool> {
    Ok(is_without_identity(&fs::read(directory.join(MANIFEST_FILE))?))
}

/// Copies the identity below a directory of the running system (`etc` or `var`) into that of the new one.
pub(super) fn keep(top: &'static str, from: &Path, to: &Path) -> io::Result<()> {
    // A few files of this host: without them the new system is lost.
    let mut unpacker = Unpacker::new(to, 0)?;
    walk(from, &mut Identity { top, to, unpacker: &mut unpacker })?;
    unpacker.finish()?.iter().try_for_each(|refused| set_refused(to, refused))
}

struct Identity<'a> {
    top: &'static str,
    to: &'a Path,
    unpacker: &'a mut Unpacker,
}

impl Visitor for Identity<'_> {
    fn choose(&mut self, at: &At<'_>) -> io::Result<Choice> {
        let path = format!("{}/{}", self.top, at.path.display());
        if class(&path) != Some(LeftOutClass::Identity) {
            // A directory that the seed has not is made as it is here.
            let is_there = || self.to.join(at.path).symlink_metadata().is_ok();
            return Ok(match leads_to_identity(&path) && at.kind() == FileType::Directory {
                false => Choice::Skip,
                true if is_there() => Choice::Enter,
                true => Choice::Take,
            });
        }
        Ok(Choice::Take)
    }

    fn take(&mut self, entry: Entry, contents: &mut Contents<'_>) -> io::Result<()> {
        self.unpacker.put(&entry, contents.bytes)
    }
}
