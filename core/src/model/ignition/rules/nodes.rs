//! `storage.files`, `storage.directories`, `storage.links`: each by itself, and in relation to one another.

use std::collections::{HashMap, HashSet};

use ignition_config::v3_6::{File, Link, NodeGroup, NodeUser, Storage, Unit};

use super::found::{Found, MAX_PATH, broken_path, entry, filled};
use super::resource::{self, Source};
use crate::model::ids::UNIT_DIR;

const DIRECTORIES: &str = "storage.directories";
const FILES: &str = "storage.files";
const LINKS: &str = "storage.links";

/// Kind of a path in the config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Directory,
    File,
    Link,
}

impl Kind {
    fn list(self) -> &'static str {
        match self {
            Self::Directory => DIRECTORIES,
            Self::File => FILES,
            Self::Link => LINKS,
        }
    }
}

/// A directory, a file or a link.
struct Node<'a> {
    kind: Kind,
    path: &'a str,
    user: Option<&'a NodeUser>,
    group: Option<&'a NodeGroup>,
}

pub(super) fn check(found: &mut Found, storage: &Storage, units: &[Unit], minor: u32) {
    let nodes = nodes(storage);
    for node in &nodes {
        let list = node.kind.list();
        found.add_some(broken_path(node.path), || entry(list, node.path));
        let both = "it has an id and a name; keep one of them";
        let user = node.user.filter(|user| user.id.is_some() && filled(user.name.as_ref()).is_some());
        found.add_some(user.map(|_| both), || format!("{} user", entry(list, node.path)));
        let group = node.group.filter(|group| group.id.is_some() && filled(group.name.as_ref()).is_some());
        found.add_some(group.map(|_| both), || format!("{} group", entry(list, node.path)));
    }
    check_places(found, &nodes);
    check_units(found, &nodes, units);
    let modes = storage.directories.iter().flatten().map(|one| (DIRECTORIES, &one.path, one.mode));
    for (list, path, mode) in modes.chain(files(storage).iter().map(|one| (FILES, &one.path, one.mode))) {
        let is_mode = mode.is_none_or(|mode| (0..=0o7777).contains(&mode));
        let cause = "it must be 0 to 07777 (4095 in JSON); correct it";
        found.add_some((!is_mode).then_some(cause), || format!("{} mode", entry(list, path)));
    }
    for file in files(storage) {
        check_file(found, file, minor);
    }
    let directories: HashSet<&str> =
        storage.directories.iter().flatten().map(|one| one.path.as_str()).collect();
    for link in storage.links.iter().flatten() {
        check_link(found, link, &directories);
    }
}

fn files(storage: &Storage) -> &[File] {
    storage.files.as_deref().unwrap_or_default()
}

fn nodes(storage: &Storage) -> Vec<Node<'_>> {
    let directories = storage.directories.iter().flatten().map(|one| Node {
        kind: Kind::Directory,
        path: &one.path,
        user: one.user.as_ref(),
        group: one.group.as_ref(),
    });
    let files = files(storage).iter().map(|one| Node {
        kind: Kind::File,
        path: &one.path,
        user: one.user.as_ref(),
        group: one.group.as_ref(),
    });
    let links = storage.links.iter().flatten().map(|one| Node {
        kind: Kind::Link,
        path: &one.path,
        user: one.user.as_ref(),
        group: one.group.as_ref(),
    });
    directories.chain(files).chain(links).collect()
}

/// A path is one thing, and only a directory has something below it.
fn check_places(found: &mut Found, nodes: &[Node<'_>]) {
    let mut kinds: HashMap<&str, Kind> = HashMap::with_capacity(nodes.len());
    for node in nodes {
        if let Some(other) = kinds.insert(node.path, node.kind) {
            let cause =
                format!("it is listed twice ({} and {}); keep one entry", other.list(), node.kind.list());
            found.add(entry(node.kind.list(), node.path), cause);
        }
    }
    for node in nodes {
        // The length of a path bounds the work.
        let mut above = if node.path.len() <= MAX_PATH { node.path } else { "" };
        while let Some((parent, _)) = above.rsplit_once('/').filter(|(parent, _)| !parent.is_empty()) {
            above = parent;
            match kinds.get(parent) {
                None | Some(Kind::Directory) => continue,
                Some(kind @ (Kind::File | Kind::Link)) => {
                    let cause = format!(
                        "{} is above it and no directory; move one of them",
                        entry(kind.list(), parent)
                    );
                    found.add(entry(node.kind.list(), node.path), cause);
                }
            }
            break;
        }
    }
}

/// A unit or a drop-in is a file, too. The reader of units has seen to files of the same path.
fn check_units(found: &mut Found, nodes: &[Node<'_>], units: &[Unit]) {
    if nodes.iter().all(|node| node.kind == Kind::File) {
        return;
    }
    let mut paths = HashSet::new();
    for unit in units {
        if filled(unit.contents.as_ref()).is_some() {
            paths.insert(format!("{UNIT_DIR}/{}", unit.name));
        }
        for dropin in
            unit.dropins.iter().flatten().filter(|dropin| filled(dropin.contents.as_ref()).is_some())
        {
            paths.insert(format!("{UNIT_DIR}/{}.d/{}", unit.name, dropin.name));
        }
    }
    for node in nodes.iter().filter(|node| node.kind != Kind::File && paths.contains(node.path)) {
        found.add(
            entry(node.kind.list(), node.path),
            "a unit or a drop-in of systemd.units has this path; keep one of them",
        );
    }
}

fn check_file(found: &mut Found, file: &File, minor: u32) {
    let field = || entry(FILES, &file.path);
    let source = file.contents.as_ref().and_then(|contents| contents.source.as_ref());
    if file.overwrite == Some(true) && source.is_none() {
        found.add(
            format!("{} overwrite", field()),
            "there is no contents.source to overwrite with; write `data:,` for an empty file",
        );
    }
    if let Some(contents) = file
        .contents
        .as_ref()
        .filter(|one| one.compression.is_some() || one.verification.is_some() || one.http_headers.is_some())
    {
        resource::check(found, &format!("{} contents", field()), contents, Source::OfFile, minor);
    }
}

fn check_link(found: &mut Found, link: &Link, directories: &HashSet<&str>) {
    let Some(target) = filled(link.target.as_ref()) else {
        found
            .add(format!("{} target", entry(LINKS, &link.path)), "it is missing; write where the link leads");
        return;
    };
    if link.hard != Some(true) {
        return;
    }
    let whole =
        if target.starts_with('/') { clean(target) } else { clean(&format!("{}/{target}", link.path)) };
    if directories.contains(whole.as_str()) {
        found.add(
            format!("{} target", entry(LINKS, &link.path)),
            "a hard link can't lead to a directory; make it a soft one",
        );
    }
}

/// Returns an absolute path in its shortest form.
fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}
