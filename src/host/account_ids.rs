//! Ids that useradd and groupadd would choose: whether there is one for each account and group that is made without one.
//!
//! They take one that is free in the range of login.defs(5), and refuse where none is (shadow-utils 4.13).

use std::collections::{BTreeMap, BTreeSet};

use super::HostError;
use super::account_programs::LOGIN_DEFS;
use super::accounts::Accounts;
use super::root::Root;
use crate::model::obstacles::Obstacle;
use crate::model::users::{Users, group_field, user_field};

/// The ids of one kind: those taken, and the keys of their ranges.
struct Ids {
    taken: BTreeSet<u32>,
    /// `UID` or `GID`.
    word: &'static str,
}

/// The subordinate ids of one kind: the ranges of all accounts, and the keys of their limits.
struct Subordinate {
    ranges: Vec<(u64, u64)>,
    path: &'static str,
    /// `SUB_UID` or `SUB_GID`.
    word: &'static str,
}

/// Returns the entries, by their field, that no id is left for.
pub fn exhausted(
    root: &Root,
    accounts: &Accounts,
    users: &Users,
) -> Result<BTreeMap<String, Obstacle>, HostError> {
    let groups = users
        .groups
        .iter()
        .filter(|(name, group)| group.should_exist && accounts.group(name.as_str()).is_none());
    let groups: Vec<_> = groups.collect();
    let made = users
        .accounts
        .iter()
        .filter(|(name, account)| account.is_made(name) && accounts.user(name.as_str()).is_none());
    let made: Vec<_> = made.collect();
    let mut found = BTreeMap::new();
    if groups.is_empty() && made.is_empty() {
        return Ok(found);
    }
    let defaults = root.read(LOGIN_DEFS)?.unwrap_or_default();
    let defaults = String::from_utf8_lossy(&defaults);
    let mut uids = Ids { taken: accounts.users().map(|(_, user)| user.uid).collect(), word: "UID" };
    let mut gids = Ids { taken: accounts.groups().map(|(_, group)| group.gid).collect(), word: "GID" };
    gids.taken.extend(groups.iter().filter_map(|(_, group)| group.gid));
    for (name, group) in groups.iter().filter(|(_, group)| group.gid.is_none()) {
        let obstacle = gids.take(&defaults, group.system, None);
        found.extend(obstacle.err().map(|obstacle| (group_field(name.as_str()), obstacle)));
    }
    uids.taken.extend(made.iter().filter_map(|(_, account)| account.uid));
    let mut subordinate = Vec::new();
    for (path, word) in [("/etc/subuid", "SUB_UID"), ("/etc/subgid", "SUB_GID")] {
        subordinate.extend(Subordinate::load(root, path, word)?);
    }
    for (name, account) in &made {
        let uid = match account.uid {
            Some(uid) => Ok(uid),
            None => uids.take(&defaults, account.system, None),
        };
        // A group of its name comes with it, with the same number where that is free.
        let is_there = accounts.group(name.as_str()).is_some() || users.groups.contains_key(*name);
        let group = match &uid {
            Ok(uid) if account.has_user_group() && !is_there => {
                gids.take(&defaults, account.system, Some(*uid)).err()
            }
            Ok(_) | Err(_) => None,
        };
        let (min, max) = uids.range(&defaults, false);
        let is_person = !account.system && account.uid.is_none_or(|uid| (min..=max).contains(&uid));
        let kinds = subordinate.iter_mut().filter(|_| is_person);
        let ranges: Vec<Obstacle> = kinds.filter_map(|kind| kind.take(&defaults).err()).collect();
        let obstacle = uid.err().or(group).or_else(|| ranges.into_iter().next());
        found.extend(obstacle.map(|obstacle| (user_field(name.as_str()), obstacle)));
    }
    Ok(found)
}

impl Ids {
    /// Takes the preferred id, or a free one of the range.
    fn take(&mut self, defaults: &str, is_system: bool, preferred: Option<u32>) -> Result<u32, Obstacle> {
        let (min, max) = self.range(defaults, is_system);
        let in_range = |id: &u32| (min..=max).contains(id);
        let preferred = preferred.filter(in_range).filter(|id| !self.taken.contains(id));
        let free = preferred.or_else(|| (min..=max).find(|id| !self.taken.contains(id)));
        let Some(free) = free else {
            let prefix = if is_system { "SYS_" } else { "" };
            let (word, lower) = (self.word, self.word.to_lowercase());
            let cause = format!(
                "this host has no free {lower} left from {min} ({prefix}{word}_MIN) to {max} ({prefix}{word}_MAX of {LOGIN_DEFS})"
            );
            let next = format!("Set an id in the config, or widen the range in {LOGIN_DEFS}.");
            return Err(Obstacle { cause, next });
        };
        self.taken.insert(free);
        Ok(free)
    }

