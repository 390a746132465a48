//! A seed is fetched, unpacked and checked beside the repository, before there is a stateroot.
//!
//! Archives are unpacked while they arrive: neither the image nor an archive of a system or of `/var` is written down as a
//! whole. What is kept is good for this boot: a power cut loses pages that nobody synced, so another boot fetches again.
//!
//! Invariant: when this fails nothing of the seed is left.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use ostree_ext::gio::prelude::*;
use ostree_ext::gio::{Cancellable, FileQueryInfoFlags};
use ostree_ext::oci_spec::image::Descriptor;
use ostree_ext::ostree::{Repo, RepoFile, Sysroot};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt as _;

use super::super::super::error::{OsError, OsErrorKind};
use super::super::super::worker::protocol::{FetchedSeed, SeedRequest};
use super::super::failed::failed;
use super::super::image::{Source, pull_failed};
use super::super::{space, stage};
use super::failure::unpack_failed;
use super::files::{Found, VAR_TREE};
use super::tree;
use super::unpacking::{Job, Unpacking};
use crate::model::{BootId, ImageRef};
use crate::stateroot::{Layout, SEED_DIRECTORY, StaterootName};

/// File that is written last.
const MARK: &str = "seed.json";

/// Bytes that are moved from a layer to its reader at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Says that everything is there, of which image and since which boot.
#[derive(Serialize, Deserialize)]
struct Mark {
    image: ImageRef,
    boot_id: BootId,
    seed: FetchedSeed,
}

/// Returns where a seed is kept.
pub(super) fn directory(path: &Path, stateroot: &StaterootName) -> PathBuf {
    path.join("ostree").join(format!("machine-config-agent-seed-{stateroot}"))
}

/// Fetches the seed; what this boot has fetched already is taken as it is.
pub(super) async fn fetch(
    sysroot: &Sysroot,
    path: &Path,
    request: &SeedRequest,
    progress: &dyn Fn(String, Option<u8>),
) -> Result<FetchedSeed, OsError> {
    let directory = directory(path, &request.name);
    if let Some(seed) = fetched(&directory, request) {
        return Ok(seed);
    }
    let gathered = gather(sysroot, path, &directory, request, progress).await;
    if gathered.is_err() {
        // What is left is removed by the next try, or with the stateroot.
        tree::remove_path(&directory).unwrap_or_default();
    }
    gathered
}

fn fetched(directory: &Path, request: &SeedRequest) -> Option<FetchedSeed> {
    let mark: Mark = serde_json::from_slice(&fs::read(directory.join(MARK)).ok()?).ok()?;
    let is_it = mark.image.is_same(&request.image) && mark.boot_id == request.boot_id;
    (is_it && directory.join(VAR_TREE).is_dir()).then_some(mark.seed)
}

/// Takes the mark away: from here on the files are used up.
pub(super) fn use_up(directory: &Path) -> io::Result<()> {
    fs::remove_file(directory.join(MARK))
}

async fn gather(
    sysroot: &Sysroot,
    path: &Path,
    directory: &Path,
    request: &SeedRequest,
    progress: &dyn Fn(String, Option<u8>),
) -> Result<FetchedSeed, OsError> {
    let object = request.image.to_string();
    let made = tree::remove_path(directory).and_then(|()| DirBuilder::new().mode(0o700).create(directory));
    made.map_err(|error| unpack_failed(&object, &error))?;
    let reserve = space::reserve(sysroot, path)?;
    let job = |commit: Option<String>| Job::Seed {
        layout: request.layout,
        stateroot: request.name.clone(),
        commit,
    };
    let unpacking = match request.layout {
        Layout::Classic => {
            let mut unpacking = Unpacking::start(directory, &object, reserve, job(None), progress).await?;
            from_layers(sysroot, path, request, &mut unpacking, progress).await?;
            unpacking
        }
        Layout::Bootc => {
            let (image, credentials) = (&request.image, request.credentials.as_ref());
            let state = stage::obtain(sysroot, path, image, credentials, None, progress).await?;
            space::before_staging(sysroot, path, image, &state.merge_commit)?;
            progress("unpacking the seed".to_owned(), None);
            let job = job(Some(state.merge_commit.clone()));
            let mut unpacking = Unpacking::start(directory, &object, reserve, job, progress).await?;
            from_commit(&sysroot.repo(), &state.merge_commit, image, &mut unpacking).await?;
            unpacking
        }
    };
    progress("checking the seed".to_owned(), None);
    let seed = unpacking.finish().await?.ok_or_else(|| failed("the unpacker did not check the seed"))?;
    let mark = Mark { image: request.image.clone(), boot_id: request.boot_id.clone(), seed };
    let json = serde_json::to_vec(&mark).map_err(failed)?;
    fs::write(directory.join(MARK), json).map_err(|error| unpack_failed(&object, &error))?;
    Ok(mark.seed)
}

