//! The Node's first annotations, left by the provisioning.

use crate::control::ControlError;
use crate::host::{HostError, Root};
use crate::model::annotations::{DESIRED_CONFIG, DESIRED_IMAGE};
use crate::model::{ConfigName, FileMode, ImageRef};

use super::annotations::{Annotations, CURRENT_CONFIG, CURRENT_IMAGE};

/// File that the machine-config-server's Ignition writes them to.
const FILE: &str = "/etc/machine-config-daemon/node-annotations.json";

/// An object's annotations have 256 KiB at most.
const LARGEST: u64 = 256 * 1024;

/// File that keeps them once they have served, under MCD's name for it.
const ANNOTATIONS_PATH: &str = "/etc/machine-config-daemon/node-annotation.json.bak";

/// Returns true if they are still to be used.
pub(super) fn is_pending(root: &Root) -> Result<bool, HostError> {
    root.exists(FILE)
}

/// Reads them.
pub(super) fn read(root: &Root) -> Result<Option<Annotations>, ControlError> {
    let Some(bytes) = root.read_trusted(FILE, LARGEST)? else { return Ok(None) };
    let read = serde_json::from_slice(&bytes).map_err(|error| HostError::Malformed {
        path: FILE.to_owned(),
        format: "a JSON object of strings",
        cause: format!("line {}, column {}", error.line(), error.column()),
    });
    Ok(Some(read?))
}

/// Returns them as the provisioning leaves them for a host with this config and image.
pub(super) fn of_host(config: &ConfigName, image: Option<&ImageRef>) -> Annotations {
    let configs = [CURRENT_CONFIG, DESIRED_CONFIG].map(|key| (key.to_owned(), config.to_string()));
    let images =
        image.map(|image| [CURRENT_IMAGE, DESIRED_IMAGE[0]].map(|key| (key.to_owned(), image.to_string())));
    configs.into_iter().chain(images.into_iter().flatten()).collect()
}

/// Puts them away: the current config is stored by now, and the name goes last (W-11).
pub(super) fn retire(root: &Root) -> Result<(), HostError> {
    if let Some(bytes) = root.read_trusted(FILE, LARGEST)? {
        root.replace(ANNOTATIONS_PATH, &bytes, FileMode::DEFAULT)?;
        root.remove(FILE)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MCD-229, W-11: kept under the other name, gone under the first; a second time is no error.
    #[test]
    fn they_serve_once() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        assert!(!is_pending(&root).unwrap());
        root.replace(FILE, br#"{"machineconfiguration.openshift.io/state":"Done"}"#, FileMode::DEFAULT)
            .unwrap();
        assert!(is_pending(&root).unwrap());
        assert_eq!(read(&root).unwrap().unwrap().len(), 1);
        retire(&root).unwrap();
        retire(&root).unwrap();
        assert!(!is_pending(&root).unwrap());
        assert!(root.read(ANNOTATIONS_PATH).unwrap().is_some());
        root.replace(FILE, b"[]", FileMode::DEFAULT).unwrap();
        assert!(read(&root).unwrap_err().next().contains("node-annotations.json"));
    }
}
