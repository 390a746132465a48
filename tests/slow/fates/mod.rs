//! Each field of a config has one fate on each host: an independent reader finds it applied, or the config is refused and the
//! host is bit for bit as before, or it is named as not applied and the host lacks it. What an earlier config left cannot be
//! seen.
#![allow(clippy::explicit_write, reason = "past the test runner, which would keep it to itself")]

mod beside;
mod draw;
mod entry;
mod found;
mod history;
mod layers;
mod os;
mod reader;
mod sequences;
mod ways;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use machine_config_agent::model::fate::{OF_IGNITION, OF_SPEC};
use serde_json::{Value, json};

use self::draw::Item;
use self::entry::{Check, Entry, Fate, document};
use self::reader::{Listing, confirm, line, listing};
use crate::sweep;
use crate::sweep::host::{AGENT, REBOOT};
use crate::sweep::play::Chance;

/// A host and two configs, one after the other.
#[derive(Debug, Clone)]
struct Case {
    host: Vec<Item>,
    first: Vec<Entry>,
    second: Vec<Entry>,
}

/// A fault: its kind, by which a smaller case is known to have the same, and the text.
#[derive(Debug)]
struct Wrong {
    kind: String,
    text: String,
}

fn wrong(kind: impl Into<String>, text: impl Into<String>) -> Wrong {
    Wrong { kind: kind.into(), text: text.into() }
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    applied: u32,
    refused: u32,
    confirmed: u32,
    named: u32,
    compared: u32,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.applied += other.applied;
        self.refused += other.refused;
        self.confirmed += other.confirmed;
        self.named += other.named;
        self.compared += other.compared;
    }
}

/// What became of a config.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Applied,
    Refused,
}

struct Host {
    dir: PathBuf,
    boots: u32,
    /// Fields of an installation that the committed config has.
    fixed: BTreeSet<String>,
    /// Place where the first application of a config dies.
    kill: Option<String>,
}

impl Host {
    fn new(dir: PathBuf, items: &[Item]) -> Self {
        let root = dir.join("root");
        for below in [
            "etc",
            "proc/sys/kernel/random",
            "proc/sys/crypto",
            "usr/lib/systemd/system-preset",
            "usr/lib/systemd/system",
            "var/lib",
        ] {
            fs::create_dir_all(root.join(below)).unwrap();
        }
        let mut host = Self { dir, boots: 0, fixed: BTreeSet::new(), kill: None };
        host.put("proc/cmdline", "quiet\n");
        host.put("proc/sys/crypto/fips_enabled", "0\n");
        host.put("etc/motd", "of the distribution\n");
        host.put("etc/hostname", "node\n");
        host.put("usr/lib/systemd/system-preset/90.preset", "enable os.service\ndisable *\n");
        for unit in ["os.service", "off.service"] {
            host.put(&format!("usr/lib/systemd/system/{unit}"), draw::VENDOR);
        }
        let wants = root.join("etc/systemd/system/multi-user.target.wants");
        fs::create_dir_all(&wants).unwrap();
        symlink("/usr/lib/systemd/system/os.service", wants.join("os.service")).unwrap();
        host.accounts(items);
        for item in items {
            host.item(item);
        }
        host.put("policy.json", &policy());
        host.boot();
        host
    }

    fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    fn put(&self, path: &str, text: &str) {
        let below = if path.contains('/') { self.root() } else { self.dir.clone() };
        fs::write(below.join(path), text).unwrap();
    }

    fn boot(&mut self) {
        self.boots += 1;
        self.put("proc/sys/kernel/random/boot_id", &format!("00000000-0000-4000-8000-{:012}\n", self.boots));
    }

