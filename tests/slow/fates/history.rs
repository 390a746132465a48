//! Compares a host that had an earlier config with one that had not.

use std::collections::BTreeSet;
use std::path::Path;

use super::Case;
use super::draw::{GROUPS, Item, OF_CONFIG, OF_HOST};
use super::entry::Entry;
use super::reader::{Listing, Seen, is_enabled, line, listing};

/// Both hosts are the same, but for what is documented to stay: accounts that a config made, locked, and their homes.
pub fn is_same(both: &Path, alone: &Path, installed: &Listing, case: &Case) -> Result<(), String> {
    let (first, second) = (&case.first, &case.second);
    let has = |name: &str| case.host.iter().any(|item| matches!(item, Item::Account(of, _) if *of == name));
    let of_config: Vec<&str> =
        OF_HOST.iter().map(|(name, _)| *name).filter(|name| !has(name)).chain(OF_CONFIG).collect();
    let (one, other) = (listing(both), listing(alone));
    let mut wrong = Vec::new();
    let directories: BTreeSet<String> = installed
        .iter()
        .filter(|(_, seen)| seen.kind == "directory")
        .map(|(path, _)| path.clone())
        .chain(
            first
                .iter()
                .chain(second)
                .filter(|entry| entry.section.ends_with("directories"))
                .map(|entry| entry.name().to_owned()),
        )
        .collect();
    for path in one.keys().chain(other.keys()).collect::<BTreeSet<_>>() {
        // Which units are enabled is systemd's to tell: the links of a masked one mean nothing.
        if is_of_accounts(path, &of_config) || path.contains(".wants/") {
            continue;
        }
        // A file of keys without a key lets nobody in.
        let is_empty = |seen: &&Seen| seen.bytes.is_empty() && path.ends_with("/authorized_keys.d/ignition");
        let [a, b] = [(&one, both), (&other, alone)]
            .map(|(list, root)| list.get(path).filter(|seen| !is_empty(seen)).map(|seen| plain(root, seen)));
        let is_directory =
            [&one, &other].iter().any(|list| list.get(path).is_some_and(|seen| seen.kind == "directory"));
        if a != b && (!is_directory || directories.contains(path)) {
            wrong.push(format!("{path}: {a:?} after the first, {b:?} alone"));
        }
    }
    for unit in super::draw::UNITS.into_iter().chain(super::draw::INSTANCES) {
        let (a, b) = (is_enabled(both, unit), is_enabled(alone, unit));
        if a != b {
            wrong.push(format!("{unit}: {a} after the first, {b} alone"));
        }
    }
    accounts(both, alone, second, &of_config, &mut wrong);
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

fn is_of_accounts(path: &str, of_config: &[&str]) -> bool {
    let databases = ["passwd", "group", "shadow", "gshadow", "subuid", "subgid"];
    let homes = of_config
        .iter()
        .flat_map(|name| ["/home/", "/var/home/", "/var/lib/"].map(|above| format!("{above}{name}")));
    databases.iter().any(|name| path == format!("/etc/{name}"))
        || homes.into_iter().any(|home| path.starts_with(&home))
}

/// Owners by their names: two hosts may give an account other ids. Links of units may lead over another directory.
fn plain(root: &Path, seen: &Seen) -> (&'static str, u32, String, String, String) {
    let name = |database: &str, id: u32| {
        let text = std::fs::read_to_string(root.join("etc").join(database)).unwrap();
        let of = text.lines().find(|line| line.split(':').nth(2) == Some(&id.to_string()));
        of.and_then(|line| line.split(':').next()).map_or(id.to_string(), str::to_owned)
    };
    let text = String::from_utf8_lossy(&seen.bytes).into_owned();
    let text = if seen.kind == "link" && text.contains("systemd/system/") {
        text.rsplit('/').next().unwrap().to_owned()
    } else {
        text
    };
    (seen.kind, seen.mode, name("passwd", seen.owner.0), name("group", seen.owner.1), text)
}

fn accounts(both: &Path, alone: &Path, second: &[Entry], of_config: &[&str], wrong: &mut Vec<String>) {
    let is_desired = |name: &str| {
        second.iter().any(|entry| {
            entry.section.starts_with("config.passwd")
                && entry.name() == name
                && entry.value["shouldExist"] != false
        })
    };
    let made = |name: &str| of_config.contains(&name) || GROUPS.contains(&name);
    let mut names: Vec<&str> = vec!["root", "wheel", "polkitd"];
    names.extend(OF_HOST.iter().map(|(name, _)| *name).filter(|name| !of_config.contains(name)));
    names.extend(of_config.iter().chain(&GROUPS).filter(|name| is_desired(name)));
    for name in names {
        for database in ["passwd", "group", "shadow", "gshadow"] {
            // The own group of an account is given when the account is made, and stays with it.
            if of_config.contains(&name) && matches!(database, "group" | "gshadow") {
                continue;
            }
            let of = |root: &Path| {
                let desired: Vec<&str> = of_config.iter().copied().filter(|name| is_desired(name)).collect();
                let members = primary_members(root, database, name, &desired);
                line(root, database, name).map(|line| facts(database, line, &members, made(name)))
            };
            let (a, b) = (of(both), of(alone));
            if a != b {
                wrong.push(format!("{database} {name}: {a:?} after the first, {b:?} alone"));
            }
        }
    }
    for name in of_config.iter().filter(|name| !is_desired(name)) {
        let open =
            line(both, "shadow", name).filter(|line| !line[1].starts_with(['*', '!']) || line[7] != "1");
        if open.is_some() && line(alone, "passwd", name).is_none() {
            wrong.push(format!("{name} is left open"));
        }
    }
    for name in GROUPS.iter().filter(|name| !is_desired(name)) {
        let gid = line(both, "group", name).map(|line| line[2].clone());
        let is_primary = |gid: &String| {
            of_config.iter().any(|user| line(both, "passwd", user).is_some_and(|line| line[3] == *gid))
        };
        if gid.is_some_and(|gid| !is_primary(&gid)) && line(alone, "group", name).is_none() {
            wrong.push(format!("the group {name} is left"));
        }
    }
}

/// Accounts of a config whose own group this is: the group of an account is given when it is made, and makes it a member all the same.
fn primary_members<'a>(root: &Path, database: &str, group: &str, of_config: &[&'a str]) -> Vec<&'a str> {
    if !matches!(database, "group" | "gshadow") {
        return Vec::new();
    }
    let gid = line(root, "group", group).map(|line| line[2].clone());
    let is_in = |name: &&str| line(root, "passwd", name).is_some_and(|line| Some(&line[3]) == gid.as_ref());
    of_config.iter().copied().filter(is_in).collect()
}

/// The fields of a line that do not depend on the order in which accounts were made; a lock is a lock, whatever its mark.
fn facts(database: &str, mut line: Vec<String>, primary: &[&str], is_made: bool) -> Vec<String> {
    // Without a gshadow the `x` of a group is a lock, too.
    if matches!(database, "shadow" | "gshadow") && line[1].starts_with(['*', '!'])
        || database == "group" && line[1] == "x"
    {
        "*".clone_into(&mut line[1]);
    }
    match database {
        // Ids and home are given when it is made.
        "passwd" if is_made => line = [0, 4, 6].map(|field| line[field].clone()).to_vec(),
        "group" | "gshadow" => {
            // A group that the host gave an account and one that the config did are members alike.
            let mut members: Vec<&str> = line[3].split(',').filter(|name| !name.is_empty()).collect();
            members.extend(primary);
            members.sort_unstable();
            members.dedup();
            line[3] = members.join(",");
            if is_made && database == "group" {
                line.remove(2);
            }
        }
        // The day of the last change, and the agent's mark with the id.
        "shadow" => {
            line.truncate(8);
            line.remove(2);
        }
        _ => {}
    }
    line
}
