//! Obstacles in the place of a path of the new config: an entry that no config brought, an owner whom the host lacks, a target
//! that is none.

use super::compare::{entry_holds, found_word, id_of};
use super::input::PlanInput;
use super::reason::{ReasonKind, Unreachable, unreachable};
use super::{Op, Step};
use crate::model::ids::UNIT_DIR;
use crate::model::paths::LinkTarget;
use crate::model::users::{group_field, user_field};
use crate::model::{LinkSpec, ManagedPath, ObservedFile, PathSpec, Principal, UnitName};

/// Returns the owner of a path whom the host does not know.
pub(super) fn unknown_owner(input: &PlanInput<'_>, path: &ManagedPath) -> Option<Unreachable> {
    let entry = input.new_entry(path)?;
    let (user, group) = entry.owners();
    let observed = &input.facts.observed;
    let unknown = [(user, &observed.user_ids, "user"), (group, &observed.group_ids, "group")];
    let unknown = unknown.into_iter().filter_map(|(principal, ids, what)| Some((principal?, ids, what)));
    // The same plan may make the account.
    let made = |principal: &Principal, what: &str| match (principal, what) {
        (Principal::Id(_), _) => true,
        (Principal::Name(name), "user") => input.to.makes_user(input.from, name),
        (Principal::Name(name), _) => {
            let has_user = |user: &str| input.facts.observed.accounts.contains_key(user);
            input.to.makes_group(input.from, name, has_user)
        }
    };
    let (principal, _, what) = unknown
        .into_iter()
        .find(|(principal, ids, what)| id_of(principal, ids).is_none() && !made(principal, what))?;
    let Principal::Name(name) = principal else { return None };
    let next = waiting(input, what, name).unwrap_or_else(|| "create it first, or give its number".to_owned());
    let message = format!("this host has no {what} {name:?}; {next}");
    Some(unreachable(
        ReasonKind::UnknownOwner,
        format!("{} {:?} {what}", entry.section(), path.as_str()),
        message,
    ))
}

/// Returns the next step for a user or a group of the config that came with a take-over and was never applied: nothing makes it yet.
pub(super) fn waiting(input: &PlanInput<'_>, what: &str, name: &str) -> Option<String> {
    let has_user = || input.to.has_waiting_user(input.from, name);
    let has_group = || input.to.has_waiting_group(input.from, name);
    let field = match what {
        "user" => has_user().then(|| user_field(name)),
        _ if has_group() => Some(group_field(name)),
        _ => (has_user() && input.to.users.makes_group(name, |_| false)).then(|| user_field(name)),
    }?;
    Some(format!(
        "its entry came with a config that was applied without it: create it first, or change {field}, which brings it in"
    ))
}

/// Returns what keeps a directory or a link, or a file in the place of one, from being written.
pub(super) fn in_the_way(input: &PlanInput<'_>, op: &Op) -> Option<Unreachable> {
    let path = op.path()?;
    let entry = input.new_entry(&path)?;
    let found = input.found(&path);
    let refused = |message: String| {
        Some(unreachable(ReasonKind::InTheWay, format!("{} {:?}", entry.section(), path.as_str()), message))
    };
    // An open update has made a hard link, whose file was replaced since.
    let observed = &input.facts.observed;
    let file = |path: &ManagedPath| input.to.files.get(path);
    let is_hard = matches!(entry, PathSpec::Link(link) if link.hard_target().is_some());
    let is_made = || is_hard && !entry.is_replaced_in(&path, observed, file);
    let is_ours = input.is_ours(&path) || entry_holds(&path, entry, observed) || is_made();
    let (overwrite, what) = match entry {
        PathSpec::File(_) => {
            let drifted = matches!(input.old(&path), Some(PathSpec::File(_)));
            let is_directory = !drifted && matches!(found, ObservedFile::Directory { .. });
            return is_directory.then(|| kept_directory(input, &path)).flatten().and_then(refused);
        }
        PathSpec::Directory(directory) => (directory.overwrite, "directory"),
        PathSpec::Link(link) => {
            if let Some(dead) = dead_target(input, link) {
                return refused(dead).map(|reason| Unreachable { kind: ReasonKind::DeadHardLink, ..reason });
            }
            (link.overwrite, "link")
        }
    };
    match (entry, found) {
        (_, ObservedFile::Absent) | (PathSpec::Directory(_), ObservedFile::Directory { .. }) => None,
        (_, ObservedFile::Directory { .. }) => kept_directory(input, &path).and_then(refused),
        (
            PathSpec::Link(LinkSpec { target: LinkTarget::Soft(text), .. }),
            ObservedFile::Symlink { target, .. },
        ) if text == target => None,
        (_, ObservedFile::Regular { .. } | ObservedFile::Symlink { .. }) if is_ours || overwrite => None,
        (_, ObservedFile::Regular { .. } | ObservedFile::Symlink { .. }) => {
            let found = found_word(found);
            refused(format!(
                "{found} is there, which no config brought; move it away, or set `overwrite: true`"
            ))
        }
        (_, ObservedFile::Special | ObservedFile::Unreachable) => {
            let found = found_word(found);
            refused(format!("{found} is in the place of the {what}; move it away"))
        }
    }
}

