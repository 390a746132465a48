//! The repository of a classic seed: the objects of the booted commit and of those that belong to it, and the directories without which it
//! is none.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::{self, Write};
use std::path::Path;

use ostree_ext::container::store::query_image_commit;
use ostree_ext::gio::Cancellable;
use ostree_ext::ostree::{ObjectType, Repo, RepoListRefsExtFlags, RepoMode};
use ostree_ext::refescape::prefix_escape_for_ref;

use super::super::super::super::error::{OsError, OsErrorKind, SYSROOT};
use super::super::super::failed::failed;
use super::super::archive::{Entry, Kind};
use super::super::repository::base_of;
use super::pack::{Packer, file_entry};
use super::walk::{At, Choice, Contents, Visitor, walk};

/// The directories of a repository.
const DIRECTORIES: [&str; 8] =
    ["extensions", "objects", "refs", "refs/heads", "refs/mirrors", "refs/remotes", "state", "tmp"];

/// Prefixes of ostree-ext's refs of images and layers.
const IMAGE_REFS: &str = "ostree/container/image";
const LAYER_REFS: &str = "ostree/container/blob";

/// Returns the refs of a seed: lifecycle-agent pulls each of them, and nothing else. rpm-ostree shows no deployment at all where one lacks the
/// base of its layered packages, or the layers of its image.
pub(super) fn refs(repo: &Repo, commit: &str) -> Result<BTreeMap<String, String>, OsError> {
    let base = base_of(&repo.load_commit(commit).map_err(failed)?.0);
    let of_image = base.clone().unwrap_or_else(|| commit.to_owned());
    let mut found = BTreeMap::from([("seed".to_owned(), commit.to_owned())]);
    found.extend(base.map(|base| ("seed-base".to_owned(), base)));
    let Ok(image) = query_image_commit(repo, &of_image) else { return Ok(found) };
    for layer in image.manifest.layers() {
        let name = prefix_escape_for_ref(LAYER_REFS, layer.digest().as_ref()).map_err(failed)?;
        if let Some(layer) = repo.resolve_rev(&name, true).map_err(failed)? {
            found.insert(name, layer.into());
        }
    }
    let images = repo.list_refs_ext(Some(IMAGE_REFS), RepoListRefsExtFlags::NONE, Cancellable::NONE);
    found.extend(images.map_err(failed)?.into_iter().filter(|(_, commit)| *commit == of_image));
    Ok(found)
}

/// Returns the files of commits below `objects`.
pub(super) fn objects<'a>(
    repo: &Repo,
    commits: impl Iterator<Item = &'a String>,
) -> Result<BTreeSet<String>, OsError> {
    if repo.mode() != RepoMode::Bare {
        let cause = "its repository does not have the mode bare, as on a booted system";
        return Err(OsError::new(OsErrorKind::Libostree, SYSROOT, cause));
    }
    let mut all = HashSet::new();
    for commit in commits {
        all.extend(repo.traverse_commit(commit, 0, Cancellable::NONE).map_err(failed)?);
    }
    let mut found = BTreeSet::new();
    for object in all {
        let checksum = object.checksum();
        let ending = match object.object_type() {
            ObjectType::File => "file",
            ObjectType::DirTree => "dirtree",
            ObjectType::DirMeta => "dirmeta",
            ObjectType::Commit => "commit",
            ObjectType::TombstoneCommit
            | ObjectType::CommitMeta
            | ObjectType::PayloadLink
            | ObjectType::FileXattrs
            | ObjectType::FileXattrsLink
            | _ => continue,
        };
        let (head, rest) = checksum.split_at_checked(2).unwrap_or_default();
        found.insert(format!("{head}/{rest}.{ending}"));
    }
    Ok(found)
}

