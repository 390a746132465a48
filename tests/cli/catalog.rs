//! The journal's catalog and the code name the same messages, and every text has a next step.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::table;
use crate::test_host::{Node, apply, config, files};
use machine_config_agent::model::message;

const CATALOG: &str = "dist/machine-config-agent.catalog";

/// The texts by their ids.
fn entries() -> BTreeMap<String, String> {
    let catalog = std::fs::read_to_string(CATALOG).unwrap();
    let entry =
        |text: &str| text.split_once('\n').map(|(id, text)| (id.to_owned(), text.to_owned())).unwrap();
    catalog.split("\n-- ").skip(1).map(entry).collect()
}

#[test]
fn every_message_has_its_text_and_every_text_its_message() {
    let entries = entries();
    let texts: BTreeSet<&str> = entries.keys().map(String::as_str).collect();
    let ids: BTreeSet<&str> = message::ALL.iter().map(|(_, id)| *id).collect();
    assert_eq!(ids.len(), message::ALL.len(), "two messages share an id");
    let update = "Each id of core/src/model/message.rs has an entry `-- ID` there.";
    table::compare(CATALOG, texts, "core/src/model/message.rs", ids, update);
    for (id, entry) in &entries {
        for part in ["Subject: ", "Defined-By: machine-config-agent", "\nAbout: ", "\nNext: "] {
            assert!(entry.contains(part), "{part:?} is missing in {id}: {entry}");
        }
        let page = entry.split("machine-config-agent/").nth(1).and_then(|rest| rest.split('\n').next());
        assert!(Path::new("docs").join(page.unwrap()).is_file(), "{page:?} is no document");
    }
}

/// The statements of the sources that log with an id, by its name.
fn statements() -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources() {
        let mut before = "";
        for (number, part) in source.split("MESSAGE_ID = message::").enumerate() {
            if number > 0 {
                let name = part.split(|c: char| !c.is_ascii_uppercase() && c != '_').next().unwrap();
                let rest = part.split(");").next().unwrap();
                let (macro_name, head) = before.rsplit_once("!(").unwrap();
                // `update_line!` of src/agent/fields.rs gives its lines these.
                let of_update = if macro_name.ends_with(" update_line") {
                    "MCA_UPDATE = MCA_CONFIG = MCA_IMAGE = "
                } else {
                    ""
                };
                found.entry(name.to_owned()).or_default().push(format!("{of_update}{head}{rest}"));
            }
            before = part;
        }
    }
    found
}

