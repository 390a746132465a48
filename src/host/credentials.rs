//! Registry credentials for the pull of the OS image (MCD-3.30).
//!
//! A config may bring the image and the secret that pulls it, and the image comes first. So the contents are handed to
//! the pull itself, as the config brings them or else as the host has them, and never copied to a second file. The
//! link at ostree's own place is for the host's other tools; it leads to the secret once that is written.
//!
//! Invariant: what an administrator put at ostree's place wins, and stays.

use super::durable::{self, Change, Run, Want};
use super::{FailPoints, HostError, Root};
use crate::model::image::PULL_SECRETS;
use crate::model::{Contents, FileSeen, HostSpec, ManagedPath};

/// Where ostree looks for registry credentials in this boot.
const AUTH_FILE: &str = "/run/ostree/auth.json";

/// Credentials and where they are. `Debug` shows no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The secret's file.
    pub path: ManagedPath,
    /// Its JSON.
    pub json: Contents,
}

impl Credentials {
    /// Picks the credentials to reach a config with; `None` leaves the pull to ostree's own files.
    pub fn pick(root: &Root, to: &HostSpec) -> Result<Option<Self>, HostError> {
        for path in PULL_SECRETS.into_iter().filter_map(|path| ManagedPath::new(path).ok()) {
            if let Some(found) = Self::at(root, to, &path)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Reads the credentials of one file. What is no JSON is none: the merged file is a bare newline at first.
    pub fn at(root: &Root, to: &HostSpec, path: &ManagedPath) -> Result<Option<Self>, HostError> {
        if matches!(root.seen(AUTH_FILE)?, FileSeen::Regular { .. }) {
            return Ok(None);
        }
        let json = match to.files.get(path) {
            Some(file) => Some(file.contents.clone()),
            None => root.read(path.as_str())?.map(Contents::new),
        };
        let valid = |json: &Contents| serde_json::from_slice::<serde::de::IgnoredAny>(json.bytes()).is_ok();
        Ok(json.filter(valid).map(|json| Self { path: path.clone(), json }))
    }

    /// Makes the link for the host's other tools.
    pub fn link(&self, root: &Root, points: &FailPoints) -> Result<(), HostError> {
        let change = Change::new(AUTH_FILE, 0, Want::Link { target: self.path.to_string() });
        durable::carry_out(root, std::slice::from_ref(&change), Run::First, points).map(|_| ())
    }
}
