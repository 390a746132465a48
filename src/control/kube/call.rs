//! Requests and what their answers mean. Pure: nothing is sent here.

use std::time::Duration;

use http::{HeaderMap, Method, StatusCode};
use kube::core::Status;

use super::error::KubeError;

/// Who owns the fields that are applied: MCD's, so that a hand-over in either direction leaves no stale owner.
const FIELD_MANAGER: &str = "machine-config-operator";

/// The longest wait that an API server may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// As much of the API server's text is kept: it may quote what it was sent.
const MESSAGE: usize = 500;

/// What is asked for instead of a whole object: a Node's status alone is 20 KB.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// As [`METADATA`], of a list.
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// One request.
#[derive(Debug, Clone)]
pub(super) struct Call {
    /// Its verb.
    pub(super) method: Method,
    /// Path and query.
    pub(super) path: String,
    /// What is accepted as an answer.
    pub(super) accept: &'static str,
    /// The body's type.
    pub(super) content: &'static str,
    /// The body.
    pub(super) body: Vec<u8>,
    /// What 429 means: "later" for the whole server, or the answer to this very request.
    pub(super) tries: Tries,
}

/// How often a request is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tries {
    /// As often as it takes, within its time.
    Several,
    /// Once: an eviction's 429 is a budget's refusal, and whoever asks knows when to ask again.
    One,
}

impl Call {
    /// Reads an object.
    pub(super) fn get(path: String) -> Self {
        let (accept, content) = ("application/json", "application/json");
        Self { method: Method::GET, path, accept, content, body: Vec::new(), tries: Tries::Several }
    }

    /// Creates an object in the collection at the path.
    pub(super) fn create(path: String, object: &serde_json::Value) -> Self {
        Self { method: Method::POST, body: object.to_string().into_bytes(), ..Self::get(path) }
    }

    /// Changes the named fields of an object.
    pub(super) fn merge_patch(path: String, patch: &serde_json::Value) -> Self {
        let content = "application/merge-patch+json";
        Self { method: Method::PATCH, content, body: patch.to_string().into_bytes(), ..Self::get(path) }
    }

    /// Applies fields as their owner (server-side apply).
    pub(super) fn apply(mut path: String, object: &serde_json::Value) -> Self {
        let query = if path.contains('?') { '&' } else { '?' };
        path += &format!("{query}fieldManager={FIELD_MANAGER}&force=true");
        Self { content: "application/apply-patch+yaml", ..Self::merge_patch(path, object) }
    }

    /// Has a busy answer taken as the answer.
    pub(super) fn once(self) -> Self {
        Self { tries: Tries::One, ..self }
    }

    /// Has only the metadata answered.
    pub(super) fn metadata(self) -> Self {
        Self { accept: METADATA, ..self }
    }

    /// Has only the metadata of a list answered.
    pub(super) fn metadata_list(self) -> Self {
        Self { accept: METADATA_LIST, ..self }
    }

    /// Says whether sending it twice is as good as once.
    pub(super) fn is_repeatable(&self) -> bool {
        self.method != Method::POST
    }

    /// Returns true if a compressed answer can be read: that of a watch is read line by line.
    pub(super) fn may_be_compressed(&self) -> bool {
        self.method == Method::GET && !self.path.contains("watch=true")
    }

    /// Names the object for people: `Node worker-0`, `Pod openshift-dns/dns-x`, `MachineConfigs`.
    pub(super) fn object(&self) -> String {
        let path = self.path.split('?').next().unwrap_or_default();
        let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        // api/VERSION or apis/GROUP/VERSION
        let prefix = if parts.first() == Some(&"api") { 2 } else { 3 };
        parts.drain(..prefix.min(parts.len()));
        match parts.as_slice() {
            ["namespaces", namespace, kind, name, ..] => format!("{} {namespace}/{name}", kind_of(kind)),
            ["namespaces", namespace, kind] => format!("{} in namespace {namespace}", kind_of(kind)),
            [kind, name, ..] => format!("{} {name}", kind_of(kind)),
            [kind] => kind_of(kind),
            [] => path.to_owned(),
        }
    }
}

/// An answer.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    /// Its status.
    pub(super) status: StatusCode,
    /// Its body.
    pub(super) body: Vec<u8>,
}

