//! A seed is made of the running system: `/etc` as it differs from the image's, `/var`, and the system itself.
//!
//! Everything is streamed into one layer. The memory is that of a few buffers, of the names of hard links and, in a classic
//! seed, of the objects of one commit.
//!
//! Invariant: nothing is written outside of the directory of the seed.

mod differences;
mod image;
mod layer;
mod pack;
mod repository;
mod selection;
mod walk;

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ostree_ext::ostree::Sysroot;
use rustix::fs::stat;

pub(super) use image::fetch_base;
pub(super) use walk::{At, Choice, Contents, Visitor, walk};

use super::super::super::error::{OsError, OsErrorKind};
use super::super::super::worker::protocol::{ArchiveRequest, AssembleRequest};
use super::super::sysroot;
use super::archive::{Entry, Kind};
use super::failure::unpack_failed;
use crate::model::Sha256;
use crate::stateroot::{
    COMMITTED_CONFIG, CONTAINERS, DELETIONS, ETC, Layout, MANIFEST, REPOSITORY, SEED_CONFIG, SEED_DIRECTORY,
    STATUS, SeedEntry, SeedRules, VAR,
};

use differences::ImageEtc;
use layer::Layer;
use pack::{Packer, file_entry};
use selection::Selection;

/// The layer in the making.
const LAYER: &str = "layer.tar";

/// Most second names of files that are remembered; further ones become files of their own.
const MAX_LINKS: usize = 100_000;

fn directory_in_image(layout: Layout) -> &'static str {
    match layout {
        Layout::Classic => "",
        Layout::Bootc => SEED_DIRECTORY,
    }
}

/// Archives `/etc` and `/var`.
pub(super) fn archive(
    path: &Path,
    request: &ArchiveRequest,
    progress: &dyn Fn(String, Option<u8>),
) -> Result<(), OsError> {
    let written = |error: io::Error| unpack_failed(&path.display().to_string(), &error);
    let named = |name: &'static str| {
        move |error: io::Error| {
            let error = io::Error::new(error.kind(), format!("{name}: {error}"));
            make_failed(&error)
        }
    };
    let (etc, image, var) = (path.join("etc"), path.join("usr/etc"), path.join("var"));
    let mut layer =
        Layer::create(&request.directory.join(LAYER), directory_in_image(request.layout)).map_err(written)?;
    progress("archiving /etc".to_owned(), None);
    layer.compressed(ETC, |to| pack_etc(&etc, &image, request, to)).map_err(named("/etc"))?;
    let deleted = differences::deleted(&etc, &image, &request.rules).map_err(named("/etc"))?;
    let text: String = deleted.into_iter().flat_map(|path| [path, "\n".to_owned()]).collect();
    layer.bytes(DELETIONS, text.as_bytes()).map_err(written)?;
    progress("archiving /var".to_owned(), None);
    layer.compressed(VAR, |to| pack_var(&var, request, to)).map_err(named("/var"))?;
    layer.leave().map_err(written)
}

/// Tells a file that can't be in a seed from a disk that is not right.
fn make_failed(error: &io::Error) -> OsError {
    if error.kind() == io::ErrorKind::InvalidData {
        return OsError::new(OsErrorKind::SeedUnfit, "the seed", error.to_string());
    }
    unpack_failed("the seed", error)
}

fn pack_etc(etc: &Path, image: &Path, request: &ArchiveRequest, to: &mut dyn Write) -> io::Result<()> {
    let mut trees = Trees::new(to);
    let mut each = |entry: Entry, contents: &mut Contents<'_>| trees.put("etc", entry, contents);
    let image = Some(ImageEtc::open(image)?);
    Selection::new("etc", &request.rules, image, &mut each).archive(etc)?;
    let size = u64::try_from(request.config.len()).unwrap_or_default();
    trees.packer.put(&file_entry(COMMITTED_CONFIG, 0o600), size, &mut request.config.as_bytes())?;
    trees.packer.finish().map(drop)
}

