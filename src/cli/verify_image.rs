//! `verify` in the build of an image: what the build has put into it is still there, whatever steps came after. A node finds out by the
//! embedded config what the image brings, and by the originals how to leave it.

use super::CliError;
use super::input;
use crate::host::Root;
use crate::journal::mcd;
use crate::model::ids::IMAGE_ORIGINALS;
use crate::model::machineconfig::MAX_BYTES;
use crate::model::{FileMode, HostSpec, ObservedFile, Sha256};
use crate::plan::differences::{Difference, DifferenceKind, Kind};

/// Compares the embedded config with the file that the build has put there.
pub(super) fn embedded(root: &Root, file: &str) -> Result<Option<Difference>, CliError> {
    let bytes = input::bytes(file, MAX_BYTES)?;
    let (what, found) = match root.observe(mcd::CONFIG)? {
        ObservedFile::Regular { sha256, mode, uid: 0, gid: 0, .. }
            if sha256 == Sha256::digest(&bytes) && mode == FileMode::PRIVATE.bits() =>
        {
            return Ok(None);
        }
        ObservedFile::Regular { sha256, .. } if sha256 != Sha256::digest(&bytes) => {
            (DifferenceKind::Content, "another content")
        }
        ObservedFile::Regular { .. } => (DifferenceKind::Mode, "another mode or owner"),
        ObservedFile::Absent | ObservedFile::Unreachable => (DifferenceKind::Missing, "nothing"),
        ObservedFile::Symlink { .. } | ObservedFile::Directory { .. } | ObservedFile::Special => {
            (DifferenceKind::Unexpected, "no regular file")
        }
    };
    let expected = "the rendered config that this build put there, of root, mode 0600";
    Ok(Some(difference(Kind::File, mcd::CONFIG, (what, expected, found))))
}

/// Returns a difference if no original is left. Their contents are not compared.
pub(super) fn originals(root: &Root, spec: &HostSpec) -> Result<Option<Difference>, CliError> {
    let kept = root.list(IMAGE_ORIGINALS)?;
    let paths = spec.managed();
    if paths.is_empty() || kept.iter().any(|name| name.strip_suffix(".json").is_some()) {
        return Ok(None);
    }
    let expected = "the originals of the base that this build kept there";
    Ok(Some(difference(Kind::Directory, IMAGE_ORIGINALS, (DifferenceKind::Missing, expected, "nothing"))))
}

fn difference(kind: Kind, target: &str, (what, expected, found): (DifferenceKind, &str, &str)) -> Difference {
    Difference {
        kind,
        target: target.to_owned(),
        what,
        expected: expected.to_owned(),
        found: found.to_owned(),
        diff: None,
        unrepaired: None,
    }
}
