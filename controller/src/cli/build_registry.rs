//! Questions to registries before a local build: the digest of the base, and the right to push.
//!
//! What a registry does not answer the build finds out: buildah knows mirrors and helpers for credentials that this program does not.

use machine_config_core::model::Reference;

use super::CliError;
use super::build_accounts::Account;
use crate::registry::{Client, Options, Registry as _};

/// Credentials for no registry.
const NONE: &[u8] = b"{}";

/// Returns a base that is named by tag by the digest that the tag has now, so that label and image name the same base.
pub(super) async fn by_digest(base: &str, account: Option<&Account>, insecure: bool) -> Option<String> {
    let named = Reference::parse(base.strip_prefix("docker://").unwrap_or(base)).ok()?;
    let domain = named.domain().filter(|_| named.hex().is_none())?;
    let credentials = account.map_or(NONE, Account::contents);
    let digest = client(insecure, domain).digest(base, credentials).await.ok()??;
    Some(format!("{domain}/{}@{digest}", named.path()))
}

/// Refuses a build whose push the registry refuses to the account.
pub(super) async fn check_push(push: &str, account: &Account, insecure: bool) -> Result<(), CliError> {
    let domain = Reference::parse(push).ok().and_then(|named| named.domain().map(str::to_owned));
    let Some(domain) = domain else { return Ok(()) };
    if client(insecure, &domain).refuses_account(push, account.contents()).await {
        return Err(denied(push, &domain, account));
    }
    Ok(())
}

fn denied(push: &str, domain: &str, account: &Account) -> CliError {
    CliError::Failed(format!(
        "registry {domain} refuses the push of {push} to the account in {}; nothing was built; grant the account push access, or name \
         another one with --push-authfile",
        account.title()
    ))
}

fn client(insecure: bool, domain: &str) -> Client {
    let insecure = if insecure { vec![domain.to_owned()] } else { Vec::new() };
    Client::new(Options { insecure, trust: Vec::new() })
}
