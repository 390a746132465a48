//! Whether the owner of a token may read a path of this agent: TokenReview, then SubjectAccessReview.
//!
//! An answer is remembered for a minute, so that a scrape every 15 s costs the API server two requests in that time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::json;

use super::call::Call;
use super::client::Link;
use super::error::KubeError;
use crate::model::Sha256;

/// How long an answer holds: a revoked token reads metrics for so long.
const REMEMBERED: Duration = Duration::from_secs(60);

/// How many answers are kept: the readers of a node's metrics are few.
const KEPT: usize = 32;

/// What the API server says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The owner may get the path.
    Allowed,
    /// The owner may not.
    Forbidden,
    /// The token is nobody's.
    Unauthenticated,
}

/// Asks the API server.
pub struct Reviews {
    link: Link,
    known: Mutex<HashMap<Sha256, (Instant, Access)>>,
}

impl std::fmt::Debug for Reviews {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reviews").finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct TokenReview {
    #[serde(default)]
    status: TokenStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenStatus {
    authenticated: bool,
    user: User,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
    uid: String,
    groups: Vec<String>,
    extra: HashMap<String, Vec<String>>,
}

#[derive(Deserialize)]
struct AccessReview {
    status: AccessStatus,
}

#[derive(Deserialize)]
struct AccessStatus {
    #[serde(default)]
    allowed: bool,
}

impl Reviews {
    /// Asks over this link.
    pub(super) fn new(link: Link) -> Self {
        Self { link, known: Mutex::default() }
    }

    /// Decides whether the token's owner may get the path; an error when the API server could not be asked.
    pub async fn ask(&self, token: &str, path: &str) -> Result<Access, KubeError> {
        let key = Sha256::of(format!("{path} {token}").as_bytes());
        if let Some(access) = self.remembered(&key) {
            return Ok(access);
        }
        let access = self.review(token, path).await?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (since, _)| since.elapsed() < REMEMBERED);
        if known.len() < KEPT {
            known.insert(key, (Instant::now(), access));
        }
        Ok(access)
    }

    fn remembered(&self, key: &Sha256) -> Option<Access> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).filter(|(since, _)| since.elapsed() < REMEMBERED).map(|(_, access)| *access)
    }

    async fn review(&self, token: &str, path: &str) -> Result<Access, KubeError> {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token},
        });
        let place = "/apis/authentication.k8s.io/v1/tokenreviews".to_owned();
        let answer: TokenReview = self.post(place, &review, "TokenReview").await?;
        if !answer.status.authenticated {
            return Ok(Access::Unauthenticated);
        }
        let user = answer.status.user;
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {
                "user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra,
                "nonResourceAttributes": {"path": path, "verb": "get"},
            },
        });
        let place = "/apis/authorization.k8s.io/v1/subjectaccessreviews".to_owned();
        let answer: AccessReview = self.post(place, &review, "SubjectAccessReview").await?;
        Ok(if answer.status.allowed { Access::Allowed } else { Access::Forbidden })
    }

    async fn post<T: serde::de::DeserializeOwned>(
        &self,
        path: String,
        object: &serde_json::Value,
        kind: &'static str,
    ) -> Result<T, KubeError> {
        let body = self.link.send(&Call::create(path, object)).await?;
        serde_json::from_slice(&body)
            .map_err(|error| KubeError::Invalid { object: kind.to_owned(), cause: error.to_string() })
    }
}
