//! The config that is embedded in the image of a deployment, and the base's own versions of what it replaced.
//!
//! Whatever the image is called and labelled, this is what it brings to `/etc` beside its base.
//!
//! # Decisions
//! 1. A build keeps the originals of the base in the image ([`IMAGE_ORIGINALS`]), in the form of the agent's own. An image of another
//!    builder has none: nobody knows what its base has at a path of its config.
//! 2. A config that can't be read is ignored: the image is used as any other, and what it brings is the base's.
//! 3. The security label of an original is that of the file which replaced it: it goes by the path, and the builder has
//!    labels of its own.

use std::collections::BTreeSet;

use super::saved::{self, PathSnapshot};
use super::{HostError, Root};
use crate::model::ids::IMAGE_ORIGINALS;
use crate::model::machineconfig::MAX_BYTES;
use crate::model::{FaultClass, HostSpec, MachineConfig, ManagedPath, ObservedFile};

/// The config, below the directory of a deployment: MCD's own file.
const CONFIG: &str = "/usr/etc/machine-config-daemon/currentconfig";

/// The config that is embedded in the image of a deployment.
#[derive(Debug, Clone)]
pub struct Embedded {
    spec: HostSpec,
    paths: BTreeSet<ManagedPath>,
}

impl Embedded {
    /// Reads the config of a deployment, by its directory; an empty one is the root. `None` if there is none.
    pub fn load(root: &Root, deployment: &str) -> Result<Option<Self>, HostError> {
        let path = format!("{deployment}{CONFIG}");
        let bytes = match root.read_at_most(&path, MAX_BYTES) {
            Err(error) if error.class() == FaultClass::Degraded => None,
            read => read?,
        };
        let Some(bytes) = bytes else { return Ok(None) };
        let Ok(config) = MachineConfig::parse_applied(&bytes, &path) else { return Ok(None) };
        let spec = config.known_spec(None);
        let paths = spec.managed();
        Ok(Some(Self { spec, paths }))
    }

    /// Returns the config, as far as it can be read.
    pub fn spec(&self) -> &HostSpec {
        &self.spec
    }

    /// Returns its paths.
    pub fn paths(&self) -> &BTreeSet<ManagedPath> {
        &self.paths
    }

    /// Takes the config.
    pub fn into_spec(self) -> HostSpec {
        self.spec
    }
}

/// Reads the original that the image of a deployment keeps of a path; `None` if it keeps none.
pub fn kept(root: &Root, deployment: &str, path: &ManagedPath) -> Result<Option<PathSnapshot>, HostError> {
    let at = format!("{deployment}{IMAGE_ORIGINALS}/{}", saved::document_name(path));
    let Some(original) = saved::load_document(root, &at)? else { return Ok(None) };
    let replaced = saved::of_deployment(root, deployment, path)?;
    Ok(Some(original.labelled_as(&replaced)))
}

/// Observes the version of a path below `/etc` that the image of a deployment brings.
pub fn observe_of_image(
    root: &Root,
    deployment: &str,
    path: &ManagedPath,
) -> Result<ObservedFile, HostError> {
    let below = path.as_str().strip_prefix("/etc/");
    let at = below.map(|below| format!("{deployment}/usr/etc/{below}"));
    at.map_or(Ok(ObservedFile::Absent), |at| root.observe(&at))
}
