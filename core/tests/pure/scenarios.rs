//! Scenarios of the planner, as text: the input, and the plan a person reads.
//!
//! `core/tests/scenarios/NAME.txt` holds sections that begin with `== `: `given NAME [IMAGE]` and `want NAME [IMAGE]` are
//! configs with short sections, `policy` a `MachineConfiguration`, `facts` what differs on the host from
//! what the given config leaves behind. The last section, `plan`, is the golden: it is written by the test with
//! `UPDATE_GOLDENS=1` and read in review. `sha256:a…` stands for 64 times that digit.

use std::fmt::Write as _;
use std::path::Path;

use machine_config_core::model::observation::{
    EmbeddedConfig, Maker, ObservedFips, ObservedGroup, ObservedOs, ObservedUnit, UnitFilePreset,
    UnitFileState,
};
use machine_config_core::model::obstacles::{Obstacles, Space};
use machine_config_core::model::units::Mask;
use machine_config_core::model::users::PasswordHash;
use machine_config_core::model::{
    ConfigName, Contents, DisruptionPolicy, Facts, HostSpec, ImageRef, ManagedPath, ObservedFile, Obstacle,
    UnitName,
};
use machine_config_core::plan::in_sync::in_sync;
use machine_config_core::plan::{BatchOp, FileOp, Plan, Undo, UserOp, already_applied, explain, plan};

use crate::model_host::{self, Image, ModelHost};

struct Section<'a> {
    head: &'a str,
    words: Vec<&'a str>,
    body: String,
}

fn sections(text: &str) -> Vec<Section<'_>> {
    let mut sections = Vec::new();
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("== ") {
            let mut words = head.split_whitespace();
            sections.push(Section {
                head: words.next().unwrap(),
                words: words.collect(),
                body: String::new(),
            });
        } else if let Some(section) = sections.last_mut() {
            section.body += line;
            section.body += "\n";
        }
    }
    sections
}

/// `sha256:a…` to 64 times `a`.
fn expand(text: &str) -> String {
    let mut parts = text.split('…');
    let mut expanded = parts.next().unwrap().to_owned();
    for part in parts {
        let digit = expanded.pop().unwrap();
        expanded += &digit.to_string().repeat(64);
        expanded += part;
    }
    expanded
}

fn shorten(text: &str) -> String {
    let mut short = text.to_owned();
    for digit in "0123456789abcdef".chars() {
        short = short.replace(&digit.to_string().repeat(64), &format!("{digit}…"));
    }
    short
}

fn spec(section: &Section<'_>) -> HostSpec {
    let image = section.words.get(1).map(|text| ImageRef::parse(&expand(text)).unwrap());
    let body = expand(&section.body);
    let sections: serde_json::Value =
        if body.trim().is_empty() { serde_json::json!({}) } else { serde_saphyr::from_str(&body).unwrap() };
    model_host::config(section.words[0], sections).spec(image).unwrap()
}