/// Every source of the agent.
fn sources() -> Vec<String> {
    let mut sources = Vec::new();
    let mut folders = vec![std::path::PathBuf::from("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                sources.push(std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    sources
}

/// OBS-001: a line that reports a fault is found by its ID. Each statement of the sources that names one has it.
#[test]
fn each_line_with_fault_has_id() {
    let of_faults: usize = sources().iter().map(|source| source.matches("MCA_FAULT =").count()).sum();
    let statements = statements();
    let with_id = statements.values().flatten().filter(|statement| statement.contains("MCA_FAULT =")).count();
    assert_eq!(with_id, of_faults);
}

/// OBS-001: a filter by an update, its config or its image finds each of its lines. Those of steps get the fields in
/// one function (`line!` in src/apply/mod.rs).
#[test]
fn each_line_of_update_names_its_config_and_image() {
    let of_updates = [
        "COMMITTED",
        "FALL_BACK_FAILED",
        "PHASE",
        "REBOOT",
        "REBOOT_ABORTED",
        "REBOOT_BLOCKED",
        "REPAIR",
        "REPLANNED",
        "RESTAGED",
        "RESUMED",
        "ROLLED_BACK",
        "STAGED_DROPPED",
        "TRIAL_FAILED",
        "TRIAL_PASSED",
        "TRIAL_STARTED",
    ];
    let statements = statements();
    for name in of_updates {
        for (field, statement) in ["MCA_UPDATE =", "MCA_CONFIG ="]
            .iter()
            .flat_map(|field| statements[name].iter().map(move |one| (field, one)))
        {
            assert!(statement.contains(field), "{name} has no {field}: {statement}");
        }
    }
    // The drain controller answers for a config alone.
    let targets =
        statements.iter().filter(|(name, _)| *name != "WAITING").flat_map(|(_, statements)| statements);
    for statement in targets.filter(|one| one.contains("MCA_CONFIG =") || one.contains("MCA_UPDATE =")) {
        assert!(statement.contains("MCA_IMAGE ="), "no MCA_IMAGE: {statement}");
    }
}

#[test]
fn every_message_is_logged_somewhere() {
    let statements = statements();
    for (name, _) in message::ALL {
        assert!(statements.contains_key(name), "{name} is never logged");
    }
}

/// `journalctl -x` leaves `@FIELD@` as it is where a line does not have the field.
#[test]
fn text_names_only_fields_of_all_its_lines() {
    let (entries, statements) = (entries(), statements());
    for (name, id) in message::ALL {
        let text = &entries[id];
        for field in text.split('@').skip(1).step_by(2) {
            for statement in &statements[name] {
                assert!(statement.contains(&format!("{field} =")), "{name} has no {field}: {statement}");
            }
        }
    }
}

/// OBS-001: an ID means the same in all its lines. A text of lines of several kinds speaks of each.
#[test]
fn text_is_true_for_each_of_its_lines() {
    let (entries, ids) = (entries(), BTreeMap::from(message::ALL));
    for (name, kinds) in [
        ("EARLIER_STATE_DROPPED", &["reinstalled", "copy of another machine"][..]),
        ("FIRST_BOOT", &["renamed", "already manages", "a person removed"]),
        ("STAGE", &["stage", "started or pushed seed", "created from this node's state"]),
        ("STAGE_FAILED", &["stage", "object of the cluster", "stateroot.yaml", "seed"]),
        ("STEP_DONE", &["update", "stateroot", "seed"]),
        ("STEP_FAILED", &["update", "stateroot", "seed"]),
        ("STEP_STARTED", &["update", "stateroot", "seed"]),
        ("STOPPED", &["signal", "another node"]),
        ("TRUST_FAILED", &["ControllerConfig", "API server's new CA"]),
        ("WAITING", &["drain", "API server", "another program", "another agent", "manual reboot"]),
    ] {
        for words in kinds {
            let text = ids.get(name).map(|id| &entries[*id]);
            assert!(text.is_some_and(|text| text.contains(words)), "{name}: {words:?} in {text:?}");
        }
    }
    // A fault has a text about faults.
    let statements = statements();
    assert!(statements["CA_ROTATION"].iter().all(|statement| !statement.contains("MCA_FAULT =")));
}

/// systemd reads catalogs below `/usr/lib` only, and has to understand this one.
#[test]
fn journalctl_reads_catalog_at_documented_path() {
    let install = std::fs::read_to_string("docs/install.md").unwrap();
    assert!(!install.contains("/etc/systemd/catalog"), "systemd does not read it there");
    let place = "usr/lib/systemd/catalog/machine-config-agent.catalog";
    assert!(install.contains(&format!("dist/machine-config-agent.catalog /{place}")));
    let root = tempfile::tempdir().unwrap();
    let to = root.path().join(place);
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    std::fs::copy(CATALOG, to).unwrap();
    let journalctl =
        |words: &[&str]| run(Command::new("journalctl").arg("--root").arg(root.path()).args(words));
    journalctl(&["--update-catalog"]);
    for (id, text) in entries() {
        let subject = text.lines().next().unwrap().to_owned();
        assert!(journalctl(&["--dump-catalog", &id]).contains(&subject), "{id}");
    }
}

/// `journalctl -x` shows the cause of a fault, its end and the next step, whatever the fault is.
#[test]
fn journal_explains_fault() {
    let exe = std::env::current_exe().unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "--map-root-user"])
        .args([exe.as_os_str(), "--exact".as_ref(), "catalog::under_journald".as_ref(), "--ignored".as_ref()])
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "{out}{err}");
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A journal of its own, with our catalog alone.
fn start_journald() -> Child {
    for place in ["/run", "/usr/lib/systemd/catalog", "/var/lib/systemd"] {
        run(Command::new("mount").args(["-t", "tmpfs", "tmpfs", place]));
    }
    for place in ["/run/systemd/journal", "/run/log/journal", "/var/lib/systemd/catalog"] {
        std::fs::create_dir_all(place).unwrap();
    }
    std::fs::copy(CATALOG, "/usr/lib/systemd/catalog/machine-config-agent.catalog").unwrap();
    run(Command::new("journalctl").arg("--update-catalog"));
    let ready = UnixDatagram::bind("/run/ready").unwrap();
    ready.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut command = Command::new("/usr/lib/systemd/systemd-journald");
    let journald = command.env("NOTIFY_SOCKET", "/run/ready").stdin(Stdio::null()).spawn().unwrap();
    let mut word = [0; 512];
    while !String::from_utf8_lossy(&word).contains("READY=1") {
        word.fill(0);
        ready.recv(&mut word).expect("journald is ready");
    }
    journald
}

#[test]
#[ignore = "in a mount namespace of its own: journal_explains_fault runs it"]
fn under_journald() {
    let mut journald = start_journald();
    let node = Node::new();
    node.put("b.json", config("rendered-b", &files(&[("/etc/taken", "text")])));
    node.put("root/etc/taken/below", "");
    let stderr = std::fs::File::create("/run/stderr").unwrap();
    let stream = stderr.metadata().map(|meta| format!("{}:{}", meta.dev(), meta.ino())).unwrap();
    let status =
        node.command(&apply("b.json")).env("JOURNAL_STREAM", stream).stderr(stderr).status().unwrap();
    run(Command::new("journalctl").arg("--sync"));
    let journal = ["--directory", "/run/log/journal", "--catalog", "--no-pager", "--identifier"];
    let told = run(Command::new("journalctl").args(journal).arg("machine-config-agent"));
    journald.kill().unwrap();
    journald.wait().unwrap();
    assert_eq!(status.code(), Some(3), "{told}");
    for line in [
        " Subject: Fault: HostNotPrepared\n",
        " Cause: the node can't reach its new config: storage.files \"/etc/taken\": a directory is there, which no config made",
        " Ends with: another run of `apply`, or the start of the daemon, once the cause is repaired; no automatic retry",
        "move it away, or choose another path",
        " Next: For storage.files \"/etc/taken\": move it away, or choose another path.",
    ] {
        assert!(told.contains(line), "{line:?} is missing: {told}");
    }
    let unfilled: Vec<&str> = told.lines().filter(|line| line.contains("@MCA_")).collect();
    assert!(unfilled.is_empty(), "{unfilled:?}");
}