impl Answer {
    /// Returns the body, or what the status says.
    pub(super) fn judge(self, call: &Call, server: &str) -> Result<Vec<u8>, KubeError> {
        if self.status.is_success() {
            return Ok(self.body);
        }
        let status: Status = serde_json::from_slice(&self.body).unwrap_or_default();
        let object = call.object();
        let message: String = status.message.chars().take(MESSAGE).collect();
        let away = match call.tries {
            Tries::Several => self.status.is_server_error() || self.status == StatusCode::TOO_MANY_REQUESTS,
            // What fails inside the server on this very request says nothing of the others: an eviction of a pod with
            // two PodDisruptionBudgets is a 500.
            Tries::One => self.status.is_server_error() && self.status != StatusCode::INTERNAL_SERVER_ERROR,
        };
        if away {
            let cause = format!("it answers {} for {object}: {message}", self.status.as_u16());
            return Err(KubeError::Away { server: server.to_owned(), cause });
        }
        if self.status == StatusCode::NOT_FOUND {
            return Err(KubeError::NotFound { object });
        }
        let reason = if status.reason.is_empty() {
            self.status.canonical_reason().unwrap_or("Unknown").to_owned()
        } else {
            status.reason
        };
        Err(KubeError::Refused { object, status: self.status.as_u16(), reason, message })
    }
}

/// Says whether an answer means "soon": overload, a server that starts or stops, one that can't reach its database. A
/// plain 500 is no such: what fails inside the server mostly fails again.
pub(super) fn is_busy(status: StatusCode, headers: &HeaderMap) -> bool {
    match status {
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => true,
        _ => status.is_server_error() && headers.contains_key(http::header::RETRY_AFTER),
    }
}

/// Reads how long to wait, within reason.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_WAIT))
}

/// Returns the kind's name, for people.
fn kind_of(plural: &str) -> String {
    match plural {
        "nodes" => "Node",
        "pods" => "Pod",
        "events" => "Event",
        "machineconfigs" => "MachineConfig",
        "machineconfignodes" => "MachineConfigNode",
        "controllerconfigs" => "ControllerConfig",
        "machineconfigurations" => "MachineConfiguration",
        other => other,
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        Answer { status: StatusCode::from_u16(status).unwrap(), body: body.into() }
    }

    #[test]
    fn objects_are_named_for_people() {
        let table = [
            ("/api/v1/nodes/worker-0", "Node worker-0"),
            ("/api/v1/nodes?fieldSelector=metadata.name%3Da", "Node"),
            ("/api/v1/namespaces/openshift-dns/pods/dns-x/eviction", "Pod openshift-dns/dns-x"),
            ("/api/v1/namespaces/default/events", "Event in namespace default"),
            (
                "/apis/machineconfiguration.openshift.io/v1/machineconfigs/rendered-a",
                "MachineConfig rendered-a",
            ),
        ];
        for (path, name) in table {
            assert_eq!(Call::get(path.to_owned()).object(), name);
        }
    }

    #[test]
    fn statuses_have_their_meaning() {
        let call = Call::get("/api/v1/nodes/a".to_owned());
        let judge = |status, body| answer(status, body).judge(&call, "https://api.test");
        assert_eq!(judge(200, "x").unwrap(), b"x");
        assert!(judge(404, "{}").unwrap_err().is_not_found());
        for status in [429, 500, 503, 504] {
            assert!(judge(status, "").unwrap_err().is_away(), "{status}");
        }
        let refused = judge(403, r#"{"reason":"Forbidden","message":"nodes is forbidden"}"#).unwrap_err();
        assert!(!refused.is_away());
        assert!(refused.to_string().contains("Node a: 403 Forbidden: nodes is forbidden"), "{refused}");
        let once = call.clone().once();
        let refused = answer(429, r#"{"message":"the budget needs 1"}"#).judge(&once, "https://api.test");
        assert!(matches!(refused, Err(KubeError::Refused { status: 429, .. })));
        assert!(judge(401, "no json").unwrap_err().to_string().contains("401 Unauthorized"));
    }

    #[test]
    fn a_wait_is_honoured_within_reason() {
        let wait = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("retry-after", value.parse().unwrap());
            retry_after(&headers)
        };
        assert_eq!(wait("1"), Some(Duration::from_secs(1)));
        assert_eq!(wait("3600"), Some(LONGEST_WAIT));
        assert_eq!(wait("tomorrow"), None);
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }

    #[test]
    fn an_apply_names_its_owner() {
        let call = Call::apply("/x/status".to_owned(), &serde_json::json!({}));
        assert_eq!(call.path, "/x/status?fieldManager=machine-config-operator&force=true");
        assert_eq!(call.content, "application/apply-patch+yaml");
    }
}
