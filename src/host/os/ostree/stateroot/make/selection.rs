//! The paths of `/etc` and `/var` that a seed has, chosen by the rules of `core`, with their contents looked at.
//!
//! # Decisions
//! 1. Listing and archiving are one walk by one rule: what is listed is what is archived.
//! 2. A directory that only leads to something is not read for the archive, and its names are counted for the list.
//! 3. What nobody but root may write is taken at its word; holes in files of others have a limit, as names have.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{Dir, FileType, SeekFrom as Seek, readlinkat, seek};
use rustix::io::Errno;

use super::super::archive::{Entry, Kind, damaged, named};
use super::differences::{ImageEtc, rooted};
use super::pack::MAX_FILE_BYTES;
use super::walk::{At, Choice, Contents, Visitor, walk};
use crate::model::short;
use crate::model::text::escaped;
use crate::stateroot::{
    Because, InImage, SeedEntry, SeedRules, SeenKind, Verdict, class, in_changes, in_contents, in_name,
    is_of_accounts, without_passwords,
};

/// Most entries that are looked at.
const MAX_ENTRIES: usize = 1_000_000;

/// Most names of one directory that are listed although nothing is taken of them.
const MAX_NAMES: usize = 1000;

/// Most lines of the list.
const MAX_LISTED: usize = 100_000;

/// Most bytes of holes in files that others than root own: an archive has them as zeros.
const MAX_HOLES: u64 = 1 << 30;

/// Bytes that are looked at together, and those that two such parts have in common.
const WINDOW: u64 = 4 << 20;
const OVERLAP: u64 = 64 << 10;

/// Longest file of accounts, and longest path in a list.
const MAX_ACCOUNTS_BYTES: u64 = 16 << 20;
const MAX_PATH_CHARS: usize = 4096;

/// Hands out what is taken.
type Each<'a> = &'a mut dyn FnMut(Entry, &mut Contents<'_>) -> io::Result<()>;

/// A walk that selects.
pub(super) struct Selection<'a> {
    top: &'static str,
    rules: &'a SeedRules,
    image: Option<ImageEtc>,
    /// The directory of the seed itself.
    own: Option<(u64, u64)>,
    each: Each<'a>,
    is_list: bool,
    entries: Vec<SeedEntry>,
    seen: usize,
    holes: u64,
    /// Reason for which the entry at hand is taken.
    because: Because,
}

impl<'a> Selection<'a> {
    /// Selects below a directory of the root (`etc` or `var`).
    pub(super) fn new(
        top: &'static str,
        rules: &'a SeedRules,
        image: Option<ImageEtc>,
        each: Each<'a>,
    ) -> Self {
        let because = Because::Undeclared;
        Self {
            top,
            rules,
            image,
            own: None,
            each,
            is_list: false,
            entries: Vec::new(),
            seen: 0,
            holes: 0,
            because,
        }
    }

    /// Leaves out a directory: device and inode.
    pub(super) fn without(self, own: (u64, u64)) -> Self {
        Self { own: Some(own), ..self }
    }

    /// Hands out what is taken; what looks like a key ends it.
    pub(super) fn archive(mut self, path: &Path) -> io::Result<()> {
        walk(path, &mut self)?;
        match self.entries.iter().find(|entry| entry.because.is_refusal()) {
            None => Ok(()),
            Some(entry) => {
                let cause = entry.cause.as_deref().unwrap_or_default();
                Err(damaged(format!("{}: {cause}", entry.path)))
            }
        }
    }

    /// Lists all of it, or only what refuses a seed.
    pub(super) fn list(mut self, path: &Path, refusals_only: bool) -> io::Result<Vec<SeedEntry>> {
        self.is_list = !refusals_only;
        walk(path, &mut self)?;
        self.entries.sort();
        Ok(self.entries)
    }

