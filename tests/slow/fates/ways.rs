//! Random ways: directories of accounts inside each other, as the config makes them, and directories in whose place somebody puts
//! something else between two updates. What the plan lets pass is applied, and what it refuses is not touched.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

use super::draw::{Item, one};
use super::reader::listing;
use super::{Counts, Host, Wrong, differences, is_same, played_by_two, refusals, wrong};
use crate::sweep;
use crate::sweep::play::Chance;

/// Directories: in homes, in one that all may write to, in one of a program, and in root's.
const DIRECTORIES: [&str; 12] = [
    "/home/core/f",
    "/home/core/f/g",
    "/home/guest/x",
    "/home/app/h",
    "/home/core",
    "/tmp/d",
    "/tmp/d/e",
    "/etc/polkit-1/rules.d/s",
    "/etc/w",
    "/etc/w/v",
    "/etc/w/v/u",
    "/etc/systemd/system/ours.service.d",
];
const OWNERS: [&str; 6] = ["root", "core", "guest", "app", "polkitd", "1100"];

/// What somebody does to a path between two updates.
#[derive(Debug, Clone, Copy)]
enum Act {
    File,
    Pipe,
    Socket,
    LinkToFile,
    LinkToItself,
    LinkToDirectory,
    Gone,
    OfGuest,
    OpenToAll,
}

#[derive(Debug, Clone)]
struct Sequence {
    /// Each config comes after what somebody did.
    steps: Vec<(Vec<(String, Act)>, Value)>,
}

fn odds(chance: &mut Chance, of: u64) -> bool {
    chance.draw(of) == 1
}

fn owner(chance: &mut Chance, entry: &mut Value) {
    if odds(chance, 2) {
        let owner = one(chance, &OWNERS);
        entry["user"] =
            owner.parse::<u32>().map_or_else(|_| json!({ "name": owner }), |id| json!({ "id": id }));
    }
}

/// Draws a config; an account that owns something is made by it.
fn config(chance: &mut Chance) -> Value {
    let (mut directories, mut files, mut links) = (Vec::new(), Vec::new(), Vec::new());
    let mut inside = Vec::new();
    for path in DIRECTORIES {
        if odds(chance, 4) {
            let mut entry = json!({ "path": path });
            owner(chance, &mut entry);
            if odds(chance, 2) {
                entry["mode"] = json!(one(chance, &[0o755, 0o711, 0o700, 0o1777, 0o775]));
            }
            directories.push(entry);
        }
        if odds(chance, 3) {
            let deep = if odds(chance, 3) { "/a/b" } else { "" };
            inside.push(format!("{path}{deep}/in"));
        }
    }
    for path in &inside {
        let mut entry = json!({ "path": path });
        match chance.draw(6) {
            1 => {
                entry["target"] = json!("x");
                links.push(entry);
            }
            2 => {
                let target = one(chance, &["/etc/motd", "/home/guest/x/in", "/tmp/d/in"]);
                if inside.iter().any(|other| other == target && other != path) || target == "/etc/motd" {
                    entry["target"] = json!(target);
                    entry["hard"] = json!(true);
                    links.push(entry);
                }
            }
            number => {
                entry["contents"] = json!({"source": format!("data:,{number}")});
                entry["overwrite"] = json!(true);
                owner(chance, &mut entry);
                files.push(entry);
            }
        }
    }
    let mut users = vec![json!({"name": "app"})];
    if odds(chance, 2) {
        users.push(
            json!({"name": "core", "sshAuthorizedKeys": [format!("ssh-ed25519 AAAA {}", chance.draw(3))]}),
        );
    }
    let mut units = Vec::new();
    if odds(chance, 2) {
        units.push(json!({"name": "ours.service", "enabled": odds(chance, 2),
            "contents": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n",
            "dropins": [{"name": "10-x.conf", "contents": "[Unit]\n"}]}));
    }
    json!({"config": {"ignition": {"version": "3.5.0"}, "passwd": {"users": users}, "systemd": {"units": units},
        "storage": {"directories": directories, "files": files, "links": links}}})
}

fn drawn(seed: u64, number: u64) -> Sequence {
    let mut chance = Chance(seed.wrapping_mul(1_000_003).wrapping_add(number));
    let chance = &mut chance;
    let acts = [
        Act::File,
        Act::Pipe,
        Act::Socket,
        Act::LinkToFile,
        Act::LinkToItself,
        Act::LinkToDirectory,
        Act::Gone,
        Act::OfGuest,
        Act::OpenToAll,
    ];
    let mut steps = Vec::new();
    for number in 0..4 {
        let mut done = Vec::new();
        for _ in 1..chance.draw(if number == 0 { 2 } else { 4 }) {
            let path = one(chance, &DIRECTORIES);
            let path = if odds(chance, 4) { format!("{path}/a") } else { path.to_owned() };
            done.push((path, one(chance, &acts)));
        }
        let empty = json!({"config": {"ignition": {"version": "3.5.0"}}});
        steps.push((done, if odds(chance, 3) { empty } else { config(chance) }));
    }
    Sequence { steps }
}

