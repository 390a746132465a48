//! Random sequences of configs with paths nested in one another, on hosts that have something at these paths. Plan and apply agree,
//! `verify` is clean, and the empty config brings the first state back, whatever was killed in between.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::json;

use super::draw::{Item, one};
use super::entry::{Check, Entry, Fate, document};
use super::reader::{Listing, listing};
use super::{Counts, Host, Outcome, Wrong, played_by_two, wrong};
use crate::sweep;
use crate::sweep::play::Chance;

/// Each below another one, or reached through a link of the host as well.
const PATHS: [&str; 13] = [
    "/etc/k",
    "/etc/k/t",
    "/etc/k/d",
    "/etc/k/d/t",
    "/etc/k/d/e/t",
    "/etc/s",
    "/etc/s/t",
    "/etc/s/d",
    "/etc/real",
    "/etc/real/t",
    "/etc/real/d/t",
    "/var/w",
    "/var/w/x",
];
/// Place where an update is killed, beside the first points that it passes.
const POINTS: [&str; 8] = [
    "originals-saved",
    "renamed",
    "removed",
    "directory-made",
    "directory-removed",
    "linked",
    "originals-kept",
    "committed",
];

/// A config, and the point at which its first application dies.
type Played = (Vec<Entry>, Option<String>);

#[derive(Debug, Clone)]
struct Sequence {
    host: Vec<Item>,
    configs: Vec<Played>,
}

fn odds(chance: &mut Chance, of: u64) -> bool {
    chance.draw(of) == 1
}

pub(super) fn host(chance: &mut Chance) -> Vec<Item> {
    let mut items = Vec::new();
    let file = |path: String, text, mode| Item::File { path, text, mode, owner: 0 };
    if odds(chance, 3) {
        items.push(Item::Link { path: "/etc/s".to_owned(), target: "real" });
        items.push(file("/etc/real/t".to_owned(), "real\n", 0o640));
    }
    for _ in 1..chance.draw(5) {
        let path = one(chance, &PATHS).to_owned();
        items.push(match chance.draw(6) {
            1 | 2 => file(path, one(chance, &["own\n", ""]), one(chance, &[0o644, 0o600])),
            3 => Item::Directory {
                path,
                mode: one(chance, &[0o755, 0o700]),
                owner: one(chance, &[0, 0, 4711]),
            },
            4 => Item::Link { path, target: one(chance, &["real", "k", "hostname", "nowhere"]) },
            5 => Item::HardLink { path, target: one(chance, &["/etc/hostname", "/etc/real/t", "/etc/k/t"]) },
            _ => file(format!("{path}/own"), "own\n", 0o644),
        });
    }
    items
}

pub(super) fn config(chance: &mut Chance) -> Vec<Entry> {
    let paths: Vec<&str> = PATHS.into_iter().filter(|_| chance.draw(9) <= 2).collect();
    let is_above = |path: &str| paths.iter().any(|other| other.starts_with(&format!("{path}/")));
    let kinds: Vec<(&str, u64)> =
        paths.iter().map(|path| (*path, if is_above(path) { 3 } else { chance.draw(4) })).collect();
    let files: Vec<&str> = kinds.iter().filter(|(_, kind)| *kind <= 2).map(|(path, _)| *path).collect();
    kinds.iter().map(|(path, kind)| entry(chance, path, *kind, &files)).collect()
}

fn entry(chance: &mut Chance, path: &str, kind: u64, files: &[&str]) -> Entry {
    let section = match kind {
        1 | 2 => "config.storage.files",
        3 => "config.storage.directories",
        _ => "config.storage.links",
    };
    let mut entry = Entry::new(section);
    entry.set("path", json!(path), Fate::Way);
    let is_over = kind <= 2 || !odds(chance, 4);
    match kind {
        1 | 2 => {
            let text = one(chance, &["one", "two"]);
            let check = Check::Text(path.to_owned(), text.as_bytes().to_vec());
            entry.set("contents.source", json!(format!("data:,{text}")), Fate::Applied(check));
        }
        3 => {
            entry.implied.push(Check::Directory(path.to_owned()));
            if odds(chance, 2) {
                let mode = one(chance, &[0o700, 0o755, 0o711]);
                entry.set("mode", json!(mode), Fate::Applied(Check::Mode(path.to_owned(), mode)));
            }
        }
        _ if !files.is_empty() && odds(chance, 3) => {
            let target = one(chance, files);
            let check = Check::SameFile(path.to_owned(), target.to_owned());
            entry.set("target", json!(target), Fate::Applied(check));
            entry.set("hard", json!(true), Fate::Way);
        }
        _ => {
            let target = one(chance, &["real", "k", "hostname", "gone", "/etc/x y"]);
            let check = Check::Link(path.to_owned(), target.to_owned());
            entry.set("target", json!(target), Fate::Applied(check));
        }
    }
    entry.set("overwrite", json!(is_over), Fate::Way);
    entry
}

