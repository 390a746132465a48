//! Accounts and groups of the specs, as the host has them.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::account_records::AccountRecords;
use crate::host::accounts::{self, Accounts, User};
use crate::host::{HostError, Root, account_lines, account_programs, keys};
use crate::model::observation::{AccountFacts, GivenParts, Maker, ObservedAccount, ObservedGroup};
use crate::model::users::{CORE, SshKey, group_field, keys_in, keys_path, user_field};
use crate::model::{HostSpec, ObservedFile, Obstacle, Obstacles, UserName};

use super::{ObserveError, strangers};

/// Observes `core`, and the accounts of the specs.
pub(super) fn accounts(
    root: &Root,
    accounts: &Accounts,
    records: &AccountRecords,
    specs: &[&HostSpec],
) -> Result<BTreeMap<String, ObservedAccount>, ObserveError> {
    let listed = specs.iter().flat_map(|spec| spec.users.accounts.keys()).map(UserName::as_str);
    let unremoved = records.unremoved.keys().map(String::as_str);
    let names: BTreeSet<&str> = listed.chain([CORE]).chain(unremoved).collect();
    let mut observed = BTreeMap::new();
    for name in names {
        if let Some(user) = accounts.user(name) {
            let mut account = account(root, accounts, records, name, user)?;
            let entries = specs.iter().filter_map(|spec| spec.users.account(name));
            let given = entries.flat_map(|entry| &entry.keys).collect();
            add_keys(root, records, (name, user), given, &mut account)
                .map_err(ObserveError::wrap("the accounts"))?;
            let listed = specs.iter().filter_map(|spec| spec.users.account(name)?.home.as_deref());
            account.home_names =
                home_names(root, &user.home, listed).map_err(ObserveError::wrap("the accounts"))?;
            observed.insert(name.to_owned(), account);
        }
    }
    Ok(observed)
}

/// Adds which keys of configs are in the keys file: those of the specs, and those that could not be removed before.
fn add_keys(
    root: &Root,
    records: &AccountRecords,
    (name, user): (&str, &User),
    given: Vec<&SshKey>,
    account: &mut ObservedAccount,
) -> Result<(), HostError> {
    let left = records.unremoved_keys(name);
    let is_absent = account.keys_path.is_none() || account.keys == ObservedFile::Absent;
    if is_absent || (given.is_empty() && left.is_empty()) {
        return Ok(());
    }
    if let Some(text) = keys::read(root, user)? {
        account.given_keys = keys_in(&text, given.into_iter());
        account.unremoved_keys = keys_in(&text, left.iter());
    } else {
        // Whatever is there now, nothing has shown that they are gone.
        account.given_keys = given.into_iter().cloned().collect();
        account.unremoved_keys = left.into_iter().collect();
    }
    if !account.unremoved_keys.is_empty() {
        account.unremovable = keys::unremovable(root, user);
    }
    Ok(())
}

/// Returns those of the names that lead to a home.
fn home_names<'a>(
    root: &Root,
    home: &str,
    listed: impl Iterator<Item = &'a str>,
) -> Result<BTreeSet<String>, HostError> {
    let home = home.trim_end_matches('/');
    let mut names = BTreeSet::new();
    for name in listed.map(|name| name.trim_end_matches('/')).filter(|name| *name != home) {
        if keys::real_home(root, name)? == keys::real_home(root, home)? {
            names.insert(name.to_owned());
        }
    }
    Ok(names)
}

/// Observes one account.
pub(super) fn account(
    root: &Root,
    accounts: &Accounts,
    records: &AccountRecords,
    name: &str,
    user: &User,
) -> Result<ObservedAccount, ObserveError> {
    let failed = || ObserveError::wrap("the accounts");
    let keys_path = keys_path(&user.home).map_err(ObserveError::home(name, &user.home))?;
    let keys = keys_path.as_ref().map_or(Ok(ObservedFile::Absent), |path| root.observe(path.as_str()));
    Ok(ObservedAccount {
        keys: keys.map_err(failed())?,
        keys_path,
        uid: user.uid,
        gid: user.gid,
        password: or_unreadable(accounts::password(root, name)).map_err(failed())?,
        foreign: keys::foreign(root, user).map_err(failed())?,
        gecos: user.gecos.clone(),
        home: user.home.clone(),
        home_names: BTreeSet::new(),
        shell: user.shell.clone(),
        primary_group: accounts.group_name(user.gid).map(str::to_owned),
        groups: accounts.groups_of(name),
        maker: maker(records.is_made(name), user.is_local),
        has_original: records.original(name).is_some(),
        given: given_parts(root, records, (name, user)).map_err(failed())?,
        given_keys: BTreeSet::new(),
        unremoved_keys: BTreeSet::new(),
        unremovable: None,
        is_expired: records.is_made(name)
            && or_unreadable(account_lines::is_expired(root, name)).map_err(failed())?,
    })
}

/// Returns the parts that are as the record says that the agent set them.
fn given_parts(
    root: &Root,
    records: &AccountRecords,
    (name, user): (&str, &User),
) -> Result<GivenParts, HostError> {
    let Some(original) = records.original(name) else { return Ok(GivenParts::default()) };
    let set = &original.set;
    let password = or_unreadable(accounts::password(root, name))?;
    Ok(GivenParts {
        gecos: set.gecos.as_ref() == Some(&user.gecos),
        shell: set.shell.as_ref() == Some(&user.shell),
        password: password.is_some() && set.password() == password,
    })
}

/// Takes a database that is no file for one that says nothing: it is an obstacle of the steps that need it.
fn or_unreadable<T: Default>(read: Result<T, HostError>) -> Result<T, HostError> {
    match read {
        Err(HostError::Kind { .. }) => Ok(T::default()),
        read => read,
    }
}

