//! An OS image, named by digest.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::contents::Sha256;
use super::error::ModelError;
use super::reference::Reference;
use super::text::short;

/// The longest path of a directory.
const MAX_DIRECTORY: usize = 4096;

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

/// An OS image: a name and the digest of its manifest. A tag alone is refused where it enters; one beside the digest
/// says nothing about the image.
///
/// # Decisions
///
/// - The text stays as it was given, tag included, and is compared, recorded and reported so: the node controller compares
///   `currentImage` with `desiredImage` byte by byte. Whether two are the same image is a question for their digests.
/// - Tools get [`Self::canonical`]: containers/image refuses a tag beside a digest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct ImageRef {
    transport: Transport,
    name: String,
    tag: Option<String>,
    digest: Sha256,
}

impl ImageRef {
    /// Reads `NAME[:TAG]@sha256:<64 hex>` or `oci:/PATH@sha256:<64 hex>`.
    pub fn parse(text: &str) -> Result<Self, ModelError> {
        let wrong = |rule| ModelError::Image {
            field: String::new(),
            object: String::new(),
            image: short(text, 200),
            rule,
        };
        let of_hex =
            |hex| Sha256::parse(hex).map_err(|_| wrong("its digest is not 64 lower-case hex digits"));
        if let Some(directory) = text.strip_prefix("oci:") {
            let (path, digest) =
                directory.split_once('@').ok_or_else(|| wrong("it is not named by digest"))?;
            let normal = path.starts_with('/')
                && path.len() <= MAX_DIRECTORY
                && !path.contains([':', '\0'])
                && !path.split('/').any(|part| part == "..");
            if !normal {
                return Err(wrong("the path of an oci: directory must be absolute, without `..` and `:`"));
            }
            let hex = digest.strip_prefix("sha256:").ok_or_else(|| wrong("its digest is not sha256"))?;
            let (transport, name) = (Transport::OciDirectory, path.to_owned());
            return Ok(Self { transport, name, tag: None, digest: of_hex(hex)? });
        }
        let reference = Reference::parse(text).map_err(wrong)?;
        let digest = of_hex(reference.hex().ok_or_else(|| wrong("it is not named by digest"))?)?;
        let tag = reference.tag().map(str::to_owned);
        Ok(Self { transport: Transport::Registry, name: reference.name().to_owned(), tag, digest })
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

    /// Returns the reference without its tag, as tools take it.
    pub fn canonical(&self) -> String {
        Self { tag: None, ..self.clone() }.to_string()
    }

    /// Returns true if the other one names the same image of the same repository, whatever the tags.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.transport, &self.name, self.digest) == (other.transport, &other.name, other.digest)
    }
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
        write!(f, "{prefix}{}", self.name)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        write!(f, "@sha256:{}", self.digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    /// Containers' tools refuse a tag beside a digest, and controllers compare texts byte by byte.
    #[test]
    fn tag_beside_digest_is_kept_for_reports_and_dropped_for_tools() {
        let text = format!("Registry.test:5000/a/os:4.17@sha256:{HEX}");
        let image = ImageRef::parse(&text).unwrap();
        assert_eq!(image.to_string(), text);
        assert_eq!(serde_json::to_value(&image).unwrap(), text);
        assert_eq!(image.name(), "Registry.test:5000/a/os");
        assert_eq!(image.canonical(), format!("Registry.test:5000/a/os@sha256:{HEX}"));
        let same = ImageRef::parse(&image.canonical()).unwrap();
        assert!(image.is_same(&same) && image != same, "the same image, and another text");
        let other = ImageRef::parse(&format!("Registry.test:5000/b/os:4.17@sha256:{HEX}")).unwrap();
        assert!(!image.is_same(&other));
    }

    #[test]
    fn digests_only() {
        for name in
            ["registry.test/a/os", "reg.test:5000/os", "os", "os:1", "REG/os", "oci:/run/images/os", "oci"]
        {
            let text = format!("{name}@sha256:{HEX}");
            assert_eq!(ImageRef::parse(&text).unwrap().to_string(), text);
        }
        for bad in [
            "registry.test/a/os:latest".to_owned(),
            "registry.test/a/os".to_owned(),
            format!("registry.test/a/os@sha512:{HEX}"),
            format!("registry.test/a/os@sha256:{}", HEX.to_uppercase()),
            format!("registry.test/a/os@sha256:{}", &HEX[1..]),
            format!("oci:run/x@sha256:{HEX}"),
            format!("oci:/run/../x@sha256:{HEX}"),
            format!("oci:/run/x:1@sha256:{HEX}"),
            format!("-x@sha256:{HEX}"),
            format!("@sha256:{HEX}"),
        ] {
            let error = ImageRef::parse(&bad).unwrap_err().to_string();
            assert!(error.contains("@sha256:<64 hex digits>"), "{bad}: {error}");
        }
    }
}
