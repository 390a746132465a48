//! Entries at paths that the agent writes by itself, for accounts or for the take-over by machine-config-daemon: each of the
//! two writers would undo the other one.

use std::collections::BTreeMap;

use super::input::PlanInput;
use super::reason::{ReasonKind, Unreachable, unreachable};
use crate::model::ids::{
    ACCOUNT_DATABASES as DATABASES, DRAFT_SUFFIX, LOGIN_DATABASES as LOGIN, ROOT, STATE_DIR, is_below,
};
use crate::model::paths::LinkTarget;
use crate::model::protected::{CLOSED, MERGED, NO_HOMES, OF_SYSTEM, READ, REMOVED, WRITTEN, own};
use crate::model::settings::{self, SETTINGS_PATH};
use crate::model::users::{Account, KEYS_FILE, user_field};
use crate::model::{DirectorySpec, FileMode, HostSpec, LinkSpec, ManagedPath, PathSpec, Principal, UserName};

/// The lock of the databases.
const LOCK: &str = "/etc/.pwd.lock";

/// Mode of the directories of keys.
const KEYS_MODE: u32 = 0o700;

/// Write permission of the group and of everybody.
const OTHERS_MAY_WRITE: u32 = 0o022;

/// Returns the entries of the new config that are refused.
pub(super) fn refused(input: &PlanInput<'_>) -> Vec<Unreachable> {
    let found = &input.facts.obstacles;
    let mut reasons = in_config(input.to, &rules(input, &keys(input)));
    reasons.extend(found.targets.iter().map(|(path, obstacle)| {
        let field = format!("storage.links {:?} target", path.as_str());
        unreachable(ReasonKind::Obstacle, field, obstacle.to_string())
    }));
    reasons
}

/// Returns the rules for entries on a host with these keys.
pub(super) fn rules<'a>(input: &PlanInput<'a>, keys: &'a [Keys]) -> Rules<'a> {
    let changes_accounts = changes_accounts(input.to) || changes_accounts(input.from);
    Rules { keys, real_targets: &input.facts.obstacles.real_targets, changes_accounts }
}

/// Returns the entries of a config that are refused whatever the host is like.
pub(super) fn refused_everywhere(to: &HostSpec) -> Vec<Unreachable> {
    let real_targets = &BTreeMap::new();
    in_config(to, &Rules { keys: &[], real_targets, changes_accounts: changes_accounts(to) })
}

/// Facts that the rules for entries need.
pub(super) struct Rules<'a> {
    keys: &'a [Keys],
    real_targets: &'a BTreeMap<ManagedPath, String>,
    changes_accounts: bool,
}

/// A keys file of an account, and the kind of the reason where an entry is in its place.
pub(super) struct Keys {
    kind: ReasonKind,
    /// The account, and its field.
    name: String,
    user: String,
    file: ManagedPath,
}

/// Returns the keys files of the accounts, by their names and by their real paths.
pub(super) fn keys(input: &PlanInput<'_>) -> Vec<Keys> {
    let mut keys = Vec::new();
    for (user, file) in keys_of_accounts(input) {
        let listed = input.to.users.accounts.iter().find(|(name, _)| name.as_str() == user);
        // Without a home in the config it is the usual one: a host may have another.
        let is_of_config =
            listed.and_then(|(name, account)| usual_keys(name, account)).as_ref() == Some(&file);
        let kind = if is_of_config { ReasonKind::KeysInPlace } else { ReasonKind::KeysFile };
        let home = input.facts.accounts.homes.get(user);
        let real = home.and_then(|home| ManagedPath::new(format!("{home}/{KEYS_FILE}")).ok());
        let real = real.filter(|real| *real != file);
        let of = |kind, file| Keys { kind, name: user.to_owned(), user: user_field(user), file };
        keys.push(of(kind, file));
        keys.extend(real.map(|real| of(ReasonKind::KeysFile, real)));
    }
    keys
}