/// Archives a repository of these objects.
pub(super) fn archive(
    repository: &Path,
    refs: &BTreeMap<String, String>,
    objects: &BTreeSet<String>,
    to: &mut dyn Write,
) -> io::Result<()> {
    let mut packer = Packer::new(to);
    let mut directories: BTreeSet<&Path> = DIRECTORIES.iter().map(Path::new).collect();
    let names: Vec<String> = refs.keys().map(|name| format!("refs/heads/{name}")).collect();
    let above = names.iter().flat_map(|name| Path::new(name).ancestors().skip(1));
    directories.extend(above.filter(|path| !path.as_os_str().is_empty()));
    for path in directories {
        let path = path.to_str().unwrap_or_default();
        packer.put(&Entry { kind: Kind::Directory, ..file_entry(path, 0o755) }, 0, &mut io::empty())?;
    }
    let config = ("config".to_owned(), "[core]\nrepo_version=1\nmode=bare\n".to_owned());
    let files = names.into_iter().zip(refs.values().map(|commit| format!("{commit}\n")));
    for (path, text) in std::iter::once(config).chain(files) {
        let size = u64::try_from(text.len()).unwrap_or_default();
        packer.put(&file_entry(&path, 0o644), size, &mut text.as_bytes())?;
    }
    let mut chosen = Chosen { objects, packer: &mut packer, taken: 0 };
    walk(&repository.join("objects"), &mut chosen)?;
    if chosen.taken < objects.len() {
        let missing = objects.len() - chosen.taken;
        return Err(io::Error::other(format!(
            "{missing} objects of the booted system are not in the repository"
        )));
    }
    packer.finish().map(drop)
}

struct Chosen<'a, W> {
    objects: &'a BTreeSet<String>,
    packer: &'a mut Packer<W>,
    taken: usize,
}

impl<W: Write> Visitor for Chosen<'_, W> {
    fn choose(&mut self, at: &At<'_>) -> io::Result<Choice> {
        if at.path.parent().is_some_and(|above| above.as_os_str().is_empty()) {
            return Ok(Choice::Take);
        }
        let is_chosen = at.path.to_str().is_some_and(|path| self.objects.contains(path));
        Ok(if is_chosen { Choice::Take } else { Choice::Skip })
    }

    fn take(&mut self, mut entry: Entry, contents: &mut Contents<'_>) -> io::Result<()> {
        if entry.kind != Kind::Directory {
            self.taken += 1;
        }
        entry.path = Path::new("objects").join(entry.path);
        self.packer.put(&entry, contents.size, contents.bytes)
    }
}

#[cfg(test)]
mod tests {
    use ostree_ext::glib::{ToVariant as _, VariantDict};
    use ostree_ext::ostree::{MutableTree, RepoCommitModifier, RepoCommitModifierFlags, RepoFile};
    use ostree_ext::prelude::Cast as _;
    use rustix::fd::AsRawFd as _;

    use super::*;

    fn commit(repo: &Repo, parent: Option<&str>, layered: bool) -> String {
        let tree = tempfile::tempdir().unwrap();
        std::fs::write(tree.path().join("file"), format!("{layered}")).unwrap();
        let directory = std::fs::File::open(tree.path()).unwrap();
        let modifier = RepoCommitModifier::new(RepoCommitModifierFlags::CANONICAL_PERMISSIONS, None);
        let (mtree, none) = (MutableTree::new(), Cancellable::NONE);
        let transaction = repo.auto_transaction(none).unwrap();
        repo.write_dfd_to_mtree(directory.as_raw_fd(), ".", &mtree, Some(&modifier), none).unwrap();
        let root = repo.write_mtree(&mtree, none).unwrap().downcast::<RepoFile>().unwrap();
        let metadata = VariantDict::new(None);
        if layered {
            metadata.insert_value("rpmostree.clientlayer", &true.to_variant());
        }
        let commit = repo.write_commit(parent, None, None, Some(&metadata.end()), &root, none).unwrap();
        transaction.commit(none).unwrap();
        commit.into()
    }

    /// The base of layered packages is pulled by a ref of its own; the parent of another commit is its history.
    #[test]
    fn base_of_packages_has_a_ref() {
        let dir = tempfile::tempdir().unwrap();
        let repo = Repo::new_for_path(dir.path());
        repo.create(RepoMode::Archive, Cancellable::NONE).unwrap();
        let base = commit(&repo, None, false);
        let layered = commit(&repo, Some(&base), true);
        let later = commit(&repo, Some(&base), false);
        let names = |refs: BTreeMap<String, String>| refs.into_iter().collect::<Vec<_>>();
        let (seed, base_ref) = ("seed".to_owned(), "seed-base".to_owned());
        assert_eq!(names(refs(&repo, &layered).unwrap()), [(seed.clone(), layered), (base_ref, base)]);
        assert_eq!(names(refs(&repo, &later).unwrap()), [(seed, later)]);
    }
}