/// Does it, as far as the host has the directory above.
fn act(root: &Path, path: &str, act: Act) {
    let at = root.join(path.trim_start_matches('/'));
    if !fs::symlink_metadata(at.parent().unwrap()).is_ok_and(|above| above.is_dir()) {
        return;
    }
    match act {
        Act::OfGuest => drop(chown(&at, Some(1100), Some(1100))),
        Act::OpenToAll => {
            if fs::symlink_metadata(&at).is_ok_and(|found| found.is_dir()) {
                fs::set_permissions(&at, fs::Permissions::from_mode(0o777)).unwrap();
            }
        }
        _ => {
            let _gone = fs::remove_dir_all(&at).or_else(|_| fs::remove_file(&at));
            match act {
                Act::File => fs::write(&at, "mine").unwrap(),
                Act::Pipe => mknodat(CWD, &at, FileType::Fifo, Mode::RWXU, 0).unwrap(),
                Act::Socket => mknodat(CWD, &at, FileType::Socket, Mode::RWXU, 0).unwrap(),
                Act::LinkToFile => symlink("/etc/motd", &at).unwrap(),
                Act::LinkToItself => symlink(at.file_name().unwrap(), &at).unwrap(),
                Act::LinkToDirectory => symlink("/etc/real", &at).unwrap(),
                Act::Gone | Act::OfGuest | Act::OpenToAll => {}
            }
        }
    }
}

fn host(dir: &Path) -> Host {
    let host = Host::new(dir.join("host"), &[Item::Account("core", 1000), Item::Account("guest", 1100)]);
    for (path, mode) in [("tmp", 0o1777), ("etc/real", 0o755)] {
        fs::create_dir(host.root().join(path)).unwrap();
        fs::set_permissions(host.root().join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    host
}

fn play(home: &Path, sequence: &Sequence, counts: &mut Counts) -> Result<(), Wrong> {
    let dir = tempfile::tempdir_in(home).unwrap();
    let mut host = host(dir.path());
    for (number, (acts, spec)) in sequence.steps.iter().enumerate() {
        for (path, what) in acts {
            act(&host.root(), path, *what);
        }
        let file = host.dir.join(format!("config-{number}.json"));
        let document = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": format!("config-{number}")}, "spec": spec});
        fs::write(&file, document.to_string()).unwrap();
        let policy = host.dir.join("policy.json");
        let words = ["--to", file.to_str().unwrap(), "--policy", policy.to_str().unwrap()];
        let before = listing(&host.root());
        let (code, out, err) = host.run("plan", &[&words[..], &["--output", "json"]].concat());
        let plan: Value =
            serde_json::from_str(&out).map_err(|_| wrong("no JSON", format!("{code} {out}{err}")))?;
        let ran = host.apply(&words)?;
        // The plan says so, and which path keeps the update from starting.
        let waits = plan["drift"].as_array().is_some_and(|drift| !drift.is_empty());
        if waits && (code, ran.0) == (4, 4) {
            counts.refused += 1;
            continue;
        }
        if ran.0 != code {
            let kind = format!("the plan ended with {code}, and apply with {}", ran.0);
            return Err(wrong(kind, format!("config {number}: {out}{}", ran.2)));
        }
        if code == 0 {
            counts.applied += 1;
            continue;
        }
        counts.refused += 1;
        let after = listing(&host.root());
        if !is_same(&before, &after) {
            return Err(wrong("refused, and the host is not as before", differences(&before, &after)));
        }
        // Directories of units are root's.
        let takes = |message: &str| message.contains("chown root") && !message.contains("/etc/systemd");
        if code != 3 || refusals(&plan).iter().any(|(_, message)| takes(message)) {
            return Err(wrong("a refusal with other advice", format!("{code} {out}")));
        }
    }
    Ok(())
}

/// Takes away what a fault does not need.
fn smaller(home: &Path, sequence: &Sequence, fault: &Wrong) -> Sequence {
    let plays = std::cell::Cell::new(0);
    let fails = |sequence: &Sequence| {
        plays.set(plays.get() + 1);
        plays.get() < 60
            && play(home, sequence, &mut Counts::default()).is_err_and(|wrong| wrong.kind == fault.kind)
    };
    let mut sequence = sequence.clone();
    loop {
        let mut candidates = Vec::new();
        for index in 0..sequence.steps.len() {
            let mut less = sequence.clone();
            less.steps.remove(index);
            candidates.push(less);
            for act in 0..sequence.steps[index].0.len() {
                let mut less = sequence.clone();
                less.steps[index].0.remove(act);
                candidates.push(less);
            }
            for list in [
                "/storage/directories",
                "/storage/files",
                "/storage/links",
                "/passwd/users",
                "/systemd/units",
            ] {
                let list = format!("/config{list}");
                let len =
                    sequence.steps[index].1.pointer(&list).and_then(Value::as_array).map_or(0, Vec::len);
                for entry in 0..len {
                    let mut less = sequence.clone();
                    less.steps[index].1.pointer_mut(&list).unwrap().as_array_mut().unwrap().remove(entry);
                    candidates.push(less);
                }
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
    let steps = less.steps.iter().map(|(acts, spec)| format!("{acts:?} {spec}\n"));
    format!("sequence {number}: {}: {}\n{}", fault.kind, fault.text, steps.collect::<String>())
}

/// `MODEL_WAYS` and `MODEL_SEED` set how many are played; `FATES_WAY=7` plays one alone.
#[test]
fn plan_and_apply_agree_on_each_way() {
    let home = sweep::scratch();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let (count, seed) = (number("MODEL_WAYS").unwrap_or(60), number("MODEL_SEED").unwrap_or(1));
    let only = number("FATES_WAY");
    let numbers: Vec<u64> = only.map_or_else(|| (0..count).collect(), |one| vec![one]);
    let home = home.path();
    let (all, found) = played_by_two(&numbers, |number, counts| {
        let sequence = drawn(seed, number);
        play(home, &sequence, counts).err().map(|wrong| told(home, number, &sequence, &wrong))
    });
    assert!(found.is_empty(), "{all:?}, seed {seed}, {} wrong:\n{}", found.len(), found.join("\n"));
    let least = u32::try_from(count).unwrap() / 2;
    assert!(only.is_some() || (all.applied > least && all.refused > least), "{all:?}");
}
