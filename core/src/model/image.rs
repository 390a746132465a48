//! An OS image, named by digest.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::contents::Sha256;
use super::error::ModelError;
use super::text::short;

/// Source of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// A registry.
    Registry,
    /// A directory in OCI layout on the host: `oci:/path@sha256:...`.
    OciDirectory,
}

/// The files of registry credentials, the better ones first: merged with those of the cluster's own registry, then the
/// cluster's pull secret.
pub const PULL_SECRETS: [&str; 2] =
    ["/etc/mco/internal-registry-pull-secret.json", "/var/lib/kubelet/config.json"];

/// An OS image: a name and the digest of its manifest. Tags are refused where they enter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ImageRef {
    transport: Transport,
    name: String,
    digest: Sha256,
}

impl ImageRef {
    /// Reads `NAME@sha256:<64 hex>` or `oci:/PATH@sha256:<64 hex>`.
    pub fn parse(text: &str) -> Result<Self, ModelError> {
        let wrong = |rule| ModelError::Image { image: short(text, 200), rule };
        let (name, digest) = text.split_once('@').ok_or(wrong("it is not named by digest"))?;
        let hex = digest.strip_prefix("sha256:").ok_or(wrong("its digest is not sha256"))?;
        let digest = Sha256::parse(hex).map_err(|_| wrong("its digest is not 64 lower-case hex digits"))?;
        if let Some(path) = name.strip_prefix("oci:") {
            let normal =
                path.starts_with('/') && !path.contains([':', '\0']) && !path.split('/').any(|c| c == "..");
            return if normal {
                Ok(Self { transport: Transport::OciDirectory, name: path.to_owned(), digest })
            } else {
                Err(wrong("the path of an oci: directory must be absolute, without `..` and `:`"))
            };
        }
        if is_repository(name) {
            Ok(Self { transport: Transport::Registry, name: name.to_owned(), digest })
        } else {
            Err(wrong("its name is not REGISTRY[:PORT]/REPOSITORY, or it also carries a tag"))
        }
    }

    /// Returns where the image is fetched from.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Returns the repository, or the directory of an `oci:` reference.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the digest of the manifest: images with the same digest are the same image, under any name.
    pub fn digest(&self) -> Sha256 {
        self.digest
    }
}

fn is_repository(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-/:[]".contains(&b);
    let (host, path) = name.split_once('/').unwrap_or(("", name));
    !path.is_empty()
        && !path.contains(':')
        && !path.split('/').any(|part| part.is_empty() || part == "." || part == "..")
        && (host.is_empty() || !host.starts_with(['-', '.', ':']))
        && name.len() <= 4096
        && name.bytes().all(allowed)
        && !name.starts_with(['-', '/'])
}

impl TryFrom<String> for ImageRef {
    type Error = ModelError;
    fn try_from(text: String) -> Result<Self, ModelError> {
        Self::parse(&text)
    }
}

impl From<ImageRef> for String {
    fn from(image: ImageRef) -> String {
        image.to_string()
    }
}

impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self.transport {
            Transport::Registry => "",
            Transport::OciDirectory => "oci:",
        };
        write!(f, "{prefix}{}@sha256:{}", self.name, self.digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn digests_only() {
        for name in ["registry.test/a/os", "reg.test:5000/os", "os", "oci:/run/images/os"] {
            let text = format!("{name}@sha256:{HEX}");
            assert_eq!(ImageRef::parse(&text).unwrap().to_string(), text);
        }
        for bad in [
            "registry.test/a/os:latest".to_owned(),
            "registry.test/a/os".to_owned(),
            format!("registry.test/a/os:v1@sha256:{HEX}"),
            format!("registry.test/a/os@sha512:{HEX}"),
            format!("registry.test/a/os@sha256:{}", HEX.to_uppercase()),
            format!("registry.test/a/os@sha256:{}", &HEX[1..]),
            format!("oci:run/x@sha256:{HEX}"),
            format!("oci:/run/../x@sha256:{HEX}"),
            format!("-x@sha256:{HEX}"),
            format!("@sha256:{HEX}"),
        ] {
            let error = ImageRef::parse(&bad).unwrap_err().to_string();
            assert!(error.contains("@sha256:<64 hex digits>"), "{bad}: {error}");
        }
    }
}
