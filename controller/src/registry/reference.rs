//! The name of an image, as registries take it.

use machine_config_core::model::short;

use super::failure::Failure;

/// The longest name.
const MAX_NAME: usize = 512;

/// An image of a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reference {
    host: String,
    repository: String,
    /// A tag or a digest.
    name: String,
}

impl Reference {
    /// Reads `REGISTRY/REPOSITORY[:TAG][@DIGEST]`; the digest decides.
    pub(super) fn parse(image: &str) -> Result<Self, Failure> {
        let wrong = |rule| Failure::Reference { image: short(image, 200), rule };
        let image = image.strip_prefix("docker://").unwrap_or(image);
        if image.len() > MAX_NAME {
            return Err(wrong("it is too long"));
        }
        let (named, digest) = match image.split_once('@') {
            Some((named, digest)) => (named, Some(digest)),
            None => (image, None),
        };
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err(wrong("its digest is not sha256 and 64 lower-case hex digits"));
        }
        let (path, tag) = match named.rsplit_once(':') {
            Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
            Some(_) | None => (named, None),
        };
        let (host, repository) = path.split_once('/').ok_or_else(|| wrong("it names no registry"))?;
        if !is_host(host) {
            return Err(wrong("it names no registry"));
        }
        if !repository.split('/').all(is_component) {
            return Err(wrong("its repository is not in lower case"));
        }
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(wrong("its tag is not one"));
        }
        let repository = if host == "docker.io" && !repository.contains('/') {
            format!("library/{repository}")
        } else {
            repository.to_owned()
        };
        let name = digest.or(tag).unwrap_or("latest").to_owned();
        Ok(Self { host: host.to_owned(), repository, name })
    }

    /// Returns the registry, as the user names it.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Returns where requests for it are sent.
    pub(super) fn server(&self) -> &str {
        if self.host == "docker.io" { "registry-1.docker.io" } else { &self.host }
    }

    /// Returns the repository.
    pub(super) fn repository(&self) -> &str {
        &self.repository
    }

    /// Returns tag or digest.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the digest, where it is named by one.
    pub(super) fn digest(&self) -> Option<&str> {
        Some(self.name.as_str()).filter(|name| is_digest(name))
    }

    /// Returns true if it is on this machine: no proxy is on the way.
    pub(super) fn is_loopback(&self) -> bool {
        let host = self.host.rsplit_once(':').map_or(self.host.as_str(), |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
    }
}

/// Returns true for the digest of a manifest.
pub(super) fn is_digest(text: &str) -> bool {
    let is_hex = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
    text.strip_prefix("sha256:").is_some_and(|hex| hex.len() == 64 && hex.bytes().all(is_hex))
}

/// A host is distinguished from a repository as everywhere: by a dot, a port, or this one name.
fn is_host(host: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
    let begins = host.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[');
    begins && host.chars().all(is_plain) && (host.contains(['.', ':']) || host == "localhost")
}

fn is_component(part: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    part.starts_with(is_plain)
        && part.ends_with(is_plain)
        && part.chars().all(|c| is_plain(c) || "._-".contains(c))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    tag.len() <= 128 && tag.starts_with(is_word) && tag.chars().all(|c| is_word(c) || ".-".contains(c))
}
