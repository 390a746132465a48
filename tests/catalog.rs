//! The journal's catalog and the code name the same messages, and every text says what to do next.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test may read files and stop at the first surprise"
)]

use std::collections::BTreeSet;

use machine_config_agent::model::message;

#[test]
fn every_message_has_its_text_and_every_text_its_message() {
    let catalog = std::fs::read_to_string("dist/machine-config-agent.catalog").unwrap();
    let texts: BTreeSet<&str> = catalog.lines().filter_map(|line| line.strip_prefix("-- ")).collect();
    let ids: BTreeSet<&str> = message::ALL.iter().map(|(_, id)| *id).collect();
    assert_eq!(texts, ids);
    assert_eq!(ids.len(), message::ALL.len(), "two messages share an id");
    for entry in catalog.split("\n-- ").skip(1) {
        for part in ["Subject: ", "Defined-By: machine-config-agent", "About: ", "Next: "] {
            assert!(entry.contains(part), "{part:?} is missing in {entry}");
        }
    }
}

/// OBS-001.
#[test]
fn every_message_is_logged_somewhere() {
    let mut source = String::new();
    for folder in ["src/agent", "src/apply"] {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                source += &std::fs::read_to_string(path).unwrap();
            }
        }
    }
    for (name, _) in message::ALL {
        assert!(source.contains(&format!("message::{name}")), "{name} is never logged");
    }
}
