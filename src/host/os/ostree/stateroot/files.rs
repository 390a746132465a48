//! The files of a seed as they are kept: archives of trees unpacked, the others as they are.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{DirBuilderExt as _, chown, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::bufread::MultiGzDecoder;
use ostree_ext::glib::{KeyFile, KeyFileFlags};

use super::super::super::error::{OsError, OsErrorKind};
use super::super::super::worker::protocol::FetchedSeed;
use super::super::failed::failed;
use super::acl::Accounts;
use super::archive::{Entry, MAX_FILE_BYTES, damaged, read_entries};
use super::failure::unpack_failed;
use super::repository::{self, Objects};
use super::tree;
use super::unpack::{Attribute, Disk, Unpacker};
use crate::stateroot::{
    CONTAINERS, DELETIONS, ETC, Layout, MANIFEST, Member, REPOSITORY, SEED_CONFIG, STATUS, SeedError,
    StaterootName, VAR, booted_deployment, containers, deletions, manifest_version, member, missing,
    seed_config,
};

/// The tree of `/var`, and the repository.
pub(super) const VAR_TREE: &str = "var";
pub(super) const REPOSITORY_TREE: &str = "repo";

/// The document of the cluster.
pub(super) const MANIFEST_FILE: &str = MANIFEST;

/// The origin file.
pub(super) const ORIGIN_FILE: &str = "origin";

/// Files of a seed that were found so far.
#[derive(Debug)]
pub(super) struct Found {
    directory: PathBuf,
    /// Bytes that stay free.
    reserve: u64,
    names: BTreeSet<&'static str>,
    /// Of its repository.
    objects: Objects,
    accounts: Arc<Accounts>,
    /// Attributes that this process may not set, below the directory.
    refused: Vec<Attribute>,
}

impl Found {
    /// Begins in an empty directory; `reserve` are the bytes that stay free, `accounts` are those of this host.
    pub(super) fn new(directory: &Path, reserve: u64, accounts: Accounts) -> io::Result<Self> {
        for tree in [VAR_TREE, REPOSITORY_TREE] {
            make_directory(&directory.join(tree))?;
        }
        Ok(Self {
            directory: directory.to_owned(),
            reserve,
            names: BTreeSet::new(),
            objects: Objects::default(),
            accounts: accounts.into(),
            refused: Vec::new(),
        })
    }

    /// Returns the attributes that this process may not set, once.
    pub(super) fn take_refused(&mut self) -> Vec<Attribute> {
        std::mem::take(&mut self.refused)
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
            Member::Archive(VAR) => self.unpack_var(contents),
            Member::Archive(_) => self.take_objects(contents),
            Member::File(name, limit) => {
                copy_bounded(contents, &self.directory.join(file(name)), limit, self.reserve)
            }
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

    fn empty(&mut self, name: &str) -> io::Result<()> {
        self.refused.retain(|attribute| !attribute.is_below(name));
        let path = self.directory.join(name);
        tree::remove_path(&path)?;
        make_directory(&path)
    }

    fn unpack_var(&mut self, contents: &mut dyn Read) -> io::Result<()> {
        let mut unpacker = Unpacker::new(&self.directory.join(VAR_TREE), self.reserve)?;
        let put = |entry: Entry, contents: &mut dyn Read| unpacker.put(&entry, contents);
        read_entries(decompressed(contents), Some("var"), MAX_FILE_BYTES, &*self.accounts, put)?;
        self.keep(VAR_TREE, unpacker.finish()?);
        Ok(())
    }

    fn take_objects(&mut self, contents: &mut dyn Read) -> io::Result<()> {
        let directory = self.directory.join(REPOSITORY_TREE);
        let unpacked = repository::unpack(decompressed(contents), &*self.accounts, &directory, self.reserve)?;
        self.objects = unpacked.0;
        self.keep(REPOSITORY_TREE, unpacked.1);
        Ok(())
    }

    fn keep(&mut self, tree: &str, refused: Vec<Attribute>) {
        self.refused.extend(refused.into_iter().map(|attribute| attribute.below(tree)));
    }

    /// Makes sure that nothing is missing and that everything can be read. `object` names the seed, `commit` is that of an image
    /// that boots.
    pub(super) fn check(
        &self,
        object: &str,
        (layout, stateroot): (Layout, &StaterootName),
        commit: Option<String>,
        progress: &dyn Fn(String, Option<u8>),
    ) -> Result<FetchedSeed, OsError> {
        let refused = |error: SeedError| OsError::new(OsErrorKind::SeedDamaged, object, error.to_string());
        let lacking = missing(layout, &self.names);
        if !lacking.is_empty() {
            return Err(refused(SeedError::Missing { members: lacking }));
        }
        let unreadable = |error: io::Error| unpack_failed(object, &error);
        let bytes = |name: &str| fs::read(self.directory.join(name)).map_err(unreadable);
        let text = |name: &str| fs::read_to_string(self.directory.join(name)).map_err(unreadable);
        let version = manifest_version(&bytes(MANIFEST)?).map_err(refused)?;
        if let Some(version) = version.filter(|version| StaterootName::from_version(version) != *stateroot) {
            let cause = format!("it is of version {version}, and the stateroot is {stateroot}");
            return Err(refused(SeedError::Member { member: MANIFEST, cause }));
        }
        deletions(&text(DELETIONS)?).map_err(refused)?;
        open_etc(&self.directory)
            .and_then(|mut archive| etc_entries(&mut archive, &self.accounts, |_, _| Ok(())))
            .map_err(|error| {
                unpack_failed(object, &io::Error::new(error.kind(), format!("{ETC}: {error}")))
            })?;
        let config = seed_config(&bytes(SEED_CONFIG)?).map_err(refused)?;
        let commit = if let Some(commit) = commit {
            commit
        } else {
            let commit = booted_deployment(&bytes(STATUS)?).map_err(refused)?.commit;
            let verified = self.objects.verify(&self.directory.join(REPOSITORY_TREE), &commit, progress);
            verified.map_err(|cause| refused(SeedError::Member { member: REPOSITORY, cause }))?;
            commit
        };
        let containers = containers(&text(CONTAINERS)?);
        Ok(FetchedSeed { commit, kargs: config.kargs, fips: config.fips, containers })
    }
}

/// Reads the entries of the seed's `/etc`.
pub(super) fn etc_entries(
    archive: &mut dyn Read,
    accounts: &Accounts,
    each: impl FnMut(Entry, &mut dyn Read) -> io::Result<()>,
) -> io::Result<()> {
    read_entries(decompressed(archive), Some("etc"), MAX_FILE_BYTES, accounts, each)
}

/// Opens the archive of the seed's `/etc`.
pub(super) fn open_etc(directory: &Path) -> io::Result<File> {
    File::open(directory.join(ETC))
}

/// Makes a directory of root, whoever this process is.
fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o755).create(path)?;
    chown(path, Some(0), Some(0))
}

fn decompressed(contents: &mut dyn Read) -> impl Read {
    MultiGzDecoder::new(BufReader::with_capacity(128 << 10, contents))
}

fn file(name: &'static str) -> &'static str {
    if name == crate::stateroot::ORIGIN { ORIGIN_FILE } else { name }
}

fn copy_bounded(contents: &mut dyn Read, path: &Path, limit: u64, reserve: u64) -> io::Result<()> {
    let mut file_copy = File::create(path)?;
    fchown(&file_copy, Some(0), Some(0))?;
    let copied = Disk::new(reserve).copy(&mut contents.take(limit + 1), &mut file_copy)?;
    if copied > limit {
        return Err(damaged(format!("it has more than {limit} bytes")));
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
