//! A seed is fetched, unpacked and checked beside the repository, before there is a stateroot.
//!
//! Archives are unpacked while they arrive: neither the image nor an archive of a system or of `/var` is written down as a
//! whole. What is kept is good for this boot: a power cut loses pages that nobody synced, so another boot fetches again.
//!
//! Invariant: when this fails nothing of the seed is left.

use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead as _, BufReader, Read};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use ostree_ext::gio::prelude::*;
use ostree_ext::gio::{Cancellable, FileQueryInfoFlags};
use ostree_ext::oci_spec::image::Descriptor;
use ostree_ext::ostree::{Repo, RepoFile, Sysroot};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;

use super::super::super::error::{OsError, OsErrorKind};
use super::super::super::worker::protocol::{FetchedSeed, SeedRequest};
use super::super::failed::failed;
use super::super::image::{Source, pull_failed};
use super::super::{space, stage};
use super::archive::{Kind, damaged, read_entries};
use super::failure::unpack_failed;
use super::files::{Found, VAR_TREE};
use super::tree;
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
    let mut found = Found::new(directory).map_err(|error| unpack_failed(&object, &error))?;
    let commit = match request.layout {
        Layout::Classic => {
            found = from_layers(sysroot, path, request, found, progress).await?;
            None
        }
        Layout::Bootc => {
            let (image, credentials) = (&request.image, request.credentials.as_ref());
            let state = stage::obtain(sysroot, path, image, credentials, None, progress).await?;
            space::before_staging(sysroot, path, image, &state.merge_commit)?;
            progress("unpacking the seed".to_owned(), None);
            from_commit(&sysroot.repo(), &state.merge_commit, image, &mut found)?;
            Some(state.merge_commit.clone())
        }
    };
    progress("checking the seed".to_owned(), None);
    let seed = found.check(request.layout, commit, &object)?;
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
    mut found: Found,
    progress: &dyn Fn(String, Option<u8>),
) -> Result<Found, OsError> {
    let image = &request.image;
    let open = Source::new(image, request.credentials.as_ref())?.open(image).await?;
    let (_, manifest) = open.proxy.fetch_manifest(&open.image).await.map_err(|e| pull_failed(image, e))?;
    let total: u64 = manifest.layers().iter().map(Descriptor::size).sum();
    space::before_unpacking(sysroot, path, image, total)?;
    let mut done = 0;
    for layer in manifest.layers() {
        let blob = open.proxy.get_blob(&open.image, layer.digest(), layer.size()).await;
        let (mut bytes, finished) = blob.map_err(|e| pull_failed(image, e))?;
        let (mut sender, receiver) = pipe::pipe().map_err(failed)?;
        let receiver = File::from(receiver.into_blocking_fd().map_err(failed)?);
        let reader = tokio::task::spawn_blocking(move || {
            let read = read_layer(receiver, &mut found);
            (found, read)
        });
        let pull = async {
            let mut chunk = vec![0; CHUNK_BYTES];
            loop {
                let read = bytes.read(&mut chunk).await?;
                // The reader says itself why it has ended.
                if read == 0 || sender.write_all(chunk.get(..read).unwrap_or_default()).await.is_err() {
                    break;
                }
                done += u64::try_from(read).unwrap_or_default();
                let percent = (done.min(total) * 100).checked_div(total).and_then(|p| u8::try_from(p).ok());
                progress("pulling and unpacking the seed".to_owned(), percent);
            }
            drop(sender);
            drop(bytes);
            io::Result::Ok(())
        };
        let (pulled, finished) = tokio::join!(pull, finished);
        let (back, read) = reader.await.map_err(failed)?;
        found = back;
        // The layer that does not match its digest has damaged the archive, too: that is the cause.
        pulled.map_err(|e| pull_failed(image, e))?;
        match (read, finished) {
            (Ok(()), Ok(())) => {}
            (Ok(()), Err(error)) => return Err(pull_failed(image, error)),
            (Err(error), finished) => {
                let told = finished.err().map(|error| pull_failed(image, error));
                let corrupted = told.filter(|told| told.trouble == OsErrorKind::Corrupted);
                return Err(corrupted.unwrap_or_else(|| unpack_failed(&image.to_string(), &error)));
            }
        }
    }
    Ok(found)
}

/// Takes the files of a seed out of one layer.
fn read_layer(layer: File, found: &mut Found) -> io::Result<()> {
    let mut layer = BufReader::with_capacity(CHUNK_BYTES, layer);
    let beginning = layer.fill_buf()?;
    let plain = !beginning.starts_with(&[0x1f, 0x8b]);
    if beginning.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return Err(damaged("a layer is compressed with zstd; push the image with gzip"));
    }
    let source: Box<dyn Read> = if plain { Box::new(layer) } else { Box::new(MultiGzDecoder::new(layer)) };
    let accounts = found.accounts();
    read_entries(source, None, &*accounts, |entry, contents| {
        let Some(name) = entry.path.to_str().filter(|name| !name.contains('/')) else { return Ok(()) };
        if let Some(removed) = name.strip_prefix(".wh.") {
            return found.forget(removed);
        }
        if entry.kind == Kind::File { found.take(name, contents) } else { Ok(()) }
    })
}

/// Takes the files out of a commit of the repository.
fn from_commit(repo: &Repo, commit: &str, image: &ImageRef, found: &mut Found) -> Result<(), OsError> {
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
        found.take(name, &mut stream.into_read()).map_err(|e| unpack_failed(&image.to_string(), &e))?;
    }
    Ok(())
}
