//! The homes of accounts that the agent makes or gives keys: a directory of their own.
//!
//! useradd leaves a directory that is there as it is, and warns; the account's keys would then be in a directory of the system, or
//! in the place of another account's keys.

use super::input::PlanInput;
use super::reason::{ReasonKind, Unreachable, unreachable};
use super::{Op, Step};
use crate::model::ids::{LOGIN_DATABASES, ROOT, ROOT_HOME};
use crate::model::protected::NO_HOMES;
use crate::model::users::{Account, KEYS_FILE, user_field};
use crate::model::{HostSpec, ManagedPath, ModelError, PathSpec, UserName};

/// Directories of the agent, and of machine-config-daemon.
const OWN: [&str; 4] = [
    "/etc/machine-config-agent",
    "/etc/machine-config-daemon",
    "/run/machine-config-agent",
    "/var/lib/machine-config-agent",
];

/// Directories of which all that is in them is the system's.
const TREES: [&str; 8] =
    ["/boot", "/dev", "/etc/systemd", "/ostree", "/proc", "/run/systemd", "/sys", "/sysroot"];

/// Returns the homes that the steps can't give to their accounts.
pub(super) fn refused(input: &PlanInput<'_>, steps: &[Step]) -> Vec<Unreachable> {
    let mut refused = Vec::new();
    for step in steps {
        if let Op::SetSshKeys { user } | Op::LockUser { user } = &step.op {
            refused.extend(kept_by_another(input, user));
        }
        let (Op::CreateUser { user } | Op::SetSshKeys { user }) = &step.op else { continue };
        let Some(account) = input.to.users.accounts.get(user).filter(|account| account.should_exist) else {
            continue;
        };
        let found = input.facts.observed.accounts.get(user.as_str());
        if let (Op::CreateUser { .. }, Some(home)) = (&step.op, &account.home)
            && !(account.has_no_home() && account.desired_keys(user).is_none())
            && let Some(reason) = unfit(user, home)
        {
            refused.push(reason);
            continue;
        }
        // An account that is made is judged once.
        if found.is_none() != matches!(step.op, Op::CreateUser { .. }) || !uses_home(input, user, account) {
            continue;
        }
        let is_root = found.is_some_and(|found| found.uid == 0);
        let of_system = of_system(input, user, account).filter(|_| !is_root);
        let in_entry = || in_entry(input, user, account);
        refused.extend(of_system.or_else(in_entry).or_else(|| shared(input, user, account)));
    }
    refused
}

/// Returns true if the home is made, or gets keys.
pub(super) fn uses_home(input: &PlanInput<'_>, user: &UserName, account: &Account) -> bool {
    let is_made = !input.facts.observed.accounts.contains_key(user.as_str()) && account.makes_home();
    account.should_exist && (is_made || account.desired_keys(user).is_some())
}

/// Returns the home, as the host has it or will; between two files the default of useradd is assumed.
pub(super) fn home(input: &PlanInput<'_>, user: &UserName, account: &Account) -> String {
    let real = input.facts.accounts.homes.get(user.as_str()).cloned();
    let found = || input.facts.observed.accounts.get(user.as_str()).map(|found| found.home.clone());
    let home = real.or_else(found).or_else(|| account.home.clone());
    plain(&home.unwrap_or_else(|| format!("/home/{user}")))
}