    fn accounts(&self, items: &[Item]) {
        let mut passwd = "root:x:0:0::/root:/bin/sh\npolkitd:x:4711:4711::/:/sbin/nologin\n".to_owned();
        let (mut group, mut gshadow) = (
            "root:x:0:\npolkitd:x:4711:\nwheel:x:10:\n".to_owned(),
            "root:*::\npolkitd:!::\nwheel:*::\n".to_owned(),
        );
        let mut shadow = "root:!:1:0:99999:7:::\npolkitd:!:1::::::\n".to_owned();
        let homes =
            if items.iter().any(|item| matches!(item, Item::HomesInVar)) { "var/home" } else { "home" };
        fs::create_dir_all(self.root().join(homes)).unwrap();
        if homes == "var/home" {
            symlink("var/home", self.root().join("home")).unwrap();
        }
        for item in items {
            let Item::Account(name, id) = item else { continue };
            passwd += &format!("{name}:x:{id}:{id}:Own:/home/{name}:/bin/bash\n");
            group += &format!("{name}:x:{id}:\n");
            gshadow += &format!("{name}:!::\n");
            shadow += &format!("{name}:*:1:0:99999:7:::\n");
            let home = self.root().join(homes).join(name);
            fs::create_dir_all(&home).unwrap();
            chown(&home, Some(*id), Some(*id)).unwrap();
        }
        for (name, text, mode) in [
            ("passwd", passwd, 0o644),
            ("group", group, 0o644),
            ("shadow", shadow, 0o600),
            ("gshadow", gshadow, 0o600),
        ] {
            let path = format!("etc/{name}");
            if name == "gshadow" && items.iter().any(|item| matches!(item, Item::NoGshadow)) {
                continue;
            }
            self.put(&path, &text);
            fs::set_permissions(self.root().join(path), fs::Permissions::from_mode(mode)).unwrap();
        }
        let polkit = self.root().join("etc/polkit-1/rules.d");
        fs::create_dir_all(&polkit).unwrap();
        fs::set_permissions(&polkit, fs::Permissions::from_mode(0o700)).unwrap();
        chown(&polkit, Some(4711), Some(4711)).unwrap();
    }

    /// Makes an item where nothing else is.
    fn item(&self, item: &Item) {
        let at = |path: &str| self.root().join(path.trim_start_matches('/'));
        let free = |path: &str| {
            let at = at(path);
            let made = fs::create_dir_all(at.parent().unwrap()).is_ok();
            (made && fs::symlink_metadata(&at).is_err()).then_some(at)
        };
        match item {
            Item::File { path, text, mode, owner } => {
                if let Some(at) = free(path) {
                    fs::write(&at, text).unwrap();
                    chown(&at, Some(*owner), Some(*owner)).unwrap();
                    fs::set_permissions(&at, fs::Permissions::from_mode(*mode)).unwrap();
                }
            }
            Item::Directory { path, mode, owner } => {
                if let Some(at) = free(path) {
                    fs::create_dir(&at).unwrap();
                    chown(&at, Some(*owner), Some(*owner)).unwrap();
                    fs::set_permissions(&at, fs::Permissions::from_mode(*mode)).unwrap();
                }
            }
            Item::Link { path, target } => {
                if let Some(at) = free(path) {
                    symlink(target, &at).unwrap();
                    lchown(&at, Some(0), Some(0)).unwrap();
                }
            }
            Item::HardLink { path, target } => {
                if let (Some(to), true) = (free(path), at(target).is_file()) {
                    fs::hard_link(at(target), to).unwrap();
                }
            }
            Item::Account(..) | Item::HomesInVar | Item::NoGshadow => {}
        }
    }

    fn run(&self, verb: &str, more: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(AGENT);
        command.arg(verb).arg("--root").arg(self.root()).args(["--os-backend", "none"]).args(more);
        for name in ["JOURNAL_STREAM", "NOTIFY_SOCKET", "MCA_FAIL_POINT"] {
            command.env_remove(name);
        }
        if let (Some(point), "apply") = (&self.kill, verb) {
            command.env("MCA_FAIL_POINT", point);
        }
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
    }

