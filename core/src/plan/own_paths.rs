//! Entries at paths that the agent writes by itself, for accounts or for the take-over by machine-config-daemon: each of the
//! two writers would undo the other one.

use super::accounts::{Refusal, refusal};
use super::input::PlanInput;
use crate::model::users::{Account, KEYS_FILE, user_field};
use crate::model::{ManagedPath, PathSpec, UserName};

/// Databases of accounts.
const DATABASES: [&str; 6] =
    ["/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/subuid", "/etc/subgid"];

/// Files of machine-config-daemon that the agent keeps current.
const OF_MCD: [&str; 2] =
    ["/etc/machine-config-daemon/currentconfig", "/etc/machine-config-daemon/currentimage"];

/// Returns the entries of the new config that are refused.
pub(super) fn refused(input: &PlanInput<'_>) -> Vec<Refusal> {
    let to = input.to;
    let keys = keys_of_accounts(input);
    let is_account = to.users.accounts.iter().any(|(name, account)| {
        account.is_made(name) || account.password.is_some() || account.sets_attributes()
    });
    let changes_accounts = is_account || !to.users.groups.is_empty();
    let listed = to.entries();
    listed
        .iter()
        .filter(|(path, _)| to.is_listed(path))
        .filter_map(|(path, entry)| {
            let field = || format!("{} {:?}", entry.section(), path.as_str());
            if OF_MCD.contains(&path.as_str()) {
                return Some(refusal(field(), "the agent writes this file; remove the entry"));
            }
            if changes_accounts && DATABASES.contains(&path.as_str()) {
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

/// Returns true for the directories of a keys file that the agent makes.
fn is_of_keys(path: &ManagedPath, file: &ManagedPath) -> bool {
    let (path, file) = (path.as_str(), file.as_str());
    file.split_once("/.ssh/")
        .is_some_and(|(home, _)| path.strip_prefix(home).is_some_and(|rest| rest.starts_with("/.ssh")))
}

/// Returns the keys files of the accounts of the config that has their keys.
fn keys_of_accounts(input: &PlanInput<'_>) -> Vec<(String, ManagedPath)> {
    let accounts = input.to.users.accounts.iter();
    let with_keys = accounts.filter(|(name, account)| account.desired_keys(name).is_some());
    let file = |(name, account): (&UserName, &Account)| {
        let found = input.facts.observed.accounts.get(name.as_str()).map(|found| found.keys_path.clone());
        let made = || {
            let home = account.home.clone().unwrap_or_else(|| format!("/home/{name}"));
            ManagedPath::new(format!("{}/{KEYS_FILE}", home.trim_end_matches('/'))).ok()
        };
        Some((user_field(name.as_str()), found.or_else(made)?))
    };
    with_keys.filter_map(file).collect()
}
