//! Directories of the new config that would keep the agent from writing what is listed in them: who may change names there
//! decides what root writes. They may not be there yet, or not as they will be, so the host does not tell.
//!
//! The rule is that of the walk of a write ([`Reached::enter`]): root, the owner of what is written, or one account from there on;
//! no directory that a group or everybody may write to, unless it is sticky; below a sticky one none of another account. The
//! directories of the host between the listed ones are looked at by the observation, with the same rule.

use std::collections::BTreeSet;

use super::compare::id_of;
use super::input::PlanInput;
use super::reason::{ReasonKind, Unreachable, unreachable};
use super::{Batch, BatchOp, FileOp, Op, Step};
use super::{homes, own_paths};
use crate::model::observation::Observation;
use crate::model::walk::{self, Access, Closed, Hands, OTHERS_MAY_WRITE, Reached, Use};
use crate::model::{DirectorySpec, Facts, HostSpec, ManagedPath, ObservedFile, PathSpec, Principal};

/// Permission bits of a directory that the agent makes on the way to a path.
const MADE: u32 = 0o755;

/// Directories that each host has, and that everybody may write to (file-hierarchy(7)).
const SHARED: [&str; 2] = ["/tmp", "/var/tmp"];
const SHARED_MODE: u32 = 0o1777;

/// Returns why a step makes, or leads through, a directory in which nothing is written.
pub(super) fn refused(input: &PlanInput<'_>, op: &Op, path: &ManagedPath) -> Option<Unreachable> {
    if !matches!(op.batch(), Batch::Files | Batch::Directories) {
        return None;
    }
    match op.in_batch() {
        BatchOp::File(FileOp::Write | FileOp::Link) => on_the_way(input, path, is_of_storage(op)),
        BatchOp::File(FileOp::Directory) => {
            // What is in it may stay as it is now, and could never be changed again; what goes, goes after this.
            let mut listed = input.paths().filter(|other| *other != path && other.is_below(path.as_str()));
            on_the_way(input, path, true).or_else(|| listed.find_map(|other| on_the_way(input, other, true)))
        }
        BatchOp::File(FileOp::OpenDirectory) => {
            // What leaves has gone by then.
            let stays = |other: &&ManagedPath| {
                *other == path || (input.new_entry(other).is_some() && other.is_below(path.as_str()))
            };
            input.paths().filter(stays).find_map(|other| on_the_way(input, other, true))
        }
        BatchOp::File(FileOp::Remove | FileOp::Restore | FileOp::LeaveDirectory)
        | BatchOp::Os(_)
        | BatchOp::Account(..)
        | BatchOp::User(..)
        | BatchOp::Link(..)
        | BatchOp::Service(_) => None,
    }
}

/// A unit's path leads through directories of root alone.
fn is_of_storage(op: &Op) -> bool {
    !matches!(op, Op::WriteUnit { .. } | Op::WriteDropin { .. })
}

/// An owner, and whether the config alone says who it is.
#[derive(Debug, Clone, Copy)]
struct Owner {
    uid: u32,
    is_of_config: bool,
}

impl Owner {
    fn new(principal: Option<&Principal>, uid: u32) -> Self {
        let is_of_config = match principal {
            Some(Principal::Id(_)) => true,
            Some(Principal::Name(name)) => name == "root",
            None => false,
        };
        Self { uid, is_of_config }
    }
}

/// A directory as it will be. What is not known is as the agent makes it.
#[derive(Debug, Clone, Copy)]
struct Future {
    mode: u32,
    owner: Owner,
}

/// Returns the user id of an owner; one that stands for it, if the same config makes the account.
fn uid_of(user: &Principal, (to, observed): (&HostSpec, &Observation)) -> u32 {
    id_of(user, &observed.user_ids).unwrap_or_else(|| to.users.id_ahead(&user.to_string()))
}

fn future(
    directory: &DirectorySpec,
    path: &ManagedPath,
    (to, observed): (&HostSpec, &Observation),
) -> Future {
    let (mode, uid) = observed.files.get(path).and_then(ObservedFile::directory).unwrap_or((MADE, 0));
    let user = directory.user.as_ref();
    let uid = user.map_or(uid, |user| uid_of(user, (to, observed)));
    let mode = directory.mode.map_or(mode, crate::model::FileMode::bits);
    Future { mode, owner: Owner::new(user, uid) }
}

