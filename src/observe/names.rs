//! Entries that meet on this host although their names do not, since a directory on the way is a link (`/opt` to `/var/opt`): two that
//! are one file, and one in the place of a directory that another one needs.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::parents::{self, real_directory};
use crate::host::{HostError, Root};
use crate::model::obstacles::Place;
use crate::model::{HostSpec, ManagedPath, Obstacle, Obstacles, PathSpec, protected};

use super::replaced::{Entries, ReplacedPaths};

/// Names of paths, by where they really are.
type RealNames<'a> = BTreeMap<String, Vec<&'a ManagedPath>>;

/// Refuses changes of entries that meet.
pub(super) fn obstacles(
    root: &Root,
    (old, new): Entries<'_>,
    replaced: &ReplacedPaths<'_>,
    found: &mut Obstacles,
) -> Result<(), HostError> {
    let names = real_names(root, (old, new), replaced)?;
    for (real, paths) in &names {
        let led = paths.iter().filter(|path| path.as_str() != real);
        found.real_paths.extend(led.map(|path| ((*path).clone(), real.clone())));
    }
    found.places = places(root)?;
    targets(root, (old, new), &names, found)?;
    let is_new = |path: &ManagedPath| new.contains_key(path);
    let mut refuse = |path: &ManagedPath, cause: String| {
        if old.get(path) != new.get(path) {
            let next =
                "List it by one name. To change that name, apply a config without either first.".to_owned();
            found.paths.entry(path.clone()).or_insert(Obstacle { cause, next });
        }
    };
    for (real, paths) in &names {
        for path in paths.iter().filter(|_| paths.len() > 1 && paths.iter().any(|path| is_new(path))) {
            let other =
                paths.iter().find(|other| *other != path).map_or(real.as_str(), |other| other.as_str());
            refuse(path, format!("on this host it is the same file as {other} ({real})"));
        }
        for path in paths.iter().filter(|path| is_new(path)) {
            for above in in_place_of_parent(&names, real, new) {
                refuse(path, format!("on this host it is below {above} ({real}), which is not a directory"));
                refuse(above, format!("on this host {path} is below it ({real}), and it is not a directory"));
            }
        }
    }
    Ok(())
}

/// Returns the entries of a config that links of the host led to another directory when it was applied, and that are still there.
pub(super) fn led_elsewhere(
    root: &Root,
    from: &HostSpec,
) -> Result<BTreeMap<ManagedPath, Obstacle>, HostError> {
    let mut found = BTreeMap::new();
    if from.led.is_empty() {
        return Ok(found);
    }
    for path in from.managed() {
        if let Some(error) = parents::left_elsewhere(root, from, &path)? {
            found.insert(path, Obstacle { cause: error.to_string(), next: error.next() });
        }
    }
    Ok(found)
}

/// Looks where the targets of hard links are: one by another name of a listed file would stay the old file when that is replaced.
fn targets(
    root: &Root,
    (old, new): Entries<'_>,
    names: &RealNames<'_>,
    found: &mut Obstacles,
) -> Result<(), HostError> {
    for (path, entry) in new {
        let PathSpec::Link(link) = entry else { continue };
        let Some(target) = link.hard_target() else { continue };
        let Some((directory, name)) = target.as_str().rsplit_once('/') else { continue };
        let real = format!("{}/{name}", real_directory(root, directory)?);
        let mut listed = names.get(&real).into_iter().flatten();
        let is_changed = |file: &ManagedPath| old.get(path) != Some(entry) || old.get(file) != new.get(file);
        if let Some(file) =
            listed.find(|file| **file != target && new.contains_key(**file) && is_changed(file))
        {
            let cause = format!("its target {target} is the file {file} of the config ({real})");
            let next = format!("Name the target {file}.");
            found.targets.insert(path.clone(), Obstacle { cause, next });
        }
        found.real_targets.insert(path.clone(), real);
    }
    Ok(())
}

/// Returns where links of the host lead to the paths of the agent and of the system.
fn places(root: &Root) -> Result<BTreeMap<&'static str, Place>, HostError> {
    let mut places = BTreeMap::new();
    for path in protected::all() {
        // A link at its end is followed, too.
        let probe = format!("{path}/_");
        let links = root.links_on_the_way(&probe)?;
        if !links.is_empty() {
            places.insert(path, Place { real: real_directory(root, path)?, links });
        }
    }
    Ok(places)
}

fn real_names<'a>(
    root: &Root,
    (old, new): Entries<'a>,
    replaced: &ReplacedPaths<'_>,
) -> Result<RealNames<'a>, HostError> {
    let (mut directories, mut names) = (BTreeMap::<&str, String>::new(), RealNames::new());
    for path in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
        // Below a link that does not stay it is in a directory of its own.
        if replaced.is_below_any(path) {
            continue;
        }
        let Some((directory, name)) = path.as_str().rsplit_once('/') else { continue };
        if !directories.contains_key(directory) {
            directories.insert(directory, real_directory(root, directory)?);
        }
        let real = directories.get(directory).map(String::as_str).unwrap_or_default();
        names.entry(format!("{real}/{name}")).or_default().push(path);
    }
    Ok(names)
}

/// Returns the files and links of the new config in the place of a directory above.
fn in_place_of_parent<'a>(
    names: &RealNames<'a>,
    real: &str,
    new: &BTreeMap<ManagedPath, PathSpec>,
) -> Vec<&'a ManagedPath> {
    let above = real.match_indices('/').filter_map(|(at, _)| names.get(real.split_at(at).0)).flatten();
    let is_in_place =
        |path: &&&ManagedPath| matches!(new.get(**path), Some(PathSpec::File(_) | PathSpec::Link(_)));
    above.filter(is_in_place).copied().collect()
}