    /// Plans and applies a config, and compares each of its fields.
    fn play(&mut self, name: &str, entries: &[Entry], counts: &mut Counts) -> Result<Outcome, Wrong> {
        for entry in entries {
            entry.is_whole().map_err(|why| wrong("test", why))?;
        }
        let file = self.dir.join(format!("{name}.json"));
        fs::write(&file, document(name, entries)).unwrap();
        let (to, policy) = (file.to_str().unwrap(), self.dir.join("policy.json"));
        let words = ["--to", to, "--policy", policy.to_str().unwrap()];
        let before = listing(&self.root());
        let passwd = fs::read_to_string(self.root().join("etc/passwd")).unwrap();
        let accounts: BTreeSet<&str> = passwd.lines().filter_map(|line| line.split(':').next()).collect();
        let (code, out, err) = self.run("plan", &[&words[..], &["--output", "json"]].concat());
        let plan: Value =
            serde_json::from_str(&out).map_err(|_| wrong("no JSON", format!("{code} {out}{err}")))?;
        let refusals = refusals(&plan);
        if !is_same(&before, &listing(&self.root())) {
            return Err(wrong("plan touched the host", ""));
        }
        let ran = self.apply(&words)?;
        if !refusals.is_empty() {
            counts.refused += 1;
            if ran.0 != code {
                return Err(wrong(
                    format!("refused by the plan with {code}, but apply ended with {}", ran.0),
                    ran.2,
                ));
            }
            self.is_refused(entries, &refusals, &before)?;
            return Ok(Outcome::Refused);
        }
        if let Some(field) = refused_fields(entries).first() {
            return Err(wrong(format!("not refused: {field}"), ""));
        }
        if ran.0 != 0 {
            return Err(wrong(format!("planned, but apply ended with {}", ran.0), ran.2));
        }
        counts.applied += 1;
        self.is_applied(entries, &plan, &accounts, counts)?;
        self.fixed = fixed(entries);
        Ok(Outcome::Applied)
    }

    fn apply(&mut self, words: &[&str]) -> Result<(i32, String, String), Wrong> {
        let words = [words, &["--yes", "--reboot-by", "supervisor"]].concat();
        if self.kill.is_some() {
            let _died = self.run("apply", &words);
            self.kill = None;
        }
        for _ in 0..4 {
            let ran = self.run("apply", &words);
            if ran.0 != REBOOT {
                return Ok(ran);
            }
            self.boot();
        }
        Err(wrong("reboots without end", ""))
    }

    /// A refusal names what it is about, and the host is as before.
    fn is_refused(
        &self,
        entries: &[Entry],
        refusals: &[(String, String)],
        before: &Listing,
    ) -> Result<(), Wrong> {
        let after = listing(&self.root());
        if !is_same(before, &after) {
            return Err(wrong("refused, and the host is not as before", differences(before, &after)));
        }
        let expected = refused_fields(entries);
        let fixed = fixed(entries);
        for (field, message) in refusals {
            let text = format!("{field} {message}");
            let is_expected = expected.iter().any(|leaf| text.contains(leaf.as_str()));
            let is_of_host = self.names_of_host(&text, before, entries);
            let is_fixed = fixed != self.fixed
                && (field.starts_with("storage.")
                    || field.starts_with("kernelArguments")
                    || field.starts_with("ignition."));
            if !is_expected && !is_of_host && !is_fixed {
                return Err(wrong(format!("refused without a cause: {field}"), message));
            }
        }
        Ok(())
    }

    /// Returns true if a refusal is about something that this host has, in the way of the config or its own.
    fn names_of_host(&self, text: &str, before: &Listing, entries: &[Entry]) -> bool {
        let accounts = draw::OF_HOST.iter().map(|(name, _)| *name).chain(draw::OF_CONFIG).chain(draw::GROUPS);
        let accounts = accounts.filter(|name| {
            text.contains(&format!("{name:?}"))
                && (line(&self.root(), "passwd", name).is_some()
                    || line(&self.root(), "group", name).is_some())
        });
        let is_named = |name: &str| text.contains(&format!("{name:?}")) || names_path(text, name);
        let of_entries = entries.iter().filter(|entry| is_named(entry.name()));
        let is_in_the_way = |path: &str| {
            before.contains_key(path)
                || Path::new(path).ancestors().skip(1).any(|above| {
                    before.get(above.to_str().unwrap()).is_some_and(|seen| {
                        seen.kind != "directory" || seen.owner.0 != 0 || seen.mode & 0o022 != 0
                    })
                })
        };
        accounts.count() > 0
            || of_entries.into_iter().any(|entry| is_in_the_way(entry.name()))
            || before.keys().any(|path| names_path(text, path))
    }