/// Returns true if an update opens a directory to others. It does so after all else: the way to what leaves is open until then, and
/// root writes nothing where others can.
pub(super) fn opens(input: &PlanInput<'_>, path: &ManagedPath) -> bool {
    if input.facts.obstacles.opened.contains_key(path) {
        return true;
    }
    let observed = &input.facts.observed;
    let found = observed.files.get(path).and_then(ObservedFile::directory);
    let (Some(found), Some(PathSpec::Directory(directory))) = (found, input.new_entry(path)) else {
        return false;
    };
    let Future { mode, owner } = future(directory, path, (input.to, observed));
    walk::opens(found, (mode, owner.uid))
}

/// Returns the directories of the config in which the agent would not write the keys of an account, or not find them safe.
pub(super) fn of_keys(input: &PlanInput<'_>, steps: &[Step]) -> Vec<Unreachable> {
    let (to, observed) = (input.to, &input.facts.observed);
    let is_touched = |user: &str, keys: &ManagedPath| {
        steps.iter().any(|step| {
            let of_user = matches!(&step.op, Op::SetSshKeys { user: one } | Op::CreateUser { user: one } if one.as_str() == user);
            let is_above = |path: &ManagedPath| keys.is_below(path.as_str());
            of_user || matches!(&step.op, Op::MakeDirectory { path } | Op::OpenDirectory { path } if is_above(path))
        })
    };
    let refused = own_paths::keys_of_accounts(input).into_iter().filter_map(|(user, keys)| {
        if !is_touched(user, &keys) {
            return None;
        }
        // Keys that leave have gone before a directory is opened.
        let entry = to.users.accounts.iter().find(|(name, _)| name.as_str() == user);
        entry.as_ref()?;
        let found = observed.accounts.get(user).map(|found| found.uid);
        let trusted = Owner {
            uid: found.unwrap_or_else(|| to.users.id_ahead(user)),
            // An account that the config makes has an id of its own.
            is_of_config: entry.is_some_and(|(name, account)| account.uid.is_some() || account.is_made(name)),
        };
        let reason = walk((to, observed), &keys, trusted, false).or_else(|| open_to_others(to, &keys))?;
        let is_of_config = entry.is_some_and(|(name, account)| homes::is_of_config(name, account));
        Some(if is_of_config { reason } else { Unreachable { kind: ReasonKind::HostDirectory, ..reason } })
    });
    refused.collect()
}

/// A sticky directory is fine for what is in it, and not for keys: who makes a name there first owns it.
fn open_to_others(to: &HostSpec, keys: &ManagedPath) -> Option<Unreachable> {
    let mode = |directory: &DirectorySpec| directory.mode.map_or(0, crate::model::FileMode::bits);
    let open = |(path, directory): &(&ManagedPath, &DirectorySpec)| {
        keys.is_below(path.as_str())
            && !to.unapplied.contains(*path)
            && own_paths::is_of_keys(path, keys)
            && mode(directory) & OTHERS_MAY_WRITE != 0
    };
    let (path, _) = to.directories.iter().find(open)?;
    let message = format!(
        "others could write there, and {keys} is in it; remove the write permission of group and others"
    );
    Some(unreachable(
        ReasonKind::OpenDirectory,
        format!("storage.directories {:?} mode", path.as_str()),
        message,
    ))
}

/// Returns why a directory of the old config can't be opened to others: keys of an account that stay are in it.
pub(super) fn keeps_keys(input: &PlanInput<'_>, opened: &ManagedPath) -> Option<Unreachable> {
    let mut kept =
        own_paths::keys_of_accounts(input).into_iter().filter(|(_, keys)| keys.is_below(opened.as_str()));
    let obstacle = kept.find_map(|(user, _)| input.facts.obstacles.keys.get(user))?;
    let field = format!("storage.directories {:?}", opened.as_str());
    Some(unreachable(ReasonKind::HostDirectory, field, format!("{}; {KEEP}", obstacle.cause)))
}

/// Returns why a directory of the old config can't be opened to others: a link of a unit that stays enabled is in it.
pub(super) fn keeps_link(facts: &Facts, links: &BTreeSet<ManagedPath>) -> Option<Unreachable> {
    let is_closed = |(mode, uid): Access| {
        Reached::default().enter(mode, (uid != 0).then_some(uid), Hands::from(0), Use::Way).is_err()
    };
    let opened = facts.obstacles.opened.iter().filter(|(_, access)| is_closed(**access));
    let mut kept =
        opened.filter_map(|(path, _)| Some((path, links.iter().find(|link| link.is_below(path.as_str()))?)));
    let (path, link) = kept.next()?;
    let cause = format!("it holds {link}, and without this entry other users could change names in it");
    let field = format!("storage.directories {:?}", path.as_str());
    Some(unreachable(ReasonKind::HostDirectory, field, format!("{cause}; {KEEP}")))
}

