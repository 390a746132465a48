//! A plan beside an update that was killed half-way says what `apply` does, which undoes that update first.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;

use super::draw::{self, Item, one};
use super::entry::{Entry, document};
use super::reader::listing;
use super::{Host, Wrong, is_same, refusals, sequences, wrong};
use crate::sweep;
use crate::sweep::host::REBOOT;
use crate::sweep::play::Chance;

/// Places where the open update is killed, beside the first points that it passes.
const POINTS: [&str; 10] = [
    "originals-saved",
    "renamed",
    "removed",
    "directory-made",
    "directory-removed",
    "linked",
    "user-created",
    "begin",
    "end",
    "recorded",
];

#[derive(Debug, Clone)]
struct Case {
    host: Vec<Item>,
    committed: Vec<Entry>,
    open: Vec<Entry>,
    point: String,
    other: Vec<Entry>,
}

/// How the plans beside an open update ended.
#[derive(Debug, Default)]
struct Counts {
    /// By the fate of the open update and the exit status.
    ended: BTreeMap<(String, i32), u32>,
}

fn drawn(seed: u64, number: u64) -> Case {
    let mut chance = Chance(seed.wrapping_mul(1_000_003).wrapping_add(number));
    let chance = &mut chance;
    let is_nested = chance.draw(2) == 1;
    let host = if is_nested { sequences::host(chance) } else { draw::host(chance) };
    let config = |chance: &mut Chance| {
        if is_nested { sequences::config(chance) } else { draw::config(chance, &host) }
    };
    let (committed, open, other) = (config(chance), config(chance), config(chance));
    let point =
        if chance.draw(2) == 1 { one(chance, &POINTS).to_owned() } else { (5 + chance.draw(25)).to_string() };
    Case { committed, open, point: format!("kill:{point}"), other, host }
}

/// What a run answers: its exit status, and what it refuses.
fn play(home: &Path, case: &Case, counts: &mut Counts) -> Result<(), Wrong> {
    let dir = tempfile::tempdir_in(home).unwrap();
    let mut host = Host::new(dir.path().join("host"), &case.host);
    let policy = host.dir.join("policy.json").to_str().unwrap().to_owned();
    let put = |host: &Host, name: &str, entries: &[Entry]| {
        let file = host.dir.join(format!("{name}.json"));
        fs::write(&file, document(name, entries)).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let committed = put(&host, "committed", &case.committed);
    if host.apply(&["--to", &committed, "--policy", &policy])?.0 != 0 {
        return Ok(());
    }
    let open = put(&host, "open", &case.open);
    host.kill = Some(case.point.clone());
    let (code, ..) =
        host.run("apply", &["--to", &open, "--policy", &policy, "--yes", "--reboot-by", "supervisor"]);
    host.kill = None;
    if code == REBOOT || !host.root().join("var/lib/machine-config-agent/record.json").exists() {
        return Ok(());
    }
    let other = put(&host, "other", &case.other);
    let words = ["--to", &other, "--policy", &policy];
    let before = listing(&host.root());
    let (code, out, err) = host.run("plan", &[&words[..], &["--output", "json"]].concat());
    let text = host.run("plan", &words).1;
    if !is_same(&before, &listing(&host.root())) {
        return Err(wrong("plan touched the host", ""));
    }
    let plan: Value =
        serde_json::from_str(&out).map_err(|_| wrong("no JSON", format!("{code} {out}{err}")))?;
    let then = plan["openUpdate"]["then"].as_str().unwrap_or("-").to_owned();
    *counts.ended.entry((then.clone(), code)).or_default() += 1;
    let ran = host.apply(&words)?;
    if plan["openUpdate"]["unknown"].is_array() {
        return Ok(());
    }
    if ran.0 != code {
        let kind = format!("{then}: planned with {code}, but apply ended with {}", ran.0);
        return Err(wrong(kind, format!("{text}\n{err}\n{}", ran.2)));
    }
    for (field, message) in refusals(&plan) {
        if !ran.2.contains(&field) || !ran.2.contains(&message) {
            return Err(wrong(format!("{then}: other refusals"), format!("{text}\n{}", ran.2)));
        }
    }
    Ok(())
}

/// Takes away what a fault does not need.
fn smaller(home: &Path, case: &Case, fault: &Wrong) -> Case {
    let plays = std::cell::Cell::new(0);
    let fails = |case: &Case| {
        plays.set(plays.get() + 1);
        let is_same = |wrong: Wrong| wrong.kind == fault.kind;
        plays.get() < 80 && play(home, case, &mut Counts::default()).is_err_and(is_same)
    };
    let mut case = case.clone();
    loop {
        let mut candidates = Vec::new();
        let mut without = |of: fn(&mut Case) -> &mut Vec<Entry>| {
            for index in 0..of(&mut case.clone()).len() {
                let mut less = case.clone();
                of(&mut less).remove(index);
                candidates.push(less);
            }
        };
        without(|case| &mut case.committed);
        without(|case| &mut case.open);
        without(|case| &mut case.other);
        for index in 0..case.host.len() {
            let mut less = case.clone();
            less.host.remove(index);
            candidates.push(less);
        }
        match candidates.into_iter().find(fails) {
            Some(less) => case = less,
            None => return case,
        }
    }
}

fn told(home: &Path, number: u64, case: &Case, fault: &Wrong) -> String {
    let less = smaller(home, case, fault);
    let played = play(home, &less, &mut Counts::default());
    let text = played.err().map_or_else(|| fault.text.clone(), |fault| fault.text);
    let configs = [("committed", &less.committed), ("open", &less.open), ("other", &less.other)];
    let configs = configs.map(|(name, entries)| document(name, entries));
    format!(
        "case {number}: {}: {text}\nhost {:?}\n{}\n{}",
        fault.kind,
        less.host,
        less.point,
        configs.join("\n")
    )
}

/// `BESIDE_CASES` and `MODEL_SEED` set how many are played; `BESIDE_CASE=7` plays one alone.
#[test]
fn plan_beside_killed_update_says_what_apply_does() {
    let home = sweep::scratch();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let (count, seed) = (number("BESIDE_CASES").unwrap_or(100), number("MODEL_SEED").unwrap_or(1));
    let only = number("BESIDE_CASE");
    let numbers: Vec<u64> = only.map_or_else(|| (0..count).collect(), |one| vec![one]);
    let (mut counts, mut found) = (Counts::default(), Vec::new());
    for number in numbers {
        let case = drawn(seed, number);
        if let Err(fault) = play(home.path(), &case, &mut counts) {
            found.push(told(home.path(), number, &case, &fault));
        }
    }
    assert!(found.is_empty(), "{counts:?}, seed {seed}, {} wrong:\n{}", found.len(), found.join("\n"));
    let of = |code| counts.ended.get(&("undone-first".to_owned(), code)).copied().unwrap_or_default();
    let is_long = only.is_none() && count >= 100;
    assert!(!is_long || (of(0) > 10 && of(3) > 3), "{counts:?}");
}