/// Returns a path without empty parts, `.` and `..`.
fn plain(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

fn field(user: &UserName) -> String {
    format!("{} homeDir", user_field(user.as_str()))
}

/// Returns true if the config alone says where the home of an account is: it names the home, or makes the account, which gets the usual
/// one of useradd(8). A host with another default may be given the home by name. That of core, and of root, is the host's.
pub(super) fn is_of_config(user: &UserName, account: &Account) -> bool {
    !user.is_core() && (account.home.is_some() || (account.is_made(user) && !user.is_root()))
}

/// Returns the kind of a reason about the homes of these accounts.
fn kind<const N: usize>(of_config: ReasonKind, accounts: [(&UserName, &Account); N]) -> ReasonKind {
    if accounts.into_iter().all(|(user, account)| is_of_config(user, account)) {
        of_config
    } else {
        ReasonKind::HostHome
    }
}

/// The next step for the home of an account that is made.
const OWN_HOME: &str = "choose a separate directory, or set noCreateHome: true and no keys";

fn of_system(input: &PlanInput<'_>, user: &UserName, account: &Account) -> Option<Unreachable> {
    let real = home(input, user, account);
    let homes = account.home.iter().map(|home| plain(home)).chain([real]);
    let home = homes.into_iter().find(|home| is_of_system(home))?;
    let next = if input.facts.observed.accounts.contains_key(user.as_str()) {
        "give the account a separate home (`usermod --home`), or remove its keys"
    } else {
        OWN_HOME
    };
    if is_in(&home, &OWN) {
        return Some(reserved(user, &home, next));
    }
    let message = format!("{home} is a directory of the system and no account's home; {next}");
    let kind = kind(ReasonKind::SystemHome, [(user, account)]);
    Some(unreachable(kind, field(user), message))
}

/// Returns why a home can't be made: it would be at or below a file or a link of the configs, of which one comes after the home,
/// and the other goes.
fn in_entry(input: &PlanInput<'_>, user: &UserName, account: &Account) -> Option<Unreachable> {
    let real = home(input, user, account);
    let homes: Vec<String> = account.home.iter().map(|home| plain(home)).chain([real]).collect();
    let is_in = |path: &ManagedPath| {
        let is_below = |home: &String| {
            home.strip_prefix(path.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        homes.iter().any(is_below)
    };
    // A link that the host has, and that stays, leads to where the home is made.
    let mut entries = input.paths().filter(|path| is_in(path) && !input.is_in_place(path));
    // The home of an account that is there may be made again once a link has gone.
    let is_new = !input.facts.observed.accounts.contains_key(user.as_str());
    let (path, what) = entries.find_map(|path| {
        let entry = input.new_entry(path).or_else(|| input.old(path).filter(|_| is_new))?;
        let what = match entry {
            PathSpec::File(_) => "file",
            PathSpec::Link(_) => "link",
            PathSpec::Directory(_) => return None,
        };
        Some((path, what))
    })?;
    let message = format!("it leads through {path}, a {what} of the config; choose a separate directory");
    let kind = kind(ReasonKind::HomeThroughEntry, [(user, account)]);
    Some(unreachable(kind, field(user), message))
}

/// Returns why a home is no path at which the agent could look for keys, with keys or without.
fn unfit(user: &UserName, home: &str) -> Option<Unreachable> {
    let field = field(user);
    let (short, whole) = (home.trim_end_matches('/'), plain(home));
    if short != whole.trim_end_matches('/') {
        return Some(unreachable(
            ReasonKind::UnfitHome,
            field,
            format!("{home} is another name of {whole}; write that"),
        ));
    }
    if let Some(file) = LOGIN_DATABASES.into_iter().find(|file| is_in(&whole, &[*file])) {
        let message = format!(
            "{home} can't be a home: {file} is a file of the host; choose a directory such as /home/{user}"
        );
        return Some(unreachable(ReasonKind::UnfitHome, field, message));
    }
    let ModelError::Path { rule, .. } = ManagedPath::new(format!("{short}/{KEYS_FILE}")).err()? else {
        return None;
    };
    let message = format!("{home} can't be a home: {rule}; choose a directory such as /home/{user}");
    Some(unreachable(ReasonKind::UnfitHome, field, message))
}

fn is_of_system(home: &str) -> bool {
    // Programs and libraries of the OS: /usr/bin, /usr/lib and so on.
    let is_in_usr = home.strip_prefix("/usr/").is_some_and(|rest| !rest.contains('/'));
    NO_HOMES.contains(&home) || is_in_usr || is_in(home, &TREES) || is_in(home, &OWN)
}

fn is_in(home: &str, trees: &[&str]) -> bool {
    let is_below =
        |tree: &&str| home.strip_prefix(*tree).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    trees.iter().any(is_below)
}

fn reserved(user: &UserName, home: &str, next: &str) -> Unreachable {
    let message = format!("{home} is reserved for the agent and can't be a home; {next}");
    unreachable(ReasonKind::ReservedHome, field(user), message)
}

/// Returns the homes in the agent's own directories, where no host makes one.
pub(super) fn refused_everywhere(to: &HostSpec) -> Vec<Unreachable> {
    let made = to.users.accounts.iter().filter(|(name, account)| {
        account.should_exist && (account.makes_home() || account.desired_keys(name).is_some())
    });
    let own = made.filter_map(|(name, account)| {
        let given = account.home.as_ref()?;
        let home = Some(plain(given)).filter(|home| is_in(home, &OWN))?;
        let unfit = unfit(name, given).map(|reason| Unreachable { kind: ReasonKind::ReservedHome, ..reason });
        Some(unfit.unwrap_or_else(|| reserved(name, &home, OWN_HOME)))
    });
    own.collect()
}

/// Returns the other account that has the same home.
fn shared(input: &PlanInput<'_>, user: &UserName, account: &Account) -> Option<Unreachable> {
    let own = home(input, user, account);
    let of_shared = |other: (&UserName, &Account)| kind(ReasonKind::SharedHome, [(user, account), other]);
    let accounts = || {
        let all = input.to.users.accounts.iter();
        all.filter(|(other, account)| *other != user && uses_home(input, other, account))
    };
    if let Some(other) = accounts().find(|(other, account)| home(input, other, account) == own) {
        let name = other.0;
        let message = format!("{own} is the home of {name}, too; give each account a separate home");
        return Some(unreachable(of_shared(other), field(user), message));
    }
    // Root makes no directory in another account's home, and one that it made on the way would be root's.
    let is_in = |home: &str, above: &str| home.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'));
    if let Some(other) = accounts().find(|(other, account)| is_in(&own, &home(input, other, account))) {
        let (name, above) = (other.0, home(input, other.0, other.1));
        let message = format!("{own} is in {above}, the home of {name}; choose a directory beside it");
        return Some(unreachable(of_shared(other), field(user), message));
    }
    let is_new = !input.facts.observed.accounts.contains_key(user.as_str());
    let found = input.facts.accounts.home_owners.get(user.as_str()).map(String::as_str);
    let of_root = (own == ROOT_HOME && !user.is_root()).then_some(ROOT);
    let other = found.or(of_root).filter(|_| is_new)?;
    let of_config = if other == ROOT { ReasonKind::Root } else { ReasonKind::HostHome };
    let message = format!("{own} is the home of {other} on this host; choose a separate directory");
    Some(unreachable(kind(of_config, [(user, account)]), field(user), message))
}

/// Returns the other account whose keys would go with those of one that leaves the config, or loses its keys: both have one home.
fn kept_by_another(input: &PlanInput<'_>, user: &UserName) -> Option<Unreachable> {
    let (old, new) = (input.from.users.accounts.get(user), input.to.users.accounts.get(user));
    if new.is_some_and(|new| new.desired_keys(user).is_some()) {
        return None;
    }
    let own = home(input, user, old.or(new)?);
    let mut others = input.to.users.accounts.iter();
    let (other, account) = others.find(|(other, account)| {
        *other != user && account.desired_keys(other).is_some() && home(input, other, account) == own
    })?;
    let message = format!(
        "{own} is the home of {other}, too, and the keys of {other} would go with those of {user}; give each account a home of its \
         own (`usermod --home`)"
    );
    let field = format!("{} homeDir", user_field(other.as_str()));
    Some(unreachable(kind(ReasonKind::HostHome, [(other, account)]), field, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_system_are_no_homes() {
        for home in
            ["/", "/etc", "/usr", "/usr/bin", "/var/lib", "/proc/1", "/boot/efi", "/sysroot/a/b", "/home"]
        {
            assert!(is_of_system(&plain(home)), "{home}");
        }
        for home in ["/etc/", "//etc", "/home/../etc", "/./usr/./bin/", "/..", "/var/lib/x/.."] {
            assert!(is_of_system(&plain(home)), "{home}");
        }
        for home in [
            "/home/app",
            "/root",
            "/var/lib/app",
            "/etc/app",
            "/srv/app",
            "/usr/local/app",
            "/bootstrap",
            "/opt/app",
        ] {
            assert!(!is_of_system(&plain(home)), "{home}");
        }
    }
}
