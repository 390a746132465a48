//! For which request the staged deployment was made: a note below `/run`, which ends with the boot as the deployment does.
//!
//! bootc starts from the arguments of whatever is staged, and has no option against it. The digest alone does not show
//! whether the arguments of a staged deployment were changed already.

use serde::{Deserialize, Serialize};

use super::super::StageRequest;
use crate::host::{HostError, Root};
use crate::model::observation::Staged;
use crate::model::{FileMode, ImageRef, Karg};

const PATH: &str = "/run/machine-config-agent-bootc.json";

/// The note's file.
#[derive(Debug, Clone)]
pub(super) struct StageRecord {
    root: Root,
}

/// A request and its result.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    image: Option<ImageRef>,
    delete: Vec<Karg>,
    append: Vec<Karg>,
    staged: Staged,
}

impl Note {
    fn new(request: &StageRequest, staged: &Staged) -> Self {
        Self {
            image: request.image.clone(),
            delete: request.delete_kargs.clone(),
            append: request.append_kargs.clone(),
            staged: staged.clone(),
        }
    }
}

impl StageRecord {
    pub(super) fn new(root: Root) -> Self {
        Self { root }
    }

    /// Returns true if this deployment was staged for this request: the image's digest counts, not its name.
    pub(super) fn is(&self, request: &StageRequest, staged: &Staged) -> Result<bool, HostError> {
        let Some(bytes) = self.root.read(PATH)? else { return Ok(false) };
        // One that can't be read is of no use, and is written again.
        let Ok(note) = serde_json::from_slice::<Note>(&bytes) else { return Ok(false) };
        let digest = |image: &Option<ImageRef>| image.as_ref().map(ImageRef::digest);
        let expected = Note::new(request, staged);
        Ok(digest(&note.image) == digest(&expected.image)
            && Note { image: expected.image.clone(), ..note } == expected)
    }

    /// Notes the staged deployment.
    pub(super) fn note(&self, request: &StageRequest, staged: &Staged) -> Result<(), HostError> {
        // A note that can't be written is done without: the same is staged again then.
        match serde_json::to_vec(&Note::new(request, staged)) {
            Ok(json) => self.root.replace(PATH, &json, FileMode::PRIVATE),
            Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deployment_is_known_by_its_request_and_its_arguments() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("run")).unwrap();
        let stage_record = StageRecord::new(Root::open(dir.path()).unwrap());
        let image =
            |name: &str, hex: &str| ImageRef::parse(&format!("{name}@sha256:{}", hex.repeat(64))).ok();
        let append = Karg::split("quiet");
        let request =
            StageRequest { image: image("a", "1"), append_kargs: append, ..StageRequest::default() };
        let staged = Staged {
            image: image("a", "1"),
            deployment: "os-1.0".to_owned(),
            kargs: Karg::split("rw quiet"),
        };
        assert!(!stage_record.is(&request, &staged).unwrap(), "nothing is noted");
        stage_record.note(&request, &staged).unwrap();
        let same = StageRequest { image: image("b", "1"), ..request.clone() };
        for (request, staged, expected) in [
            (request.clone(), staged.clone(), true),
            (same, staged.clone(), true),
            (StageRequest { image: image("a", "2"), ..request.clone() }, staged.clone(), false),
            (StageRequest { append_kargs: Vec::new(), ..request.clone() }, staged.clone(), false),
            (request.clone(), Staged { kargs: Karg::split("rw"), ..staged.clone() }, false),
            (request.clone(), Staged { deployment: "os-1.1".to_owned(), ..staged.clone() }, false),
        ] {
            assert_eq!(stage_record.is(&request, &staged).unwrap(), expected, "{request:?} {staged:?}");
        }
        // One that can't be read, or another version's, means that it is staged again, and noted again.
        let path = dir.path().join("run/machine-config-agent-bootc.json");
        for bytes in [&b"{"[..], b"", b"hunter2\xff\x00", br#"{"schema":99}"#, b"null", b"[]"] {
            std::fs::write(&path, bytes).unwrap();
            assert!(!stage_record.is(&request, &staged).unwrap(), "{bytes:?}");
            stage_record.note(&request, &staged).unwrap();
            assert!(stage_record.is(&request, &staged).unwrap(), "{bytes:?}");
        }
        // What is no file is in the way, by its name.
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir_all(path.join("child")).unwrap();
        let error = stage_record.is(&request, &staged).unwrap_err().to_string();
        assert!(error.contains(PATH), "{error}");
    }
}
