//! Random hosts and configs. A config is valid by Ignition's rules, but for the fields that are drawn to be refused.

use std::collections::BTreeSet;
use std::io::Write as _;

use base64::Engine as _;
use serde_json::{Value, json};

use super::entry::{Check, Entry, Fate};
use crate::sweep::play::Chance;

pub const FILES: [&str; 8] = [
    "/etc/a.conf",
    "/etc/x",
    "/etc/d1/inner",
    "/opt/f/deep/f",
    "/var/lib/f",
    "/home/core/.conf",
    "/etc/polkit-1/rules.d/50-x.rules",
    "/etc/motd",
];
const DIRECTORIES: [&str; 7] = [
    "/etc/d1",
    "/etc/d1/sub",
    "/etc/x",
    "/var/lib/d2",
    "/opt/d3/deep",
    "/etc/polkit-1/rules.d",
    "/home/core/dir",
];
const LINKS: [&str; 5] = ["/etc/l1", "/etc/x", "/etc/d1/link", "/opt/l2", "/etc/polkit-1/rules.d/link"];
/// What shows that an entry of an installation was made.
const DEVICES: [&str; 3] = ["/dev/disk/by-partlabel/data", "/dev/md/md0", "/dev/mapper/secret"];
/// Accounts and groups that a host may have.
pub const OF_HOST: [(&str, u32); 2] = [("core", 1000), ("guest", 1100)];
/// Accounts that only a config makes.
pub const OF_CONFIG: [&str; 2] = ["app", "svc"];
pub const GROUPS: [&str; 2] = ["staff", "ops"];
pub const HASHES: [&str; 3] = ["$6$a$one", "$6$b$two", "*"];