    /// Puts a line on the list. An archive needs those that refuse it.
    fn record(&mut self, path: &str, because: Because, cause: Option<String>) {
        if (!self.is_list && !because.is_refusal()) || self.entries.len() > MAX_LISTED {
            return;
        }
        if self.entries.len() == MAX_LISTED {
            let cause = Some(format!("the list ends here, after {MAX_LISTED} paths"));
            self.entries.push(SeedEntry {
                path: format!("/{}/", self.top),
                because: Because::Undeclared,
                cause,
            });
            return;
        }
        let path = format!("/{}", short(&escaped(path).replace('\n', "\\n"), MAX_PATH_CHARS));
        self.entries.push(SeedEntry { path, because, cause });
    }

    fn count(&mut self, at: &At<'_>) -> io::Result<()> {
        self.seen += 1;
        if self.seen <= MAX_ENTRIES {
            return Ok(());
        }
        let above = named(at.path.parent().unwrap_or(Path::new("")).as_os_str());
        Err(damaged(format!(
            "/{}/{above}: more than {MAX_ENTRIES} files would be looked at; leave the directory out",
            self.top
        )))
    }

    /// Returns why a file can't be taken, by its size.
    fn too_much(&mut self, user: u32, file: &File, size: u64) -> io::Result<Option<String>> {
        if size > MAX_FILE_BYTES {
            let cause = format!(
                "it has {size} bytes, and files of more than {MAX_FILE_BYTES} are not read from a seed"
            );
            return Ok(Some(cause));
        }
        if user != 0 {
            self.holes = self.holes.saturating_add(size.saturating_sub(file.metadata()?.blocks() * 512));
        }
        let cause = || {
            format!(
                "it is sparse, and files that others than root own have more than {MAX_HOLES} bytes of holes"
            )
        };
        Ok((self.holes > MAX_HOLES).then(cause))
    }

    /// Returns what an entry looks like, if it is a key.
    fn secret(&self, path: &str, entry: &Entry, file: &File) -> io::Result<Option<&'static str>> {
        if self.because == Because::Named {
            return Ok(None);
        }
        if let Some(cause) = in_name(path) {
            return Ok(Some(cause));
        }
        let of_attributes = entry.attributes.iter().find_map(|(_, value)| in_contents(value));
        if of_attributes.is_some() {
            return Ok(of_attributes);
        }
        let known = match (&self.image, self.because) {
            (Some(image), Because::Package | Because::Config) => image.read(&entry.path, WINDOW)?,
            _ => Vec::new(),
        };
        look(file, &known)
    }

    fn take_file(&mut self, entry: Entry, contents: &mut Contents<'_>, file: &File) -> io::Result<()> {
        let path = rooted(self.top, &entry.path);
        if let Some(cause) = self.too_much(entry.user, file, contents.size)? {
            self.record(&path, Because::TooMuch, Some(cause));
            return Ok(());
        }
        if is_of_accounts(&path) && self.because != Because::Named {
            if contents.size > MAX_ACCOUNTS_BYTES {
                let cause = format!("it has more than {MAX_ACCOUNTS_BYTES} bytes");
                self.record(&path, Because::TooMuch, Some(cause));
                return Ok(());
            }
            self.record(&path, self.because, None);
            let mut text = Vec::new();
            file.take(MAX_ACCOUNTS_BYTES).read_to_end(&mut text)?;
            let text = without_passwords(&text);
            let size = u64::try_from(text.len()).unwrap_or_default();
            return (self.each)(
                entry,
                &mut Contents { size, linked: None, file: None, bytes: &mut &text[..] },
            );
        }
        if let Some(cause) = self.secret(&path, &entry, file)? {
            let because = SeedRules::of_secret(self.because);
            self.record(&path, because, Some(format!("it looks like {cause}")));
            return Ok(());
        }
        self.record(&path, self.because, None);
        (self.each)(entry, contents)
    }

    /// Lists the names of a directory that only leads to others; those that lead on are looked at by themselves.
    fn list_names(&mut self, path: &str, here: &OwnedFd, but: &[OsString]) -> io::Result<()> {
        let mut listed = 0;
        for entry in Dir::read_from(here)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." || but.iter().any(|own| own == name) {
                continue;
            }
            listed += 1;
            if listed > MAX_NAMES {
                let cause = format!("more than {MAX_NAMES} names; the other names are left out, too");
                self.record(&format!("{path}/"), Because::Undeclared, Some(cause));
                return Ok(());
            }
            let path = rooted(path, Path::new(name));
            let is_directory = entry.file_type() == FileType::Directory;
            self.record_left(&path, is_directory, Because::Undeclared);
        }
        Ok(())
    }

    /// Lists what is left out. A list of what is below a directory says why the directory is empty.
    fn record_left(&mut self, path: &str, is_directory: bool, because: Because) {
        let of_list = class(path).or_else(|| class(&format!("{path}/_")).filter(|_| is_directory));
        let because = match (of_list, because) {
            (Some(class), Because::Undeclared) => class.into(),
            (_, because) => because,
        };
        self.record(&if is_directory { format!("{path}/") } else { path.to_owned() }, because, None);
    }
}

