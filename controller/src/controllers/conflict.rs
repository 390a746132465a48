//! The one judgement of a write that is answered with 404 or 409.
//!
//! Mostly another writer was faster, or the object is gone: that is decided again, at once. But a webhook, an aggregated API server or a proxy
//! may refuse with the same codes, for as long as it likes. The object tells which it is: where nothing else is there than what the write was
//! decided by, it is a refusal. It is counted, told, and tried again with growing pauses, as each other refusal.

use kube::Resource;
use kube::api::ObjectMeta;

use super::client::{RequestError, send};
use super::write::{Write, refused};
use crate::watches::{self, version::is_older};

/// State of an object that a write was decided by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expected {
    /// There is none: the write creates it.
    Absent,
    /// This version of this very object.
    Version {
        /// Its uid.
        uid: Option<String>,
        /// Its version.
        version: Option<String>,
    },
}

impl Expected {
    /// The state that an object was read in.
    pub(super) fn of(meta: &ObjectMeta) -> Self {
        Self::Version { uid: meta.uid.clone(), version: meta.resource_version.clone() }
    }

    /// Returns true if an object is of an earlier state than the one that was read: etcd was restored.
    fn is_after(&self, now: &ObjectMeta) -> bool {
        let Self::Version { version: Some(version), .. } = self else { return false };
        is_older(now.resource_version.as_deref().unwrap_or_default(), version)
    }

    /// Returns true if nothing has changed.
    fn is_still(&self, now: Option<&ObjectMeta>) -> bool {
        match (self, now) {
            (Self::Absent, None) => true,
            (Self::Version { .. }, Some(now)) => Self::of(now) == *self,
            (Self::Absent, Some(_)) | (Self::Version { .. }, None) => false,
        }
    }
}

/// Outcome of a write that was answered with 404 or 409, and that nobody refuses.
#[derive(Debug)]
pub(super) enum Conflict<K> {
    /// Somebody else wrote: this is there now.
    Changed(K),
    /// Nothing is there any more.
    Gone,
}

/// Judges the error of a write by the object as `read` answers it. An error is one that others than a conflict have.
pub(super) async fn judge<K: Resource>(
    what: Write,
    error: RequestError,
    expected: &Expected,
    read: impl Future<Output = kube::Result<K>>,
) -> Result<Conflict<K>, RequestError> {
    if !error.is_conflict() {
        return Err(error);
    }
    let now = match send(read).await {
        Ok(now) => Some(now),
        Err(error) if error.code() == 404 => None,
        Err(error) => return Err(error),
    };
    if expected.is_still(now.as_ref().map(Resource::meta)) {
        refused(what);
        return Err(error.into_refusal());
    }
    // A read is of the newest version.
    if now.as_ref().is_some_and(|now| expected.is_after(now.meta())) {
        watches::restored();
    }
    Ok(now.map_or(Conflict::Gone, Conflict::Changed))
}

/// As [`judge()`], for a write whose conflicts the next decision finds by itself; returns the error.
pub(super) async fn judged<K: Resource>(
    what: Write,
    error: RequestError,
    expected: &Expected,
    read: impl Future<Output = kube::Result<K>>,
) -> RequestError {
    let conflict = error.clone();
    judge(what, error, expected, read).await.map_or_else(|error| error, |_| conflict)
}

/// As [`judged()`], for a write that names no version: while the object is there, or the one of a uid, nobody was faster.
pub(super) async fn judged_by_uid<K: Resource>(
    what: Write,
    error: RequestError,
    uid: Option<&str>,
    read: impl Future<Output = kube::Result<K>>,
) -> RequestError {
    if !error.is_conflict() {
        return error;
    }
    match send(read).await {
        Ok(now) if uid.is_none() || now.meta().uid.as_deref() == uid => {
            refused(what);
            error.into_refusal()
        }
        Ok(_) | Err(_) => error,
    }
}

/// As [`judged()`], of the outcome of a write.
pub(super) async fn or_judged<T, K: Resource>(
    what: Write,
    written: Result<T, RequestError>,
    expected: &Expected,
    read: impl Future<Output = kube::Result<K>>,
) -> Result<T, RequestError> {
    match written {
        Ok(written) => Ok(written),
        Err(error) => Err(judged(what, error, expected, read).await),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use kube::core::Status;

    use super::*;

    fn refusal(code: u16) -> RequestError {
        RequestError::Refused(Box::new(Status::failure("no", "Test").with_code(code)))
    }

    fn node(version: &str) -> Node {
        let metadata = ObjectMeta {
            uid: Some("u".to_owned()),
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        };
        Node { metadata, ..Node::default() }
    }

    fn missing() -> kube::Result<Node> {
        Err(kube::Error::Api(Box::new(Status::failure("gone", "NotFound").with_code(404))))
    }

    #[tokio::test]
    async fn same_object_is_refusal_and_another_one_is_conflict() {
        let before = Expected::of(&node("1").metadata);
        let judge = async |code, expected: &Expected, now: kube::Result<Node>| {
            let judged = judge(Write::NodeTarget, refusal(code), expected, async { now }).await;
            judged
                .map(|conflict| matches!(conflict, Conflict::Gone))
                .map_err(|error| (error.code(), error.is_refusal()))
        };
        for code in [404, 409] {
            assert_eq!(judge(code, &before, Ok(node("1"))).await, Err((code, true)));
            assert_eq!(judge(code, &before, Ok(node("2"))).await, Ok(false));
            assert_eq!(judge(code, &before, missing()).await, Ok(true));
            assert_eq!(judge(code, &Expected::Absent, missing()).await, Err((code, true)));
            assert_eq!(judge(code, &Expected::Absent, Ok(node("1"))).await, Ok(false));
        }
        assert_eq!(judge(403, &before, Ok(node("2"))).await, Err((403, true)));
        assert_eq!(judge(500, &before, Ok(node("1"))).await, Err((500, false)));
        let by_uid = async |uid: Option<&str>, now: kube::Result<Node>| {
            !judged_by_uid(Write::NodeTarget, refusal(404), uid, async { now }).await.is_conflict()
        };
        assert!(by_uid(None, Ok(node("2"))).await && by_uid(Some("u"), Ok(node("2"))).await);
        assert!(!by_uid(Some("v"), Ok(node("2"))).await && !by_uid(None, missing()).await);
        let words =
            judged(Write::NodeTarget, refusal(409), &before, async { Ok(node("1")) }).await.to_string();
        assert_eq!(words, "no (409)");
    }
}