    fn is_applied(
        &self,
        entries: &[Entry],
        plan: &Value,
        accounts: &BTreeSet<&str>,
        counts: &mut Counts,
    ) -> Result<(), Wrong> {
        let list = plan["notApplied"].as_array().unwrap();
        let named: BTreeSet<&str> = list.iter().map(|one| one["field"].as_str().unwrap()).collect();
        let mut expected = BTreeSet::new();
        let root = self.root();
        for entry in entries {
            let seen = |check: &Check, leaf: &str| {
                if check.when_made().is_some_and(|name| accounts.contains(name)) {
                    return Ok(());
                }
                confirm(&root, check).map_err(|why| {
                    wrong(format!("not applied: {} {leaf}", entry.section), format!("{check:?}: {why}"))
                })
            };
            for (leaf, fate) in &entry.fates {
                match fate {
                    Fate::Applied(check) => {
                        counts.confirmed += 1;
                        seen(check, leaf)?;
                    }
                    Fate::Named(field, evidence) => {
                        let is_here = |path: &String| root.join(path.trim_start_matches('/')).exists();
                        if evidence.is_empty() || !evidence.iter().all(is_here) {
                            counts.named += 1;
                            expected.insert(field.as_str());
                        }
                    }
                    Fate::Way | Fate::Refused => {}
                }
            }
            entry.implied.iter().try_for_each(|check| seen(check, "(implied)"))?;
        }
        if named != expected {
            let text = format!("{named:?}, not {expected:?}");
            return Err(wrong("other fields are named as not applied", text));
        }
        ["verify", "status"].into_iter().try_for_each(|verb| self.names(verb, &expected))
    }

    /// What is not applied is named by each verb that looks at the host, and nothing else is said.
    fn names(&self, verb: &str, expected: &BTreeSet<&str>) -> Result<(), Wrong> {
        let (code, out, err) = self.run(verb, &["--output", "json"]);
        if code != 0 {
            return Err(wrong(format!("{verb} finds a difference"), format!("{out}{err}")));
        }
        let told: Value = serde_json::from_str(&out).unwrap();
        let list = told["notApplied"].as_array().map(Vec::as_slice).unwrap_or_default();
        let named: BTreeSet<&str> = list.iter().map(|one| one["field"].as_str().unwrap()).collect();
        let text = || format!("{named:?}, not {expected:?}");
        if named == *expected { Ok(()) } else { Err(wrong(format!("{verb} names other fields"), text())) }
    }
}

/// Returns true if a text has a path, and not one below it alone.
fn names_path(text: &str, path: &str) -> bool {
    text.match_indices(path).any(|(at, _)| {
        let next = text[at + path.len()..].chars().next();
        next.is_none_or(|next| !next.is_alphanumeric() && !"/-._".contains(next))
    })
}

/// Nothing that a config of these writes needs a reboot, but for the links and directories.
fn policy() -> String {
    let none = json!([{"type": "None"}]);
    let units = draw::UNITS.iter().chain(&draw::INSTANCES).chain([&draw::TEMPLATE]);
    let units: Vec<Value> = units.map(|name| json!({"name": name, "actions": none})).collect();
    let files = ["/etc", "/opt", "/var", "/home", "/tmp"].map(|path| json!({"path": path, "actions": none}));
    json!({"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration", "metadata": {"name": "cluster"},
        "spec": {"nodeDisruptionPolicy": {"files": files, "units": units, "sshkey": {"actions": none}}}})
    .to_string()
}

/// Returns the field and the message of each refusal of a plan.
fn refusals(plan: &Value) -> Vec<(String, String)> {
    let of = |list: &Value| -> Vec<(String, String)> {
        let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
        let text = |one: &Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
        list.iter().map(|one| (text(one, "field"), text(one, "message"))).collect()
    };
    [of(&plan["irreconcilable"]), of(&plan["refused"])].concat()
}

