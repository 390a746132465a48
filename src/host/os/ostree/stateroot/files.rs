//! The files of a seed as they are kept: archives of trees unpacked, the others as they are.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::bufread::MultiGzDecoder;
use ostree_ext::gio::Cancellable;
use ostree_ext::glib::{KeyFile, KeyFileFlags};
use ostree_ext::ostree::{Repo, RepoCommitState};

use super::super::super::error::{OsError, OsErrorKind};
use super::super::super::worker::protocol::FetchedSeed;
use super::super::failed::failed;
use super::acl::Accounts;
use super::archive::{damaged, read_entries};
use super::failure::unpack_failed;
use super::tree;
use super::unpack::Unpacker;
use crate::stateroot::{
    CONTAINERS, DELETIONS, ETC, Layout, Member, REPOSITORY, SEED_CONFIG, STATUS, SeedError, VAR,
    booted_deployment, containers, deletions, member, missing, seed_config,
};

/// The tree of `/var`, and the repository.
pub(super) const VAR_TREE: &str = "var";
pub(super) const REPOSITORY_TREE: &str = "repo";

/// The document of the cluster.
pub(super) const MANIFEST_FILE: &str = crate::stateroot::MANIFEST;

/// The origin file.
pub(super) const ORIGIN_FILE: &str = "origin";

/// Files of a seed that were found so far.
#[derive(Debug)]
pub(super) struct Found {
    directory: PathBuf,
    names: BTreeSet<&'static str>,
    accounts: Arc<Accounts>,
}

impl Found {
    /// Begins in an empty directory.
    pub(super) fn new(directory: &Path) -> io::Result<Self> {
        for tree in [VAR_TREE, REPOSITORY_TREE] {
            DirBuilder::new().mode(0o755).create(directory.join(tree))?;
        }
        Ok(Self {
            directory: directory.to_owned(),
            names: BTreeSet::new(),
            accounts: Accounts::load().into(),
        })
    }

    /// Returns the accounts of this host.
    pub(super) fn accounts(&self) -> Arc<Accounts> {
        Arc::clone(&self.accounts)
    }

    /// Returns true if a seed has a file of this name.
    pub(super) fn knows(name: &str) -> bool {
        member(name).is_some()
    }

    /// Takes a file of the seed. One of another name is left.
    pub(super) fn take(&mut self, name: &str, contents: &mut dyn Read) -> io::Result<()> {
        let Some(member) = member(name) else { return Ok(()) };
        self.forget(name)?;
        let taken = match member {
            Member::Archive(VAR) => self.unpack(contents, VAR_TREE, Some("var")),
            Member::Archive(_) => self.unpack(contents, REPOSITORY_TREE, None),
            Member::File(name, limit) => copy_bounded(contents, &self.directory.join(file(name)), limit),
        };
        taken.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", member.name())))?;
        self.names.insert(member.name());
        Ok(())
    }

    /// Drops a file of the seed: a later layer has another one, or none.
    pub(super) fn forget(&mut self, name: &str) -> io::Result<()> {
        let Some(member) = member(name).filter(|member| self.names.remove(member.name())) else {
            return Ok(());
        };
        match member {
            Member::Archive(VAR) => self.empty(VAR_TREE),
            Member::Archive(_) => self.empty(REPOSITORY_TREE),
            Member::File(name, _) => fs::remove_file(self.directory.join(file(name))),
        }
    }

    fn empty(&self, name: &str) -> io::Result<()> {
        let path = self.directory.join(name);
        tree::remove_path(&path)?;
        DirBuilder::new().mode(0o755).create(path)
    }

    fn unpack(&self, contents: &mut dyn Read, name: &str, inside: Option<&str>) -> io::Result<()> {
        let mut unpacker = Unpacker::new(&self.directory.join(name))?;
        let source = MultiGzDecoder::new(BufReader::with_capacity(128 << 10, contents));
        read_entries(source, inside, &*self.accounts, |entry, contents| unpacker.put(&entry, contents))?;
        unpacker.finish()
    }