fn fact(facts: &mut Facts, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let path = || ManagedPath::new(words[1]).unwrap();
    match words[0] {
        "not-image-based" => facts.observed.os = ObservedOs::NotImageBased,
        "booted" | "booted-carries" => {
            let ObservedOs::Deployments { booted, .. } = &mut facts.observed.os else { panic!("{line}") };
            match (words[0], words[1]) {
                ("booted", "none") => booted.image = None,
                ("booted", text) => booted.image = Some(ImageRef::parse(&expand(text)).unwrap()),
                (_, name) => booted.carries = EmbeddedConfig::Config(ConfigName::new(name).unwrap()),
            }
        }
        "carries" => facts.carries = EmbeddedConfig::Config(ConfigName::new(words[1]).unwrap()),
        "absent" => drop(facts.observed.files.insert(path(), ObservedFile::Absent)),
        "file" => {
            let contents = Contents::new(words[2].as_bytes().to_vec());
            let len = u64::try_from(contents.len()).unwrap();
            let observed =
                ObservedFile::Regular { sha256: contents.sha256(), len, mode: 0o644, uid: 0, gid: 0 };
            facts.observed.files.insert(path(), observed);
        }
        "directory" => {
            let found = ObservedFile::Directory { mode: 0o755, uid: 0, gid: 0 };
            facts.observed.files.insert(path(), found);
        }
        "link" => {
            let found = ObservedFile::Symlink { target: words[2].to_owned(), uid: 0, gid: 0 };
            facts.observed.files.insert(path(), found);
        }
        "occupied" => drop(facts.occupied.insert(path())),
        "made" => drop(facts.made.insert(path())),
        "spare" => {
            facts.made.insert(path());
            facts.spare.insert(path());
        }
        "local" => drop(facts.local.insert(path())),
        "carried" => drop(facts.local.remove(&path())),
        "restorable" => drop(facts.restorable.insert(path())),
        "unit" => unit_fact(facts, &words),
        "no-account" | "account" | "group" | "uid-of" | "home-of" | "lacks" | "keys-changed"
        | "password-changed" => account_fact(facts, &words),
        "fips" => {
            facts.fips = match words[1] {
                "on" => ObservedFips::On,
                "off" => ObservedFips::Off,
                "unknown" => ObservedFips::Unknown,
                other => panic!("{other}"),
            }
        }
        other => panic!("unknown fact {other}"),
    }
}

/// No drain without a write: an obstacle of any step that changes something on the host refuses the plan.
fn each_obstacle_refuses(
    planned: &Plan,
    (from, to): (&HostSpec, &HostSpec),
    facts: &Facts,
    policy: &DisruptionPolicy,
) {
    let right = in_sync(to, &facts.observed).paths;
    for step in planned.steps() {
        let obstacle = || Obstacle { cause: "it is in the way".to_owned(), next: "Move it.".to_owned() };
        let mut facts = facts.clone();
        match (step.op.in_batch(), step.op.path()) {
            (BatchOp::File(op), Some(path)) => {
                let is_gone = facts.observed.files.get(&path) == Some(&ObservedFile::Absent);
                let is_right = match op {
                    FileOp::Write | FileOp::Directory | FileOp::Link => right.contains(&path),
                    FileOp::Remove | FileOp::LeaveDirectory => is_gone,
                    FileOp::OpenDirectory => false,
                    FileOp::Restore => is_gone && !facts.restorable.contains(&path),
                };
                if is_right {
                    continue;
                }
                facts.obstacles.paths.insert(path, obstacle());
            }
            (BatchOp::User(UserOp::SshKeys, user), _) => {
                facts.obstacles.keys.insert(user.to_string(), obstacle());
            }
            (BatchOp::User(..) | BatchOp::Account(..), _) => facts.obstacles.password_lock = Some(obstacle()),
            (BatchOp::Link(_, unit), _) => drop(facts.obstacles.units.insert(unit.clone(), obstacle())),
            (BatchOp::File(_) | BatchOp::Os(_) | BatchOp::Service(_), _) => continue,
        }
        let refused = plan(from, to, &facts, policy).expect_err(&step.to_string());
        // Each account has its lines in the same file.
        let of_accounts = matches!(step.op.in_batch(), BatchOp::User(..) | BatchOp::Account(..));
        assert!(refused.is_of_host && (refused.reasons.len() == 1 || of_accounts), "{step}: {refused}");
        assert!(refused.to_string().contains("it is in the way; move it"), "{step}: {refused}");
    }
}

