//! Two versions of the agent on one host: the one is killed at each fail point of an update, of its undo or of a first boot, and the
//! other goes on; or it refuses the state of a newer one, nothing is touched, and the first one ends the work.
//! `tests/versions/run` builds the other one.
#![allow(clippy::explicit_write, reason = "past the test runner, which would keep it to itself")]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::ran;
use crate::sweep::host::{KILLED, REBOOT};
use crate::test_host::{Node, Ran, STATE, apply, config};

/// The executable of the other version.
const OTHER: &str = "MCA_OTHER_AGENT";

/// An older agent ends so over the state of a newer one.
const NEWER: [&str; 2] = ["this agent reads up to", "which this agent does not know"];
const UNREADABLE: i32 = 5;
/// The same of `firstboot`, whose unit tells codes of systemd apart.
const UNREADABLE_AT_FIRST: i32 = 105;

/// The part of a config that Ignition leaves to the first boot.
const ENCAPSULATED: &str = "root/etc/ignition-machine-config-encapsulated.json";
const FIRST_BOOT: [&str; 7] =
    ["firstboot", "--root", "root", "--os-backend", "none", "--reboot-by", "supervisor"];

/// More runs than an update needs, reboots included.
const RUNS: usize = 5;

/// Files, links, directories and units that come, change, stay and go. `is_costly` ends in a reboot.
fn configs(is_costly: bool) -> [(&'static str, String); 2] {
    let file = |path: &str, text: &str| json!({"path": path, "mode": 420, "contents": {"source": format!("data:,{text}")}, "overwrite": true});
    let unit = |name: &str, text: &str| json!({"name": name, "enabled": true, "contents": format!("# {text}\n[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n")});
    let costly = |text: &str| if is_costly { vec![file("/opt/costly", text)] } else { Vec::new() };
    let spec = |files: Vec<serde_json::Value>, links: serde_json::Value, units: Vec<serde_json::Value>| {
        json!({"config": {"ignition": {"version": "3.5.0"},
            "storage": {"files": files, "links": links}, "systemd": {"units": units}}})
    };
    let a = spec(
        [vec![file("/etc/motd", "a"), file("/etc/stays", "s"), file("/etc/goes/x", "a")], costly("a")]
            .concat(),
        json!([{"path": "/etc/link", "target": "motd", "overwrite": true}]),
        vec![unit("one.service", "a"), unit("gone.service", "a")],
    );
    let b = spec(
        [vec![file("/etc/motd", "b"), file("/etc/stays", "s"), file("/etc/comes/x", "b")], costly("b")]
            .concat(),
        json!([{"path": "/etc/link", "target": "stays", "overwrite": true}]),
        vec![unit("one.service", "b"), unit("new.service", "b")],
    );
    [("a", config("rendered-a", &a)), ("b", config("rendered-b", &b))]
}

/// A host with entries of its own in the places of the configs.
fn host(is_costly: bool) -> Node {
    let node = Node::new();
    node.put("root/etc/motd", "of the host");
    node.put("root/etc/comes/own", "of the host");
    node.put("root/opt/costly", "of the host");
    for (name, text) in configs(is_costly) {
        node.put(&format!("{name}.json"), text);
    }
    if is_costly {
        node.put("policy.json", "{}");
    }
    node
}

fn copied(from: &Node) -> Node {
    let dir = tempfile::tempdir().unwrap();
    let done = Command::new("cp").arg("-a").arg(from.path(".")).arg(dir.path()).status().unwrap();
    assert!(done.success());
    Node { dir }
}

fn run(node: &Node, agent: &Path, words: &[&str], fail_point: &str) -> Ran {
    // A first boot that can't go on waits for ever.
    let mut command = Command::new("timeout");
    command
        .arg("--foreground")
        .arg("120")
        .arg(agent)
        .args(words)
        .current_dir(node.dir.path())
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin");
    if !fail_point.is_empty() {
        command.env("MCA_FAIL_POINT", fail_point);
    }
    let output = command.output().unwrap();
    Ran {
        code: output.status.code().unwrap_or(KILLED),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Runs it until the target is reached, with the reboots that it asks for, or until it ends otherwise.
fn settle(node: &Node, agent: &Path, target: &str) -> Ran {
    settle_by(node, agent, &apply(target))
}

fn settle_by(node: &Node, agent: &Path, words: &[&str]) -> Ran {
    for boot in 0..RUNS {
        let ran = run(node, agent, words, "");
        if ran.code != REBOOT {
            return ran;
        }
        reboot(node, boot);
    }
    panic!("{words:?} does not settle");
}

fn reboot(node: &Node, boot: usize) {
    node.put("root/proc/sys/kernel/random/boot_id", format!("0f1e2d3c-4b5a-4978-8796-0000000000{boot:02}\n"));
}

/// Kind, mode, owner and contents of everything outside of the agent's state.
fn tree(node: &Node) -> BTreeMap<String, String> {
    let entries = node.listing("root").into_iter();
    let entries = entries.filter(|(path, _)| {
        !path.contains(&format!("/{STATE}")) && !path.contains("boot_id") && !path.starts_with("/run")
    });
    let plain = |line: String| {
        let (head, rest) = line.split_once(" inode ").unwrap();
        let held =
            rest.split_once(" holds ").or_else(|| rest.split_once(" to ")).map_or("", |(_, held)| held);
        // machine-config-daemon's files have the time of the commit.
        format!("{head} {held}")
    };
    entries
        .map(|(path, line)| (path, plain(line)))
        .filter(|(path, _)| !path.contains("machine-config-daemon"))
        .collect()
}

/// Returns true if it refused the state of a newer agent, and touched nothing.
fn is_refused(node: &Node, ran: &Ran, before: &BTreeMap<String, String>, counts: &mut Counts) -> bool {
    let is_refused = [UNREADABLE, UNREADABLE_AT_FIRST].contains(&ran.code)
        && NEWER.iter().any(|words| ran.err.contains(words));
    if is_refused {
        counts.refused += 1;
        assert_eq!(&node.listing("root"), before, "{}", ran.err);
    } else {
        counts.continued += 1;
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    }
    is_refused
}

#[derive(Debug, Default)]
struct Counts {
    kills: u32,
    continued: u32,
    refused: u32,
}

/// Kills `first` at each point of the update; `second` goes on.
fn hand_over(
    base: &Node,
    straight: &BTreeMap<String, String>,
    first: &Path,
    second: &Path,
    counts: &mut Counts,
) {
    for point in 1.. {
        let node = copied(base);
        let killed = run(&node, first, &apply("b.json"), &format!("kill:{point}"));
        if killed.code != KILLED {
            assert!(point > 20, "{point}: {}{}", killed.out, killed.err);
            return;
        }
        counts.kills += 1;
        let before = node.listing("root");
        let ran = settle(&node, second, "b.json");
        let case = || {
            format!(
                "{} killed at {point}, then {}: {}{}",
                first.display(),
                second.display(),
                ran.out,
                ran.err
            )
        };
        if is_refused(&node, &ran, &before, counts) {
            assert_eq!(settle(&node, first, "b.json").code, 0, "{}", case());
        }
        assert_eq!(&tree(&node), straight, "{}", case());
        // The one that was killed goes on again, on what the other one left.
        assert_eq!(settle(&node, first, "b.json").code, 0, "{}", case());
        let verified = run(&node, first, &["verify", "--root", "root", "--os-backend", "none"], "");
        assert_eq!(verified.code, 0, "{}{}{}", case(), verified.out, verified.err);
        let back = settle(&node, second, "a.json");
        assert_eq!(back.code, 0, "{}, back: {}{}", case(), back.out, back.err);
        assert_eq!(tree(&node), tree(base), "{}, back", case());
    }
}

/// Kills `first` at each point of the update, and then `second` at some point of its undo, which `first` ends: the host is as before.
fn undo_hand_over(base: &Node, first: &Path, second: &Path, counts: &mut Counts) {
    for point in 1.. {
        let node = copied(base);
        if run(&node, first, &apply("b.json"), &format!("kill:{point}")).code != KILLED {
            assert!(point > 20, "{point}");
            return;
        }
        let before = node.listing("root");
        // Another point of the undo each time; past its last one it ends.
        let ran = run(&node, second, &apply("a.json"), &format!("kill:{}", 1 + point % 17));
        counts.kills += 1 + u32::from(ran.code == KILLED);
        let is_killed = [KILLED, REBOOT].contains(&ran.code);
        if is_killed || is_refused(&node, &ran, &before, counts) {
            let ended = settle(&node, first, "a.json");
            let newer = ended.code == UNREADABLE && NEWER.iter().any(|words| ended.err.contains(words));
            let ended = if newer { settle(&node, second, "a.json") } else { ended };
            assert_eq!(ended.code, 0, "undo at {point}: {}{}{}", ran.err, ended.out, ended.err);
        }
        assert_eq!(tree(&node), tree(base), "undo at {point}: {}", ran.err);
        for agent in [second, first] {
            assert_eq!(settle(&node, agent, "a.json").code, 0, "undo at {point}");
        }
    }
}

/// A host that Ignition has left: of its config a file is still to be written, and another one did not come.
fn provisioned() -> Node {
    let node = Node::new();
    let spec = |files: &[&str]| {
        let files: Vec<_> = files
            .iter()
            .map(|path| json!({"path": path, "mode": 420, "contents": {"source": "data:,of-a"}, "overwrite": true}))
            .collect();
        json!({"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": files}}})
    };
    node.put("root/dev/console", "");
    node.put("root/etc/part", "of the host");
    node.put(ENCAPSULATED, config("rendered-a", &spec(&["/etc/part"])));
    node.put("a.json", config("rendered-a", &spec(&["/etc/part", "/etc/lost"])));
    node
}

/// Kills `first` at each point of both boots of a first boot. Whoever goes on, the part is never committed as the whole: the file that
/// did not come is written with the whole config.
fn first_boot_hand_over(first: &Path, second: &Path, counts: &mut Counts) {
    for boot in 0..2 {
        let base = provisioned();
        for before in 0..boot {
            assert_eq!(run(&base, first, &FIRST_BOOT, "").code, REBOOT);
            reboot(&base, before);
        }
        for point in 1.. {
            let node = copied(&base);
            if run(&node, first, &FIRST_BOOT, &format!("kill:{point}")).code != KILLED {
                assert!(point > 3, "boot {boot}, {point}");
                break;
            }
            counts.kills += 1;
            let before = node.listing("root");
            let ran = settle_by(&node, second, &FIRST_BOOT);
            if is_refused(&node, &ran, &before, counts) {
                // Neither does its daemon, for which `apply` stands, take the part for the whole.
                let daemon = run(&node, second, &apply("a.json"), "");
                assert_eq!((daemon.code, node.listing("root")), (UNREADABLE, before), "{}", daemon.err);
                let ended = settle_by(&node, first, &FIRST_BOOT);
                assert_eq!(ended.code, 0, "boot {boot}, {point}: {}{}", ended.out, ended.err);
            }
            let case = || format!("boot {boot}, {point}: {}{}", ran.out, ran.err);
            assert!(!node.path(ENCAPSULATED).exists(), "{}", case());
            for agent in [second, first] {
                let whole = settle(&node, agent, "a.json");
                assert_eq!(whole.code, 0, "{}, whole: {}{}", case(), whole.out, whole.err);
                assert_eq!(node.read("root/etc/lost"), "of-a", "{}", case());
                let verified = run(&node, agent, &["verify", "--root", "root", "--os-backend", "none"], "");
                assert_eq!(verified.code, 0, "{}{}{}", case(), verified.out, verified.err);
            }
        }
    }
}

/// A boot that a person keeps is kept by an older agent, too: it refuses the record.
fn kept_boot_is_kept(base: &Node, ours: &Path, other: &Path) {
    let node = copied(base);
    let words = [&apply("b.json")[..11], &["--no-reboot", "--yes"]].concat();
    let ran = run(&node, ours, &words, "");
    assert!(ran.code == 0 && ran.out.contains("has to reboot"), "{}{}", ran.out, ran.err);
    let before = node.listing("root");
    let ran = run(&node, other, &apply("b.json"), "");
    assert!(ran.code == UNREADABLE && NEWER.iter().any(|words| ran.err.contains(words)), "{}", ran.err);
    assert_eq!(node.listing("root"), before);
}

/// The other version, if it is there; tells that the test needs it.
fn other(test: &str) -> Option<PathBuf> {
    let other = std::env::var_os(OTHER).map(PathBuf::from);
    if other.is_none() {
        ran::not_run(test, "another version of the agent (tests/versions/run builds it)");
    }
    other
}

fn tell(first: &Path, second: &Path, kind: &str, counts: &Counts) {
    writeln!(std::io::stderr(), "{} to {}, {kind}: {counts:?}", first.display(), second.display()).unwrap();
}

#[test]
fn other_version_goes_on_at_every_fail_point_or_refuses() {
    let Some(other) = other("other_version_goes_on_at_every_fail_point_or_refuses") else { return };
    let ours = Path::new(env!("CARGO_BIN_EXE_machine-config-agent"));
    for is_costly in [false, true] {
        for (first, second) in [(ours, &*other), (&*other, ours)] {
            let base = host(is_costly);
            assert_eq!(settle(&base, first, "a.json").code, 0);
            let goal = copied(&base);
            assert_eq!(settle(&goal, first, "b.json").code, 0);
            let mut counts = Counts::default();
            hand_over(&base, &tree(&goal), first, second, &mut counts);
            tell(first, second, if is_costly { "with a reboot" } else { "without a reboot" }, &counts);
            if is_costly && first == ours {
                kept_boot_is_kept(&base, ours, &other);
            }
        }
    }
}

#[test]
fn other_version_undoes_at_every_fail_point_or_refuses() {
    let Some(other) = other("other_version_undoes_at_every_fail_point_or_refuses") else { return };
    let ours = Path::new(env!("CARGO_BIN_EXE_machine-config-agent"));
    for is_costly in [false, true] {
        for (first, second) in [(ours, &*other), (&*other, ours)] {
            let base = host(is_costly);
            assert_eq!(settle(&base, first, "a.json").code, 0);
            let mut counts = Counts::default();
            undo_hand_over(&base, first, second, &mut counts);
            tell(first, second, "undone", &counts);
        }
    }
}

#[test]
fn other_version_ends_first_boot_at_every_fail_point_or_refuses() {
    let Some(other) = other("other_version_ends_first_boot_at_every_fail_point_or_refuses") else { return };
    let ours = Path::new(env!("CARGO_BIN_EXE_machine-config-agent"));
    for (first, second) in [(ours, &*other), (&*other, ours)] {
        let mut counts = Counts::default();
        first_boot_hand_over(first, second, &mut counts);
        tell(first, second, "in a first boot", &counts);
    }
}