/// Takes the files out of the layers of an image, in their order: a later one wins.
async fn from_layers(
    sysroot: &Sysroot,
    path: &Path,
    request: &SeedRequest,
    unpacking: &mut Unpacking<'_>,
    progress: &dyn Fn(String, Option<u8>),
) -> Result<(), OsError> {
    let image = &request.image;
    let open = Source::new(image, request.credentials.as_ref())?.open(image).await?;
    let (_, manifest) = open.proxy.fetch_manifest(&open.image).await.map_err(|e| pull_failed(image, e))?;
    let total: u64 = manifest.layers().iter().map(Descriptor::size).sum();
    space::before_unpacking(sysroot, path, image, total)?;
    let mut done: u64 = 0;
    for layer in manifest.layers() {
        let blob = open.proxy.get_blob(&open.image, layer.digest(), layer.size()).await;
        let (mut bytes, finished) = blob.map_err(|e| pull_failed(image, e))?;
        unpacking.begin(None).await;
        let pull = async {
            let (mut chunk, mut arrived) = (vec![0; CHUNK_BYTES], 0);
            let is_whole = loop {
                let read = bytes.read(&mut chunk).await?;
                if read == 0 {
                    break true;
                }
                // The unpacker says itself why it has ended.
                if unpacking.send(chunk.get(..read).unwrap_or_default()).await.is_err() {
                    break false;
                }
                arrived += u64::try_from(read).unwrap_or_default();
                let now = (done + arrived).min(total);
                let percent = (now * 100).checked_div(total).and_then(|p| u8::try_from(p).ok());
                progress("pulling and unpacking the seed".to_owned(), percent);
            };
            drop(bytes);
            io::Result::Ok((is_whole.then_some(arrived), unpacking.end().await))
        };
        let (pulled, finished) = tokio::join!(pull, finished);
        done += layer.size();
        let (arrived, read) = pulled.map_err(|e| pull_failed(image, e))?;
        layer_end(image, layer.size(), arrived, finished.map_err(|e| pull_failed(image, e)), read)?;
    }
    Ok(())
}

/// Says what came of a layer, of which so many bytes arrived when its source had ended. One that was cut short or does not match its
/// digest has damaged the archive, too: that is the cause, and says nothing about the seed.
fn layer_end(
    image: &ImageRef,
    size: u64,
    arrived: Option<u64>,
    finished: Result<(), OsError>,
    read: Result<(), OsError>,
) -> Result<(), OsError> {
    if let Err(failure) = &finished
        && failure.trouble == OsErrorKind::Corrupted
    {
        return finished;
    }
    if let Some(arrived) = arrived.filter(|arrived| *arrived < size) {
        let told = finished.err().map(|failure| format!(": {}", failure.cause)).unwrap_or_default();
        let cause = format!("the download ended after {arrived} of {size} bytes{told}");
        return Err(OsError::new(OsErrorKind::PullFailed, image.to_string(), cause));
    }
    read.and(finished)
}

/// Takes the files out of a commit of the repository.
async fn from_commit(
    repo: &Repo,
    commit: &str,
    image: &ImageRef,
    unpacking: &mut Unpacking<'_>,
) -> Result<(), OsError> {
    let (root, _) = repo.read_commit(commit, Cancellable::NONE).map_err(failed)?;
    let directory = root.resolve_relative_path(SEED_DIRECTORY);
    if !directory.query_exists(Cancellable::NONE) {
        let cause = format!("it has the label of a bootc seed, but no /{SEED_DIRECTORY}");
        return Err(OsError::new(OsErrorKind::SeedDamaged, image.to_string(), cause));
    }
    let flags = FileQueryInfoFlags::NOFOLLOW_SYMLINKS;
    let listing = directory.enumerate_children("standard::name", flags, Cancellable::NONE).map_err(failed)?;
    while let Some(info) = listing.next_file(Cancellable::NONE).map_err(failed)? {
        let name = info.name();
        let Some(name) = name.to_str().filter(|name| Found::knows(name)) else { continue };
        // The file's own stream is none that GIO's types know.
        let file = directory
            .child(name)
            .downcast::<RepoFile>()
            .map_err(|_| failed("a commit has files of others"))?;
        file.ensure_resolved().map_err(failed)?;
        let (stream, ..) = repo.load_file(&file.checksum(), Cancellable::NONE).map_err(failed)?;
        // What is no regular file has none, and is missing.
        let Some(stream) = stream else { continue };
        unpacking.begin(Some(name)).await;
        let sent = unpacking.send_all(&mut stream.into_read()).await;
        sent.map_err(|e| unpack_failed(&image.to_string(), &e))?;
        unpacking.end().await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A download that is cut short is tried again: the seed may be good.
    #[test]
    fn truncated_layer_is_failure_of_pull() {
        let image = ImageRef::parse(&format!("registry.test/seed@sha256:{}", "a".repeat(64))).unwrap();
        let error = |kind: io::ErrorKind| Err(io::Error::new(kind, "etc.tgz: it ends"));
        let lost = || Err(pull_failed(&image, "unexpected EOF"));
        let corrupted = || Err(pull_failed(&image, "corrupted blob"));
        let end = |arrived, finished, read: io::Result<()>| {
            let read = read.map_err(|error| unpack_failed(&image.to_string(), &error));
            layer_end(&image, 10, arrived, finished, read).map_err(|failure| (failure.trouble, failure.cause))
        };
        let cut = "the download ended after 4 of 10 bytes";
        let eof = io::ErrorKind::UnexpectedEof;
        assert_eq!(end(Some(4), Ok(()), error(eof)), Err((OsErrorKind::PullFailed, cut.to_owned())));
        let told = Err((OsErrorKind::PullFailed, format!("{cut}: unexpected EOF")));
        assert_eq!(end(Some(4), lost(), error(eof)), told);
        assert_eq!(end(Some(4), lost(), Ok(())), told);
        let kind = |ended: Result<(), (OsErrorKind, String)>| ended.unwrap_err().0;
        assert_eq!(kind(end(Some(10), corrupted(), error(eof))), OsErrorKind::Corrupted);
        // The seed's own: all of it came, or the rest was not asked for.
        assert_eq!(kind(end(Some(10), Ok(()), error(eof))), OsErrorKind::SeedDamaged);
        assert_eq!(kind(end(None, lost(), error(io::ErrorKind::InvalidData))), OsErrorKind::SeedDamaged);
        assert_eq!(kind(end(None, lost(), error(io::ErrorKind::StorageFull))), OsErrorKind::NoSpace);
        assert_eq!(end(Some(10), Ok(()), Ok(())), Ok(()));
    }
}
