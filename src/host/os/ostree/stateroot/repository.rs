//! The repository of a seed: taken over into one of our own, and verified.
//!
//! The seed's repository is never opened as it lies in its archive. Objects with well-formed names are written into a directory that
//! is made here, with a configuration of our own; everything else is left. The host links to these objects, and from then on knows
//! them by their names: so each that the system reaches is held against its name first.
//!
//! Invariant: what is imported was verified in this boot, and nobody but root could write to it since.

use std::collections::{HashMap, HashSet};
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use ostree_ext::gio::Cancellable;
use ostree_ext::glib::{KeyFile, KeyFileFlags, ToVariant as _, Variant, VariantDict};
use ostree_ext::ostree::{
    ObjectType, Repo, RepoCommitState, RepoMode, RepoPullFlags, checksum_from_bytes_v, object_to_string,
};

use super::super::super::error::OsError;
use super::super::failed::failed;
use super::acl::Ids;
use super::archive::{Entry, Kind, MAX_FILE_BYTES, damaged, named as shown, read_entries};
use super::unpack::{Attribute, Unpacker};
use crate::model::short;
use crate::stateroot::{
    MAX_CONFIG_BYTES, MAX_METADATA_BYTES, MAX_OBJECTS, MAX_TREE_DEPTH, MAX_TREE_ENTRIES, ObjectKind,
    RepositoryMember, StaterootName, repository_member,
};

/// The directories without which libostree opens no repository.
const DIRECTORIES: [&str; 6] = ["extensions", "objects", "refs/heads", "refs/remotes", "state", "tmp/cache"];

/// The modes of a repository: how the files that objects stand for are kept.
const MODES: [&str; 5] = ["bare", "bare-user", "bare-user-only", "archive", "archive-z2"];

/// Objects after each of which progress is reported.
const REPORTED: usize = 1000;

/// Objects that were taken over of a repository.
#[derive(Debug, Default)]
pub(super) struct Objects {
    count: u64,
    mode: Option<String>,
    /// A symbolic link among the files: only a bare repository has them.
    link: Option<PathBuf>,
}

/// Takes the objects of an archived repository over into a directory.
pub(super) fn unpack(
    source: impl Read,
    ids: &impl Ids,
    directory: &Path,
    reserve: u64,
) -> io::Result<(Objects, Vec<Attribute>)> {
    let mut unpacker = Unpacker::new(directory, reserve)?;
    let mut objects = Objects::default();
    read_entries(source, None, MAX_FILE_BYTES, ids, |entry, contents| {
        match repository_member(entry.path.as_os_str().as_bytes()) {
            RepositoryMember::Config => objects.configure(&entry, contents),
            RepositoryMember::Object(kind) => objects.take(kind, entry, contents, &mut unpacker),
            RepositoryMember::Other => Ok(()),
        }
    })?;
    Ok((objects, unpacker.finish()?))
}

impl Objects {
    /// Reads the mode; the rest of a configuration is another host's.
    fn configure(&mut self, entry: &Entry, contents: &mut dyn Read) -> io::Result<()> {
        let refused = |cause: &dyn std::fmt::Display| damaged(format!("its config: {cause}"));
        if entry.kind != Kind::File {
            return Err(refused(&"it is not a regular file"));
        }
        let mut text = String::new();
        contents.take(MAX_CONFIG_BYTES + 1).read_to_string(&mut text)?;
        if u64::try_from(text.len()).unwrap_or(u64::MAX) > MAX_CONFIG_BYTES {
            return Err(refused(&format!("it has more than {MAX_CONFIG_BYTES} bytes")));
        }
        let config = KeyFile::new();
        config.load_from_data(&text, KeyFileFlags::NONE).map_err(|error| refused(&error))?;
        let mode = config.string("core", "mode").map_err(|error| refused(&error))?;
        if !MODES.contains(&mode.as_str()) {
            return Err(refused(&format!("its mode {:?} is not known", short(&mode, 100))));
        }
        self.mode = Some(mode.into());
        Ok(())
    }

