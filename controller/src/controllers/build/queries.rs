//! Queries that take time, beside the writes: to registries, and to the API server about the results of a Job.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tokio::time::Instant;

use super::builder::{Builder, EndedBuild, image};
use crate::build::{Action, Answers, Deletion, PushAccess, Query, Registry as Found};
use crate::controllers::client::{RequestError, send};
use crate::registry::{Registry, RegistryError, credentials_of_secret};

/// A query, or a deletion in a registry.
#[derive(Debug, Clone)]
pub(super) enum RemoteQuery {
    Query(Query),
    Deletion { build: String, image: String },
}

impl RemoteQuery {
    /// Returns the query of an action; none where it is a write.
    pub(super) fn from_action(action: &Action) -> Option<Self> {
        if let Action::Query(query) = action {
            return Some(Self::Query(query.clone()));
        }
        let Action::DeleteImage { build, image } = action else { return None };
        Some(Self::Deletion { build: build.clone(), image: image.clone() })
    }
}

/// Objects and clients that a query needs.
#[derive(Clone)]
pub(super) struct QueryRunner {
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) registry: Arc<dyn Registry>,
    pub(super) builder: Option<Arc<dyn Builder>>,
    /// The Secret for the registry.
    pub(super) secret: Option<String>,
    /// The build that the query is about, and where it is pushed.
    pub(super) build: String,
    pub(super) push_spec: String,
    /// The user's part of its Containerfile, as it is now.
    pub(super) containerfile: String,
    /// Its Job has ended well.
    pub(super) is_complete: bool,
    /// When the same query was sent first.
    pub(super) since: Instant,
}

impl QueryRunner {
    /// Runs a query, and records its answer.
    pub(super) async fn run(self, query: RemoteQuery, answers: &mut Answers) -> Result<(), RequestError> {
        match query {
            RemoteQuery::Query(Query::Image(image)) => {
                let found = match self.digest(&image).await? {
                    Ok(Some(_)) => Found::There,
                    Ok(None) => Found::Missing,
                    Err(error) => Found::Unknown(error.to_string()),
                };
                answers.registry.insert(image, found);
            }
            RemoteQuery::Query(Query::Push) => {
                let access = self.push_access().await?;
                answers.pushes.insert(self.build, access);
            }
            RemoteQuery::Query(Query::Pods(uid)) => self.pods(&uid, answers).await?,
            RemoteQuery::Query(Query::Job { name, uid }) => {
                let found = match &self.builder {
                    Some(builder) => builder.find(&name).await?,
                    None => None,
                };
                if found.as_ref() != Some(&uid) {
                    answers.absent_jobs.insert(uid);
                }
            }
            RemoteQuery::Deletion { build, image } => {
                let credentials = self.credentials().await?;
                let deletion = match self.registry.delete(&image, &credentials).await {
                    Ok(()) => Deletion::Done,
                    Err(RegistryError::Refused(why)) => Deletion::Refused(why),
                    Err(RegistryError::Unavailable(cause)) => {
                        Deletion::Failed { cause, unanswered: self.since.elapsed() }
                    }
                };
                answers.deletions.insert(build, deletion);
            }
        }
        Ok(())
    }

    /// Reads the results of the pods. Of one that somebody removed the registry still has the image, by the build's own tag.
    async fn pods(&self, uid: &str, answers: &mut Answers) -> Result<(), RequestError> {
        let Some(builder) = &self.builder else { return Ok(()) };
        let (push_spec, containerfile) = (&*self.push_spec, &*self.containerfile);
        let of = EndedBuild { build: &self.build, uid, push_spec, containerfile };
        let mut ended = builder.outcome(&of).await?;
        if ended.is_gone
            && self.is_complete
            && let Ok(Some(digest)) = self.digest(&self.push_spec).await?
        {
            ended.outcome.image = image(&self.push_spec, &digest);
        }
        answers.outcomes.insert(uid.to_owned(), ended.outcome);
        Ok(())
    }

    /// Asks for the right to push. The builder may reach a registry that the controller can't: only a refusal counts.
    async fn push_access(&self) -> Result<PushAccess, RequestError> {
        let credentials = self.credentials().await?;
        Ok(match self.registry.push_refusal(&self.push_spec, &credentials).await {
            Ok(Some(why)) => PushAccess::Refused(why),
            Ok(None) | Err(_) => PushAccess::NotRefused,
        })
    }

    async fn digest(&self, image: &str) -> Result<Result<Option<String>, RegistryError>, RequestError> {
        let credentials = self.credentials().await?;
        Ok(self.registry.digest(image, &credentials).await)
    }

    /// Reads the Secret; without one the registry decides.
    async fn credentials(&self) -> Result<Vec<u8>, RequestError> {
        match &self.secret {
            Some(name) => read_credentials(&self.client, &self.namespace, name).await,
            None => Ok(NO_CREDENTIALS.to_vec()),
        }
    }
}

/// Credentials for no registry.
pub(super) const NO_CREDENTIALS: &[u8] = b"{\"auths\":{}}";

/// Reads the credentials of a Secret. One that is gone has none: the registry decides.
pub(super) async fn read_credentials(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Vec<u8>, RequestError> {
    match send(Api::<Secret>::namespaced(client.clone(), namespace).get(name)).await {
        Ok(secret) => Ok(credentials_of_secret(&secret).unwrap_or_else(|| NO_CREDENTIALS.to_vec())),
        Err(error) if error.code() == 404 => Ok(NO_CREDENTIALS.to_vec()),
        Err(error) => Err(error.about(&format!("reading of Secret {namespace}/{name}"))),
    }
}
