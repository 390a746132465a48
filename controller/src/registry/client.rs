//! The client.
//!
//! Requests of the OCI distribution specification, with the authentication that registries agree on (Basic, and tokens of
//! another server). A request takes at most [`TIMEOUT`]; nothing is cached between two, and nothing is retried by itself: a
//! failure says whether that makes sense ([`Failure::retry`]).
//!
//! # Decisions
//!
//! - No crate of the OCI ecosystem: `oci-client` cannot delete, and distinguishes neither 404 from 401 nor when to come back.
//! - A 404 counts only from who is a registry (`/v2/`): behind an ingress whose route is missing, every image would be gone.
//! - A right to push is asked for by an upload that is begun and cancelled: no other request tells it, and nothing is left.
//! - Password and token go to a server without TLS only where the registry itself is one.

use machine_config_core::model::reference::is_digest;
use reqwest::header::{ACCEPT, CONTENT_LENGTH, LOCATION};
use reqwest::{Method, StatusCode};
use sha2::{Digest as _, Sha256};

use super::credentials::Credentials;
use super::failure::Failure;
use super::options::{Options, TIMEOUT};
use super::reference::Reference;
use super::session::Session;
use super::{Registry, RegistryError, RegistryFuture};

/// The largest manifest that is read; the specification names this size.
pub(super) const MAX_MANIFEST: usize = 4 << 20;

/// Known kinds of manifest: without them a registry converts, and names another digest.
const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json";

/// A client of all registries.
#[derive(Debug, Clone, Default)]
pub struct Client {
    options: Options,
}

impl Client {
    /// Makes a client. It connects at the first request.
    pub fn new(options: Options) -> Self {
        Self { options }
    }

    /// Returns the digest of an image by tag or digest, `None` where the registry does not have it.
    pub(super) async fn find(
        &self,
        image: &str,
        credentials: &Credentials,
    ) -> Result<Option<String>, Failure> {
        let reference = Reference::parse(image)?;
        let request = async {
            let mut session = Session::new(&reference, credentials, &self.options, false)?;
            find(&mut session, &reference).await
        };
        in_time(&reference, request).await
    }

    /// Deletes an image; by its digest, so that all its tags are gone. One that is not there is no error.
    pub(super) async fn remove(&self, image: &str, credentials: &Credentials) -> Result<(), Failure> {
        let reference = Reference::parse(image)?;
        let request = async {
            let mut session = Session::new(&reference, credentials, &self.options, true)?;
            let digest = match reference.digest() {
                Some(digest) => Some(digest.to_owned()),
                None => find(&mut session, &reference).await?,
            };
            match digest {
                Some(digest) => delete(&mut session, &digest).await,
                None => Ok(()),
            }
        };
        in_time(&reference, request).await
    }

    /// Returns true if the registry refuses a push to the account that the credentials have for it. Whatever else fails is no answer.
    pub async fn refuses_account(&self, image: &str, credentials: &[u8]) -> bool {
        let Ok(credentials) = Credentials::parse(credentials) else { return false };
        let refusal = self.refusal(image, &credentials).await;
        matches!(refusal, Ok(Some(Failure::Denied { had_account: true, .. })))
    }

    /// Returns why the registry refuses a push, `None` where it takes one.
    pub(super) async fn refusal(
        &self,
        image: &str,
        credentials: &Credentials,
    ) -> Result<Option<Failure>, Failure> {
        let reference = Reference::parse(image)?;
        let request = async {
            let mut session = Session::new(&reference, credentials, &self.options, true)?;
            match begin_upload(&mut session).await {
                Err(denied @ Failure::Denied { .. }) => Ok(Some(denied)),
                answer => answer.map(|()| None),
            }
        };
        in_time(&reference, request).await
    }
}

impl Registry for Client {
    fn digest<'a>(&'a self, image: &'a str, credentials: &'a [u8]) -> RegistryFuture<'a, Option<String>> {
        Box::pin(async move {
            let credentials = Credentials::parse(credentials)?;
            self.find(image, &credentials).await.map_err(RegistryError::from)
        })
    }

    fn delete<'a>(&'a self, image: &'a str, credentials: &'a [u8]) -> RegistryFuture<'a, ()> {
        Box::pin(async move {
            let credentials = Credentials::parse(credentials)?;
            self.remove(image, &credentials).await.map_err(RegistryError::from)
        })
    }

    fn push_refusal<'a>(
        &'a self,
        image: &'a str,
        credentials: &'a [u8],
    ) -> RegistryFuture<'a, Option<String>> {
        Box::pin(async move {
            let credentials = Credentials::parse(credentials)?;
            let refusal = self.refusal(image, &credentials).await.map_err(RegistryError::from)?;
            Ok(refusal.map(|refusal| refusal.to_string()))
        })
    }
}

async fn in_time<T>(
    reference: &Reference,
    request: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let late = |_| Failure::Timeout { registry: reference.host().to_owned() };
    tokio::time::timeout(TIMEOUT, request).await.map_err(late)?
}

async fn find(session: &mut Session<'_>, reference: &Reference) -> Result<Option<String>, Failure> {
    let path = format!("manifests/{}", reference.name());
    let answer = session.send(Method::HEAD, &path, &[(ACCEPT, MANIFESTS)]).await?;
    if answer.status() == StatusCode::NOT_FOUND {
        session.ensure_registry().await?;
        return Ok(None);
    }
    let answer = session.checked(answer)?;
    if let Some(digest) = reference.digest() {
        return Ok(Some(digest.to_owned()));
    }
    let named = answer.headers().get("docker-content-digest").and_then(|digest| digest.to_str().ok());
    if let Some(digest) = named.filter(|digest| is_digest(digest)) {
        return Ok(Some(digest.to_owned()));
    }
    // The header is optional.
    let answer = session.send(Method::GET, &path, &[(ACCEPT, MANIFESTS)]).await?;
    let manifest = session.read(session.checked(answer)?, MAX_MANIFEST).await?;
    Ok(Some(format!("sha256:{:x}", Sha256::digest(&manifest))))
}

async fn delete(session: &mut Session<'_>, digest: &str) -> Result<(), Failure> {
    let answer = session.send(Method::DELETE, &format!("manifests/{digest}"), &[]).await?;
    match answer.status() {
        StatusCode::NOT_FOUND => session.ensure_registry().await,
        StatusCode::METHOD_NOT_ALLOWED => Err(Failure::DeletionOff { registry: session.host().to_owned() }),
        _ => session.checked(answer).map(drop),
    }
}

/// Begins an upload, and cancels it. One that can't be cancelled is the registry's to clean up, as of any client that went away.
async fn begin_upload(session: &mut Session<'_>) -> Result<(), Failure> {
    let answer = session.send(Method::POST, "blobs/uploads/", &[(CONTENT_LENGTH, "0")]).await?;
    let answer = session.checked(answer)?;
    let place = answer.headers().get(LOCATION).and_then(|place| place.to_str().ok());
    if let Some(place) = place {
        session.cancel(place).await;
    }
    Ok(())
}
