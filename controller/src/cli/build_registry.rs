//! Questions to registries before a local build: the digest of the base, and the right to push.
//!
//! What a registry does not answer the build finds out: buildah knows mirrors and helpers for credentials that this program does not.

use std::path::Path;

use machine_config_core::model::Reference;

use super::CliError;
use super::build::{BuilderFlags, text};
use crate::registry::{Client, Options, Registry as _};

/// Credentials for no registry.
const NONE: &str = "{}";

/// Returns a base that is named by tag by the digest that the tag has now, so that label and image name the same base.
pub(super) async fn by_digest(base: &str, flags: &BuilderFlags) -> Option<String> {
    let named = Reference::parse(base.strip_prefix("docker://").unwrap_or(base)).ok()?;
    let domain = named.domain().filter(|_| named.hex().is_none())?;
    let authfile = flags.authfile.as_deref().map_or(Ok(NONE.to_owned()), text).ok()?;
    let digest = client(flags, domain).digest(base, authfile.as_bytes()).await.ok()??;
    Some(format!("{domain}/{}@{digest}", named.path()))
}

/// Refuses a build whose push the registry refuses to the account of the file.
pub(super) async fn check_push(push: &str, flags: &BuilderFlags) -> Result<(), CliError> {
    let Some(authfile) = flags.push_authfile.as_deref().or(flags.authfile.as_deref()) else { return Ok(()) };
    let domain = Reference::parse(push).ok().and_then(|named| named.domain().map(str::to_owned));
    let Some(domain) = domain else { return Ok(()) };
    let credentials = text(authfile)?;
    if client(flags, &domain).refuses_account(push, credentials.as_bytes()).await {
        return Err(denied(push, &domain, authfile));
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

fn client(flags: &BuilderFlags, domain: &str) -> Client {
    let insecure = if flags.insecure { vec![domain.to_owned()] } else { Vec::new() };
    Client::new(Options { insecure, trust: Vec::new() })
}
