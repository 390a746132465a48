//! Files of `/etc` that an import has left beside `/usr/etc`.
//!
//! ostree-ext 0.15 maps the names of a layer's entries from `etc/` to `usr/etc/`, and copies their PAX headers as they are. There the name
//! of an entry stands if it is not ASCII or too long, and libarchive takes it from there: such a file comes to `etc/`. libostree deploys no
//! commit that has both directories.
//!
//! # Decisions
//!
//! - The layers' commits are mended, and merged again: a later layer may replace or remove (whiteout) what an earlier one has, so nothing
//!   can be moved in the merged commit. A layer of a derived image never has an `etc/` of its own.
//! - An image whose import was mended has the same names and digests; rpm-ostree and bootc find its layers as they find others.
//! - A kill in between leaves the misplaced files, in the layers or in the merged commit: the next pull looks again.

use std::collections::HashSet;

use ostree_ext::container::ImageReference;
use ostree_ext::container::store::{LayeredImageState, list_images, query_image, remove_image};
use ostree_ext::gio::Cancellable;
use ostree_ext::ostree::{MutableTree, Repo, RepoFile};
use ostree_ext::prelude::{Cast as _, FileExt as _};
use ostree_ext::refescape::prefix_escape_for_ref;

use super::super::error::OsError;
use super::failed::failed;

/// Prefix of ostree-ext's refs of layers.
const LAYER_REFS: &str = "ostree/container/blob";

/// Levels of directories that are moved; the kernel takes paths of 4,096 bytes.
const MAX_DEPTH: usize = 2048;

/// Returns true if a commit has both `/etc` and `/usr/etc`.
pub(super) fn is_in(repo: &Repo, commit: &str) -> Result<bool, OsError> {
    let (root, _) = repo.read_commit(commit, Cancellable::NONE).map_err(failed)?;
    let has = |path: &str| root.resolve_relative_path(path).query_exists(Cancellable::NONE);
    Ok(has("etc") && has("usr/etc"))
}

/// Moves the files of each layer to `/usr/etc`, and removes the image: the next import merges the layers again, and pulls none.
pub(super) fn mend(repo: &Repo, state: &LayeredImageState) -> Result<(), OsError> {
    // The first layers are the base's own commit.
    let mut seen = HashSet::from([state.base_commit.clone()]);
    for layer in state.manifest.layers() {
        let name = prefix_escape_for_ref(LAYER_REFS, layer.digest().as_ref()).map_err(failed)?;
        let commit = repo.resolve_rev(&name, true).map_err(failed)?;
        let Some(commit) = commit.filter(|commit| seen.insert(commit.to_string())) else { continue };
        if let Some(mended) = layer_without_etc(repo, &commit)? {
            repo.set_ref_immediate(None, &name, Some(&mended), Cancellable::NONE).map_err(failed)?;
        }
    }
    remove(repo, &state.merge_commit)
}

/// Writes the commit of a layer anew, if it has an `etc/`.
fn layer_without_etc(repo: &Repo, commit: &str) -> Result<Option<String>, OsError> {
    const ETC: &str = "etc";
    let tree = MutableTree::from_commit(repo, commit).map_err(failed)?;
    let Some(misplaced) = tree.copy_subdirs().remove(ETC) else { return Ok(None) };
    let mut target = tree.clone();
    for name in ["usr", ETC] {
        target = subdirectory(&target, name, &misplaced)?;
    }
    merge(&misplaced, &target, 0)?;
    tree.remove(ETC, false).map_err(failed)?;
    let (original, _) = repo.load_commit(commit).map_err(failed)?;
    let none = Cancellable::NONE;
    let transaction = repo.auto_transaction(none).map_err(failed)?;
    let root = repo.write_mtree(&tree, none).map_err(failed)?;
    let root = root.downcast::<RepoFile>().map_err(|_| failed("libostree wrote no tree"))?;
    let metadata = original.child_value(0);
    let mended = repo.write_commit(None, None, None, Some(&metadata), &root, none).map_err(failed)?;
    transaction.commit(none).map_err(failed)?;
    Ok(Some(mended.to_string()))
}

/// Returns a subdirectory, made with the owner and mode of another one if there is none.
fn subdirectory(tree: &MutableTree, name: &str, like: &MutableTree) -> Result<MutableTree, OsError> {
    let is_new = !tree.copy_subdirs().contains_key(name);
    let found = tree.ensure_dir(name).map_err(failed)?;
    if is_new {
        found.set_metadata_checksum(&like.metadata_checksum());
    }
    Ok(found)
}

/// Adds all of one directory to another one, whose own entries of `/usr/etc` have the layer's owners and modes already.
fn merge(from: &MutableTree, to: &MutableTree, depth: usize) -> Result<(), OsError> {
    if depth > MAX_DEPTH {
        return Err(failed(format!("a layer has more than {MAX_DEPTH} levels of directories in /etc")));
    }
    for (name, file) in from.copy_files() {
        to.replace_file(&name, &file).map_err(failed)?;
    }
    for (name, directory) in from.copy_subdirs() {
        merge(&directory, &subdirectory(to, &name, &directory)?, depth + 1)?;
    }
    Ok(())
}

/// Removes the names of a merged commit.
fn remove(repo: &Repo, merged: &str) -> Result<(), OsError> {
    for name in list_images(repo).map_err(failed)? {
        let Ok(image) = ImageReference::try_from(name.as_str()) else { continue };
        let state = query_image(repo, &image).ok().flatten();
        if state.is_some_and(|state| state.merge_commit == merged) {
            remove_image(repo, &image).map_err(failed)?;
        }
    }
    Ok(())
}