    /// Makes sure that nothing is missing and that everything can be read. `commit` is that of an image that boots.
    pub(super) fn check(
        &self,
        layout: Layout,
        commit: Option<String>,
        object: &str,
    ) -> Result<FetchedSeed, OsError> {
        let refused = |error: SeedError| OsError::new(OsErrorKind::SeedDamaged, object, error.to_string());
        let lacking = missing(layout, &self.names);
        if !lacking.is_empty() {
            return Err(refused(SeedError::Missing { members: lacking }));
        }
        let unreadable = |error: io::Error| unpack_failed(object, &error);
        let bytes = |name: &str| fs::read(self.directory.join(name)).map_err(unreadable);
        let text = |name: &str| fs::read_to_string(self.directory.join(name)).map_err(unreadable);
        deletions(&text(DELETIONS)?).map_err(refused)?;
        etc_entries(&self.directory, &self.accounts, |_, _| Ok(())).map_err(|error| {
            unpack_failed(object, &io::Error::new(error.kind(), format!("{ETC}: {error}")))
        })?;
        let config = seed_config(&bytes(SEED_CONFIG)?).map_err(refused)?;
        let commit = if let Some(commit) = commit {
            commit
        } else {
            let commit = booted_deployment(&bytes(STATUS)?).map_err(refused)?.commit;
            let has = has_commit(&self.directory.join(REPOSITORY_TREE), &commit);
            has.map_err(|cause| refused(SeedError::Member { member: REPOSITORY, cause }))?;
            commit
        };
        let containers = containers(&text(CONTAINERS)?);
        Ok(FetchedSeed { commit, kargs: config.kargs, fips: config.fips, containers })
    }
}

/// Reads the entries of the seed's `/etc`.
pub(super) fn etc_entries(
    directory: &Path,
    accounts: &Accounts,
    each: impl FnMut(super::archive::Entry, &mut dyn Read) -> io::Result<()>,
) -> io::Result<()> {
    let file = BufReader::with_capacity(128 << 10, File::open(directory.join(ETC))?);
    read_entries(MultiGzDecoder::new(file), Some("etc"), accounts, each)
}

fn file(name: &'static str) -> &'static str {
    if name == crate::stateroot::ORIGIN { ORIGIN_FILE } else { name }
}

fn copy_bounded(contents: &mut dyn Read, path: &Path, limit: u64) -> io::Result<()> {
    let mut file_copy = File::create(path)?;
    let copied = io::copy(&mut contents.take(limit + 1), &mut file_copy)?;
    if copied > limit {
        return Err(damaged(format!("it has more than {limit} bytes")));
    }
    Ok(())
}

/// Opens the seed's repository and finds the commit. Of its configuration only the mode is kept: the rest is another host's.
fn has_commit(repository: &Path, commit: &str) -> Result<(), String> {
    let config = repository.join("config");
    let found = KeyFile::new();
    found.load_from_file(&config, KeyFileFlags::NONE).map_err(|error| format!("its config: {error}"))?;
    let mode = found.string("core", "mode").map_err(|error| format!("its config: {error}"))?;
    if !["bare", "bare-user", "bare-user-only", "archive", "archive-z2"].contains(&mode.as_str()) {
        return Err(format!("its mode {mode:?} is not known"));
    }
    fs::write(&config, format!("[core]\nrepo_version=1\nmode={mode}\n"))
        .map_err(|error| error.to_string())?;
    let repo = Repo::new_for_path(repository);
    repo.open(Cancellable::NONE).map_err(|error| error.to_string())?;
    let (_, state) = repo.load_commit(commit).map_err(|error| error.to_string())?;
    if state.contains(RepoCommitState::PARTIAL) {
        return Err(format!("the commit {commit} is not whole"));
    }
    Ok(())
}

/// Reads the origin of the seed's deployment.
pub(super) fn origin(directory: &Path) -> Result<KeyFile, OsError> {
    let origin = KeyFile::new();
    origin.load_from_file(directory.join(ORIGIN_FILE), KeyFileFlags::NONE).map_err(failed)?;
    ostree_ext::ostree::Deployment::origin_remove_transient_state(&origin);
    Ok(origin)
}

/// Reads the names that the seed's host has deleted from `/etc`.
pub(super) fn deleted(directory: &Path) -> Result<Vec<String>, OsError> {
    let text = fs::read_to_string(directory.join(DELETIONS)).map_err(failed)?;
    deletions(&text).map_err(failed)
}