/// Next step for a directory that something of the new config is in.
const KEEP: &str = "keep the directory in the config, or first remove its contents in a separate update";

/// Returns why no link of a unit is made at a path.
pub(super) fn closed(to: &HostSpec, observed: &Observation, link: &ManagedPath) -> Option<Unreachable> {
    walk((to, observed), link, Owner { uid: 0, is_of_config: true }, false)
}

fn on_the_way(input: &PlanInput<'_>, path: &ManagedPath, enters: bool) -> Option<Unreachable> {
    let observed = &input.facts.observed;
    let entry = input.new_entry(path).or_else(|| input.old(path))?;
    let user = entry.owners().0;
    let uid = user.map_or(0, |user| uid_of(user, (input.to, observed)));
    let trusted = Owner { is_of_config: user.is_none() || Owner::new(user, uid).is_of_config, uid };
    walk((input.to, observed), path, trusted, enters)
}

/// A walk through the listed directories.
struct Walk {
    reached: Reached,
    hands: Hands,
    /// The config alone says who owns the entry, and whose directory it has come to.
    is_of_config: bool,
}

/// Walks through the listed directories above a path.
fn walk(
    (to, observed): (&HostSpec, &Observation),
    path: &ManagedPath,
    trusted: Owner,
    enters: bool,
) -> Option<Unreachable> {
    let directories = || to.directories.iter().filter(|(other, _)| !to.unapplied.contains(*other));
    let above = directories().filter(|(other, _)| *other != path && path.is_below(other.as_str()));
    let hands = Hands { trusted: trusted.uid, enters };
    let mut walk = Walk { reached: Reached::default(), hands, is_of_config: trusted.is_of_config };
    let is_listed = |directory: &str| directories().any(|(listed, _)| listed.as_str() == directory);
    let mut parent = SHARED.into_iter().find(|shared| path.is_below(shared) && !is_listed(shared));
    if parent.is_some() {
        walk.reached = walk.reached.enter(SHARED_MODE, None, hands, Use::Way).unwrap_or(walk.reached);
    }
    for (place, directory) in above {
        let is_in = |above: &str| place.as_str().rsplit_once('/').is_some_and(|(up, _)| up == above);
        if !parent.is_some_and(is_in) {
            walk.reached = walk.reached.enter(MADE, None, hands, Use::Way).unwrap_or(walk.reached);
        }
        let here = future(directory, place, (to, observed));
        let Owner { uid, is_of_config } = here.owner;
        match walk.reached.enter(here.mode, (uid != 0).then_some(uid), hands, Use::Way) {
            Ok(reached) => {
                let is_first = walk.reached.account.is_none() && reached.account.is_some();
                walk.is_of_config &= is_of_config || !is_first;
                walk.reached = reached;
            }
            Err(closed) => return Some(refusal((place, directory), path, here, (closed, &walk))),
        }
        parent = Some(place.as_str());
    }
    None
}

