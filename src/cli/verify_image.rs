//! `verify` in the build of an image: what the build has put into it is still there, whatever steps came after. A node finds out by the
//! embedded config what the image brings, and by the originals how to leave it.

use std::collections::BTreeSet;

use super::CliError;
use super::input;
use crate::host::account_records::{AccountRecords, OF_IMAGE};
use crate::host::parents::RealPaths;
use crate::host::{Root, saved};
use crate::journal::mcd;
use crate::model::ids::IMAGE_ORIGINALS;
use crate::model::machineconfig::MAX_BYTES;
use crate::model::units::Mask;
use crate::model::{FileMode, HostSpec, ManagedPath, ObservedFile, Sha256};
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
            (DifferenceKind::Unexpected, "not a regular file")
        }
    };
    let expected = "the rendered config that this build put there, of root, mode 0600";
    Ok(Some(difference(Kind::File, mcd::CONFIG, (what, expected, found))))
}

/// Compares the originals with what the build kept: one of each path of the config, and of each directory made for one. What the base
/// had is not known here, so of a document it is looked at whether it is one.
pub(super) fn originals(root: &Root, spec: &HostSpec) -> Result<Vec<Difference>, CliError> {
    let mut kept: BTreeSet<String> = root.list(IMAGE_ORIGINALS)?.into_iter().collect();
    let accounts = kept.remove(OF_IMAGE);
    let masks = spec.units.iter().filter(|(_, unit)| unit.mask == Mask::Masked);
    let paths: BTreeSet<ManagedPath> =
        spec.entries().into_keys().chain(masks.map(|(name, _)| name.path())).collect();
    if !paths.is_empty() && !kept.iter().any(|name| name.strip_suffix(".json").is_some()) {
        let expected = "the originals of the base that this build kept there";
        let none = (DifferenceKind::Missing, expected, "nothing");
        return Ok(vec![difference(Kind::Directory, IMAGE_ORIGINALS, none)]);
    }
    let mut found = Vec::new();
    for path in &paths {
        let name = saved::document_name(path);
        let at = format!("{IMAGE_ORIGINALS}/{name}");
        let expected = format!("the original of {path}, which this build kept there");
        let of = |what, found| difference(Kind::File, &at, (what, expected.as_str(), found));
        found.extend(match root.observe(&at)? {
            ObservedFile::Absent | ObservedFile::Unreachable => Some(of(DifferenceKind::Missing, "nothing")),
            ObservedFile::Symlink { .. } | ObservedFile::Directory { .. } | ObservedFile::Special => {
                Some(of(DifferenceKind::Unexpected, "not a regular file"))
            }
            ObservedFile::Regular { .. } if saved::load_document(root, &at).is_err() => {
                Some(of(DifferenceKind::Content, "a damaged document"))
            }
            ObservedFile::Regular { mode, uid: 0, gid: 0, .. } if mode == FileMode::PRIVATE.bits() => None,
            ObservedFile::Regular { .. } => Some(of(DifferenceKind::Mode, "another mode or owner")),
        });
    }
    found.extend(accounts.then(|| of_accounts(root)).flatten());
    let managed = spec.managed();
    let parents = RealPaths::load(root, &managed)?.parents();
    let known: BTreeSet<String> = managed.iter().chain(&parents).map(saved::document_name).collect();
    found.extend(kept.difference(&known).map(|name| {
        let other =
            (DifferenceKind::Unexpected, "nothing", "an original of a path that is not in the config");
        difference(Kind::File, &format!("{IMAGE_ORIGINALS}/{name}"), other)
    }));
    Ok(found)
}

/// Looks at the record of the accounts that this build made or changed.
fn of_accounts(root: &Root) -> Option<Difference> {
    let at = format!("{IMAGE_ORIGINALS}/{OF_IMAGE}");
    let what = match (root.observe(&at), AccountRecords::load_of_image(root)) {
        (Ok(ObservedFile::Regular { mode, uid: 0, gid: 0, .. }), Ok(Some(_)))
            if mode == FileMode::PRIVATE.bits() =>
        {
            return None;
        }
        (_, Ok(Some(_))) => (DifferenceKind::Mode, "another mode or owner"),
        (_, Ok(None) | Err(_)) => (DifferenceKind::Content, "a damaged document"),
    };
    let expected = "the record of the accounts that this build made or changed";
    Some(difference(Kind::File, &at, (what.0, expected, what.1)))
}

fn difference(kind: Kind, target: &str, (what, expected, found): (DifferenceKind, &str, &str)) -> Difference {
    Difference {
        kind,
        target: target.to_owned(),
        what,
        expected: expected.to_owned(),
        found: found.to_owned(),
        also: None,
        diff: None,
        unrepaired: None,
    }
}