/// Refuses a hard link to a file that the agent, or a program that changes accounts, replaces: it would keep the old one.
fn of_target((path, link): (&ManagedPath, &LinkSpec), rules: &Rules<'_>) -> Option<Unreachable> {
    let target = link.hard_target()?;
    let field = format!("storage.links {:?} target", path.as_str());
    let keeps = "and the link would keep the old file";
    let real = rules.real_targets.get(path).map(String::as_str);
    [Some(target.as_str()), real].into_iter().flatten().find_map(|name| {
        if WRITTEN.contains(&name) || is_below(name, STATE_DIR) {
            let message = format!("the agent replaces {target}, {keeps}; remove the entry");
            return Some(unreachable(ReasonKind::OwnPath, &*field, message));
        }
        let is_database =
            |database: &&str| name.strip_prefix(database).is_some_and(|rest| ["", "-"].contains(&rest));
        if rules.changes_accounts && DATABASES.iter().any(is_database) {
            let message = format!(
                "passwd of the same config replaces {target}, {keeps}; remove this entry, or the entries of passwd"
            );
            return Some(unreachable(ReasonKind::ChangedDatabase, &*field, message));
        }
        let Keys { kind, user, .. } = rules.keys.iter().find(|keys| keys.file.as_str() == name)?;
        let message =
            format!("the agent writes the keys of {user} to {target}, {keeps}; remove one of the two");
        Some(unreachable(*kind, &*field, message))
    })
}

/// Refuses settings of the agent that it could not read: each later run would end with that.
pub(super) fn settings(to: &HostSpec) -> Option<Unreachable> {
    let (path, file) = to.files.iter().find(|(path, _)| path.as_str() == SETTINGS_PATH)?;
    let wrong = settings::read(file.contents.bytes(), SETTINGS_PATH).err()?;
    let message = format!("{wrong}; correct the file's contents (keys and values: reference.md)");
    Some(unreachable(ReasonKind::Settings, format!("storage.files {:?} contents", path.as_str()), message))
}

fn in_config(to: &HostSpec, rules: &Rules<'_>) -> Vec<Unreachable> {
    let listed = to.entries();
    let listed = listed.iter().filter(|(path, _)| to.is_listed(path));
    let refused = listed.filter_map(|(path, entry)| {
        let link = if let PathSpec::Link(link) = entry { Some(link) } else { None };
        judge(path, entry, rules).or_else(|| link.and_then(|link| of_target((path, link), rules)))
    });
    refused.collect()
}

/// Returns why no entry like this one is at a path.
pub(super) fn judge(path: &ManagedPath, entry: &PathSpec, rules: &Rules<'_>) -> Option<Unreachable> {
    let field = || format!("{} {:?}", entry.section(), path.as_str());
    if let Some(message) = of_agent(path, entry).or_else(|| of_programs(path, entry, rules.changes_accounts))
    {
        return Some(unreachable(ReasonKind::OwnPath, field(), message));
    }
    // Without it no account is known, not even the one that would be needed to put it back.
    if !matches!(entry, PathSpec::File(_)) && LOGIN.contains(&path.as_str()) {
        let message = "it is the host's database of accounts, which is a file; remove the entry";
        return Some(unreachable(ReasonKind::DatabaseInPlace, field(), message));
    }
    if let Some(database) = LOGIN.into_iter().find(|database| is_in(path, database)) {
        let message = format!(
            "{database} above it is the host's database of accounts, which is a file; choose another path"
        );
        return Some(unreachable(ReasonKind::DatabaseInPlace, field(), message));
    }
    if let Some(reason) = of_system(path, entry) {
        return Some(reason);
    }
    let is_database = |database: &&str| path.as_str() == *database || path.is_below(database);
    if rules.changes_accounts && DATABASES.iter().any(is_database) {
        let message =
            "passwd of the same config changes this file; remove this entry, or the entries of passwd";
        return Some(unreachable(ReasonKind::ChangedDatabase, field(), message));
    }
    in_place_of_keys(path, entry, rules.keys)
}

/// Refuses an entry in the place of the keys of an account, or of a directory that they are in.
fn in_place_of_keys(path: &ManagedPath, entry: &PathSpec, keys: &[Keys]) -> Option<Unreachable> {
    if let PathSpec::Directory(directory) = entry
        && let Some(reason) = around_keys(path, directory, keys)
    {
        return Some(reason);
    }
    let is_directory = matches!(entry, PathSpec::Directory(_));
    let account = keys.iter().find(|Keys { file, .. }| {
        path == file || (!is_directory && file.is_below(path.as_str()) && is_of_keys(path, file))
    });
    account.map(|Keys { kind, user, file, .. }| {
        let message = format!("the agent writes the keys of {user} to {file}; remove one of the two");
        unreachable(*kind, format!("{} {:?}", entry.section(), path.as_str()), message)
    })
}