/// Returns the last name of each leaf that is refused on every host.
fn refused_fields(entries: &[Entry]) -> Vec<String> {
    let fates = entries.iter().flat_map(|entry| &entry.fates);
    let refused = fates.filter(|(_, fate)| matches!(fate, Fate::Refused));
    refused.map(|(leaf, _)| leaf.trim_end_matches('.').rsplit('.').next().unwrap().to_owned()).collect()
}

/// Returns the entries of an installation, each as its text.
fn fixed(entries: &[Entry]) -> BTreeSet<String> {
    let is_fixed = |entry: &&Entry| {
        // A version makes nothing.
        let is_version = entry.value["version"].is_string();
        let lists = ["disks", "raid", "luks", "filesystems", "kernelArguments", "ignition"];
        !is_version && lists.iter().any(|name| entry.section.ends_with(name))
    };
    entries.iter().filter(is_fixed).map(|entry| format!("{} {}", entry.section, entry.value)).collect()
}

/// Returns true if nothing was touched. Directories may have got another time: the agent looks for what it may write.
fn is_same(before: &Listing, after: &Listing) -> bool {
    before.len() == after.len()
        && before.iter().zip(after).all(|((one, was), (other, is))| {
            let is_directory = was.kind == "directory";
            one == other && (was == is || (is_directory && (was.mode, was.owner) == (is.mode, is.owner)))
        })
}

fn differences(before: &Listing, after: &Listing) -> String {
    let paths: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differing = paths.into_iter().filter(|path| before.get(*path) != after.get(*path));
    differing.map(|path| format!("{path}: {:?} -> {:?}\n", before.get(path), after.get(path))).collect()
}

fn play(home: &Path, case: &Case, counts: &mut Counts) -> Result<(), Wrong> {
    let dir = tempfile::tempdir_in(home).unwrap();
    let mut host = Host::new(dir.path().join("both"), &case.host);
    let installed = listing(&host.root());
    host.play("first", &case.first, counts)?;
    let after_first = host.play("second", &case.second, counts)?;
    let mut alone = Host::new(dir.path().join("alone"), &case.host);
    let at_once = alone.play("second", &case.second, counts)?;
    if after_first == Outcome::Applied && at_once == Outcome::Applied {
        counts.compared += 1;
        history::is_same(&host.root(), &alone.root(), &installed, case)
            .map_err(|text| wrong("history shows", text))?;
    }
    Ok(())
}

/// Takes away what a fault does not need, as far as it is found in so many plays.
fn smaller(home: &Path, case: &Case, fault: &Wrong) -> Case {
    let plays = std::cell::Cell::new(0);
    let fails = |case: &Case| {
        plays.set(plays.get() + 1);
        let fails = |wrong: Wrong| wrong.kind == fault.kind;
        plays.get() < 60 && play(home, case, &mut Counts::default()).is_err_and(fails)
    };
    let mut case = case.clone();
    loop {
        let mut candidates = Vec::new();
        for index in 0..case.host.len() {
            let mut less = case.clone();
            less.host.remove(index);
            candidates.push(less);
        }
        for index in 0..case.first.len() {
            let mut less = case.clone();
            less.first.remove(index);
            candidates.push(less);
        }
        for index in 0..case.second.len() {
            let mut less = case.clone();
            less.second.remove(index);
            candidates.push(less);
        }
        match candidates.into_iter().find(fails) {
            Some(less) => case = less,
            None => return case,
        }
    }
}

fn drawn(seed: u64, number: u64) -> Case {
    let mut chance = Chance(seed.wrapping_mul(1_000_003).wrapping_add(number));
    let host = draw::host(&mut chance);
    let first = draw::config(&mut chance, &host);
    let mut second = draw::config(&mut chance, &host);
    // By chance alone some would be in none of the first cases.
    if number % 16 == 3 {
        second.retain(|entry| !entry.fates.iter().any(|(_, fate)| matches!(fate, Fate::Refused)));
        second.push(draw::refused_in_turn(usize::try_from(number / 16).unwrap()));
    }
    Case { host, first, second }
}