/// Returns why a path can't be written: it leads through a file or a link of the old config that leaves, and nothing takes its place
/// first.
pub(super) fn through_link(input: &PlanInput<'_>, path: &ManagedPath, steps: &[Step]) -> Option<String> {
    let planned = |op: &Op| steps.iter().any(|step| step.op == *op);
    let is_open = |link: &&ManagedPath| {
        let path = || (*link).clone();
        let restored =
            planned(&Op::RestoreLink { path: path() }) || planned(&Op::RestoreFile { path: path() });
        let gone = planned(&Op::RemoveLink { path: path() })
            || planned(&Op::RemoveFile { path: path() })
            || planned(&Op::MakeDirectory { path: path() });
        let found = input.facts.observed.files.get(*link);
        let is_link = matches!(found, Some(ObservedFile::Symlink { .. } | ObservedFile::Regular { .. }));
        restored || (is_link && !gone)
    };
    let is_above = |other: &&ManagedPath| *other != path && path.is_below(other.as_str());
    let files = input.from.files.keys().filter(is_above).map(|file| (file, "file"));
    let links = input.from.links.keys().filter(is_above).map(|link| (link, "link"));
    let mut both = links.chain(files);
    let (other, what) = both.find(|(other, _)| !input.from.unapplied.contains(*other) && is_open(other))?;
    Some(format!(
        "{other} above it is a {what} of the old config, which this update removes; remove {other} in a separate update first, \
         or list it in storage.directories"
    ))
}

/// Returns why a directory can't give way to a file or a link.
fn kept_directory(input: &PlanInput<'_>, path: &ManagedPath) -> Option<String> {
    let ours = matches!(input.old(path), Some(PathSpec::Directory(_)))
        || input.from.claimed.contains_key(path)
        || input.facts.made.contains(path);
    if !ours {
        Some("a directory is there, which no config made; move it away, or choose another path".to_owned())
    } else if input.facts.occupied.contains(path) {
        let message = "the directory there was no config's at first, or holds what no config brought; \
                       move it away, or choose another path";
        Some(message.to_owned())
    } else {
        None
    }
}

/// Returns why a hard link has no file to lead to.
fn dead_target(input: &PlanInput<'_>, link: &LinkSpec) -> Option<String> {
    let target = link.hard_target()?;
    let found = input.facts.observed.files.get(target).unwrap_or(&ObservedFile::Absent);
    let is_file_after = input.restorable(target) && !input.facts.not_files.contains(target);
    let goes = input.leaves(target) && !is_file_after;
    let is_file = matches!(found, ObservedFile::Regular { .. }) && !goes;
    let comes = matches!(input.new_entry(target), Some(PathSpec::File(_)));
    if is_file || comes {
        return None;
    }
    let found = if goes { "a file that leaves with the old config".to_owned() } else { found_word(found) };
    Some(format!(
        "its target {target} is {found}; a hard link needs a file, so add it to the config, or make it first"
    ))
}

/// Returns the link of the config that enabling or disabling a unit would remove.
pub(super) fn own_link(input: &PlanInput<'_>, unit: &UnitName) -> Option<Unreachable> {
    let base = |path: &str| path.rsplit('/').next().is_some_and(|name| name == unit.as_str());
    let leads = |path: &ManagedPath, link: &LinkSpec| match &link.target {
        LinkTarget::Soft(text) => path.is_below(UNIT_DIR) && (base(text) || base(path.as_str())),
        LinkTarget::Hard(_) => false,
    };
    let (path, _) = input.to.links.iter().find(|(path, link)| leads(path, link))?;
    // Of a unit that is on the host, that decides whether it is enabled at all.
    let comes = input.to.units.get(unit).is_some_and(|unit| unit.contents.is_some());
    let kind = if comes { ReasonKind::EnabledLink } else { ReasonKind::HostLink };
    let message = format!(
        "it leads to {unit}, whose `enabled` in systemd.units decides about all such links; remove the link, or `enabled`"
    );
    Some(unreachable(kind, format!("storage.links {:?}", path.as_str()), message))
}