fn drawn(seed: u64, number: u64) -> Sequence {
    let mut chance = Chance(seed.wrapping_mul(1_000_003).wrapping_add(number));
    let host = host(&mut chance);
    let configs = (0..2 + chance.draw(3)).map(|_| {
        let point = if odds(&mut chance, 2) {
            one(&mut chance, &POINTS).to_owned()
        } else {
            chance.draw(60).to_string()
        };
        let kill = odds(&mut chance, 3).then(|| format!("kill:{point}"));
        (config(&mut chance), kill)
    });
    Sequence { configs: configs.collect(), host }
}

/// All that has to come back: everything but times.
fn state(listing: Listing) -> BTreeMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let seen = listing.into_iter();
    seen.map(|(path, seen)| {
        (path, format!("{} {:o} {:?} {}", seen.kind, seen.mode, seen.owner, text(&seen.bytes)))
    })
    .collect()
}

fn play(home: &Path, sequence: &Sequence, counts: &mut Counts) -> Result<(), Wrong> {
    let dir = tempfile::tempdir_in(home).unwrap();
    let mut host = Host::new(dir.path().join("host"), &sequence.host);
    let first = state(listing(&host.root()));
    for (index, (entries, kill)) in sequence.configs.iter().enumerate() {
        host.kill.clone_from(kill);
        host.play(&format!("config-{index}"), entries, counts)?;
    }
    host.kill = None;
    if host.play("empty", &[], counts)? != Outcome::Applied {
        return Err(wrong("the last config can't be left", ""));
    }
    let last = state(listing(&host.root()));
    let paths: BTreeSet<&String> = first.keys().chain(last.keys()).collect();
    let differing: Vec<String> = paths
        .into_iter()
        .filter(|path| first.get(*path) != last.get(*path))
        .map(|path| format!("{path}: {:?} -> {:?}", first.get(path), last.get(path)))
        .collect();
    if differing.is_empty() {
        Ok(())
    } else {
        Err(wrong("the first state is not back", differing.join("\n")))
    }
}

/// Takes away what a fault does not need.
fn smaller(home: &Path, sequence: &Sequence, fault: &Wrong) -> Sequence {
    let plays = std::cell::Cell::new(0);
    let fails = |sequence: &Sequence| {
        plays.set(plays.get() + 1);
        let is_same = |wrong: Wrong| wrong.kind == fault.kind;
        plays.get() < 60 && play(home, sequence, &mut Counts::default()).is_err_and(is_same)
    };
    let mut sequence = sequence.clone();
    loop {
        let mut candidates = Vec::new();
        for index in 0..sequence.host.len() {
            let mut less = sequence.clone();
            less.host.remove(index);
            candidates.push(less);
        }
        for index in 0..sequence.configs.len() {
            let mut less = sequence.clone();
            less.configs.remove(index);
            candidates.push(less);
            for entry in 0..sequence.configs[index].0.len() {
                let mut less = sequence.clone();
                less.configs[index].0.remove(entry);
                candidates.push(less);
            }
        }
        match candidates.into_iter().find(fails) {
            Some(less) => sequence = less,
            None => return sequence,
        }
    }
}

fn told(home: &Path, number: u64, sequence: &Sequence, fault: &Wrong) -> String {
    let less = smaller(home, sequence, fault);
    let fault = play(home, &less, &mut Counts::default()).expect_err("it fails each time");
    let configs =
        less.configs.iter().map(|(entries, kill)| format!("{kill:?} {}\n", document("config", entries)));
    format!(
        "sequence {number}: {}: {}\nhost {:?}\n{}",
        fault.kind,
        fault.text,
        less.host,
        configs.collect::<String>()
    )
}

/// `MODEL_SEQUENCES` and `MODEL_SEED` set how many are played; `FATES_SEQUENCE=7` plays one alone.
#[test]
fn empty_config_brings_first_state_back_after_any_sequence() {
    let home = sweep::scratch();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let (count, seed) = (number("MODEL_SEQUENCES").unwrap_or(60), number("MODEL_SEED").unwrap_or(1));
    let only = number("FATES_SEQUENCE");
    let numbers: Vec<u64> = only.map_or_else(|| (0..count).collect(), |one| vec![one]);
    let home = home.path();
    let (all, found) = played_by_two(&numbers, |number, counts| {
        let sequence = drawn(seed, number);
        play(home, &sequence, counts).err().map(|wrong| told(home, number, &sequence, &wrong))
    });
    assert!(found.is_empty(), "{all:?}, seed {seed}, {} wrong:\n{}", found.len(), found.join("\n"));
    let least = u32::try_from(count).unwrap();
    assert!(only.is_some() || (all.applied > least && all.refused > 0), "{all:?}");
}
