//! The readers of state files, of the agent's and of machine-config-daemon's, as one target of `fuzz/`.

#![expect(clippy::disallowed_methods, reason = "a directory of its own stands for the host")]

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::error::JournalError;
use super::machine::Machine;
use super::stored::{self, Stored};
use super::{history, lifecycle, mcd, seed, stateroot};
use crate::host::account_records::AccountRecords;
use crate::host::{HostError, Root, saved};
use crate::model::{ManagedPath, text};

const CURRENT: &str = "/var/lib/machine-config-agent/current.json";
const FROM: &str = "/var/lib/machine-config-agent/from.json";
const TARGET: &str = "/var/lib/machine-config-agent/target.json";

/// Stands for a password or a private file in the corpus.
const SECRET: &str = "hunter2";

type Reader = fn(&Root) -> Result<(), JournalError>;

/// The files, below the root, and their readers.
const READERS: [(&str, Reader); 17] = [
    ("etc/machine-config-daemon/currentconfig", imported),
    ("var/lib/machine-config-agent/accounts.json", |root| Ok(AccountRecords::load(root).map(drop)?)),
    ("var/lib/machine-config-agent/current.json", |root| of_config(root, Stored::load(root, CURRENT)?)),
    ("var/lib/machine-config-agent/from.json", |root| of_config(root, Stored::load(root, FROM)?)),
    ("var/lib/machine-config-agent/history/entry-0000000001.json", |root| history::load(root).map(drop)),
    ("var/lib/machine-config-agent/kargs.json", |root| super::stored::load_kargs(root).map(drop)),
    ("var/lib/machine-config-agent/machine.json", |root| {
        drop(Machine::stored(root));
        Ok(())
    }),
    ("var/lib/machine-config-agent/preimages/kept/%2Fetc%2Fmotd.json", |root| Ok(original(root)?)),
    ("var/lib/machine-config-agent/record.json", |root| stored::load_record(root).map(drop)),
    ("var/lib/machine-config-agent/seed.json", |root| seed::load_record(root).map(drop)),
    ("var/lib/machine-config-agent/seed-generation.json", lifecycle::check),
    ("var/lib/machine-config-agent/stateroot.json", |root| stateroot::load_record(root).map(drop)),
    ("var/lib/machine-config-agent/stateroot-lifecycle.json", lifecycle::check),
    ("var/lib/machine-config-agent/stateroot-return.json", |root| stateroot::load_return(root).map(drop)),
    ("var/lib/machine-config-agent/stateroot-trial.json", |root| stateroot::load_trial(root).map(drop)),
    ("var/lib/machine-config-agent/stateroots/rhcos_1.json", |root| stateroot::load_prepared(root).map(drop)),
    ("var/lib/machine-config-agent/target.json", |root| of_config(root, Stored::load(root, TARGET)?)),
];

/// Reads a file of the state: its path in the first line, then its content.
pub(crate) fn state_files(bytes: &[u8]) -> Vec<String> {
    let mut parts = bytes.splitn(2, |byte| *byte == b'\n');
    let (Some(name), Some(content)) = (parts.next(), parts.next()) else { return Vec::new() };
    let Some((path, reader)) = READERS.iter().find(|(path, _)| path.as_bytes() == name) else {
        return Vec::new();
    };
    let scratch = scratch();
    assert!(scratch.is_some(), "the scratch directory");
    let Some((directory, root)) = scratch else { return Vec::new() };
    let file = directory.join(path);
    assert!(std::fs::write(&file, content).is_ok(), "the scratch directory");
    let read = reader(root);
    assert!(std::fs::remove_file(&file).is_ok(), "the scratch directory");
    let refusal = read.err().map(|error| text::chain(&error));
    assert!(!refusal.as_ref().is_some_and(|text| text.contains(SECRET)), "a secret is told: {refusal:?}");
    refusal.into_iter().collect()
}

/// Imports what machine-config-daemon committed: it can be written, read and left.
fn imported(root: &Root) -> Result<(), JournalError> {
    let found = mcd::read(root)?;
    let Some(taken) = &found else { return Ok(()) };
    assert!(taken.save(root, CURRENT).is_ok(), "it can be written");
    let again = Stored::load(root, CURRENT);
    assert!(again.is_ok_and(|again| again.is_some()), "and be read");
    of_config(root, found)
}

fn of_config(root: &Root, stored: Option<Stored>) -> Result<(), JournalError> {
    let Some(stored) = stored else { return Ok(()) };
    stored.save(root, CURRENT)?;
    let again = Stored::load(root, CURRENT)?;
    let same = again.is_some_and(|again| {
        again.target == stored.target && again.machine_config() == stored.machine_config()
    });
    assert!(same, "what is written reads the same");
    Ok(())
}

fn original(root: &Root) -> Result<(), HostError> {
    let Ok(path) = ManagedPath::new("/etc/motd") else { return Ok(()) };
    saved::load_original(root, &path).map(drop)
}

/// A directory of this process in the place of a root.
fn scratch() -> Option<&'static (PathBuf, Root)> {
    static SCRATCH: OnceLock<Option<(PathBuf, Root)>> = OnceLock::new();
    let make = || {
        let directory = std::env::temp_dir().join(format!("machine-config-fuzz-{}", std::process::id()));
        for (path, _) in READERS {
            let parent = Path::new(path).parent().unwrap_or(Path::new(""));
            drop(std::fs::create_dir_all(directory.join(parent)));
        }
        let root = Root::open(&directory).ok()?;
        Some((directory, root))
    };
    SCRATCH.get_or_init(make).as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name of a file of which a fuzzer has no input, it does not find either.
    #[test]
    fn each_reader_has_kept_inputs() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/agent/state");
        let inputs = std::fs::read_dir(corpus).unwrap();
        let inputs: Vec<Vec<u8>> =
            inputs.map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
        for (path, _) in READERS {
            let head = format!("{path}\n");
            assert!(inputs.iter().any(|input| input.starts_with(head.as_bytes())), "{path}");
        }
    }

    /// The same of those that a person of another version left: read, and not only refused.
    #[test]
    fn kept_states_are_read() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/agent/state");
        for name in ["desired", "from", "generation", "machine", "return", "stages"] {
            let input = std::fs::read(corpus.join(name)).unwrap();
            assert_eq!(state_files(&input), Vec::<String>::new(), "{name}");
        }
    }
}
