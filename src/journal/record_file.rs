//! A record in a file of its own, which one process writes: those of stateroots and of seeds.
//!
//! Invariant: the memory equals the disk. A write that fails leaves the memory as it was, and the disk in doubt: before the next
//! change, and before an effect, the record is written again from memory, as a new file.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::JournalError;
use super::files::{STATE_MODE, state};
use super::stored::read_state;
use super::version;
use crate::host::root::Root;
use crate::model::yaml::redacted;

/// The kind of a record.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordKind {
    /// Its file, in the directory of the state.
    pub(super) file: &'static str,
    /// Its name in messages.
    pub(super) what: &'static str,
    /// The newest version that is read.
    pub(super) schema: u32,
}

/// A record, in memory and on disk.
#[derive(Debug)]
pub(super) struct RecordFile<T> {
    root: Root,
    kind: RecordKind,
    record: Option<T>,
    /// Set while the file is changed and after a change that failed.
    in_doubt: bool,
}

impl<T: Serialize + DeserializeOwned> RecordFile<T> {
    /// Reads the record; its lock is held.
    pub(super) fn open(root: Root, kind: RecordKind) -> Result<Self, JournalError> {
        let record = kind.load(&root)?;
        Ok(Self { root, kind, record, in_doubt: false })
    }

    /// Returns the record.
    pub(super) fn get(&self) -> Option<&T> {
        self.record.as_ref()
    }

    /// Writes the record, durably.
    pub(super) fn write(&mut self, record: T) -> Result<(), JournalError> {
        self.settle()?;
        let bytes = self.kind.json(&record)?;
        self.in_doubt = true;
        self.root.replace(&self.kind.path(), &bytes, STATE_MODE)?;
        self.record = Some(record);
        self.in_doubt = false;
        Ok(())
    }

    /// Removes the record, durably.
    pub(super) fn remove(&mut self) -> Result<(), JournalError> {
        self.settle()?;
        self.in_doubt = true;
        self.root.remove(&self.kind.path())?;
        self.record = None;
        self.in_doubt = false;
        Ok(())
    }

    /// After a change that failed, makes the disk equal to the memory.
    pub(super) fn settle(&mut self) -> Result<(), JournalError> {
        if !self.in_doubt {
            return Ok(());
        }
        match &self.record {
            Some(record) => self.root.rewrite(&self.kind.path(), &self.kind.json(record)?, STATE_MODE)?,
            None => self.root.remove_again(&self.kind.path())?,
        }
        self.in_doubt = false;
        Ok(())
    }
}

impl RecordKind {
    /// Reads a record without its lock.
    pub(super) fn load<T: DeserializeOwned>(self, root: &Root) -> Result<Option<T>, JournalError> {
        let path = self.path();
        let Some(bytes) = read_state(root, &path, self.what)? else { return Ok(None) };
        version::parse(&path, self.what, self.schema, &bytes).map(Some)
    }

    fn path(self) -> String {
        state(self.file)
    }

    fn json(self, record: &impl Serialize) -> Result<Vec<u8>, JournalError> {
        serde_json::to_vec(record).map_err(|error| unreadable(&self.path(), self.what, &error))
    }
}

/// Returns the error of a file that can't be read, or whose contents can't be written as JSON.
pub(super) fn unreadable(path: &str, what: &'static str, error: &serde_json::Error) -> JournalError {
    JournalError::Unreadable { path: path.to_owned(), what, cause: redacted(&error.to_string()) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::host::fsync;
    use crate::journal::STATE_DIR_MODE;
    use crate::model::ids::STATE_DIR;

    const KIND: RecordKind = RecordKind { file: "test.json", what: "a test", schema: 1 };

    fn opened() -> (tempfile::TempDir, Root, RecordFile<Value>) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        root.create_dir(STATE_DIR, STATE_DIR_MODE).unwrap();
        let file = RecordFile::open(root.clone(), KIND).unwrap();
        (dir, root, file)
    }

    fn on_disk(root: &Root) -> Option<Value> {
        KIND.load(root).unwrap()
    }

    /// The new name may be there, and gone after a power cut: the next change begins with what the memory has.
    #[test]
    fn failed_write_leaves_memory_and_is_settled_by_next_change() {
        let (_dir, root, mut file) = opened();
        file.write(json!({"schema": 1, "step": "a"})).unwrap();
        // The second sync of a write is that of its directory.
        fsync::failing::at(2);
        file.write(json!({"schema": 1, "step": "b"})).unwrap_err();
        assert_eq!(
            (file.get().unwrap()["step"].clone(), on_disk(&root).unwrap()["step"].clone()),
            (json!("a"), json!("b"))
        );
        file.settle().unwrap();
        assert_eq!(on_disk(&root).unwrap()["step"], "a");
        fsync::failing::at(1);
        file.remove().unwrap_err();
        assert_eq!((file.get().is_some(), on_disk(&root)), (true, None));
        file.settle().unwrap();
        assert_eq!(on_disk(&root).unwrap()["step"], "a");
        file.remove().unwrap();
        assert_eq!((file.get(), on_disk(&root)), (None, None));
    }

    /// A record that was never written is not there after the next change.
    #[test]
    fn failed_first_write_is_taken_back() {
        let (_dir, root, mut file) = opened();
        fsync::failing::at(2);
        file.write(json!({"schema": 1})).unwrap_err();
        assert_eq!((file.get(), on_disk(&root)), (None, Some(json!({"schema": 1}))));
        file.settle().unwrap();
        assert_eq!(on_disk(&root), None);
    }

    #[test]
    fn newer_and_damaged_records_are_refused() {
        let (_dir, root, _) = opened();
        for (text, reason) in [(r#"{"schema": 2}"#, "Newer"), ("{", "Unreadable"), ("{}", "Unreadable")] {
            root.replace(&KIND.path(), text.as_bytes(), STATE_MODE).unwrap();
            let error = KIND.load::<Value>(&root).unwrap_err();
            assert!(format!("{error:?}").starts_with(reason), "{text}: {error:?}");
        }
    }
}
