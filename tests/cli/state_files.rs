//! Every file of the state, damaged in each way: the agent starts, or it ends with 5 and names the file, the cause and a
//! next step. The step, followed to the letter, leads to a run that ends well.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::test_host::{Node, Ran, STATE, apply, config, files, ignition};

/// A file of the state, below the root; `UPDATE` stands for the open update.
pub const FILES: [&str; 33] = [
    "var/lib/machine-config-agent/record.json",
    "var/lib/machine-config-agent/target.json",
    "var/lib/machine-config-agent/from.json",
    "var/lib/machine-config-agent/current.json",
    "var/lib/machine-config-agent/kargs.json",
    "var/lib/machine-config-agent/machine.json",
    "var/lib/machine-config-agent/accounts.json",
    "var/lib/machine-config-agent/history/entry-0000000001.json",
    "var/lib/machine-config-agent/preimages/kept/%2Fetc%2Fmotd.json",
    "var/lib/machine-config-agent/preimages/UPDATE/0.json",
    "var/lib/machine-config-agent/stateroot.json",
    "var/lib/machine-config-agent/stateroot-lifecycle.json",
    "var/lib/machine-config-agent/stateroot-return.json",
    "var/lib/machine-config-agent/stateroot-trial.json",
    "var/lib/machine-config-agent/stateroots/rhcos_1.json",
    "var/lib/machine-config-agent/seed.json",
    "var/lib/machine-config-agent/seed-generation.json",
    "var/lib/machine-config-agent/pinned-images",
    "var/lib/machine-config-agent/cache/policy.json",
    "run/machine-config-agent/report.json",
    "run/machine-config-agent/os.json",
    "etc/machine-config-agent/settings.toml",
    "etc/machine-config-daemon/currentconfig",
    "etc/machine-config-daemon/currentimage",
    "etc/machine-config-daemon/node-annotation.json.bak",
    "etc/machine-config-daemon/node-annotations.json",
    "etc/machine-config-daemon/orig/etc/motd.mcdorig",
    "etc/mcd-currentconfig.json",
    "etc/mcs-machine-config-content.json",
    "run/machine-config-agent/left-behind.json",
    "run/machine-config-agent/nic-kargs",
    "run/machine-config-agent-bootc.json",
    "usr/lib/machine-config-agent/originals/%2Fetc.json",
];