fn pack_var(var: &Path, request: &ArchiveRequest, to: &mut dyn Write) -> io::Result<()> {
    let mut trees = Trees::new(to);
    let mut each = |entry: Entry, contents: &mut Contents<'_>| trees.put("var", entry, contents);
    let own = stat(&request.directory).map(|stat| (stat.st_dev, stat.st_ino))?;
    Selection::new("var", &request.rules, None, &mut each).without(own).archive(var)?;
    trees.packer.finish().map(drop)
}

/// Lists what a seed has and what it leaves out, or only what it is refused for. Nothing is written.
pub(super) fn list(path: &Path, rules: &SeedRules, refusals_only: bool) -> Result<Vec<SeedEntry>, OsError> {
    let nothing = || |_: Entry, _: &mut Contents<'_>| Ok(());
    let image = ImageEtc::open(&path.join("usr/etc"));
    let listed = image.and_then(|image| {
        let etc = Selection::new("etc", rules, Some(image), &mut nothing())
            .list(&path.join("etc"), refusals_only)?;
        let var =
            Selection::new("var", rules, None, &mut nothing()).list(&path.join("var"), refusals_only)?;
        Ok([etc, var].concat())
    });
    listed.map_err(|error| make_failed(&error))
}

/// An archive of trees: files of several names are packed once.
struct Trees<W> {
    packer: Packer<W>,
    links: HashMap<(u64, u64), PathBuf>,
}

impl<W: Write> Trees<W> {
    fn new(to: W) -> Self {
        Self { packer: Packer::new(to), links: HashMap::new() }
    }

    fn put(&mut self, top: &str, mut entry: Entry, contents: &mut Contents<'_>) -> io::Result<()> {
        entry.path = Path::new(top).join(entry.path);
        if let Some(identity) = contents.linked {
            if let Some(first) = self.links.get(&identity) {
                entry.kind = Kind::HardLink(first.clone());
                return self.packer.put(&entry, 0, &mut io::empty());
            }
            if self.links.len() < MAX_LINKS {
                self.links.insert(identity, entry.path.clone());
            }
        }
        self.packer
            .put(&entry, contents.size, contents.bytes)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", entry.path.display())))
    }
}

/// Adds the small members, and the system to a classic seed, and puts the image together; returns its digest.
pub(super) fn assemble(
    sysroot: &Sysroot,
    path: &Path,
    request: &AssembleRequest,
    progress: &dyn Fn(String, Option<u8>),
) -> Result<Sha256, OsError> {
    let written = |error: io::Error| make_failed(&error);
    let file = request.directory.join(LAYER);
    let mut layer = Layer::reopen(&file, directory_in_image(request.layout)).map_err(written)?;
    let members = [
        (STATUS, &request.status),
        (SEED_CONFIG, &request.config),
        (CONTAINERS, &request.containers),
        (MANIFEST, &request.manifest),
    ];
    for (name, text) in members {
        layer.bytes(name, text.as_bytes()).map_err(written)?;
    }
    if request.layout == Layout::Classic {
        progress("archiving the system".to_owned(), None);
        let deployment = sysroot::booted(sysroot)?;
        let commit = deployment.csum();
        let (osname, serial) = (deployment.osname(), deployment.deployserial());
        let origin = path.join(format!("ostree/deploy/{osname}/deploy/{commit}.{serial}.origin"));
        let origin = fs::read(origin).map_err(written)?;
        // By this name lifecycle-agent looks for it: without the stateroot.
        layer.bytes(&format!("ostree-{commit}.{serial}.origin"), &origin).map_err(written)?;
        let refs = repository::refs(&sysroot.repo(), &commit)?;
        let objects = repository::objects(&sysroot.repo(), refs.values())?;
        let repository = path.join("ostree/repo");
        layer
            .compressed(REPOSITORY, |to| repository::archive(&repository, &refs, &objects, to))
            .map_err(written)?;
    }
    progress("putting the image together".to_owned(), None);
    let (digest, size) = layer.finish().map_err(written)?;
    image::assemble(
        &request.directory,
        (&file, digest, size),
        &request.labels,
        request.layout == Layout::Bootc,
    )
}