    fn take(
        &mut self,
        kind: ObjectKind,
        mut entry: Entry,
        contents: &mut dyn Read,
        unpacker: &mut Unpacker,
    ) -> io::Result<()> {
        self.count += 1;
        if self.count > MAX_OBJECTS {
            return Err(damaged(format!("it has more than {MAX_OBJECTS} objects")));
        }
        if let Some((name, _)) =
            entry.attributes.iter().find(|(name, _)| name.as_bytes().starts_with(b"trusted."))
        {
            // Who verifies may not see it.
            return Err(damaged(format!("{}: it has the attribute {}", entry.path.display(), shown(name))));
        }
        // As libostree writes it; no checksum has it.
        entry.modified = (0, 0);
        match (&entry.kind, kind) {
            (Kind::File, ObjectKind::Metadata) => {
                // Their owners and modes are in no checksum: they are root's here.
                let entry = Entry { mode: 0o644, user: 0, group: 0, attributes: Vec::new(), ..entry };
                unpacker.put(&entry, &mut Bounded { inner: contents, left: MAX_METADATA_BYTES })
            }
            (Kind::File, ObjectKind::File) => unpacker.put(&entry, contents),
            (Kind::Symlink(_), ObjectKind::File) => {
                self.link.get_or_insert_with(|| entry.path.clone());
                unpacker.put(&entry, contents)
            }
            (
                Kind::Symlink(_) | Kind::Directory | Kind::HardLink(_) | Kind::Fifo | Kind::Device { .. },
                _,
            ) => Err(damaged(format!("{}: it is not an object", entry.path.display()))),
        }
    }

    /// Makes a repository of the objects, and verifies all that a commit reaches.
    pub(super) fn verify(
        &self,
        directory: &Path,
        commit: &str,
        progress: &dyn Fn(String, Option<u8>),
    ) -> Result<(), String> {
        let mode = self.mode.as_deref().ok_or("it has no config")?;
        if let Some(link) = self.link.as_ref().filter(|_| mode != "bare") {
            return Err(format!("{}: it is a link, in a repository of the mode {mode}", link.display()));
        }
        complete(directory, mode).map_err(|error| error.to_string())?;
        let repo = Repo::new_for_path(directory);
        repo.open(Cancellable::NONE).map_err(|error| error.to_string())?;
        Verification { repo: &repo, verified: HashSet::new(), trees: HashMap::new(), progress }.system(commit)
    }
}

/// Adds to a directory of objects what makes it a repository.
fn complete(directory: &Path, mode: &str) -> io::Result<()> {
    for path in DIRECTORIES {
        DirBuilder::new().recursive(true).create(directory.join(path))?;
    }
    let mut config = File::create_new(directory.join("config"))?;
    write!(config, "[core]\nrepo_version=1\nmode={mode}\n")
}

/// A reader that fails past a size.
struct Bounded<'a> {
    inner: &'a mut dyn Read,
    left: u64,
}

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        let left = self.left.checked_sub(u64::try_from(read).unwrap_or(u64::MAX));
        self.left =
            left.ok_or_else(|| damaged(format!("an object has more than {MAX_METADATA_BYTES} bytes")))?;
        Ok(read)
    }
}

/// Entries below a directory, and its height.
#[derive(Debug, Clone, Copy, Default)]
struct TreeSize {
    entries: u64,
    height: usize,
}

/// A walk through all that a commit reaches. An object is verified before it is read.
struct Verification<'a> {
    repo: &'a Repo,
    verified: HashSet<String>,
    trees: HashMap<String, TreeSize>,
    progress: &'a dyn Fn(String, Option<u8>),
}

