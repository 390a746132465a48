//! Directories of the new config that would keep the agent from writing what is listed in them: who may change names there
//! decides what root writes. They may not be there yet, or not as they will be, so the host does not tell.
//!
//! The rules are those of the walk of a write: root, the owner of what is written, or one account from there on; no
//! directory that a group or everybody may write to, unless it is sticky; below a sticky one none of another account.

use super::compare::id_of;
use super::input::PlanInput;
use super::own_paths;
use super::reconcilable::{Unreachable, unreachable};
use super::{Batch, BatchOp, FileOp, Op, Step};
use crate::model::observation::Observation;
use crate::model::{DirectorySpec, HostSpec, ManagedPath, ObservedFile, Principal};

/// Permission of the group, or of everybody, to write.
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Returns why a step makes, or leads through, a directory in which nothing is written.
pub(super) fn refused(input: &PlanInput<'_>, op: &Op, path: &ManagedPath) -> Option<Unreachable> {
    if op.batch() != Batch::Files {
        return None;
    }
    match op.in_batch() {
        BatchOp::File(FileOp::Write | FileOp::Link) => on_the_way(input, path, is_of_storage(op)),
        BatchOp::File(FileOp::Directory) => {
            // What is in it may stay as it is now, and could never be changed again; what goes, goes after this.
            let mut listed = input.paths().filter(|other| *other != path && other.is_below(path.as_str()));
            on_the_way(input, path, true).or_else(|| listed.find_map(|other| on_the_way(input, other, true)))
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

/// A directory as it will be. What is not known is as the agent makes it.
#[derive(Debug, Clone, Copy)]
struct Future {
    mode: u32,
    uid: u32,
}

fn future(directory: &DirectorySpec, path: &ManagedPath, observed: &Observation) -> Future {
    let (mode, uid) = match observed.files.get(path) {
        Some(ObservedFile::Directory { mode, uid, .. }) => (*mode, *uid),
        Some(
            ObservedFile::Absent
            | ObservedFile::Regular { .. }
            | ObservedFile::Symlink { .. }
            | ObservedFile::Special
            | ObservedFile::Unreachable,
        )
        | None => (0o755, 0),
    };
    let user = directory.user.as_ref().and_then(|user| id_of(user, &observed.user_ids));
    let mode = directory.mode.map_or(mode, crate::model::FileMode::bits);
    Future { mode, uid: user.unwrap_or(uid) }
}

/// Returns the directories of the config in which the agent would not write the keys of an account, or not find them safe.
pub(super) fn of_keys(input: &PlanInput<'_>, steps: &[Step]) -> Vec<Unreachable> {
    let (to, observed) = (input.to, &input.facts.observed);
    let is_touched = |user: &str, keys: &ManagedPath| {
        steps.iter().any(|step| {
            let of_user = matches!(&step.op, Op::SetSshKeys { user: one } | Op::CreateUser { user: one } if one.as_str() == user);
            of_user || matches!(&step.op, Op::MakeDirectory { path } if keys.is_below(path.as_str()))
        })
    };
    let refused = own_paths::keys_of_accounts(input).into_iter().filter_map(|(user, keys)| {
        if !is_touched(user, &keys) {
            return None;
        }
        let uid = observed.accounts.get(user).map(|found| found.uid);
        let uid = uid.or_else(|| to.users.account(user).and_then(|account| account.uid)).unwrap_or(0);
        walk((to, observed), &keys, uid, false).or_else(|| open_to_others(to, &keys))
    });
    refused.collect()
}

/// A sticky directory is fine for what is in it, and not for keys: who makes a name there first owns it.
fn open_to_others(to: &HostSpec, keys: &ManagedPath) -> Option<Unreachable> {
    let mode = |directory: &DirectorySpec| directory.mode.map_or(0, crate::model::FileMode::bits);
    let open = |(path, directory): &(&ManagedPath, &DirectorySpec)| {
        keys.is_below(path.as_str())
            && own_paths::is_of_keys(path, keys)
            && mode(directory) & OTHERS_WRITE != 0
    };
    let (path, _) = to.directories.iter().find(open)?;
    let message = format!(
        "others could write there, and {keys} is in it; remove the write permission of group and others"
    );
    Some(unreachable(format!("storage.directories {:?} mode", path.as_str()), message))
}

/// Returns why no link of a unit is made at a path.
pub(super) fn closed(to: &HostSpec, observed: &Observation, link: &ManagedPath) -> Option<Unreachable> {
    walk((to, observed), link, 0, false)
}

fn on_the_way(input: &PlanInput<'_>, path: &ManagedPath, enters: bool) -> Option<Unreachable> {
    let observed = &input.facts.observed;
    let entry = input.new_entry(path).or_else(|| input.old(path))?;
    let trusted = entry.owners().0.and_then(|user| id_of(user, &observed.user_ids)).unwrap_or(0);
    walk((input.to, observed), path, trusted, enters)
}

/// Walks through the listed directories above a path.
fn walk(
    (to, observed): (&HostSpec, &Observation),
    path: &ManagedPath,
    trusted: u32,
    enters: bool,
) -> Option<Unreachable> {
    let above = to.directories.iter().filter(|(other, _)| *other != path && path.is_below(other.as_str()));
    let (mut account, mut parent): (Option<u32>, Option<(&ManagedPath, Future)>) = (None, None);
    for (place, directory) in above {
        let here = future(directory, place, observed);
        let said = |field: &str, message: String| {
            Some(unreachable(format!("storage.directories {:?}{field}", place.as_str()), message))
        };
        if here.mode & OTHERS_WRITE != 0 && here.mode & STICKY == 0 {
            let mode = here.mode;
            let cause = format!(
                "with mode {mode:04o} other accounts than its owner can write there, and {path} is in it"
            );
            let set = if directory.mode.is_some() { " mode" } else { "" };
            return said(
                set,
                format!(
                    "{cause}; remove the write permission of group and others, or set the sticky bit (01000)"
                ),
            );
        }
        let is_in =
            |above: &ManagedPath| place.as_str().rsplit_once('/').is_some_and(|(up, _)| up == above.as_str());
        let is_shared = parent.is_some_and(|(above, parent)| is_in(above) && parent.mode & OTHERS_WRITE != 0);
        let is_third = account.is_some_and(|account| account != here.uid);
        if here.uid != 0 && here.uid != trusted && (!enters || is_shared || is_third) {
            let owner = directory.user.as_ref().map_or_else(|| here.uid.to_string(), Principal::to_string);
            let place = match (enters, is_shared) {
                (false, _) => "",
                (true, true) => ", in a directory that other accounts can write to",
                (true, false) => ", in a directory of another account",
            };
            let cause = format!("it belongs to {owner}{place}, and {path} is in it");
            return said(" user", format!("{cause}; set it to root, or to the owner of {path}"));
        }
        account = account.or((here.uid != 0).then_some(here.uid));
        parent = Some((place, here));
    }
    None
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

    /// An entry in it stays, or goes after the directory has its mode.
    #[test]
    fn mode_that_closes_directory_of_file_is_refused() {
        let (before, after) = (storage(r#"{"path":"/srv/a"}"#, FILE), r#"{"path":"/srv/a","mode":511}"#);
        for file in [FILE, ""] {
            let said = refused(&before, &storage(after, file)).unwrap();
            assert!(said.contains(r#"storage.directories "/srv/a" mode: with mode 0777"#), "{said}");
        }
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