    /// Returns the range, as shadow-utils has it without a setting.
    fn range(&self, defaults: &str, is_system: bool) -> (u32, u32) {
        let word = self.word;
        let min = number(defaults, &format!("{word}_MIN")).unwrap_or(1000);
        if is_system {
            let least = number(defaults, &format!("SYS_{word}_MIN")).unwrap_or(101);
            return (
                least,
                number(defaults, &format!("SYS_{word}_MAX")).unwrap_or_else(|| min.saturating_sub(1)),
            );
        }
        (min, number(defaults, &format!("{word}_MAX")).unwrap_or(60_000))
    }
}

impl Subordinate {
    /// Reads the ranges; `None` where the host has no file of them, and useradd gives none.
    fn load(root: &Root, path: &'static str, word: &'static str) -> Result<Option<Self>, HostError> {
        let bytes = match root.read(path) {
            // What is no file is an obstacle of its own.
            Err(HostError::Kind { .. }) => None,
            read => read?,
        };
        let Some(bytes) = bytes else { return Ok(None) };
        let range = |line: &str| {
            let mut fields = line.split(':').skip(1).map(|field| field.parse::<u64>().ok());
            fields.next().flatten().zip(fields.next().flatten())
        };
        let mut ranges: Vec<_> = String::from_utf8_lossy(&bytes).lines().filter_map(range).collect();
        ranges.sort_unstable();
        Ok(Some(Self { ranges, path, word }))
    }

    /// Takes the first free range, as useradd does.
    fn take(&mut self, defaults: &str) -> Result<(), Obstacle> {
        let word = self.word;
        let setting = |key: &str, otherwise: u32| {
            u64::from(number(defaults, &format!("{word}_{key}")).unwrap_or(otherwise))
        };
        let (min, max) = (setting("MIN", 100_000), setting("MAX", 600_100_000));
        let count = setting("COUNT", 65_536);
        if count == 0 {
            return Ok(());
        }
        let (mut low, mut free) = (min, None);
        for (start, length) in &self.ranges {
            let high = (*start).min(max + 1);
            if high >= low.saturating_add(count) {
                free = Some(low);
                break;
            }
            low = low.max(start.saturating_add(*length));
        }
        let free = free.or_else(|| (low.saturating_add(count) <= max + 1).then_some(low));
        let Some(start) = free else {
            let cause = format!(
                "this host has no {count} free subordinate ids in a row in {} ({word}_MIN {min} to {word}_MAX {max} of {LOGIN_DEFS})",
                self.path
            );
            let next = format!(
                "Widen the range in {LOGIN_DEFS}, or remove unused ranges from {}; an account with system: true needs none.",
                self.path
            );
            return Err(Obstacle { cause, next });
        };
        self.ranges.push((start, count));
        self.ranges.sort_unstable();
        Ok(())
    }
}