/// Plays numbers on two threads; returns the counts, and what was wrong.
fn played_by_two(
    numbers: &[u64],
    play: impl Fn(u64, &mut Counts) -> Option<String> + Copy + Send,
) -> (Counts, Vec<String>) {
    let (mut all, mut found) = (Counts::default(), Vec::new());
    std::thread::scope(|scope| {
        let players: Vec<_> = numbers
            .chunks(numbers.len().div_ceil(2))
            .map(|half| {
                scope.spawn(move || {
                    let mut counts = Counts::default();
                    let wrong: Vec<_> = half.iter().filter_map(|number| play(*number, &mut counts)).collect();
                    (counts, wrong)
                })
            })
            .collect();
        for player in players {
            let (counts, wrong) = player.join().unwrap();
            all += counts;
            found.extend(wrong);
        }
    });
    (all, found)
}

/// Every field is in exactly one of applied, refused and named, and an independent reader confirms it.
///
/// `MODEL_CONFIGS` and `MODEL_SEED` as in `host_state_depends_on_config_alone`; `FATES_CASE=7` plays one case alone.
#[test]
fn every_field_is_applied_refused_or_named() {
    let home = sweep::scratch();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let (configs, seed) = (number("MODEL_CONFIGS").unwrap_or(500), number("MODEL_SEED").unwrap_or(1));
    let only = number("FATES_CASE");
    let cases: Vec<u64> = only.map_or_else(|| (0..configs.div_ceil(2)).collect(), |one| vec![one]);
    let home = home.path();
    let (all, found) = played_by_two(&cases, |number, counts| {
        let case = drawn(seed, number);
        play(home, &case, counts).err().map(|wrong| told(home, number, &case, &wrong))
    });
    assert!(found.is_empty(), "{all:?}, seed {seed}, {} wrong:\n{}", found.len(), found.join("\n"));
    if only.is_none() {
        is_each_field_drawn(cases.iter().map(|number| drawn(seed, *number)));
    }
    let least = u32::try_from(configs).unwrap() / 4;
    assert!(
        only.is_some() || (all.applied > least && all.refused > 0 && all.named > 0 && all.compared > 0),
        "{all:?}"
    );
}

/// A field that no case has would be tested by nobody: each row of the table is drawn, in configs of each version.
fn is_each_field_drawn(cases: impl Iterator<Item = Case>) {
    let (mut fields, mut versions) = (BTreeSet::new(), BTreeSet::new());
    for case in cases {
        for entries in [&case.first, &case.second] {
            let config: Value = serde_json::from_str(&document("drawn", entries)).unwrap();
            versions.insert(config["spec"]["config"]["ignition"]["version"].as_str().unwrap().to_owned());
            let mut leaves = BTreeSet::new();
            entry::leaves(&config["spec"], "", &mut leaves);
            // An entry of a list is `[]` in the table.
            fields.extend(leaves.iter().map(|leaf| {
                let parts = leaf.split('.').map(|part| {
                    if part.parse::<usize>().is_ok() { "[]".to_owned() } else { format!(".{part}") }
                });
                let general: String = parts.collect();
                let general = general.trim_start_matches('.');
                general.strip_prefix("config.").map_or_else(|| format!("spec.{general}"), str::to_owned)
            }));
        }
    }
    let rows = OF_SPEC.iter().chain(OF_IGNITION);
    let lacking = rows.filter(|row| !fields.iter().any(|field| row.covers(field)));
    let lacking: Vec<&str> = lacking.map(|row| row.field).collect();
    assert!(lacking.is_empty(), "never drawn: {lacking:?}");
    assert!(versions.len() == 7, "{versions:?}");
}

fn told(home: &Path, number: u64, case: &Case, fault: &Wrong) -> String {
    let less = smaller(home, case, fault);
    let fault = play(home, &less, &mut Counts::default()).expect_err("it fails each time");
    format!(
        "case {number}: {}: {}\nhost {:?}\nfirst {}\nsecond {}\n",
        fault.kind,
        fault.text,
        less.host,
        document("first", &less.first),
        document("second", &less.second)
    )
}