pub type Damage = (&'static str, fn(&Node, &str));

pub const DAMAGES: [Damage; 8] = [
    ("truncated", |node, path| {
        let text = std::fs::read(node.path(path)).unwrap_or_else(|_| b"{\"schema\":1,\"a\":".to_vec());
        node.put(path, &text[..text.len() / 2]);
    }),
    ("empty", |node, path| node.put(path, "")),
    ("garbage", |node, path| node.put(path, b"hunter2\xff\x00")),
    ("newer", |node, path| {
        node.put(path, r#"{"schema":99,"schemaVersion":99,"image":null,"at":0,"machineConfig":{}}"#);
    }),
    ("directory", |node, path| {
        drop(std::fs::remove_file(node.path(path)));
        node.put(&format!("{path}/child"), "");
    }),
    ("dangling link", |node, path| {
        drop(std::fs::remove_file(node.path(path)));
        std::fs::create_dir_all(node.path(path).parent().unwrap()).unwrap();
        symlink("nowhere", node.path(path)).unwrap();
    }),
    ("link to itself", |node, path| {
        drop(std::fs::remove_file(node.path(path)));
        std::fs::create_dir_all(node.path(path).parent().unwrap()).unwrap();
        symlink(node.path(path).file_name().unwrap(), node.path(path)).unwrap();
    }),
    ("of another user", |node, path| {
        if !node.path(path).exists() {
            node.put(path, "{}");
        }
        drop(std::os::unix::fs::chown(node.path(path), Some(1000), Some(1000)));
    }),
];

pub fn motd(name: &str, text: &str) -> String {
    config(name, &files(&[("/etc/motd", text)]))
}

/// Returns the open update of a host.
fn update(node: &Node) -> String {
    let updates = std::fs::read_dir(node.path(&format!("{LIB}/preimages"))).unwrap();
    let names = updates.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.into_iter().find(|name| name != "kept").unwrap()
}

/// Returns the place of a file of the state on a host.
pub fn place(node: &Node, file: &str) -> String {
    let path = format!("root/{file}");
    if file.contains("UPDATE") { path.replace("UPDATE", &update(node)) } else { path }
}

/// A host with a committed config, and one with an update that is cut off.
pub fn host(is_open: bool) -> Node {
    let node = Node::new();
    node.put("a.json", motd("rendered-worker-a", "a"));
    let ran = node.apply("a.json");
    assert_eq!(ran.code, 0, "{}", ran.err);
    node.put("b.json", motd("rendered-worker-b", "b"));
    if is_open {
        let output = node.command(&apply("b.json")).env("MCA_FAIL_POINT", "kill:ran").output().unwrap();
        assert!(!output.status.success() && node.path(&format!("root/{STATE}/record.json")).exists());
    }
    node
}

/// Does what the text says: takes a file over, or moves it away. Returns false if it says nothing of the kind.
pub fn follow(node: &Node, text: &str) -> bool {
    let Some(next) = text.split("Next: ").nth(1) else { return false };
    if let Some((_, after)) = next.split_once("chown root:root ") {
        let path = after.split_whitespace().next().unwrap().trim_end_matches([',', ';', '.']);
        std::os::unix::fs::chown(node.path(&format!("root{path}")), Some(0), Some(0)).unwrap();
        return true;
    }
    let Some(step) = next.to_lowercase().split_once("move ").map(|(before, _)| {
        let at = before.len() + "move ".len();
        next[at..].to_owned()
    }) else {
        return false;
    };
    let named = step.split_whitespace().next().unwrap().trim_end_matches([',', ';']);
    let path = match named {
        // "Restore PATH from a backup, or move it away".
        "it" => next
            .split_whitespace()
            .find(|word| word.starts_with('/'))
            .unwrap()
            .trim_end_matches([',', ';', '.']),
        path if path.starts_with('/') => path,
        // "record.json beside it".
        name => &format!("/{STATE}/{name}"),
    };
    let from = node.path(&format!("root{path}"));
    let count = std::fs::read_dir(node.dir.path()).unwrap().count();
    std::fs::rename(&from, node.path(&format!("away-{count}")))
        .unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    true
}

fn ends_well(ran: &Ran, node: &Node) -> bool {
    ran.code == 0 && node.read("root/etc/motd") == "b"
}

#[test]
fn damaged_state_is_started_with_or_its_next_step_leads_out() {
    let mut faults = Vec::new();
    for file in FILES {
        for (damage, spoil) in DAMAGES {
            let is_of_update = ["record", "target", "from", "current"].iter().any(|name| file.contains(name));
            let is_of_open = file.contains("UPDATE");
            let beside = [false, true].into_iter();
            for is_open in
                beside.filter(|is_open| if *is_open { is_of_update || is_of_open } else { !is_of_open })
            {
                let node = host(is_open);
                spoil(&node, &place(&node, file));
                let case = format!("{file} {damage}{}", if is_open { " beside an open update" } else { "" });
                let mut ran = node.apply("b.json");
                let mut told = String::new();
                // One step may uncover the next: each is another one.
                for _ in 0..3 {
                    if ends_well(&ran, &node) {
                        break;
                    }
                    let name = file.rsplit('/').next().unwrap();
                    if ran.err.contains("hunter2") || ran.err.contains("panicked") {
                        faults.push(format!("{case}: {}", ran.err));
                    }
                    if told.is_empty() && (!ran.err.contains(name) || ![2, 3, 4, 5].contains(&ran.code)) {
                        faults.push(format!("{case}: {} does not name it: {}", ran.code, ran.err));
                    }
                    // The same again: no loop without a way out.
                    let again = node.apply("b.json");
                    if again.code != ran.code || again.err.lines().last() != ran.err.lines().last() {
                        told = again.err.clone();
                        ran = again;
                        continue;
                    }
                    told.clone_from(&ran.err);
                    if !follow(&node, &ran.err) {
                        break;
                    }
                    ran = node.apply("b.json");
                }
                if !ends_well(&ran, &node) {
                    faults.push(format!(
                        "{case}: ends with {}: first {told}\nthen {}{}",
                        ran.code, ran.out, ran.err
                    ));
                }
                let status =
                    node.run(&["status", "--output", "json", "--root", "root", "--os-backend", "none"]);
                let status: Result<Value, _> = serde_json::from_str(&status.out);
                if status.is_ok_and(|status| status.get("state").is_some_and(|state| state != "Done")) {
                    faults.push(format!("{case}: is not Done afterwards"));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}:\n{}", faults.len(), faults.join("\n---\n"));
}

/// The files that the pages name are those that are damaged here.
#[test]
fn files_of_state_are_those_of_reference() {
    let page = include_str!("../../docs/reference.md");
    let (_, table) = page.split_once("In `/var/lib/machine-config-agent` (").unwrap();
    let (table, _) = table.split_once("\nElsewhere:").unwrap();
    let cells = table.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let of_page: BTreeSet<&str> =
        cells.flat_map(|cell| cell.split(", ")).map(|name| name.trim_matches('`')).collect();
    let below = "var/lib/machine-config-agent/";
    let names: Vec<&str> = FILES.iter().filter_map(|file| file.strip_prefix(below)).collect();
    // A directory of the page stands for its files.
    let is_of = |file: &str, entry: &str| {
        let entry = entry.replace("ID/", "UPDATE/").replace("NAME", "rhcos_1");
        file == entry || entry.ends_with('/') && file.starts_with(&entry)
    };
    let unnamed: Vec<_> =
        names.iter().filter(|name| !of_page.iter().any(|entry| is_of(name, entry))).collect();
    let no_document = ["lock", "machine-config-agent-seed/"];
    let undamaged: Vec<_> = of_page
        .iter()
        .filter(|entry| !no_document.contains(entry) && !names.iter().any(|name| is_of(name, entry)))
        .collect();
    assert!(
        unnamed.is_empty() && undamaged.is_empty(),
        "not on the page: {unnamed:?}; not damaged: {undamaged:?}"
    );
}

/// Files of the state whose damage has to be told from a newer agent's word.
const VERSIONED: [&str; 8] = [
    "record.json",
    "target.json",
    "from.json",
    "current.json",
    "accounts.json",
    "kargs.json",
    "preimages/kept/%2Fetc%2Fmotd.json",
    "preimages/UPDATE/0.json",
];

/// A newer agent's file is refused as such, by each verb and beside an open update, before anything is touched; and no step that
/// is told loses what undoes the update.
#[test]
fn newer_state_is_refused_as_newer_and_untouched() {
    let mut faults = Vec::new();
    for name in VERSIONED {
        let node = host(true);
        let path = place(&node, &format!("{STATE}/{name}"));
        if name.starts_with("preimages/UPDATE") {
            assert!(node.path(&path).exists(), "{path}");
        }
        // The same version, and a word of tomorrow in it.
        let today = std::fs::read_to_string(node.path(&path)).unwrap_or_default();
        let word = ["\"name\":\"", "\"kind\":\""].into_iter().find(|word| today.contains(word));
        let tomorrow = word.filter(|_| name.starts_with("rec") || name.starts_with("pre"));
        let tomorrow = tomorrow.map(|word| today.replacen(word, &format!("{word}tomorrow-"), 1));
        if name.starts_with("rec") || name.starts_with("pre") {
            assert!(tomorrow.is_some(), "{name}: {today}");
        }
        let newer = r#"{"schema":99,"schemaVersion":99,"of":"tomorrow"}"#.to_owned();
        for text in [Some(newer), tomorrow].into_iter().flatten() {
            node.put(&path, &text);
            let before = node.listing("root");
            for verb in [&apply("b.json")[..], &["status", "--root", "root", "--os-backend", "none"]] {
                let ran = node.run(verb);
                let is_newer = ["schema version 99, this agent reads", "which this agent does not know"]
                    .iter()
                    .any(|words| ran.err.contains(words));
                let undo =
                    !ran.err.contains("json away to start over") || ran.err.contains("preimages elsewhere");
                if ran.code != 5 || !is_newer || !undo || !ran.err.contains("Install the newer agent again") {
                    faults.push(format!("{name} {}: {} {}{}", verb[0], ran.code, ran.out, ran.err));
                }
            }
            if node.listing("root") != before {
                faults.push(format!("{name}: something was touched"));
            }
        }
    }
    assert!(faults.is_empty(), "{}:\n{}", faults.len(), faults.join("\n---\n"));
}

/// Work that only the daemon and its own verbs go on with: `status` says that a newer agent left it.
#[test]
fn status_names_newer_work_on_seeds_and_stateroots() {
    for name in ["seed", "seed-generation", "stateroot", "stateroot-lifecycle", "stateroot-trial"] {
        let node = host(false);
        node.put(&format!("root/{STATE}/{name}.json"), r#"{"schema":99}"#);
        let ran = node.run(&["status", "--root", "root", "--os-backend", "none"]);
        let told =
            format!("{name}.json has schema version 99, this agent reads up to 1; nothing was touched");
        assert!(ran.code == 5 && ran.err.contains(&told), "{name}: {}: {}{}", ran.code, ran.out, ran.err);
    }
}

/// Verbs beside `apply`, each with an end that a damaged file may give it.
const VERBS: [&[&str]; 5] = [
    &["plan", "--to", "b.json", "--root", "root", "--os-backend", "none"],
    &["verify", "--root", "root", "--os-backend", "none"],
    &["status", "--output", "json", "--root", "root", "--os-backend", "none"],
    &["history", "--root", "root"],
    &["collect", "--file", "bundle.tar", "--root", "root", "--os-backend", "none"],
];

/// Each verb beside a damaged file: it works, or it ends at once, names the file and a next step, and changes nothing.
#[test]
fn verbs_beside_damaged_state_work_or_name_it() {
    let mut faults = Vec::new();
    for file in FILES {
        for (damage, spoil) in DAMAGES {
            let node = host(file.contains("UPDATE"));
            spoil(&node, &place(&node, file));
            for verb in VERBS {
                let ran = node.run(verb);
                let name = file.rsplit('/').next().unwrap();
                let case =
                    format!("{} beside {file} {damage}: {}: {}{}", verb[0], ran.code, ran.out, ran.err);
                let text = format!("{}{}", ran.out, ran.err);
                if text.contains("hunter2") || text.contains("panicked") {
                    faults.push(format!("tells contents: {case}"));
                }
                let ended = ran.code == 0 || ran.code == 1 && verb[0] == "verify";
                let is_named = ran.err.contains(name) && ran.err.contains("Next: ");
                if !ended && !is_named {
                    faults.push(case);
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}:\n{}", faults.len(), faults.join("\n---\n"));
}

/// The update is undone because another target is desired, and its originals are damaged.
#[test]
fn damaged_originals_of_open_update_lead_out() {
    for (damage, spoil) in DAMAGES {
        let node = host(true);
        let list = json!([{"path": "/etc/motd", "contents": {"source": "data:,c"}}]);
        node.put("c.json", config("rendered-worker-c", &ignition(json!({"storage": {"files": list}}))));
        spoil(&node, &format!("root/{STATE}/preimages/{}/0.json", update(&node)));
        let mut ran = node.apply("c.json");
        if ran.code != 0 {
            let again = node.apply("c.json");
            assert!(again.code == ran.code && again.err.contains("0.json"), "{damage}: {}", again.err);
            assert!(follow(&node, &again.err), "{damage}: {}", again.err);
            ran = node.apply("c.json");
        }
        assert_eq!(
            (ran.code, node.read("root/etc/motd").as_str()),
            (0, "c"),
            "{damage}: {}{}",
            ran.out,
            ran.err
        );
    }
}

/// Damage of the state and of what is around it, with the code of each verb; `status` and `history` show what they can beside
/// damaged settings.
type Case = (&'static str, fn(&Node), i32, &'static str);

fn pipe(node: &Node, path: &str) {
    drop(std::fs::remove_file(node.path(path)));
    drop(std::fs::remove_dir_all(node.path(path)));
    std::fs::create_dir_all(node.path(path).parent().unwrap()).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(node.path(path)).status().unwrap().success());
}

fn give_away(node: &Node, path: &str) {
    std::os::unix::fs::chown(node.path(path), Some(1000), Some(1000)).unwrap();
}

const LIB: &str = "root/var/lib/machine-config-agent";

const KEPT: &str = "root/var/lib/machine-config-agent/preimages/kept/%2Fetc%2Fmotd.json";

const PLACES: [Case; 22] = [
    ("garbage original", |node| node.put(KEPT, "x"), 5, "kept/%2Fetc%2Fmotd.json"),
    (
        "original that no path has",
        |node| node.put(&format!("{LIB}/preimages/kept/x.json"), "x"),
        5,
        "kept/x.json",
    ),
    ("original pipe", |node| pipe(node, KEPT), 5, "it is a pipe"),
    (
        "lock link",
        |node| {
            let lock = node.path(&format!("{LIB}/lock"));
            std::fs::rename(&lock, node.path(&format!("{LIB}/lock2"))).unwrap();
            symlink("lock2", lock).unwrap();
        },
        5,
        "it is a link",
    ),
    ("garbage record", |node| node.put(&format!("{LIB}/record.json"), "x"), 5, "record.json"),
    ("garbage accounts", |node| node.put(&format!("{LIB}/accounts.json"), "x"), 5, "accounts.json"),
    ("garbage kernel arguments", |node| node.put(&format!("{LIB}/kargs.json"), "x"), 5, "kargs.json"),
    ("garbage origin", |node| node.put(&format!("{LIB}/from.json"), "x"), 5, "from.json"),
    ("target directory", |node| node.put(&format!("{LIB}/target.json/a"), ""), 5, "it is a directory"),
    ("target pipe", |node| pipe(node, &format!("{LIB}/target.json")), 5, "it is a pipe"),
    ("lock pipe", |node| pipe(node, &format!("{LIB}/lock")), 5, "it is a pipe"),
    (
        "lock directory",
        |node| {
            std::fs::remove_file(node.path(&format!("{LIB}/lock"))).unwrap();
            node.put(&format!("{LIB}/lock/a"), "");
        },
        5,
        "it is a directory",
    ),
    (
        "current link to itself",
        |node| {
            std::fs::remove_file(node.path(&format!("{LIB}/current.json"))).unwrap();
            symlink("current.json", node.path(&format!("{LIB}/current.json"))).unwrap();
        },
        5,
        "a link that leads to itself",
    ),
    (
        "current link to nothing",
        |node| {
            std::fs::remove_file(node.path(&format!("{LIB}/current.json"))).unwrap();
            symlink("gone", node.path(&format!("{LIB}/current.json"))).unwrap();
        },
        5,
        "a link that leads nowhere",
    ),
    ("originals pipe", |node| pipe(node, &format!("{LIB}/preimages")), 5, "preimages"),
    ("kept originals pipe", |node| pipe(node, &format!("{LIB}/preimages/kept")), 5, "preimages/kept"),
    ("writable directory", |node| node.mode(LIB, 0o777), 4, "chmod go-w /var/lib/machine-config-agent"),
    ("directory of a user", |node| give_away(node, LIB), 4, "chown root:root /var/lib/machine-config-agent"),
    (
        "link in place of directory",
        |node| {
            std::fs::rename(node.path(LIB), node.path("gone")).unwrap();
            symlink("nowhere", node.path(LIB)).unwrap();
        },
        5,
        "a link that leads nowhere",
    ),
    (
        "files of machine-config-daemon",
        |node| give_away(node, "root/etc/machine-config-daemon"),
        4,
        "chown root:root",
    ),
    ("configuration of a user", |node| give_away(node, "root/etc"), 4, "chown root:root /etc"),
    ("settings", |node| node.put("root/etc/machine-config-agent/settings.toml", "x"), 2, "settings.toml"),
];

/// A plan that is shown is one that is begun, and what a run refuses each verb names, in time and with the way out.
#[test]
fn verbs_give_same_verdict_on_damaged_state() {
    let mut faults = Vec::new();
    for (case, spoil, code, words) in PLACES {
        let node = host(false);
        spoil(&node);
        let mut verbs: Vec<Vec<&str>> = VERBS[..4].iter().map(|verb| verb.to_vec()).collect();
        verbs.push(apply("b.json").to_vec());
        for verb in verbs {
            let mut bounded = std::process::Command::new("timeout");
            bounded.arg("60").arg(crate::test_host::BINARY).args(&verb).current_dir(node.dir.path());
            let output = bounded.env_clear().env("PATH", "/usr/sbin:/usr/bin").output().unwrap();
            let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            let shows = code == 2 && ["status", "history"].contains(&verb[0]);
            let is_named = text.contains(words) || shows && verb[0] == "history";
            if output.status.code() != Some(if shows { 0 } else { code }) || !is_named {
                faults.push(format!("{case}: {} ends with {:?}: {text}", verb[0], output.status.code()));
            }
        }
    }
    assert!(faults.is_empty(), "{}:\n{}", faults.len(), faults.join("\n---\n"));
}

/// A directory in the place of the last report is named, and hides nothing else.
#[test]
fn report_that_is_no_file_is_named_by_status() {
    for spoil in [pipe, |node: &Node, path: &str| node.put(&format!("{path}/a"), "")] {
        let node = host(false);
        spoil(&node, "root/run/machine-config-agent/report.json");
        let ran = node.run(&["status", "--root", "root", "--os-backend", "none"]);
        let is_named = ran.out.contains("/run/machine-config-agent/report.json is a ");
        assert!(ran.code == 0 && is_named && ran.out.contains("rendered-worker-a"), "{}{}", ran.out, ran.err);
    }
}

/// Originals of an open update: what a run refuses each verb names.
#[test]
fn verbs_give_same_verdict_on_damaged_originals_of_open_update() {
    let node = host(true);
    node.put(&format!("{LIB}/preimages/{}/0.json", update(&node)), "x");
    for verb in VERBS[..4].iter().copied().chain([&apply("b.json")[..]]) {
        let ran = node.run(verb);
        assert!(ran.code == 5 && ran.err.contains("/0.json"), "{}: {} {}", verb[0], ran.code, ran.err);
    }
}

/// Paths whose originals are lost are named before they leave, and nothing else.
fn are_named_as_not_restorable(node: &Node, paths: &[&str]) {
    let host = ["--root", "root", "--os-backend", "none"];
    for verb in ["verify", "status"] {
        let text = node.run(&[&[verb][..], &host].concat());
        let json = node.run(&[&[verb][..], &host, &["--output", "json"]].concat());
        let document: Value = serde_json::from_str(&json.out).unwrap();
        let found = document["notRestorable"].as_array().unwrap();
        assert_eq!(found.len(), paths.len(), "{verb}: {document}");
        for path in paths {
            assert!(
                text.out.contains(&format!("{path:?}: the host had this path before")),
                "{verb}: {}",
                text.out
            );
            let is_named = |one: &Value| one["field"].as_str().unwrap().ends_with(&format!("{path:?}"));
            assert!(found.iter().any(is_named), "{verb}: {document}");
        }
    }
}

/// The agent's originals are gone: what the host had before the config stays as it is, and the plan says so.
#[test]
fn path_that_lost_its_original_stays_on_host() {
    for damage in [
        |node: &Node| std::fs::remove_dir_all(node.path(&format!("{LIB}/preimages/kept"))).unwrap(),
        |node: &Node| std::fs::remove_dir_all(node.path(&format!("{LIB}/preimages"))).unwrap(),
    ] {
        let node = Node::new();
        node.put("root/etc/motd", "the host's");
        node.put("root/etc/systemd/system/host.service", "[Service]\nExecStart=/bin/true\n");
        std::os::unix::fs::symlink("motd", node.path("root/etc/link")).unwrap();
        std::fs::create_dir(node.path("root/etc/dir")).unwrap();
        let sections = json!({
            "storage": {
                "files": [{"path": "/etc/motd", "overwrite": true, "contents": {"source": "data:,a"}},
                    {"path": "/etc/new", "contents": {"source": "data:,a"}}],
                "links": [{"path": "/etc/link", "target": "/etc/new", "overwrite": true}],
                "directories": [{"path": "/etc/dir", "mode": 448}],
            },
            "systemd": {"units": [{"name": "host.service", "contents": "[Service]\nExecStart=/bin/false\n"},
                {"name": "crio.service", "dropins": [{"name": "a.conf", "contents": "[Service]\n"}]}]},
        });
        node.put("policy.json", QUIET_UNITS);
        node.commit("rendered-a.json", &ignition(sections));
        node.put("empty.json", config("rendered-empty", &ignition(json!({}))));
        // Nobody lost anything yet.
        let planned = node.plan("empty.json");
        assert!(planned.code == 0 && !planned.out.contains("original"), "{}", planned.out);
        damage(&node);
        for verb in &VERBS[1..4] {
            assert_eq!(node.run(verb).code, 0, "{verb:?}");
        }
        let kept = ["/etc/motd", "/etc/link", "/etc/dir", "/etc/systemd/system/host.service"];
        are_named_as_not_restorable(&node, &kept);
        let planned = node.plan("empty.json");
        assert_eq!(planned.code, 0, "{}", planned.err);
        for path in kept {
            assert!(
                planned.out.contains(&format!("{path:?}: the host had this path before")),
                "{}",
                planned.out
            );
        }
        let applied = node.apply("empty.json");
        assert_eq!(applied.code, 0, "{}", applied.err);
        assert!(applied.err.contains("the host had this path before"), "{}", applied.err);
        for path in kept {
            assert!(node.path(&format!("root{path}")).symlink_metadata().is_ok(), "{path} is gone");
        }
        // What the config alone brought goes.
        assert!(!node.path("root/etc/new").exists() && node.read("root/etc/motd") == "a");
        assert_eq!(node.apply("empty.json").code, 0);
    }
}

/// A policy with which units of these tests cost nothing.
const QUIET_UNITS: &str = r#"{"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
    "metadata": {"name": "cluster"}, "spec": {"nodeDisruptionPolicy": {
    "files": [{"path": "/etc", "actions": [{"type": "None"}]}],
    "units": [{"name": "crio.service", "actions": [{"type": "None"}]},
        {"name": "host.service", "actions": [{"type": "None"}]}]}}}"#;

/// Settings that no verb takes: the node is not Done, and the reason is in both forms.
#[test]
fn status_beside_bad_settings_is_not_done() {
    let host_args = ["--root", "root", "--os-backend", "none"];
    let fresh = Node::new();
    fresh.put("root/etc/machine-config-agent/settings.toml", "x");
    let ran = fresh.run(&[&["status"], &host_args[..]].concat());
    let is_told = ran.out.contains("is Degraded") && ran.out.contains("SettingsInvalid");
    assert!(is_told && !ran.out.contains("1970"), "{}{}", ran.out, ran.err);
    let node = host(false);
    let host = host_args;
    let status = |words: &[&str]| node.run(&[&["status"], &host[..], words].concat());
    assert_eq!(status(&["--exit-code"]).code, 0);
    node.put("root/etc/machine-config-agent/settings.toml", "x");
    let text = status(&["--exit-code"]);
    assert!(text.code == 4 && text.out.contains("is Degraded"), "{}: {}", text.code, text.out);
    assert_eq!(text.out.matches("SettingsInvalid").count(), 1, "{}", text.out);
    let document: Value = serde_json::from_str(&status(&["--output", "json"]).out).unwrap();
    let found = (&document["state"], &document["fault"]["reason"]);
    node.put("root/etc/machine-config-agent/settings.toml", "[os]\nspeed = 1\nstall = '2m'\n");
    let text = status(&["--exit-code"]);
    assert!(
        text.code == 0 && text.out.contains("settings.toml os.speed: this agent has no such"),
        "{}: {}",
        text.code,
        text.out
    );
    for verb in &VERBS[..2] {
        let ran = node.run(verb);
        assert!(ran.code == 0 && ran.err.contains("warning: "), "{}: {}{}", ran.code, ran.out, ran.err);
        assert!(
            ran.err.contains("Not applied: /etc/machine-config-agent/settings.toml os.speed: this agent"),
            "{}",
            ran.err
        );
    }
    let settings = files(&[("/etc/machine-config-agent/settings.toml", "%5Blater%5D%0Ax=1%0A")]);
    node.put("b.json", config("rendered-worker-b", &settings));
    let planned = node.run(VERBS[0]);
    let named = "storage.files \"/etc/machine-config-agent/settings.toml\" contents later";
    assert!(
        planned.code == 0 && planned.out.contains(named),
        "{}: {}{}",
        planned.code,
        planned.out,
        planned.err
    );
    assert_eq!(found, (&json!("Degraded"), &json!("SettingsInvalid")), "{document}");
}