impl Verification<'_> {
    /// Verifies a commit, and the base of its layered packages.
    fn system(&mut self, checksum: &str) -> Result<(), String> {
        self.commit(checksum)?;
        match base_of(&self.load(ObjectType::Commit, checksum)?) {
            Some(base) => self.commit(&base).map_err(|cause| format!("the base of its packages: {cause}")),
            None => Ok(()),
        }
    }

    fn commit(&mut self, checksum: &str) -> Result<(), String> {
        let commit = self.load(ObjectType::Commit, checksum)?;
        self.verify(ObjectType::DirMeta, &named(&commit, 7))?;
        self.tree(&named(&commit, 6), 0).map(drop)
    }

    /// Verifies a directory and all below it. One that is named in several places is read once and counted in each.
    fn tree(&mut self, checksum: &str, depth: usize) -> Result<TreeSize, String> {
        let size = match self.trees.get(checksum) {
            Some(size) => *size,
            None => self.new_tree(checksum, depth)?,
        };
        if depth + size.height > MAX_TREE_DEPTH {
            return Err(format!("its system has more than {MAX_TREE_DEPTH} directories below each other"));
        }
        if size.entries > MAX_TREE_ENTRIES {
            return Err(format!("its system has more than {MAX_TREE_ENTRIES} files and directories"));
        }
        Ok(size)
    }

    fn new_tree(&mut self, checksum: &str, depth: usize) -> Result<TreeSize, String> {
        if depth > MAX_TREE_DEPTH {
            return Ok(TreeSize { entries: 0, height: 1 });
        }
        let tree = self.load(ObjectType::DirTree, checksum)?;
        let (files, directories) = (tree.child_value(0), tree.child_value(1));
        for file in files.iter() {
            self.verify(ObjectType::File, &named(&file, 1))?;
        }
        let mut size = TreeSize { entries: count(&files), height: 0 };
        for directory in directories.iter() {
            self.verify(ObjectType::DirMeta, &named(&directory, 2))?;
            let below = self.tree(&named(&directory, 1), depth + 1)?;
            size.entries = size.entries.saturating_add(below.entries).saturating_add(1);
            size.height = size.height.max(below.height + 1);
        }
        self.trees.insert(checksum.to_owned(), size);
        Ok(size)
    }

    fn load(&mut self, kind: ObjectType, checksum: &str) -> Result<Variant, String> {
        self.verify(kind, checksum)?;
        self.repo.load_variant(kind, checksum).map_err(|error| error.to_string())
    }

    /// Holds an object against its name, and metadata against its form.
    fn verify(&mut self, kind: ObjectType, checksum: &str) -> Result<(), String> {
        let name = object_to_string(checksum, kind);
        if self.verified.contains(name.as_str()) {
            return Ok(());
        }
        self.repo.fsck_object(kind, checksum, Cancellable::NONE).map_err(|error| {
            format!("the object {name} is missing, or does not match its checksum: {error}")
        })?;
        self.verified.insert(name.into());
        if self.verified.len().is_multiple_of(REPORTED) {
            (self.progress)(format!("verifying the system: {} objects", self.verified.len()), None);
        }
        Ok(())
    }
}

/// Reads the checksum that an object names at a place of its own.
fn named(object: &Variant, place: usize) -> String {
    checksum_from_bytes_v(&object.child_value(place)).into()
}

fn count(entries: &Variant) -> u64 {
    u64::try_from(entries.n_children()).unwrap_or(u64::MAX)
}

/// The ref that keeps the base of a stateroot's packages. rpm-ostree replaces all of this prefix by its own.
fn base_ref(stateroot: &StaterootName) -> String {
    format!("rpmostree/base/{stateroot}")
}

/// Returns the base of a commit that rpm-ostree has layered packages on: its parent.
pub(super) fn base_of(commit: &Variant) -> Option<String> {
    const LAYERED: &str = "rpmostree.clientlayer";
    let metadata = VariantDict::new(Some(&commit.child_value(0)));
    let is_layered = metadata.lookup::<bool>(LAYERED).ok().flatten().unwrap_or_default();
    let has_parent = || commit.child_value(1).n_children() == 32;
    (is_layered && has_parent()).then(|| named(commit, 1))
}

/// Takes a verified commit over, as `ostree pull-local` does: objects are linked, not copied. What is in the host's repository
/// already stays as it is. The base of its packages comes along: without it rpm-ostree shows no deployment of the host at all.
pub(super) fn import(
    repo: &Repo,
    from: &Path,
    commit: &str,
    stateroot: &StaterootName,
) -> Result<(), OsError> {
    let source = Repo::new_for_path(from);
    source.open(Cancellable::NONE).map_err(failed)?;
    let base = base_of(&source.load_commit(commit).map_err(failed)?.0);
    let is_missing = |commit: &&str| {
        !repo.load_commit(commit).is_ok_and(|(_, state)| !state.contains(RepoCommitState::PARTIAL))
    };
    let missing: Vec<&str> =
        [Some(commit), base.as_deref()].into_iter().flatten().filter(is_missing).collect();
    if !missing.is_empty() {
        // The owner of a file is in the checksum of a bare object alone: others are copied.
        let is_whole = source.mode() == RepoMode::Bare;
        let flags = if is_whole { RepoPullFlags::NONE } else { RepoPullFlags::UNTRUSTED };
        let options = VariantDict::new(None);
        options.insert_value("refs", &missing.as_slice().to_variant());
        options.insert_value("flags", &i32::try_from(flags.bits()).map_err(failed)?.to_variant());
        let url = format!("file://{}", from.display());
        repo.pull_with_options(&url, &options.end(), None, Cancellable::NONE).map_err(failed)?;
    }
    let Some(base) = base else { return Ok(()) };
    repo.set_ref_immediate(None, &base_ref(stateroot), Some(&base), Cancellable::NONE).map_err(failed)
}

