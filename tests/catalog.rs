//! The journal's catalog and the code name the same messages, and every text says what to do next.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test may read files, run journalctl and stop at the first surprise"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

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
    assert_eq!(texts, ids);
    assert_eq!(ids.len(), message::ALL.len(), "two messages share an id");
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
    let mut folders = vec![std::path::PathBuf::from("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let source = std::fs::read_to_string(&path).unwrap();
            let mut before = "";
            for (number, part) in source.split("MESSAGE_ID = message::").enumerate() {
                if number > 0 {
                    let name = part.split(|c: char| !c.is_ascii_uppercase() && c != '_').next().unwrap();
                    let rest = part.split(");").next().unwrap();
                    let head = before.rsplit("!(").next().unwrap();
                    found.entry(name.to_owned()).or_default().push(format!("{head}{rest}"));
                }
                before = part;
            }
        }
    }
    found
}

/// OBS-001.
#[test]
fn every_message_is_logged_somewhere() {
    let statements = statements();
    for (name, _) in message::ALL {
        assert!(statements.contains_key(name), "{name} is never logged");
    }
}

/// `journalctl -x` leaves `@FIELD@` as it is where a line does not have the field.
#[test]
fn text_names_only_fields_that_each_of_its_lines_has() {
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

/// systemd reads catalogs below `/usr/lib` only, and has to understand this one.
#[test]
fn journalctl_reads_the_catalog_where_the_documents_install_it() {
    let install = std::fs::read_to_string("docs/install.md").unwrap();
    assert!(!install.contains("/etc/systemd/catalog"), "systemd does not read it there");
    let place = "usr/lib/systemd/catalog/machine-config-agent.catalog";
    assert!(install.contains(&format!("dist/machine-config-agent.catalog /{place}")));
    let root = tempfile::tempdir().unwrap();
    let to = root.path().join(place);
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    std::fs::copy(CATALOG, to).unwrap();
    let journalctl = |words: &[&str]| {
        let mut command = std::process::Command::new("journalctl");
        let output = command.arg("--root").arg(root.path()).args(words).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    journalctl(&["--update-catalog"]);
    for (id, text) in entries() {
        let subject = text.lines().next().unwrap().to_owned();
        assert!(journalctl(&["--dump-catalog", &id]).contains(&subject), "{id}");
    }
}
