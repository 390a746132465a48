//! The way to a path: every name in every directory that decides where the path leads, links included.
//!
//! Each directory is watched before a name is looked up in it: a change after the lookup is reported.

use std::collections::{BTreeMap, BTreeSet};

use rustix::fs::FileType;

use crate::host::HostError;
use crate::host::root::Root;

/// As the kernel's: a way of more links leads nowhere.
const MOST_LINKS: u32 = 40;

/// The kind of a name on the way.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Directory,
    Link(String),
    /// A file, or nothing: the way ends.
    End,
}

/// Handling of a link at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    /// The link itself is meant.
    Kept,
    /// The link is followed.
    Followed,
}

/// The way to one path.
#[derive(Debug, Default)]
pub(super) struct Route {
    /// The real paths of the names on the way, in order, without the last.
    pub(super) through: Vec<String>,
    /// The real path of the last name, when the way leads so far.
    pub(super) end: Option<String>,
}

/// Finds ways; knows the names that it has looked up once.
#[derive(Debug)]
pub(super) struct Finder<'a, E> {
    root: &'a Root,
    /// Watches a real directory.
    enter: E,
    entered: BTreeSet<String>,
    known: BTreeMap<String, Step>,
}

impl<'a, E: FnMut(&str) -> Result<(), HostError>> Finder<'a, E> {
    pub(super) fn new(root: &'a Root, enter: E) -> Self {
        Self { root, enter, entered: BTreeSet::new(), known: BTreeMap::new() }
    }

    /// Finds the way to a path. Where something is missing, it ends there.
    pub(super) fn find(&mut self, path: &str, last: Last) -> Result<Route, HostError> {
        let mut route = Route::default();
        let mut rest: Vec<String> = names(path);
        let mut at = String::new();
        let mut links = 0;
        while let Some(name) = rest.pop() {
            if name == ".." {
                at.truncate(at.rfind('/').unwrap_or_default());
                continue;
            }
            let real = format!("{at}/{name}");
            if rest.is_empty() && last == Last::Kept {
                self.enter(&at)?;
                route.end = Some(real);
                return Ok(route);
            }
            match self.follow(&at, &real)? {
                Step::Directory => at.clone_from(&real),
                Step::Link(target) if links < MOST_LINKS => {
                    links += 1;
                    if target.starts_with('/') {
                        at.clear();
                    }
                    rest.extend(names(&target));
                }
                Step::Link(_) | Step::End => {
                    route.through.push(real);
                    return Ok(route);
                }
            }
            route.through.push(real);
        }
        route.end = Some(at);
        Ok(route)
    }

    fn enter(&mut self, directory: &str) -> Result<(), HostError> {
        if self.entered.insert(directory.to_owned()) { (self.enter)(directory) } else { Ok(()) }
    }

    fn follow(&mut self, at: &str, real: &str) -> Result<Step, HostError> {
        if let Some(step) = self.known.get(real) {
            return Ok(step.clone());
        }
        self.enter(at)?;
        let step = match self.root.standing(real)? {
            Some(standing) if standing.kind == FileType::Directory => Step::Directory,
            Some(standing) => standing.target.map_or(Step::End, Step::Link),
            None => Step::End,
        };
        self.known.insert(real.to_owned(), step.clone());
        Ok(step)
    }
}

/// The names of a path, last first.
fn names(path: &str) -> Vec<String> {
    path.split('/').rev().filter(|name| !matches!(*name, "" | ".")).map(str::to_owned).collect()
}