/// Gives the base of a stateroot's packages up.
pub(super) fn forget_base(repo: &Repo, stateroot: &StaterootName) -> Result<(), OsError> {
    repo.set_ref_immediate(None, &base_ref(stateroot), None, Cancellable::NONE).map_err(failed)
}

#[cfg(test)]
mod tests {
    use ostree_ext::gio;
    use ostree_ext::ostree::RepoTransactionStats;

    use super::*;

    /// Objects that libostree itself writes: their names are right.
    struct Written {
        repo: Repo,
        meta: Vec<u8>,
        _dir: tempfile::TempDir,
    }

    impl Written {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let repo = Repo::new_for_path(dir.path());
            repo.create(RepoMode::Archive, Cancellable::NONE).unwrap();
            repo.prepare_transaction(Cancellable::NONE).unwrap();
            let mut written = Self { repo, meta: Vec::new(), _dir: dir };
            let meta = (0_u32, 0_u32, 0o40755_u32.to_be(), Vec::<(Vec<u8>, Vec<u8>)>::new());
            written.meta = written.write(ObjectType::DirMeta, &meta.to_variant());
            written
        }

        fn write(&self, kind: ObjectType, object: &Variant) -> Vec<u8> {
            let written = self.repo.write_metadata(kind, None, object, Cancellable::NONE).unwrap().to_hex();
            (0..written.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&written[at..at + 2], 16).unwrap())
                .collect()
        }

        fn tree(&self, below: &[&Vec<u8>]) -> Vec<u8> {
            let entry = |(number, tree): (usize, &&Vec<u8>)| {
                (format!("d{number}"), (*tree).clone(), self.meta.clone())
            };
            let below: Vec<_> = below.iter().enumerate().map(entry).collect();
            self.write(ObjectType::DirTree, &(Vec::<(String, Vec<u8>)>::new(), below).to_variant())
        }

        fn verified(self, root: &[u8]) -> Result<(), String> {
            let commit = (
                HashMap::<String, Variant>::new(),
                Vec::<u8>::new(),
                Vec::<(String, Vec<u8>)>::new(),
                String::new(),
                String::new(),
                0_u64,
                root.to_vec(),
                self.meta.clone(),
            );
            let commit = self.write(ObjectType::Commit, &commit.to_variant());
            let _stats: RepoTransactionStats = self.repo.commit_transaction(gio::Cancellable::NONE).unwrap();
            let (repo, progress) = (&self.repo, &|_, _| {});
            let commit = commit.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
            Verification { repo, verified: HashSet::new(), trees: HashMap::new(), progress }.commit(&commit)
        }
    }

    /// Forty objects that would be a billion directories.
    #[test]
    fn tree_that_grows_when_it_is_checked_out_is_refused() {
        let written = Written::new();
        let mut tree = written.tree(&[]);
        for _ in 0..40 {
            tree = written.tree(&[&tree, &tree]);
        }
        let refused = written.verified(&tree).unwrap_err();
        assert!(refused.contains("files and directories"), "{refused}");
    }

    #[test]
    fn deep_tree_is_refused_wherever_it_is_named() {
        for (depth, is_taken) in [(MAX_TREE_DEPTH, true), (MAX_TREE_DEPTH + 1, false), (3000, false)] {
            let written = Written::new();
            let mut tree = written.tree(&[]);
            let mut half = tree.clone();
            for level in 0..depth {
                // Known from a higher place already.
                tree =
                    if level + 1 == depth { written.tree(&[&half, &tree]) } else { written.tree(&[&tree]) };
                if level == depth / 2 {
                    half.clone_from(&tree);
                }
            }
            let verified = written.verified(&tree);
            assert_eq!(verified.is_ok(), is_taken, "{depth}: {verified:?}");
        }
    }
}