/// Something that a host has before its first config.
#[derive(Debug, Clone)]
pub enum Item {
    File {
        path: String,
        text: &'static str,
        mode: u32,
        owner: u32,
    },
    Directory {
        path: String,
        mode: u32,
        owner: u32,
    },
    Link {
        path: String,
        target: &'static str,
    },
    /// Another name of a file.
    HardLink {
        path: String,
        target: &'static str,
    },
    Account(&'static str, u32),
    /// The homes are in `/var`, as on hosts of images.
    HomesInVar,
    /// Passwords of groups are in `/etc/group`, so a group is known by its id alone.
    NoGshadow,
}

pub fn one<T: Clone>(chance: &mut Chance, of: &[T]) -> T {
    of[usize::try_from(chance.draw(u64::try_from(of.len()).unwrap())).unwrap() - 1].clone()
}

fn odds(chance: &mut Chance, of: u64) -> bool {
    chance.draw(of) == 1
}

fn maybe<T: Clone>(chance: &mut Chance, of: &[T]) -> Option<T> {
    odds(chance, 2).then(|| one(chance, of))
}

pub fn host(chance: &mut Chance) -> Vec<Item> {
    let mut items = Vec::new();
    items.extend(OF_HOST.iter().filter(|_| chance.draw(3) > 1).map(|(name, id)| Item::Account(name, *id)));
    if odds(chance, 2) {
        items.push(Item::HomesInVar);
    }
    if odds(chance, 4) {
        items.push(Item::NoGshadow);
    }
    let paths = [&FILES[..], &DIRECTORIES, &LINKS].concat();
    for _ in 1..chance.draw(4) {
        let path = one(chance, &paths).to_owned();
        let owner = one(chance, &[0, 0, 1000, 4711]);
        items.push(match chance.draw(5) {
            1 | 2 => {
                // Below a directory of a user originals come back without special bits.
                let is_of_user = ["/home/", "/etc/polkit-1/"].iter().any(|above| path.starts_with(above));
                let mode = one(chance, &[0o644, 0o600, if is_of_user { 0o755 } else { 0o4755 }]);
                Item::File { path, text: one(chance, &["own\n", ""]), mode, owner }
            }
            3 => Item::Directory { path, mode: one(chance, &[0o755, 0o700, 0o1777]), owner },
            4 => Item::File { path: format!("{path}/own"), text: "own\n", mode: 0o644, owner },
            _ => Item::Link { path, target: one(chance, &["/etc/hostname", "nowhere"]) },
        });
    }
    for path in DEVICES {
        if odds(chance, 4) {
            items.push(Item::File { path: path.to_owned(), text: "", mode: 0o600, owner: 0 });
        }
    }
    items
}

/// A config for a host: the accounts of both are known.
pub fn config(chance: &mut Chance, host: &[Item]) -> Vec<Entry> {
    let mut entries = Vec::new();
    if odds(chance, 6) {
        return entries;
    }
    groups(chance, &mut entries);
    accounts(chance, host, &mut entries);
    if odds(chance, 6) {
        let mut gone = Entry::new("config.passwd.users");
        gone.set("name", json!("gone"), Fate::Way);
        gone.set("shouldExist", json!(false), Fate::Applied(Check::NoUser("gone".to_owned())));
        for (field, value) in [("gecos", json!("x")), ("uid", json!(4712))] {
            gone.set(field, value, Fate::Named(format!("passwd.users \"gone\" {field}"), vec![]));
        }
        entries.push(gone);
    }
    let mut owners: Vec<String> = ["root", "0", "1000", "4711"].map(str::to_owned).to_vec();
    owners.extend(host.iter().filter_map(|item| match item {
        Item::Account(name, _) => Some((*name).to_owned()),
        Item::File { .. }
        | Item::Directory { .. }
        | Item::Link { .. }
        | Item::HardLink { .. }
        | Item::HomesInVar
        | Item::NoGshadow => None,
    }));
    let made = entries.iter().filter(|entry| is_made(entry) && entry.section == "config.passwd.users");
    let made =
        made.filter(|entry| entry.value["noUserGroup"] != true && entry.value["primaryGroup"].is_null());
    owners.extend(made.map(|entry| entry.name().to_owned()));
    paths(chance, &owners, &mut entries);
    units(chance, &mut entries);
    if odds(chance, 4) {
        installation(chance, &mut entries);
    }
    if odds(chance, 10) {
        entries.push(refused(chance));
    }
    of_spec(chance, &mut entries);
    version(chance, &mut entries);
    entries
}

/// Fields of the spec beside the Ignition config.
fn of_spec(chance: &mut Chance, entries: &mut Vec<Entry>) {
    for _ in 0..chance.draw(3) - 1 {
        let mut entry = Entry::new("");
        let taken: Vec<String> = entries.iter().filter(|one| one.section.is_empty()).map(keys_of).collect();
        let (leaf, value) = one(
            chance,
            &[
                ("fips", json!(false)),
                ("kernelType", json!("default")),
                ("osImageURL", json!("")),
                ("extensions", json!([])),
                ("kernelArguments", json!([])),
            ],
        );
        if !taken.iter().any(|key| key == leaf) {
            entry.set(leaf, value, Fate::Way);
            entries.push(entry);
        }
    }
    if odds(chance, 10) {
        // Packages come from an OS backend alone.
        let mut entry = Entry::new("");
        let image = format!("registry.test/extensions@sha256:{}", "b".repeat(64));
        let field = "baseOSExtensionsContainerImage";
        entry.set(field, json!(image), Fate::Named(format!("spec.{field}"), vec![]));
        entries.push(entry);
    }
}

/// Fields that are not of every version 3: the list or object, the leaf or its beginning, and the first version that has it.
const SINCE: [(&str, &str, u64); 12] = [
    ("config.ignition", "proxy", 1),
    ("config.storage.filesystems", "mountOptions", 1),
    ("config.storage.files", "contents.httpHeaders", 1),
    // A digest by sha256.
    ("config.storage.files", "contents.verification.hash", 1),
    ("config.passwd.users", "shouldExist", 2),
    ("config.passwd.groups", "shouldExist", 2),
    ("config.storage.luks", "", 2),
    ("config.kernelArguments", "", 3),
    ("config.storage.luks", "openOptions", 4),
    ("config.storage.luks", "discard", 4),
    ("config.storage.luks", "clevis.tang.0.advertisement", 4),
    ("config.storage.luks", "cex", 5),
];

/// Draws a version that knows all fields.
fn version(chance: &mut Chance, entries: &mut Vec<Entry>) {
    let needed = |entry: &Entry| {
        let mut leaves = BTreeSet::new();
        super::entry::leaves(&entry.value, "", &mut leaves);
        let of_leaf = |(section, begin, since): &(&str, &str, u64)| {
            let is_there = entry.section == *section && leaves.iter().any(|leaf| leaf.starts_with(begin));
            if is_there { *since } else { 0 }
        };
        // Special bits of a directory.
        let is_special = entry.section.ends_with("directories")
            && entry.value["mode"].as_u64().is_some_and(|mode| mode > 0o777);
        SINCE.iter().map(of_leaf).max().unwrap_or(0).max(if is_special { 4 } else { 0 })
    };
    let least = entries.iter().map(needed).max().unwrap_or(0);
    let minor = least + chance.draw(7 - least) - 1;
    let mut entry = Entry::new("config.ignition");
    entry.set("version", json!(format!("3.{minor}.0")), Fate::Way);
    entries.push(entry);
}

fn keys_of(entry: &Entry) -> String {
    entry.value.as_object().unwrap().keys().next().cloned().unwrap_or_default()
}

fn is_made(entry: &Entry) -> bool {
    entry.value["shouldExist"] != false && OF_CONFIG.iter().chain(&GROUPS).any(|name| *name == entry.name())
}

fn groups(chance: &mut Chance, entries: &mut Vec<Entry>) {
    for name in GROUPS {
        if !odds(chance, 3) {
            continue;
        }
        let mut group = Entry::new("config.passwd.groups");
        group.set("name", json!(name), Fate::Way);
        if odds(chance, 8) {
            group.set("shouldExist", json!(false), Fate::Applied(Check::NoGroup(name.to_owned())));
            entries.push(group);
            continue;
        }
        if let Some(gid) = maybe(chance, &[1800, 1900]) {
            let gid = gid + u32::from(name == "ops");
            group.set("gid", json!(gid), Fate::Applied(Check::Gid(name.to_owned(), gid)));
        }
        if let Some(hash) = maybe(chance, &HASHES) {
            let check = Check::Shadow("gshadow", name.to_owned(), hash.to_owned());
            group.set("passwordHash", json!(hash), Fate::Applied(check));
        }
        if odds(chance, 3) {
            group.set("system", json!(odds(chance, 2)), Fate::Way);
        }
        group.implied.push(Check::Gid(name.to_owned(), 0));
        entries.push(group);
    }
}

fn accounts(chance: &mut Chance, host: &[Item], entries: &mut Vec<Entry>) {
    let groups: Vec<String> =
        entries.iter().filter(|one| is_made(one)).map(|one| one.name().to_owned()).collect();
    let groups: Vec<String> = groups.into_iter().chain(["wheel".to_owned()]).collect();
    for name in ["core", "guest", "app", "svc"] {
        if !odds(chance, 3) {
            continue;
        }
        let is_here = host.iter().any(|item| matches!(item, Item::Account(of, _) if *of == name));
        let mut user = Entry::new("config.passwd.users");
        user.set("name", json!(name), Fate::Way);
        if !is_here && name != "core" && odds(chance, 8) {
            user.set("shouldExist", json!(false), Fate::Applied(Check::NoUser(name.to_owned())));
            entries.push(user);
            continue;
        }
        let is_lacking = name == "core" && !is_here;
        secrets(chance, &mut user, is_lacking);
        if !is_lacking {
            attributes(chance, &mut user, is_here, &groups);
        }
        entries.push(user);
    }
}

/// Keys and password, which wait for `core` where the host lacks it.
fn secrets(chance: &mut Chance, user: &mut Entry, is_lacking: bool) {
    let name = user.name().to_owned();
    if is_lacking {
        user.fates.clear();
        user.also("name", Fate::Named(format!("passwd.users {name:?}"), vec![]));
    }
    let fate = |check| {
        if is_lacking { Fate::Named(format!("passwd.users {name:?}"), vec![]) } else { Fate::Applied(check) }
    };
    let keys =
        maybe(chance, &[&["ssh-ed25519 AAAA one"][..], &["ssh-ed25519 BBBB two", "ssh-rsa CCCC three"]]);
    if let Some(keys) = keys {
        let list = keys.iter().map(|&key| key.to_owned()).collect();
        user.set("sshAuthorizedKeys", json!(keys), fate(Check::Keys(name.clone(), list)));
    }
    if let Some(hash) = maybe(chance, &HASHES) {
        let check = Check::Shadow("shadow", name.clone(), hash.to_owned());
        user.set("passwordHash", json!(hash), fate(check));
    }
}

fn attributes(chance: &mut Chance, user: &mut Entry, is_here: bool, groups: &[String]) {
    let name = user.name().to_owned();
    let passwd = |column, value: &str| Fate::Applied(Check::Passwd(name.clone(), column, value.to_owned()));
    if let Some(gecos) = maybe(chance, &["One", "Two, of many"]) {
        user.set("gecos", json!(gecos), passwd(4, gecos));
    }
    if let Some(shell) = maybe(chance, &["/bin/sh", "/sbin/nologin"]) {
        user.set("shell", json!(shell), passwd(6, shell));
    }
    if odds(chance, 2) {
        let group = one(chance, groups);
        user.set("groups", json!([group]), Fate::Applied(Check::Member(name.clone(), group)));
    }
    if is_here {
        if odds(chance, 10) {
            user.set("uid", json!(4000), passwd(2, "4000"));
        }
        return;
    }
    if let Some(uid) = maybe(chance, &[1500, 1501]) {
        let more = match name.as_str() {
            "app" => 0,
            "svc" => 100,
            _ => 200,
        };
        let uid = (uid + more).to_string();
        user.set("uid", uid.parse().unwrap(), passwd(2, &uid));
    }
    if odds(chance, 4) {
        let home = format!("/var/lib/{name}");
        user.set("homeDir", json!(home), passwd(5, &home));
    }
    if odds(chance, 4) {
        user.set("system", json!(odds(chance, 2)), Fate::Way);
    }
    if odds(chance, 6) {
        user.set("noLogInit", json!(true), Fate::Way);
    }
    let has_keys = user.value["sshAuthorizedKeys"].is_array();
    if !has_keys && odds(chance, 4) {
        user.set("noCreateHome", json!(true), Fate::Applied(Check::NoHome(name.clone())));
    } else {
        user.implied.push(Check::Home(name.clone()));
    }
    match chance.draw(6) {
        1 => user.set("noUserGroup", json!(true), Fate::Applied(Check::OwnGroup(name, false))),
        2 => {
            let group = one(chance, groups);
            user.set("primaryGroup", json!(group), Fate::Applied(Check::Primary(name, group)));
        }
        _ => user.implied.push(Check::OwnGroup(name, true)),
    }
}

fn paths(chance: &mut Chance, owners: &[String], entries: &mut Vec<Entry>) {
    let mut taken: Vec<&str> = Vec::new();
    for path in DIRECTORIES {
        if odds(chance, 4) {
            taken.push(path);
            entries.push(directory(chance, path, owners));
        }
    }
    let mut files = Vec::new();
    for path in FILES {
        if !taken.contains(&path) && odds(chance, 3) {
            taken.push(path);
            files.push(path);
            entries.push(file(chance, path, owners));
        }
    }
    for path in LINKS {
        if !taken.contains(&path) && odds(chance, 4) {
            entries.push(link(chance, path, owners, &files));
        }
    }
}

/// Sets who owns a path, and returns true if the entry says nothing about it.
fn owner(chance: &mut Chance, entry: &mut Entry, owners: &[String], is_default_root: bool) {
    let path = entry.name().to_owned();
    for field in ["user", "group"] {
        let check = if field == "user" { Check::User } else { Check::Group };
        if chance.draw(3) > 1 {
            if is_default_root {
                entry.implied.push(check(path.clone(), "0".to_owned()));
            }
            continue;
        }
        // An account of an earlier config may have no group of its own.
        let has_group = |owner: &&String| field == "user" || !OF_CONFIG.contains(&owner.as_str());
        let owners: Vec<&String> = owners.iter().filter(has_group).collect();
        let owner = one(chance, &owners).clone();
        let fate = Fate::Applied(check(path.clone(), owner.clone()));
        match owner.parse::<u32>() {
            Ok(id) => entry.set(&format!("{field}.id"), json!(id), fate),
            Err(_) => entry.set(&format!("{field}.name"), json!(owner), fate),
        }
    }
}

fn directory(chance: &mut Chance, path: &str, owners: &[String]) -> Entry {
    let mut entry = Entry::new("config.storage.directories");
    entry.set("path", json!(path), Fate::Applied(Check::Directory(path.to_owned())));
    // In one that others may write nothing is written: such a config is refused.
    let has_others =
        DIRECTORIES.iter().chain(&FILES).chain(&LINKS).any(|one| one.starts_with(&format!("{path}/")));
    let modes = [0o755, 0o700, 0o750, 0o2755, 0o1777, 0o2775];
    if let Some(mode) = maybe(chance, &modes[..if has_others { 4 } else { 6 }]) {
        entry.set("mode", json!(mode), Fate::Applied(Check::Mode(path.to_owned(), mode)));
    }
    owner(chance, &mut entry, owners, false);
    if let Some(overwrite) = maybe(chance, &[true, false]) {
        entry.set("overwrite", json!(overwrite), Fate::Way);
    }
    entry
}

fn file(chance: &mut Chance, path: &str, owners: &[String]) -> Entry {
    let mut entry = Entry::new("config.storage.files");
    entry.set("path", json!(path), Fate::Way);
    let text = one(chance, &["", "one\n", "two words: é%\n", "three\n"]);
    let check = Check::Text(path.to_owned(), text.as_bytes().to_vec());
    let base64 = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    match chance.draw(4) {
        1 if text.is_empty() => entry.implied.push(check),
        1 | 2 => {
            let text: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
            entry.set("contents.source", json!(format!("data:,{text}")), Fate::Applied(check));
        }
        3 => {
            let source = format!("data:text/plain;charset=utf-8;base64,{}", base64(text.as_bytes()));
            entry.set("contents.source", json!(source), Fate::Applied(check));
        }
        _ => {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(text.as_bytes()).unwrap();
            let source = format!("data:;base64,{}", base64(&gzip.finish().unwrap()));
            entry.set("contents.source", json!(source), Fate::Applied(check));
            entry.set("contents.compression", json!("gzip"), Fate::Way);
        }
    }
    if odds(chance, 10) && entry.value["contents"]["source"].is_string() {
        let field = format!("storage.files {path:?} contents.verification.hash");
        let hash = format!("sha256-{}", "a1".repeat(32));
        entry.set("contents.verification.hash", json!(hash), Fate::Named(field, vec![]));
    }
    match maybe(chance, &[0o644, 0o600, 0o755, 0o400, 0]) {
        Some(mode) => entry.set("mode", json!(mode), Fate::Applied(Check::Mode(path.to_owned(), mode))),
        None => entry.implied.push(Check::Mode(path.to_owned(), 0o644)),
    }
    owner(chance, &mut entry, owners, true);
    let has_text = entry.value["contents"]["source"].is_string();
    if let Some(overwrite) = maybe(chance, &[has_text, false]) {
        let named = || Fate::Named(format!("storage.files {path:?} overwrite"), vec![]);
        entry.set("overwrite", json!(overwrite), if overwrite { Fate::Way } else { named() });
    }
    entry
}

fn link(chance: &mut Chance, path: &str, owners: &[String], files: &[&str]) -> Entry {
    let mut entry = Entry::new("config.storage.links");
    entry.set("path", json!(path), Fate::Way);
    if !files.is_empty() && odds(chance, 3) {
        let target = one(chance, files);
        let check = Check::SameFile(path.to_owned(), target.to_owned());
        entry.set("target", json!(target), Fate::Applied(check));
        entry.set("hard", json!(true), Fate::Way);
    } else {
        let target = one(chance, &["/etc/hostname", "../usr/lib", "gone", "/etc/x y"]);
        let check = Check::Link(path.to_owned(), target.to_owned());
        entry.set("target", json!(target), Fate::Applied(check));
        if odds(chance, 3) {
            entry.set("hard", json!(false), Fate::Way);
        }
        owner(chance, &mut entry, owners, true);
    }
    if let Some(overwrite) = maybe(chance, &[true, true, false]) {
        entry.set("overwrite", json!(overwrite), Fate::Way);
    }
    entry
}

/// Units of the host, with what enables them, and one of the config alone.
pub const UNITS: [&str; 3] = ["os.service", "off.service", "ours.service"];
pub const VENDOR: &str = "[Unit]\nDescription=Of the image\n[Install]\nWantedBy=multi-user.target\n";

fn units(chance: &mut Chance, entries: &mut Vec<Entry>) {
    for name in UNITS {
        if !odds(chance, 3) {
            continue;
        }
        let mut unit = Entry::new("config.systemd.units");
        unit.set("name", json!(name), Fate::Way);
        let folder = "/etc/systemd/system";
        let is_masked = odds(chance, 5);
        if (!is_masked && name == "ours.service") || odds(chance, 2) {
            let text = one(chance, &["/bin/true", "/bin/false"]);
            let text = format!("[Service]\nExecStart={text}\n[Install]\nWantedBy=multi-user.target\n");
            let check = Check::Text(format!("{folder}/{name}"), text.clone().into_bytes());
            let named = || Fate::Named(format!("systemd.units {name:?} contents"), vec![]);
            unit.set("contents", json!(text), if is_masked { named() } else { Fate::Applied(check) });
        }
        if odds(chance, 3) {
            let text = format!("[Service]\nNice={}\n", chance.draw(5));
            let check = Check::Text(format!("{folder}/{name}.d/10-x.conf"), text.clone().into_bytes());
            unit.value["dropins"] = json!([{"name": "10-x.conf", "contents": text}]);
            unit.also("dropins.0.name", Fate::Way);
            unit.also("dropins.0.contents", Fate::Applied(check));
        }
        let state = |text| Fate::Applied(Check::State(name.to_owned(), text));
        if is_masked {
            unit.set("mask", json!(true), state("masked"));
        } else {
            if odds(chance, 6) {
                unit.set("mask", json!(false), Fate::Way);
            }
            if let Some(enabled) = maybe(chance, &[true, false]) {
                unit.set("enabled", json!(enabled), state(if enabled { "enabled" } else { "disabled" }));
            }
        }
        entries.push(unit);
    }
    if odds(chance, 3) {
        templates(chance, entries);
    }
    if odds(chance, 4) {
        entries.push(unit_without_effect(chance));
    }
}

/// A unit that can't be enabled: the host lacks it, or nothing says where.
fn unit_without_effect(chance: &mut Chance) -> Entry {
    let mut unit = Entry::new("config.systemd.units");
    let name = one(chance, &["lacking.service", "bare.service"]);
    unit.set("name", json!(name), Fate::Way);
    unit.set("enabled", json!(true), Fate::Named(format!("systemd.units {name:?} enabled"), vec![]));
    if name == "bare.service" {
        let text = "[Service]\nExecStart=/bin/true\n";
        let check = Check::Text(format!("/etc/systemd/system/{name}"), text.as_bytes().to_vec());
        unit.set("contents", json!(text), Fate::Applied(check));
    }
    unit
}

/// A template, and units that are made from it.
pub const TEMPLATE: &str = "tpl@.service";
pub const INSTANCES: [&str; 2] = ["tpl@a.service", "tpl@main.service"];

fn templates(chance: &mut Chance, entries: &mut Vec<Entry>) {
    let mut template = Entry::new("config.systemd.units");
    template.set("name", json!(TEMPLATE), Fate::Way);
    let default = maybe(chance, &["DefaultInstance=main\n"]).unwrap_or_default();
    let number = chance.draw(3);
    let text = format!(
        "[Service]\nExecStart=/bin/true {number} %i\n[Install]\n{default}WantedBy=multi-user.target\n"
    );
    let check = Check::Text(format!("/etc/systemd/system/{TEMPLATE}"), text.clone().into_bytes());
    template.set("contents", json!(text), Fate::Applied(check));
    let of_main = |state| Fate::Applied(Check::State(INSTANCES[1].to_owned(), state));
    let is_listed = odds(chance, 3);
    if !default.is_empty() && !is_listed && odds(chance, 2) {
        template.set("enabled", json!(true), of_main("enabled"));
    }
    entries.push(template);
    for name in &INSTANCES[..if is_listed { 2 } else { 1 }] {
        let mut unit = Entry::new("config.systemd.units");
        unit.set("name", json!(name), Fate::Way);
        if let Some(enabled) = maybe(chance, &[true, false]) {
            let state = if enabled { "enabled" } else { "disabled" };
            unit.set("enabled", json!(enabled), Fate::Applied(Check::State((*name).to_owned(), state)));
        }
        if odds(chance, 3) {
            let text = format!("[Service]\nNice={}\n", chance.draw(5));
            let path = format!("/etc/systemd/system/{name}.d/10-x.conf");
            unit.value["dropins"] = json!([{"name": "10-x.conf", "contents": text}]);
            unit.also("dropins.0.name", Fate::Way);
            unit.also("dropins.0.contents", Fate::Applied(Check::Text(path, text.into_bytes())));
        }
        entries.push(unit);
    }
}

/// What only Ignition makes.
fn installation(chance: &mut Chance, entries: &mut Vec<Entry>) {
    let [label, array, volume] = DEVICES.map(str::to_owned);
    let lists: [(&str, &str, Value, Vec<String>); 4] = [
        (
            "config.storage.disks",
            r#"storage.disks "/dev/vdb""#,
            json!({"device": "/dev/vdb", "wipeTable": true, "partitions": [{"number": 1, "sizeMiB": 100, "label": "data"}]}),
            vec![label],
        ),
        (
            "config.storage.raid",
            r#"storage.raid "md0""#,
            json!({"name": "md0", "level": "raid1", "devices": ["/dev/vdc", "/dev/vdd", "/dev/vdh"], "spares": 1,
                "options": ["--assume-clean"]}),
            vec![array],
        ),
        (
            "config.storage.luks",
            r#"storage.luks "secret""#,
            json!({"name": "secret", "device": "/dev/vde", "keyFile": {"source": "data:,k"}, "wipeVolume": true}),
            vec![volume],
        ),
        (
            "config.storage.filesystems",
            r#"storage.filesystems "/var/lib/fs""#,
            json!({"device": "/dev/vdf", "path": "/var/lib/fs", "format": "xfs", "wipeFilesystem": true,
                "mountOptions": ["noatime"]}),
            vec![],
        ),
    ];
    let tang = json!([{"url": "http://tang:1", "thumbprint": "x"}]);
    let volumes = [
        json!({"name": "bound", "device": "/dev/vdg", "clevis": {"tpm2": true, "threshold": 1, "tang": tang}}),
        json!({"name": "pinned", "device": "/dev/vdi", "clevis": {"custom": {"pin": "sss", "config": "{}", "needsNetwork": true}}}),
        json!({"name": "enclosed", "device": "/dev/vdj", "cex": {"enabled": true}}),
        json!({"name": "tuned", "device": "/dev/vdk", "clevis": {"tpm2": true}, "discard": true,
            "openOptions": ["--perf-no_read_workqueue"], "options": ["--cipher", "aes-xts-plain64"]}),
    ];
    let volumes = volumes.map(|value| {
        let field = format!("storage.luks {}", value["name"]);
        ("config.storage.luks", field, value, vec![])
    });
    let objects = settings_of_installation();
    let objects = objects.into_iter().map(|(section, field, value)| (section, field, value, vec![]));
    let whole = lists.into_iter().chain(objects);
    let whole = whole.map(|(section, field, value, devices)| (section, field.to_owned(), value, devices));
    for (section, field, value, devices) in whole.chain(volumes) {
        if odds(chance, 3) {
            let fate = Fate::Named(field, devices);
            let fates =
                value.as_object().unwrap().keys().map(|key| (format!("{key}."), fate.clone())).collect();
            entries.push(Entry { section, value, fates, implied: vec![] });
        }
    }
}

/// What Ignition itself goes by, as the installation.
fn settings_of_installation() -> [(&'static str, &'static str, Value); 4] {
    [
        (
            "config.kernelArguments",
            "kernelArguments",
            json!({"shouldExist": ["nosmt"], "shouldNotExist": ["quiet"]}),
        ),
        (
            "config.ignition",
            "ignition.security",
            json!({"security": {"tls": {"certificateAuthorities": [{"source": "data:,x"}]}}}),
        ),
        (
            "config.ignition",
            "ignition.proxy",
            json!({"proxy": {"httpProxy": "http://proxy:1", "noProxy": ["a"]}}),
        ),
        ("config.ignition", "ignition.timeouts", json!({"timeouts": {"httpTotal": 9}})),
    ]
}

/// A field that is refused on each of these hosts, which have no OS backend.
fn refused(chance: &mut Chance) -> Entry {
    refused_of(one(chance, &refused_fields()))
}

/// The same, each field in its turn.
pub fn refused_in_turn(turn: usize) -> Entry {
    let fields = refused_fields();
    refused_of(fields[turn % fields.len()].clone())
}

type RefusedField = (&'static str, &'static str, Value);

fn refused_fields() -> [RefusedField; 14] {
    let image = format!("registry.test/os@sha256:{}", "a".repeat(64));
    let source = json!({"source": "data:,x"});
    [
        ("", "kernelArguments", json!(["nosmt"])),
        ("", "kernelType", json!("realtime")),
        ("", "extensions", json!(["usbguard"])),
        ("", "osImageURL", json!(image)),
        ("", "fips", json!(true)),
        ("", "kernelargs", json!(["nosmt"])),
        ("config.ignition", "config.merge.", json!([{"source": "data:,x"}])),
        ("config.ignition", "config.replace.", source.clone()),
        ("config.storage.files", "append.", json!([source])),
        ("config.storage.files", "contents.httpHeaders.", json!([{"name": "a", "value": "b"}])),
        ("config.storage.files", "mode", json!(0o4755)),
        ("config.storage.files", "contents.source", json!("https://example.test/x")),
        ("config.storage.directories", "mod", json!(0o755)),
        ("config.systemd.units", "content", json!("[Service]\n")),
    ]
}

fn refused_of((section, leaf, value): RefusedField) -> Entry {
    let mut entry = Entry::new(section);
    match section {
        "config.storage.files" | "config.storage.directories" => {
            entry.set("path", json!("/etc/refused"), Fate::Way);
        }
        "config.systemd.units" => entry.set("name", json!("refused.service"), Fate::Way),
        _ => {}
    }
    entry.set(leaf, value, Fate::Refused);
    entry
}