fn refusal(
    (place, directory): (&ManagedPath, &DirectorySpec),
    path: &ManagedPath,
    Future { mode, owner: Owner { uid, is_of_config } }: Future,
    (closed, walk): (Closed, &Walk),
) -> Unreachable {
    let said = |is_of_config: bool, of_config: ReasonKind, field: &str, message: String| {
        let kind = if is_of_config { of_config } else { ReasonKind::HostDirectory };
        unreachable(kind, format!("storage.directories {:?}{field}", place.as_str()), message)
    };
    match closed {
        Closed::Writable => {
            let cause = format!(
                "with mode {mode:04o} other accounts than its owner can write there, and {path} is in it"
            );
            let is_set = directory.mode.is_some();
            said(
                is_set,
                ReasonKind::OpenDirectory,
                if is_set { " mode" } else { "" },
                format!(
                    "{cause}; remove the write permission of group and others, or set the sticky bit (01000)"
                ),
            )
        }
        Closed::Owner => {
            let owner = directory.user.as_ref().map_or_else(|| uid.to_string(), Principal::to_string);
            let above = match (walk.hands.enters, walk.reached.is_shared) {
                (false, _) => "",
                (true, true) => ", in a directory that other accounts can write to",
                (true, false) => ", in a directory of another account",
            };
            let cause = format!("it belongs to {owner}{above}, and {path} is in it");
            let message = format!("{cause}; set it to root, or to the owner of {path}");
            said(is_of_config && walk.is_of_config, ReasonKind::ForeignDirectory, " user", message)
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::model::machineconfig::MachineConfig;
    use crate::model::policy::DisruptionPolicy;
    use crate::model::{Facts, HostSpec};
    use crate::plan::plan;

    fn spec(storage: &str) -> HostSpec {
        let text = format!(
            r#"{{"kind":"MachineConfig","metadata":{{"name":"rendered-a"}},"spec":{{"config":{{"ignition":{{"version":"3.5.0"}},
            {storage}}}}}}}"#
        );
        MachineConfig::parse(text.as_bytes(), "rendered-a").unwrap().spec(None).unwrap()
    }

    fn refused(from: &HostSpec, to: &HostSpec) -> Option<String> {
        let facts = Facts::assumed(from, to).unwrap();
        plan(from, to, &facts, &DisruptionPolicy::defaults()).err().map(|refused| refused.to_string())
    }

    fn storage(directories: &str, files: &str) -> HostSpec {
        spec(&format!(r#""storage":{{"directories":[{directories}],"files":[{files}]}}"#))
    }

    const FILE: &str = r#"{"path":"/srv/a/b/f"}"#;

    /// As the walk of a write decides it when the directories are there.
    #[test]
    fn directories_that_others_can_change_are_refused_where_something_is_in_them() {
        for (directories, file, is_refused) in [
            (r#"{"path":"/srv/a"},{"path":"/srv/a/b","mode":448}"#, FILE, false),
            (r#"{"path":"/srv/a","mode":509}"#, FILE, true),
            (r#"{"path":"/srv/a/b","mode":511}"#, FILE, true),
            (r#"{"path":"/srv/a","mode":509}"#, r#"{"path":"/srv/ab"}"#, false),
            (r#"{"path":"/srv/a","mode":1023}"#, FILE, false),
            // One account, from there on.
            (r#"{"path":"/srv/a","user":{"id":7}},{"path":"/srv/a/b","user":{"id":7}}"#, FILE, false),
            (r#"{"path":"/srv/a","user":{"id":7}},{"path":"/srv/a/b"}"#, FILE, false),
            (r#"{"path":"/srv/a","user":{"id":7}},{"path":"/srv/a/b","user":{"id":8}}"#, FILE, true),
            (
                r#"{"path":"/srv/a","user":{"id":7}},{"path":"/srv/a/b","user":{"id":8}}"#,
                r#"{"path":"/srv/a/b/f","user":{"id":8}}"#,
                false,
            ),
            // Whoever comes first owns a name below a sticky one.
            (r#"{"path":"/srv/a","mode":1023},{"path":"/srv/a/b","user":{"id":7}}"#, FILE, true),
            (r#"{"path":"/srv","mode":1023},{"path":"/srv/a/b","user":{"id":7}}"#, FILE, false),
        ] {
            let to = storage(directories, file);
            let bare = HostSpec::empty(to.name.clone());
            let said = refused(&bare, &to);
            assert_eq!(said.is_some(), is_refused, "{directories} {file}: {said:?}");
            assert!(said.is_none_or(|said| said.contains("storage.directories")), "{directories}");
        }
    }

    /// An entry that goes has gone before the directory has its mode.
    #[test]
    fn mode_that_closes_directory_of_file_is_refused() {
        let (before, after) = (storage(r#"{"path":"/srv/a"}"#, FILE), r#"{"path":"/srv/a","mode":511}"#);
        let said = refused(&before, &storage(after, FILE)).unwrap();
        assert!(said.contains(r#"storage.directories "/srv/a" mode: with mode 0777"#), "{said}");
        assert_eq!(refused(&before, &storage(after, "")), None);
        assert_eq!(refused(&before, &storage(r#"{"path":"/srv/a","mode":448}"#, FILE)), None);
    }

    #[test]
    fn directory_of_unit_is_of_root() {
        let units =
            r#""systemd":{"units":[{"name":"a.service","dropins":[{"name":"a.conf","contents":"[Unit]"}]}]}"#;
        let of = |owner: &str| {
            let path = "/etc/systemd/system/a.service.d";
            spec(&format!(r#""storage":{{"directories":[{{"path":"{path}"{owner}}}]}},{units}"#))
        };
        let bare = HostSpec::empty(of("").name);
        assert_eq!(refused(&bare, &of("")), None);
        assert!(refused(&bare, &of(r#","user":{"id":7}"#)).unwrap().contains("it belongs to 7"));
    }
}