impl Visitor for Selection<'_> {
    fn choose(&mut self, at: &At<'_>) -> io::Result<Choice> {
        self.count(at)?;
        if self.own == Some((at.stat.st_dev, at.stat.st_ino)) {
            return Ok(Choice::Skip);
        }
        let path = rooted(self.top, at.path);
        let target = if at.kind() == FileType::Symlink {
            readlinkat(at.here, at.name, Vec::new()).unwrap_or_default().to_string_lossy().into_owned()
        } else {
            String::new()
        };
        let kind = match at.kind() {
            FileType::Directory => SeenKind::Directory,
            FileType::Symlink => SeenKind::Link(&target),
            FileType::RegularFile
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => SeenKind::File,
        };
        let image = self.image.as_ref().map_or(Ok(InImage::Absent), |image| image.compare(at))?;
        match self.rules.decide(&path, kind, image) {
            Verdict::Take(because) => {
                self.because = because;
                Ok(Choice::Take)
            }
            Verdict::Image => Ok(Choice::Enter),
            Verdict::Leave(because) => {
                self.record_left(&path, kind == SeenKind::Directory, because);
                Ok(Choice::Skip)
            }
        }
    }

    fn names(&mut self, path: &Path, here: &OwnedFd) -> io::Result<Option<Vec<OsString>>> {
        if let Some(image) = &self.image
            && image.has_directory(path)?
        {
            return Ok(None);
        }
        let path = if path.as_os_str().is_empty() { self.top.to_owned() } else { rooted(self.top, path) };
        let Some(names) = self.rules.names_below(&path) else { return Ok(None) };
        let names: Vec<OsString> = names.into_iter().map(OsString::from).collect();
        if self.is_list {
            self.list_names(&path, here, &names)?;
        }
        Ok(Some(names))
    }

    fn take(&mut self, entry: Entry, contents: &mut Contents<'_>) -> io::Result<()> {
        if let (Kind::File, Some(file)) = (&entry.kind, contents.file) {
            return self.take_file(entry, contents, file);
        }
        if self.because != Because::Above {
            self.record(&rooted(self.top, &entry.path), self.because, None);
        }
        (self.each)(entry, contents)
    }
}

/// Looks at the contents of a file, holes left out; the file is at its beginning again then.
fn look(mut file: &File, known: &[u8]) -> io::Result<Option<&'static str>> {
    let (mut at, mut found) = (0, None);
    let mut part = Vec::new();
    while let (None, Some(begin)) = (found, data_after(file, at)?) {
        part.clear();
        file.seek(SeekFrom::Start(begin))?;
        file.take(WINDOW).read_to_end(&mut part)?;
        found = if known.is_empty() { in_contents(&part) } else { in_changes(&part, known) };
        if u64::try_from(part.len()).is_ok_and(|length| length < WINDOW) {
            break;
        }
        at = begin + WINDOW - OVERLAP;
    }
    file.seek(SeekFrom::Start(0))?;
    Ok(found)
}

/// Returns where the next bytes are that are no hole.
fn data_after(file: &File, at: u64) -> io::Result<Option<u64>> {
    match seek(file, Seek::Data(at)) {
        Ok(begin) => Ok(Some(begin)),
        Err(Errno::NXIO) => Ok(None),
        // A file system without holes.
        Err(Errno::INVAL | Errno::NOTSUP) => Ok((at < file.metadata()?.len()).then_some(at)),
        Err(errno) => Err(errno.into()),
    }
}