/// Refuses a directory of keys with attributes that the agent would take back: each run would end with that.
fn around_keys(path: &ManagedPath, directory: &DirectorySpec, keys: &[Keys]) -> Option<Unreachable> {
    let Keys { kind, name, user, file, .. } =
        keys.iter().find(|Keys { file, .. }| file.is_below(path.as_str()) && is_of_keys(path, file))?;
    let is_others = directory.user.as_ref().is_some_and(|owner| match owner {
        Principal::Id(id) => *id == 0 && *name != ROOT,
        Principal::Name(owner) => *owner != *name,
    });
    let part = match directory.mode {
        Some(mode) if mode.bits() != KEYS_MODE => "mode",
        _ if is_others => "user",
        _ => return None,
    };
    let message = format!(
        "the agent keeps the keys of {user} in {file}, below directories of {name} with mode 0700; set these, or remove the entry"
    );
    Some(unreachable(*kind, format!("storage.directories {:?} {part}", path.as_str()), message))
}

/// Refuses what would be in the place of a directory of the system: no host goes on without it.
fn of_system(path: &ManagedPath, entry: &PathSpec) -> Option<Unreachable> {
    let is_of_system = |path: &str| NO_HOMES.contains(&path) || OF_SYSTEM.contains(&path);
    let (field, refused) = (format!("{} {:?}", entry.section(), path.as_str()), path.as_str());
    let (is_in_place, field, directory) = match entry {
        PathSpec::File(_) => (is_of_system(refused), field, refused),
        PathSpec::Directory(directory) => (directory.overwrite && MERGED.contains(&refused), field, refused),
        PathSpec::Link(link) => match &link.target {
            LinkTarget::Hard(target) => {
                (is_of_system(target.as_str()), format!("{field} target"), target.as_str())
            }
            LinkTarget::Soft(target) => {
                let stays = target.trim_start_matches('/').starts_with("usr/");
                (refused == "/usr" || (MERGED.contains(&refused) && !stays), field, refused)
            }
        },
    };
    let message =
        format!("{directory} is a directory of the system; choose another path, or remove the entry");
    if is_in_place {
        return Some(unreachable(ReasonKind::SystemDirectory, field, message));
    }
    open_system(path, entry)
}

/// Refuses to give a directory of the system to others: each of them would be root.
fn open_system(path: &ManagedPath, entry: &PathSpec) -> Option<Unreachable> {
    let PathSpec::Directory(directory) = entry else { return None };
    let name = path.as_str();
    let is_closed = CLOSED.contains(&name) || MERGED.contains(&name);
    let is_open = directory.mode.is_some_and(|mode| mode.bits() & OTHERS_MAY_WRITE != 0);
    let part = match (is_open, is_roots(directory.user.as_ref())) {
        (true, _) => "mode",
        (false, false) => "user",
        (false, true) => return None,
    };
    let message = format!(
        "{name} is a directory of the system, and others than root could change it; set owner root and no write permission for \
         group and others, or remove the entry"
    );
    let field = format!("{} {name:?} {part}", entry.section());
    is_closed.then(|| unreachable(ReasonKind::SystemDirectory, field, message))
}

fn is_roots(user: Option<&Principal>) -> bool {
    user.is_none_or(|user| match user {
        Principal::Id(id) => *id == 0,
        Principal::Name(name) => name == ROOT,
    })
}

/// Returns true if a path is in a directory, and not that itself.
fn is_in(path: &ManagedPath, directory: &str) -> bool {
    is_below(path.as_str(), directory)
}

/// Returns true if a config sets accounts or groups: its update and the next one change the databases.
fn changes_accounts(spec: &HostSpec) -> bool {
    let is_account = spec.users.accounts.iter().any(|(name, account)| {
        account.is_made(name) || account.password.is_some() || account.sets_attributes()
    });
    is_account || !spec.users.groups.is_empty()
}

/// Returns why an entry is in the place of what the agent, passwd(1), useradd(8) and their like make for themselves: locks, new
/// versions and backups.
fn of_programs(path: &ManagedPath, entry: &PathSpec, changes_accounts: bool) -> Option<String> {
    let name = path.as_str().rsplit('/').next().unwrap_or_default();
    if name.starts_with('.') && name.ends_with(DRAFT_SUFFIX) {
        return Some(
            "the agent gives such a name to the new version of a file; choose another one".to_owned(),
        );
    }
    let is_at = |file: &str| path.as_str() == file || path.is_below(file);
    let temporary = [".lock", "+"];
    let own = DATABASES.iter().find(|database| {
        temporary.iter().any(|end| is_at(&format!("{database}{end}"))) || is_numbered(path, database)
    });
    if own.is_some() || is_at(LOCK) {
        let what = if own.is_some() { "a lock or a new version" } else { "the lock" };
        return Some(format!(
            "it is {what} of the account databases (lckpwdf(3), useradd(8)); remove the entry"
        ));
    }
    if let Some(read) = READ.into_iter().find(|read| is_at(read)) {
        let is_file = matches!(entry, PathSpec::File(_)) && path.as_str() == read;
        return (!is_file)
            .then(|| format!("useradd(8) reads {read}, which has to be a file; remove the entry"));
    }
    let backup = DATABASES.iter().find(|database| is_at(&format!("{database}-")))?;
    let is_file = matches!(entry, PathSpec::File(_)) && path.as_str() == format!("{backup}-");
    (changes_accounts || !is_file)
        .then(|| format!("useradd(8) and passwd(1) write the backup of {backup} there; remove the entry"))
}

