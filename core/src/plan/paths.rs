//! The steps of directories and links, and what of them was never applied.
//!
//! Directories are made before anything in them is written, and removed after it: parents first, then children first. A file
//! or a link with entries of the new config below its path goes before them. A directory that others may change from then on comes last.

use std::collections::BTreeSet;

use super::compare::entry_holds;
use super::input::{PlanInput, unapplied};
use super::{Op, Step, files, shared};
use crate::model::{HostSpec, ManagedPath, Observation};

/// Returns the steps that make directories, parents first.
pub(super) fn directories(input: &PlanInput<'_>) -> Vec<Step> {
    let make = |path: &ManagedPath| {
        Some(Step { op: Op::MakeDirectory { path: path.clone() }, because: input.write(path)? })
    };
    input.to.directories.keys().filter(|path| !shared::opens(input, path)).filter_map(make).collect()
}

/// Returns the steps that write links: soft ones, then hard ones, whose targets may be written as well.
pub(super) fn links(input: &PlanInput<'_>) -> Vec<Step> {
    let write = |path: &ManagedPath| {
        Some(Step { op: Op::WriteLink { path: path.clone() }, because: input.write(path)? })
    };
    let (hard, soft): (Vec<_>, Vec<_>) =
        input.to.links.iter().partition(|(_, link)| link.hard_target().is_some());
    soft.into_iter().chain(hard).filter_map(|(path, _)| write(path)).collect()
}

/// Returns the steps that take away the files and links in whose place the new config has entries: nothing is written through them.
pub(super) fn making_way(input: &PlanInput<'_>) -> Vec<Step> {
    let files = input.from.files.keys().filter(|path| input.makes_way(path));
    let files = files.filter_map(|path| files::removal(input, path));
    let links = input.from.links.keys().filter(|path| input.makes_way(path));
    files.chain(links.filter_map(|path| link_removal(input, path))).collect()
}

/// Returns the steps that take other links away, then directories, children first: those of the old config, and those that were
/// made for its paths.
pub(super) fn removals(input: &PlanInput<'_>) -> Vec<Step> {
    let directory = |path: &ManagedPath| {
        if shared::opens(input, path) {
            return None;
        }
        if input.is_kept(path) {
            return None;
        }
        let because =
            if input.is_spare(path) { input.take_parent_away(path) } else { input.take_away(path) }?;
        let path = path.clone();
        let op = if input.restorable(&path) {
            Op::RestoreDirectory { path }
        } else {
            Op::RemoveDirectory { path }
        };
        Some(Step { op, because })
    };
    let links = input.from.links.keys().filter(|path| !input.makes_way(path));
    let links = links.filter_map(|path| link_removal(input, path));
    let directories: BTreeSet<_> = input.from.directories.keys().chain(&input.facts.spare).collect();
    links.chain(directories.into_iter().rev().filter_map(directory)).collect()
}

/// Returns the steps that open directories to others, children first: what leaves goes from them before, and what comes is in them.
pub(super) fn openings(input: &PlanInput<'_>) -> Vec<Step> {
    let open = |path: &ManagedPath| {
        let because = input.write(path).or_else(|| input.take_away(path))?;
        Some(Step { op: Op::OpenDirectory { path: path.clone() }, because })
    };
    let listed: BTreeSet<_> = input.from.directories.keys().chain(input.to.directories.keys()).collect();
    listed.into_iter().rev().filter(|path| shared::opens(input, path)).filter_map(open).collect()
}

fn link_removal(input: &PlanInput<'_>, path: &ManagedPath) -> Option<Step> {
    let because = input.take_away(path)?;
    let path = path.clone();
    let op = if input.restorable(&path) { Op::RestoreLink { path } } else { Op::RemoveLink { path } };
    Some(Step { op, because })
}

/// Returns the directories and links of a spec that the host does not have as listed.
pub fn not_held(spec: &HostSpec, observed: &Observation) -> BTreeSet<ManagedPath> {
    let wrong = spec.stored_paths().filter(|(path, entry)| !entry_holds(path, entry, observed));
    wrong.map(|(path, _)| path).collect()
}

/// Takes over from the old spec what was never applied of it: entries that are the same in the new one and still not as
/// listed on the host stay as they are.
pub fn keep_unapplied(to: &mut HostSpec, from: &HostSpec, observed: &Observation) {
    let kept = unapplied(to, from, observed);
    to.set_unapplied(kept);
}
