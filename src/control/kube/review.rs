//! Access of a token's owner to a path of this agent: TokenReview, then SubjectAccessReview.
//!
//! An answer is remembered for a minute, so that a scrape every 15 s costs the API server two requests in that time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;

use super::client::ApiClient;
use super::error::KubeError;
use crate::model::Sha256;

/// Lifetime of an answer: a revoked token reads metrics for so long.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Answers kept: the readers of a node's metrics are few.
const MAX_CACHED: usize = 32;

/// The API server's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The owner may get the path.
    Allowed,
    /// The owner may not.
    Forbidden,
    /// The token has no owner.
    Unauthenticated,
}

/// Client of the API server's reviews.
pub struct Reviews {
    api: ApiClient,
    known: Mutex<HashMap<Sha256, (Instant, Access)>>,
}

impl std::fmt::Debug for Reviews {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reviews").finish_non_exhaustive()
    }
}

impl Reviews {
    /// Creates a client over this link.
    pub(super) fn new(api: ApiClient) -> Self {
        Self { api, known: Mutex::default() }
    }

    /// Decides if the token's owner may get the path; an error when the API server is away.
    pub async fn check(&self, token: &str, path: &str) -> Result<Access, KubeError> {
        let key = Sha256::digest(format!("{path} {token}").as_bytes());
        if let Some(access) = self.remembered(&key) {
            return Ok(access);
        }
        let access = self.review(token, path).await?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (since, _)| since.elapsed() < REMEMBERED);
        if known.len() < MAX_CACHED {
            known.insert(key, (Instant::now(), access));
        }
        Ok(access)
    }

    fn remembered(&self, key: &Sha256) -> Option<Access> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).filter(|(since, _)| since.elapsed() < REMEMBERED).map(|(_, access)| *access)
    }

    async fn review(&self, token: &str, path: &str) -> Result<Access, KubeError> {
        let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let answer = Api::all(self.api.client()).create(&PostParams::default(), &review).await;
        let status = answer.map_err(KubeError::about("TokenReview"))?.status.unwrap_or_default();
        if !status.authenticated.unwrap_or_default() {
            return Ok(Access::Unauthenticated);
        }
        let user = status.user.unwrap_or_default();
        let get = NonResourceAttributes { path: Some(path.to_owned()), verb: Some("get".to_owned()) };
        let spec = SubjectAccessReviewSpec {
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
            non_resource_attributes: Some(get),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let answer = Api::all(self.api.client()).create(&PostParams::default(), &review).await;
        let answer = answer.map_err(KubeError::about("SubjectAccessReview"))?;
        Ok(if answer.status.is_some_and(|status| status.allowed) {
            Access::Allowed
        } else {
            Access::Forbidden
        })
    }
}