/// No drain without a write: each step that writes needs space where it writes, and each plan needs it for the agent's state.
fn missing_space_refuses(
    planned: &Plan,
    (from, to): (&HostSpec, &HostSpec),
    facts: &Facts,
    policy: &DisruptionPolicy,
) {
    const DEVICE: u64 = 7;
    let refused = |step: &str, full: &dyn Fn(&mut Obstacles)| {
        let mut facts = facts.clone();
        let space = Space { directory: "/full".to_owned(), bytes: 0, inodes: Some(0), block: 4096 };
        facts.obstacles.spaces.insert(DEVICE, space);
        full(&mut facts.obstacles);
        let refused = plan(from, to, &facts, policy).expect_err(step);
        assert!(refused.is_of_host && refused.reasons.len() == 1, "{step}: {refused}");
        assert!(refused.to_string().contains("the file system of /full"), "{step}: {refused}");
    };
    let right = in_sync(to, &facts.observed).paths;
    for step in planned.steps() {
        let name = step.to_string();
        match (step.op.in_batch(), step.op.path()) {
            (BatchOp::File(FileOp::Write | FileOp::Directory | FileOp::Link), Some(path)) => {
                if !right.contains(&path) {
                    refused(&name, &|found| {
                        found.devices.insert(path.clone(), DEVICE);
                    });
                }
            }
            (BatchOp::User(UserOp::SshKeys, user), _) => {
                // Keys that leave take none.
                if to.users.accounts.contains_key(user) {
                    let home = user.to_string();
                    refused(&name, &|found| {
                        found.accounts.homes.insert(home.clone(), DEVICE);
                    });
                }
            }
            (BatchOp::User(..) | BatchOp::Account(..), _) => {
                refused(&name, &|found| found.accounts.databases = Some((DEVICE, 4096)));
            }
            (BatchOp::File(_) | BatchOp::Link(..) | BatchOp::Os(_) | BatchOp::Service(_), _) => {}
        }
        refused(&name, &|found| found.state = Some(DEVICE));
    }
}

/// A fact of a unit.
fn unit_fact(facts: &mut Facts, words: &[&str]) {
    let enabled = match words[2] {
        "enabled" => UnitFileState::Enabled,
        "partial" => UnitFileState::Partial,
        "disabled" => UnitFileState::Disabled,
        "static" => UnitFileState::Static,
        "masked" => UnitFileState::Masked,
        "not-found" => UnitFileState::NotFound,
        other => panic!("{other}"),
    };
    let preset =
        if words.get(3) == Some(&"preset-enable") { UnitFilePreset::Enable } else { UnitFilePreset::Disable };
    let mask = if enabled == UnitFileState::Masked { Mask::Masked } else { Mask::Unset };
    facts.observed.units.insert(UnitName::new(words[1]).unwrap(), ObservedUnit { enabled, preset, mask });
}

/// A fact of accounts and groups.
fn account_fact(facts: &mut Facts, words: &[&str]) {
    match words[0] {
        "no-account" => drop(facts.observed.accounts.remove("core")),
        "account" => {
            let maker = match words[2] {
                "host" => Maker::Host,
                "image" => Maker::Image,
                "agent" => Maker::Agent,
                other => panic!("{other}"),
            };
            let mut account = model_host::account(words[1], 1500, maker);
            account.has_original = maker != Maker::Agent;
            facts.observed.accounts.insert(words[1].to_owned(), account);
        }
        "group" => {
            let is_primary = words.get(3) == Some(&"primary");
            let maker = if words[2] == "agent" { Maker::Agent } else { Maker::Host };
            let group = ObservedGroup {
                gid: 1600,
                password: None,
                maker,
                people: std::collections::BTreeSet::new(),
                is_primary,
            };
            facts.observed.groups.insert(words[1].to_owned(), group);
        }
        "keys-changed" => facts.observed.accounts.get_mut(words[1]).unwrap().keys = ObservedFile::Absent,
        "password-changed" => {
            facts.observed.accounts.get_mut(words[1]).unwrap().password = PasswordHash::new(words[2]);
        }
        "home-of" => drop(facts.accounts.home_owners.insert(words[1].to_owned(), words[2].to_owned())),
        "uid-of" => drop(facts.accounts.uid_owners.insert(words[1].parse().unwrap(), words[2].to_owned())),
        "lacks" => drop(facts.accounts.missing_programs.insert(words[1].to_owned())),
        other => panic!("unknown fact {other}"),
    }
}

