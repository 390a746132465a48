//! Entries at paths that the agent writes by itself, for accounts or for the take-over by machine-config-daemon: each of the
//! two writers would undo the other one.

use super::accounts::{Refusal, refusal};
use super::input::PlanInput;
use crate::model::ids::{ACCOUNT_DATABASES as DATABASES, DRAFT_SUFFIX, STATE_DIR};
use crate::model::users::{Account, KEYS_FILE, user_field};
use crate::model::{FileMode, HostSpec, ManagedPath, PathSpec, Principal, UserName};

/// Settings of the programs that change them.
const READ: [&str; 2] = ["/etc/default/useradd", "/etc/login.defs"];

/// The lock of the databases.
const LOCK: &str = "/etc/.pwd.lock";

/// Files that the agent writes: those of machine-config-daemon, which it keeps current, and its report.
const WRITTEN: [&str; 4] = [
    "/etc/machine-config-daemon/currentconfig",
    "/etc/machine-config-daemon/currentimage",
    "/etc/mcd-currentconfig.json",
    "/run/machine-config-agent/report.json",
];

/// The agent's settings, which a config may bring.
const SETTINGS: &str = "/etc/machine-config-agent/settings.toml";

/// Write permission of the group and of everybody.
const OTHERS_MAY_WRITE: u32 = 0o022;

/// Returns the entries of the new config that are refused.
pub(super) fn refused(input: &PlanInput<'_>) -> Vec<Refusal> {
    let changes_accounts = changes_accounts(input.to) || changes_accounts(input.from);
    let keys = keys_of_accounts(input).into_iter().map(|(user, file)| (user_field(user), file));
    in_config(input.to, &keys.collect::<Vec<_>>(), changes_accounts)
}

/// Returns the entries of a config that are refused whatever the host is like.
pub(super) fn refused_everywhere(to: &HostSpec) -> Vec<Refusal> {
    in_config(to, &[], changes_accounts(to))
}

fn in_config(to: &HostSpec, keys: &[(String, ManagedPath)], changes_accounts: bool) -> Vec<Refusal> {
    let listed = to.entries();
    listed
        .iter()
        .filter(|(path, _)| to.is_listed(path))
        .filter_map(|(path, entry)| {
            let field = || format!("{} {:?}", entry.section(), path.as_str());
            if let Some(message) =
                of_agent(path, entry).or_else(|| of_programs(path, entry, changes_accounts))
            {
                return Some(refusal(field(), &message));
            }
            let is_database = |database: &&str| path.as_str() == *database || path.is_below(database);
            if changes_accounts && DATABASES.iter().any(is_database) {
                let message =
                    "passwd of the same config changes this file; remove this entry, or those of passwd";
                return Some(refusal(field(), message));
            }
            let is_directory = matches!(entry, PathSpec::Directory(_));
            let account = keys.iter().find(|(_, file)| {
                path == file || (!is_directory && file.is_below(path.as_str()) && is_of_keys(path, file))
            });
            account.map(|(user, file)| {
                let message = format!("the agent writes the keys of {user} to {file}; remove one of the two");
                refusal(field(), message)
            })
        })
        .collect()
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
    let path = path.as_str();
    if WRITTEN.contains(&path) {
        return Some("the agent writes this file; remove the entry".to_owned());
    }
    let mut own = WRITTEN.into_iter().chain([SETTINGS, STATE_DIR]);
    let file = own.find(|file| *file == path || file.starts_with(&format!("{path}/")))?;
    let is_settings = path == SETTINGS;
    let mode = match entry {
        PathSpec::File(file) if is_settings => file.mode.bits(),
        PathSpec::Directory(directory) if !is_settings => {
            directory.mode.unwrap_or(FileMode::DIRECTORY).bits()
        }
        PathSpec::File(_) | PathSpec::Directory(_) | PathSpec::Link(_) => {
            let wanted = if is_settings { "a regular file" } else { "a directory" };
            return Some(format!("the agent uses {file}, and needs {wanted} here; remove the entry"));
        }
    };
    let is_roots = entry.owners().0.is_none_or(|user| match user {
        Principal::Id(id) => *id == 0,
        Principal::Name(name) => name == "root",
    });
    (mode & OTHERS_MAY_WRITE != 0 || !is_roots).then(|| {
        format!(
            "the agent refuses {file} if others than root can change it; set owner root and no write permission for group and others on \
             {path}"
        )
    })
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
        let found = input.facts.observed.accounts.get(name.as_str()).map(|found| found.keys_path.clone());
        let made = || {
            let home = account.home.clone().unwrap_or_else(|| format!("/home/{name}"));
            ManagedPath::new(format!("{}/{KEYS_FILE}", home.trim_end_matches('/'))).ok()
        };
        Some((name.as_str(), found.or_else(made)?))
    };
    with_keys.filter_map(file).collect()
}