fn maker(is_made: bool, is_local: bool) -> Maker {
    match (is_made, is_local) {
        (true, _) => Maker::Agent,
        (false, true) => Maker::Host,
        (false, false) => Maker::Image,
    }
}

/// Observes the groups of the specs.
pub(super) fn groups(
    root: &Root,
    accounts: &Accounts,
    records: &AccountRecords,
    specs: &[&HostSpec],
) -> Result<BTreeMap<String, ObservedGroup>, ObserveError> {
    let mut observed = BTreeMap::new();
    for name in specs.iter().flat_map(|spec| spec.users.groups.keys()).map(UserName::as_str) {
        let Some(group) = accounts.group_entry(name) else { continue };
        let password = or_unreadable(account_lines::group_password(root, name));
        let group = ObservedGroup {
            gid: group.gid,
            password: password.map_err(ObserveError::wrap("the accounts"))?,
            maker: maker(records.is_group_made(name), group.is_local),
            people: accounts::people_of_group(root, group, name)
                .map_err(ObserveError::wrap("the accounts"))?,
            is_primary: accounts.is_primary(group.gid),
        };
        observed.insert(name.to_owned(), group);
    }
    Ok(observed)
}

/// Looks at what decides whether accounts and groups can be applied.
pub(super) fn facts(root: &Root, from: &HostSpec, to: &HostSpec) -> Result<AccountFacts, ObserveError> {
    let is_empty = |spec: &HostSpec| spec.users.accounts.is_empty() && spec.users.groups.is_empty();
    let accounts = Accounts::load(root).map_err(ObserveError::wrap("the accounts"))?;
    let strangers = strangers::of(root, &accounts, (from, to)).map_err(ObserveError::wrap("the accounts"))?;
    if is_empty(from) && is_empty(to) {
        return Ok(AccountFacts { strangers, ..AccountFacts::default() });
    }
    let entries = || to.users.accounts.values();
    let named = entries().flat_map(|account| account.groups.iter().chain(&account.primary_group));
    let owner = |id: u32, name: Option<&str>| name.map(|name| (id, name.to_owned()));
    let gids = to.users.groups.values().filter_map(|group| group.gid);
    let (homes, home_owners) =
        homes(root, &accounts, (from, to)).map_err(ObserveError::wrap("the accounts"))?;
    Ok(AccountFacts {
        strangers,
        homes,
        home_owners,
        lacks_shadow: root.observe("/etc/shadow").map_err(ObserveError::wrap("the accounts"))?
            == ObservedFile::Absent,
        missing_programs: account_programs::missing(),
        missing_groups: named.filter(|name| accounts.group(name).is_none()).cloned().collect(),
        uid_owners: entries()
            .filter_map(|account| account.uid)
            .filter_map(|uid| owner(uid, accounts.user_name(uid)))
            .collect(),
        gid_owners: gids.filter_map(|gid| owner(gid, accounts.group_name(gid))).collect(),
    })
}

/// Adds the accounts and groups to be made that a name service of the host knows already, such as those of a directory.
pub(super) async fn add_known_elsewhere(
    root: &Root,
    to: &HostSpec,
    found: &mut Obstacles,
) -> Result<(), ObserveError> {
    if to.users.accounts.is_empty() && to.users.groups.is_empty() {
        return Ok(());
    }
    let accounts = Accounts::load(root).map_err(ObserveError::wrap("the accounts"))?;
    let groups = to.users.groups.iter().filter(|(_, group)| group.should_exist);
    let groups = groups.map(|(name, _)| name).filter(|name| accounts.group(name.as_str()).is_none());
    let users = to.users.accounts.iter().filter(|(name, account)| account.is_made(name));
    let users = users.map(|(name, _)| name).filter(|name| accounts.user(name.as_str()).is_none());
    let groups = groups.map(|name| ("group", "groupadd", name, group_field(name.as_str())));
    let users = users.map(|name| ("passwd", "useradd", name, user_field(name.as_str())));
    for (database, program, name, field) in groups.chain(users) {
        if account_programs::is_known(root, database, name.as_str()).await {
            let cause = format!(
                "a name service of this host knows {name}, which is not in /etc/{database}, so {program} refuses it"
            );
            let next = format!(
                "Choose another name, or remove it from its service (getent {database} {name}; /etc/nsswitch.conf)."
            );
            found.ids.entry(field).or_insert(Obstacle { cause, next });
        }
    }
    Ok(())
}

type Homes = (BTreeMap<String, String>, BTreeMap<String, String>);

/// Returns the homes of the accounts of the configs, and those of them that are another account's, too.
fn homes(root: &Root, accounts: &Accounts, (from, to): (&HostSpec, &HostSpec)) -> Result<Homes, HostError> {
    let real = |home: &str| keys::real_home(root, home);
    let mut homes = BTreeMap::new();
    for name in from.users.accounts.keys() {
        if let Some(user) = accounts.user(name.as_str()) {
            homes.insert(name.to_string(), real(&user.home)?);
        }
    }
    for (name, account) in &to.users.accounts {
        let home = match accounts.user(name.as_str()) {
            Some(user) => user.home.clone(),
            None => account_programs::default_home(root, name.as_str(), account)?,
        };
        homes.insert(name.to_string(), real(&home)?);
    }
    let mut owners = BTreeMap::new();
    for (other, user) in accounts.users() {
        let home = real(&user.home)?;
        let shared = homes.iter().filter(|(name, own)| *name != other && **own == home);
        owners.extend(shared.map(|(name, _)| (name.clone(), other.to_owned())));
    }
    Ok((homes, owners))
}