/// Runs one scenario and returns its golden.
fn run(text: &str) -> String {
    let sections = sections(text);
    let find = |head: &str| sections.iter().find(|section| section.head == head);
    let to = spec(find("want").expect("a want section"));
    let given = find("given").expect("a given section");
    let (world, managed) = if given.words[0] == HostSpec::UNMANAGED {
        let booted = given.words.get(1).map(|text| ImageRef::parse(&expand(text)).unwrap());
        (ModelHost::bare(booted, Image::default()), None)
    } else {
        let from = spec(given);
        (ModelHost::holding(&from), Some(from))
    };
    let from = managed.clone().unwrap_or_else(|| to.clone());
    let mut facts = world.facts(&from, &to, EmbeddedConfig::Unknown);
    for line in find("facts").map(|section| section.body.as_str()).unwrap_or_default().lines() {
        if !line.trim().is_empty() {
            fact(&mut facts, line);
        }
    }
    let from = managed.unwrap_or_else(|| already_applied(&to, &facts.observed));
    let policy = find("policy").map_or_else(DisruptionPolicy::defaults, |section| {
        DisruptionPolicy::parse(section.body.as_bytes(), "the policy").unwrap()
    });
    let mut golden = String::new();
    match plan(&from, &to, &facts, &policy) {
        Ok(plan) => {
            each_obstacle_refuses(&plan, (&from, &to), &facts, &policy);
            missing_space_refuses(&plan, (&from, &to), &facts, &policy);
            golden += &explain::text(&plan);
            for undo in plan.undo(usize::MAX) {
                match undo {
                    Undo::UnstageOs => writeln!(golden, "Undo   unstage-os").unwrap(),
                    Undo::RestoreOriginals { batch } => {
                        writeln!(golden, "Undo   restore-originals batch {batch}").unwrap();
                    }
                    Undo::RepeatServices { batch } => {
                        writeln!(golden, "Undo   repeat-services batch {batch}").unwrap();
                    }
                }
            }
        }
        Err(refused) => {
            for reason in refused.reasons {
                writeln!(golden, "Refused  {}\n         {}", reason.field, reason.message).unwrap();
            }
        }
    }
    shorten(&golden)
}

/// MCD-060 (policy-*: reload and restart do not drain, a reboot does), MCD-061 (registries-safe, registries-unsafe),
/// MCD-067 (registries-added).
/// MCD-129 (file-kubelet-ca), MCD-134 and MCD-135 (file-removed), MCD-137 (file-removed-but-kept), MCD-138
/// (file-becomes-dropin), MCD-160 (users-no-account), FIL-003 (unit-dropin-*), FIL-010 and FIL-011 (policy-*).
#[test]
fn scenarios_give_their_goldens() {
    let update = std::env::var_os("UPDATE_GOLDENS").is_some_and(|value| value == "1");
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut files: Vec<_> =
        std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 35, "{} scenarios", files.len());
    let mut wrong = String::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let (input, golden) = text.split_once("== plan\n").unwrap_or((&text, ""));
        let got = run(input);
        if got == golden {
            continue;
        }
        if update {
            std::fs::write(&file, format!("{input}== plan\n{got}")).unwrap();
        } else {
            let diff = explain::text_diff(golden.as_bytes(), got.as_bytes(), false);
            writeln!(wrong, "{}\n{diff}", file.file_name().unwrap().display()).unwrap();
        }
    }
    assert!(
        wrong.is_empty(),
        "\n{wrong}\nIf this is meant, write them and read `git diff`: \
         UPDATE_GOLDENS=1 cargo test -p machine-config-core --test pure scenarios"
    );
}