/// Returns the number of a key; the last one counts.
pub(in crate::host) fn number(defaults: &str, key: &str) -> Option<u32> {
    let value = defaults.lines().rev().find_map(|line| {
        let (name, value) = line.trim().split_once([' ', '\t'])?;
        (name == key).then(|| value.trim().trim_matches('"').to_owned())
    })?;
    match (value.strip_prefix("0x"), value.strip_prefix('0')) {
        (Some(hex), _) => u32::from_str_radix(hex, 16).ok(),
        (None, Some(octal)) if !octal.is_empty() => u32::from_str_radix(octal, 8).ok(),
        (None, _) => value.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::host::account_programs::{create_group, create_user};
    use crate::model::UserName;
    use crate::model::users::{Account, Group};

    /// useradd and groupadd of this machine decide.
    #[tokio::test(flavor = "current_thread")]
    async fn exhausted_ids_are_those_that_programs_refuse() {
        let full_uid = "UID_MIN 1000\nUID_MAX 1000\n";
        let full_gid = "GID_MIN 1000\nGID_MAX\t1000\n";
        let account = Account { no_create_home: true, ..Account::default() };
        let with_uid = Account { uid: Some(5000), ..account.clone() };
        let alone = Account { uid: Some(5000), no_user_group: true, ..account.clone() };
        let system = Account { system: true, ..account.clone() };
        for (defs, account) in [
            ("", &account),
            (full_uid, &account),
            (full_uid, &with_uid),
            (full_gid, &account),
            (full_gid, &with_uid),
            (full_gid, &alone),
            (full_uid, &system),
            ("SYS_UID_MIN 999\nSYS_UID_MAX 999\n", &system),
            ("UID_MIN 0x3e8\nUID_MAX 01750\n", &account),
            ("UID_MIN 10\nUID_MAX 1\n", &account),
        ] {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir_all(dir.path().join("etc")).unwrap();
            let put = |name: &str, text: &str| fs::write(dir.path().join("etc").join(name), text).unwrap();
            put("passwd", "root:x:0:0::/:/s\none:x:1000:1000::/:/s\nsys:x:999:999::/:/s\n");
            put("group", "root:x:0:\none:x:1000:\nsys:x:999:\n");
            put("shadow", "root:*:1:0:99999:7:::\n");
            put("login.defs", defs);
            let root = Root::open(dir.path()).unwrap();
            let known = Accounts::load(&root).unwrap();
            let mut users = Users::default();
            users.accounts.insert(UserName::new("app").unwrap(), account.clone());
            let found = exhausted(&root, &known, &users).unwrap();
            let made = create_user(&root, "app", account).await;
            assert_eq!(found.is_empty(), made.is_ok(), "{defs:?} {account:?}: {found:?} {made:?}");
        }
    }

    /// useradd of this machine decides.
    #[tokio::test(flavor = "current_thread")]
    async fn exhausted_subordinate_ids_are_those_that_useradd_refuses() {
        let account = Account { no_create_home: true, ..Account::default() };
        let with_uid = |uid: u32| Account { uid: Some(uid), ..account.clone() };
        let system = Account { system: true, ..account.clone() };
        let narrow = "SUB_UID_MAX 100000\n";
        for (defs, subuid, subgid, account) in [
            ("", Some(""), Some(""), account.clone()),
            ("", Some("one:100000:600000001\n"), Some(""), account.clone()),
            ("", Some("one:100000:599934465\n"), Some(""), account.clone()),
            ("", Some("one:100000:599934466\n"), Some(""), account.clone()),
            ("", Some("one:100001:5\ntwo:165541:600000000\n"), Some(""), account.clone()),
            ("", Some("two:165542:600000000\none:100001:5\n"), Some(""), account.clone()),
            ("", None, None, account.clone()),
            (narrow, Some(""), None, account.clone()),
            (narrow, None, Some(""), account.clone()),
            (narrow, Some(""), Some(""), with_uid(500)),
            (narrow, Some(""), Some(""), with_uid(5000)),
            (narrow, Some(""), Some(""), system),
            ("SUB_UID_COUNT 0\nSUB_UID_MAX 5\n", Some(""), Some(""), account.clone()),
            ("SUB_GID_MAX 5\n", Some(""), Some(""), account.clone()),
        ] {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir_all(dir.path().join("etc")).unwrap();
            let put = |name: &str, text: &str| fs::write(dir.path().join("etc").join(name), text).unwrap();
            put("passwd", "root:x:0:0::/:/s\n");
            put("group", "root:x:0:\n");
            put("shadow", "root:*:1:0:99999:7:::\n");
            put("login.defs", defs);
            for (name, text) in [("subuid", subuid), ("subgid", subgid)] {
                if let Some(text) = text {
                    put(name, text);
                }
            }
            let root = Root::open(dir.path()).unwrap();
            let mut users = Users::default();
            users.accounts.insert(UserName::new("app").unwrap(), account.clone());
            let found = exhausted(&root, &Accounts::load(&root).unwrap(), &users).unwrap();
            let made = create_user(&root, "app", &account).await;
            assert_eq!(found.is_empty(), made.is_ok(), "{defs:?} {subuid:?} {account:?}: {found:?} {made:?}");
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn group_without_free_id_is_refused_as_by_groupadd() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("etc")).unwrap();
        fs::write(dir.path().join("etc/group"), "root:x:0:\n").unwrap();
        fs::write(dir.path().join("etc/login.defs"), "GID_MIN 1000\nGID_MAX 1001\n").unwrap();
        let root = Root::open(dir.path()).unwrap();
        let mut users = Users::default();
        let names = ["a", "b", "c"].map(|name| UserName::new(name).unwrap());
        users.groups.extend(names.iter().map(|name| (name.clone(), Group::default())));
        let found = exhausted(&root, &Accounts::load(&root).unwrap(), &users).unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), [r#"passwd.groups "c""#], "{found:?}");
        for (name, is_made) in names.iter().zip([true, true, false]) {
            let made = create_group(&root, name.as_str(), &Group::default()).await;
            assert_eq!(made.is_ok(), is_made, "{name}: {made:?}");
        }
    }
}
