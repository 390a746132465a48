//! The name of an image, as registries take it.

use machine_config_core::model::reference::{Reference as Named, is_digest};
use machine_config_core::model::short;

use super::failure::Failure;

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
        let found = Named::parse(image.strip_prefix("docker://").unwrap_or(image)).map_err(wrong)?;
        let host = found.domain().ok_or_else(|| wrong("it names no registry"))?;
        let repository = if host == "docker.io" && !found.path().contains('/') {
            format!("library/{}", found.path())
        } else {
            found.path().to_owned()
        };
        let digest = found.hex().map(|hex| format!("sha256:{hex}"));
        let name = digest.unwrap_or_else(|| found.tag().unwrap_or("latest").to_owned());
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