/// Returns true for the name under which a program prepares the lock of a database: its process id follows.
fn is_numbered(path: &ManagedPath, database: &str) -> bool {
    let rest = path.as_str().strip_prefix(database).and_then(|rest| rest.strip_prefix('.'));
    let number = rest.map(|rest| rest.split('/').next().unwrap_or_default());
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns what would keep the agent from its own files: it uses none that another account could change or redirect, so each later
/// run would end with that.
fn of_agent(path: &ManagedPath, entry: &PathSpec) -> Option<String> {
    let files = WRITTEN.into_iter().chain(REMOVED).chain([SETTINGS_PATH]);
    if let Some(file) = files.into_iter().find(|file| is_in(path, file)) {
        return Some(format!("the agent uses {file} above it, which is a file; choose another path"));
    }
    let name = path.as_str();
    if WRITTEN.contains(&name) {
        return Some("the agent writes this file; remove the entry".to_owned());
    }
    if REMOVED.contains(&name) {
        return Some("the agent removes this file; remove the entry".to_owned());
    }
    let file = own().find(|file| *file == name || is_below(file, name))?;
    let is_settings = name == SETTINGS_PATH;
    match entry {
        PathSpec::File(file) if is_settings => {
            opens(file.mode.bits(), entry).then(|| closed(SETTINGS_PATH, path))
        }
        PathSpec::File(_) | PathSpec::Directory(_) | PathSpec::Link(_) if is_settings => {
            Some(format!("the agent uses {file}, and needs a regular file here; remove the entry"))
        }
        PathSpec::File(_) | PathSpec::Directory(_) | PathSpec::Link(_) => above_agent(file, path, entry),
    }
}

/// Returns why an entry can't be above a file of the agent: it has to be a directory that nobody else can change.
pub(super) fn above_agent(file: &str, path: &ManagedPath, entry: &PathSpec) -> Option<String> {
    match entry {
        PathSpec::Directory(directory) => {
            let mode = directory.mode.unwrap_or(FileMode::DIRECTORY).bits();
            opens(mode, entry).then(|| closed(file, path))
        }
        PathSpec::File(_) | PathSpec::Link(_) => {
            Some(format!("the agent uses {file}, and needs a directory here; remove the entry"))
        }
    }
}

fn opens(mode: u32, entry: &PathSpec) -> bool {
    mode & OTHERS_MAY_WRITE != 0 || !is_roots(entry.owners().0)
}

fn closed(file: &str, path: &ManagedPath) -> String {
    format!(
        "the agent refuses {file} if others than root can change it; set owner root and no write permission for group and others on \
         {path}"
    )
}

/// Returns true for the directories of a keys file that the agent makes.
pub(super) fn is_of_keys(path: &ManagedPath, file: &ManagedPath) -> bool {
    let (path, file) = (path.as_str(), file.as_str());
    file.split_once("/.ssh/")
        .is_some_and(|(home, _)| path.strip_prefix(home).is_some_and(|rest| rest.starts_with("/.ssh")))
}

/// Returns the keys files of the accounts of the config that has their keys.
pub(super) fn keys_of_accounts<'a>(input: &PlanInput<'a>) -> Vec<(&'a str, ManagedPath)> {
    let (from, to) = (&input.from.users.accounts, &input.to.users.accounts);
    let with_keys = to.iter().filter(|(name, account)| account.desired_keys(name).is_some());
    // Those of an account that leaves are taken away.
    let left = from.iter().filter(|(name, _)| !to.contains_key(*name));
    let with_keys = with_keys.chain(left);
    let file = |(name, account): (&'a UserName, &Account)| {
        let found =
            input.facts.observed.accounts.get(name.as_str()).and_then(|found| found.keys_path.clone());
        Some((name.as_str(), found.or_else(|| usual_keys(name, account))?))
    };
    with_keys.filter_map(file).collect()
}

/// Returns the keys file of an account by the config alone.
fn usual_keys(name: &UserName, account: &Account) -> Option<ManagedPath> {
    let home = account.home.clone().unwrap_or_else(|| format!("/home/{name}"));
    ManagedPath::new(format!("{}/{KEYS_FILE}", home.trim_end_matches('/'))).ok()
}
