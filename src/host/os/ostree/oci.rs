//! A local directory in OCI layout, narrowed to one manifest.
//!
//! A layout is addressed by tag, and a tag may move or be missing. The pull goes to a view of the layout whose
//! index holds the one manifest with the expected digest: nothing else can be picked.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::super::error::{OsError, OsErrorKind};
use crate::model::ImageRef;

/// Directory of views, removed by a boot.
const VIEWS: &str = "/run/machine-config-agent/oci";

/// A view, removed when dropped.
#[derive(Debug)]
pub(super) struct View(PathBuf);

impl View {
    /// Makes the view of an `oci:` image.
    pub(super) fn new(image: &ImageRef) -> Result<Self, OsError> {
        let layout = Path::new(image.name());
        let descriptor = descriptor(layout, image)?;
        let place = Path::new(VIEWS).join(format!("{}-{}", std::process::id(), image.digest()));
        make(&place, layout, &descriptor).map_err(|e| {
            OsError::new(
                OsErrorKind::Libostree,
                image.to_string(),
                format!("{} can't be made: {e}", place.display()),
            )
        })?;
        Ok(Self(place))
    }

    /// Returns the directory.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // A view left behind is a few hundred bytes on a file system that the next boot empties.
        fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}

fn make(place: &Path, layout: &Path, descriptor: &Value) -> io::Result<()> {
    match fs::remove_dir_all(place) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    fs::create_dir_all(place)?;
    let index = json!({"schemaVersion": 2, "manifests": [descriptor]});
    fs::write(place.join("index.json"), index.to_string())?;
    fs::write(place.join("oci-layout"), json!({"imageLayoutVersion": "1.0.0"}).to_string())?;
    std::os::unix::fs::symlink(layout.join("blobs"), place.join("blobs"))
}

/// Finds the manifest in the layout's index, by digest.
fn descriptor(layout: &Path, image: &ImageRef) -> Result<Value, OsError> {
    let missing = |cause: String| OsError::new(OsErrorKind::ImageNotFound, image.to_string(), cause);
    let path = layout.join("index.json");
    let bytes = fs::read(&path)
        .map_err(|e| missing(format!("{} can't be read, so there is no image: {e}", path.display())))?;
    let index: Value = serde_json::from_slice(&bytes)
        .map_err(|e| missing(format!("{} is not the index of an OCI layout: {e}", path.display())))?;
    let expected = format!("sha256:{}", image.digest());
    let found = index.get("manifests").and_then(Value::as_array).into_iter().flatten();
    let mut descriptor = found
        .into_iter()
        .find(|entry| entry.get("digest").and_then(Value::as_str) == Some(&expected))
        .cloned()
        .ok_or_else(|| missing(format!("{} holds no manifest with this digest", path.display())))?;
    if let Some(entry) = descriptor.as_object_mut() {
        // The name could be ambiguous; the view has one manifest.
        entry.remove("annotations");
    }
    Ok(descriptor)
}
