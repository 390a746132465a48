//! The state of a host, read without the agent: every file and link, to the byte, the mode and the owner.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

/// One entry that is no directory.
#[derive(Clone, PartialEq, Eq)]
pub enum Entry {
    File {
        bytes: Vec<u8>,
        mode: u32,
        owner: u32,
    },
    Link(String),
    /// Data of the boot: its image, its kernel arguments.
    Boot(String),
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File { bytes, mode, owner } => {
                write!(f, "{mode:04o} {owner} {:?}", String::from_utf8_lossy(bytes))
            }
            Self::Link(target) => write!(f, "-> {target}"),
            Self::Boot(text) => f.write_str(text),
        }
    }
}

pub type Tree = BTreeMap<String, Entry>;

/// Changes to a tree; `None` means that nothing is there any more.
pub type Changes = Vec<(String, Option<Entry>)>;

pub fn file(path: &str, mode: u32, text: &str) -> (String, Option<Entry>) {
    owned(path, mode, 0, text)
}

pub fn owned(path: &str, mode: u32, owner: u32, text: &str) -> (String, Option<Entry>) {
    (path.to_owned(), Some(Entry::File { bytes: text.as_bytes().to_vec(), mode, owner }))
}

pub fn link(path: &str, target: &str) -> (String, Option<Entry>) {
    (path.to_owned(), Some(Entry::Link(target.to_owned())))
}

pub fn boot(what: &str, text: &str) -> (String, Option<Entry>) {
    (what.to_owned(), Some(Entry::Boot(text.to_owned())))
}

pub fn gone(path: &str) -> (String, Option<Entry>) {
    (path.to_owned(), None)
}

/// The tree with the changes.
pub fn changed(tree: &Tree, changes: &Changes) -> Tree {
    let mut tree = tree.clone();
    for (path, entry) in changes {
        match entry {
            Some(entry) => drop(tree.insert(path.clone(), entry.clone())),
            None => drop(tree.remove(path)),
        }
    }
    tree
}

/// Reads everything below a directory but for the paths of `skip`.
pub fn read(at: &Path, prefix: &str, skip: &dyn Fn(&str) -> bool, tree: &mut Tree) {
    for entry in fs::read_dir(at).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{prefix}/{}", entry.file_name().to_str().unwrap());
        if skip(&path) {
            continue;
        }
        let stat = fs::symlink_metadata(entry.path()).unwrap();
        if stat.is_dir() {
            read(&entry.path(), &path, skip, tree);
        } else if stat.is_symlink() {
            let target = fs::read_link(entry.path()).unwrap();
            tree.insert(path, Entry::Link(target.to_str().unwrap().to_owned()));
        } else {
            let (mode, owner) = (stat.permissions().mode() & 0o7777, stat.uid());
            tree.insert(path, Entry::File { bytes: fs::read(entry.path()).unwrap(), mode, owner });
        }
    }
}

/// Every path is exactly as in the tree.
pub fn exactly(found: &Tree, desired: &Tree) -> Result<(), String> {
    one_of(found, &[desired])
}

/// Every path is exactly as in one of the trees. New versions that wait beside their place are not looked at, unless
/// one tree is desired.
pub fn one_of(found: &Tree, allowed: &[&Tree]) -> Result<(), String> {
    let mut wrong = Vec::new();
    let paths = found.keys().chain(allowed.iter().flat_map(|tree| tree.keys()));
    for path in paths.collect::<std::collections::BTreeSet<_>>() {
        let waiting = allowed.len() > 1 && path.ends_with(".mca-new");
        if !waiting && allowed.iter().all(|tree| tree.get(path) != found.get(path)) {
            let desired: Vec<_> = allowed.iter().map(|tree| tree.get(path)).collect();
            wrong.push(format!("{path}: {:?}, not one of {desired:?}", found.get(path)));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n  ")) }
}
