//! The config of a hosted cluster's node (`HyperShift`), mounted into this pod by its control plane. The Node's annotations
//! name it by its hash. Such a cluster has no MachineConfigs of its own.

use std::path::Path;

use crate::control::ControlError;
use crate::host::Root;
use crate::model::ConfigName;
use crate::model::hosted::hosted_config;
use crate::model::machineconfig::{self, MachineConfig};
use crate::model::short;

/// Files below the directory: the config and its hash.
const CONFIG: &str = "/config";
const HASH: &str = "/hash";

/// The directory.
#[derive(Debug)]
pub struct Mounted {
    root: Root,
    path: String,
}

impl Mounted {
    /// Opens the directory, which is the container's: before the host is entered.
    pub fn open(directory: &Path) -> Result<Self, ControlError> {
        Ok(Self { root: Root::open(directory)?, path: directory.display().to_string() })
    }

    /// Returns the mounted config if it is the desired one.
    pub(super) fn config(&self, name: &ConfigName) -> Result<MachineConfig, ControlError> {
        self.check_hash(name)?;
        let payload = self.root.read_at_most(CONFIG, machineconfig::MAX_BYTES)?.unwrap_or_default();
        // The kubelet replaces both files at once, but not between two reads.
        self.check_hash(name)?;
        let document = format!("{}{CONFIG}", self.path);
        hosted_config(&payload, name, &document).map_err(|source| ControlError::Invalid { document, source })
    }

    fn check_hash(&self, name: &ConfigName) -> Result<(), ControlError> {
        let text = self.root.read_text(HASH)?.unwrap_or_default();
        let hash = text.trim();
        if hash == name.as_str() {
            return Ok(());
        }
        let why = format!("it is {:?}, and the Node desires {name}", short(hash, 100));
        Err(ControlError::WaitingForObject { object: format!("{}{HASH}", self.path), why })
    }
}
