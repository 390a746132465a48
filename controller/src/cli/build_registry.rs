//! Questions to registries before a local build: the digest of the base, and the right to push.
//!
//! What a registry does not answer the build finds out: buildah knows mirrors and helpers for credentials that this program does not.

use std::path::Path;

use machine_config_core::model::Reference;

use super::CliError;
use crate::registry::{Client, Options, Registry as _};

/// Credentials for no registry.
const NONE: &str = "{}";

/// A file of credentials, with its contents.
#[derive(Debug, Clone, Copy)]
pub(super) struct AuthFile<'a> {
    pub(super) path: &'a Path,
    pub(super) contents: &'a str,
}

/// Returns a base that is named by tag by the digest that the tag has now, so that label and image name the same base.
pub(super) async fn by_digest(base: &str, authfile: Option<AuthFile<'_>>, insecure: bool) -> Option<String> {
    let named = Reference::parse(base.strip_prefix("docker://").unwrap_or(base)).ok()?;
    let domain = named.domain().filter(|_| named.hex().is_none())?;
    let credentials = authfile.map_or(NONE, |authfile| authfile.contents);
    let digest = client(insecure, domain).digest(base, credentials.as_bytes()).await.ok()??;
    Some(format!("{domain}/{}@{digest}", named.path()))
}

/// Refuses a build whose push the registry refuses to the account of the file.
pub(super) async fn check_push(push: &str, authfile: AuthFile<'_>, insecure: bool) -> Result<(), CliError> {
    let domain = Reference::parse(push).ok().and_then(|named| named.domain().map(str::to_owned));
    let Some(domain) = domain else { return Ok(()) };
    if client(insecure, &domain).refuses_account(push, authfile.contents.as_bytes()).await {
        return Err(denied(push, &domain, authfile.path));
    }
    Ok(())
}

fn denied(push: &str, domain: &str, authfile: &Path) -> CliError {
    CliError::Failed(format!(
        "registry {domain} refuses the push of {push} to the account in {}; nothing was built; grant the account push access, or name \
         another one with --push-authfile",
        authfile.display()
    ))
}

fn client(insecure: bool, domain: &str) -> Client {
    let insecure = if insecure { vec![domain.to_owned()] } else { Vec::new() };
    Client::new(Options { insecure, trust: Vec::new() })
}
