//! Pushing of an image to a registry, by skopeo.

use std::path::Path;
use std::time::Duration;

use super::error::{OsError, OsErrorKind};
use crate::host::redact::redact;
use crate::host::{HostError, command};
use crate::model::ProxySettings;

/// An image in a directory in OCI layout.
#[derive(Debug)]
pub struct Image<'a> {
    /// The directory.
    pub layout: &'a Path,
    /// Its tag there.
    pub tag: &'a str,
    /// The name at the registry.
    pub to: &'a str,
}

/// Pushes it as it is, so that its digest stays. Credentials are named by their file, never handed over as an argument.
pub async fn push(
    image: &Image<'_>,
    auth_file: Option<&str>,
    proxies: &ProxySettings,
    limit: Duration,
) -> Result<(), HostError> {
    let from = format!("oci:{}:{}", image.layout.display(), image.tag);
    let to = format!("docker://{}", image.to);
    let mut arguments = vec!["copy", "--quiet", "--preserve-digests"];
    if let Some(path) = auth_file {
        arguments.extend(["--dest-authfile", path]);
    }
    arguments.extend([&*from, &to]);
    let pushed = command::run_with("skopeo", &arguments, limit, proxies).await;
    pushed.map_err(|error| {
        let HostError::Command { cause, .. } = &error else { return error };
        if cause.starts_with("it can't be started") {
            return OsError::new(OsErrorKind::MissingTool, image.to, cause).into_error();
        }
        let known = OsError::from_text(image.to, cause, OsErrorKind::PushFailed).trouble;
        let kind = if known == OsErrorKind::NoSpace { known } else { OsErrorKind::PushFailed };
        OsError::new(kind, image.to, redact(cause)).into_error()
    })
}
