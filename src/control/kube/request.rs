//! Requests and the meaning of their answers. Pure: nothing is sent here.

use std::time::Duration;

use http::{HeaderMap, Method, Request, StatusCode, header};
use kube::core::Status;
use kube::core::response::StatusDetails;

use super::error::{ANSWERS, Details, KubeError};

/// The longest delay that an API server may set.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// Most characters kept of the API server's text: it may quote the request.
const MESSAGE: usize = 500;

/// Object and purpose of a request, read from the request itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct RequestInfo {
    /// Names the object for people: `Node worker-0`, `Pod openshift-dns/dns-x`, `MachineConfigs`.
    pub(super) object: String,
    /// It is sent once: an eviction's 429 is a budget's refusal, and the caller decides about the next request.
    pub(super) once: bool,
    /// Sending it twice is as good as once.
    pub(super) repeatable: bool,
    /// Its answer has no end.
    pub(super) watch: bool,
}

impl RequestInfo {
    /// Reads a request.
    pub(super) fn from_request<B>(request: &Request<B>) -> Self {
        let path = request.uri().path();
        Self {
            object: object(path),
            once: path.ends_with("/eviction"),
            repeatable: request.method() != Method::POST,
            watch: request.uri().query().is_some_and(|query| query.contains("watch=true")),
        }
    }
}

/// Names the object at a path for people.
fn object(path: &str) -> String {
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

/// Returns the error of an answer that is no success.
pub(super) fn error_from_status(
    status: StatusCode,
    body: &[u8],
    purpose: &RequestInfo,
    server: String,
) -> KubeError {
    let answer: Status = serde_json::from_slice(body).unwrap_or_default();
    let object = purpose.object.clone();
    let message: String = answer.message.chars().take(MESSAGE).collect();
    // What is sent once is judged by its caller: of an eviction a budget, two of them on one pod, and a busy server are 429, 500 and 503.
    let is_busy = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
    if is_busy && !purpose.once {
        let cause = format!("{ANSWERS}{} for {object}: {message}", status.as_u16());
        return KubeError::Away { server, cause };
    }
    if status == StatusCode::NOT_FOUND {
        return KubeError::NotFound { object };
    }
    let reason = if answer.reason.is_empty() {
        status.canonical_reason().unwrap_or("Unknown").to_owned()
    } else {
        answer.reason
    };
    let details = answer.details.map(|details| details_of(&details)).unwrap_or_default();
    KubeError::Refused { object, status: status.as_u16(), reason, message, details }
}

fn details_of(details: &StatusDetails) -> Details {
    let budget = details.causes.iter().find(|cause| cause.reason == "DisruptionBudget");
    let message = |text: &str| text.chars().take(MESSAGE).collect();
    Details { budget: budget.map(|cause| message(&cause.message)), retry_after: details.retry_after_seconds }
}

/// Returns true if an answer means "soon": overload, a server that starts or stops, one that can't reach its database.
/// A plain 500 does not: a failure inside the server mostly repeats.
pub(super) fn is_busy(status: StatusCode, headers: &HeaderMap) -> bool {
    match status {
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => true,
        _ => status.is_server_error() && headers.contains_key(header::RETRY_AFTER),
    }
}

/// Reads the delay, within reason.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
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
        "machineconfigpools" => "MachineConfigPool",
        "pinnedimagesets" => "PinnedImageSet",
        "machineconfigurations" => "MachineConfiguration",
        other => other,
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(RequestInfo::from_request(&Request::get(path).body(()).unwrap()).object, name);
        }
    }

    #[test]
    fn statuses_have_their_meaning() {
        let judged = |path: &str, status, body: &str| {
            let request = Request::post(path).body(()).unwrap();
            let status = StatusCode::from_u16(status).unwrap();
            error_from_status(
                status,
                body.as_bytes(),
                &RequestInfo::from_request(&request),
                "https://api.test".to_owned(),
            )
        };
        let node = |status, body| judged("/api/v1/nodes/a", status, body);
        assert!(node(404, "{}").is_not_found());
        for status in [429, 500, 503, 504] {
            assert!(node(status, "").is_away(), "{status}");
        }
        let refused = node(403, r#"{"reason":"Forbidden","message":"nodes is forbidden"}"#);
        assert!(!refused.is_away());
        assert!(refused.to_string().contains("Node a: 403 Forbidden: nodes is forbidden"), "{refused}");
        assert!(node(401, "no json").to_string().contains("401 Unauthorized"));
        let budget = r#"{"details":{"retryAfterSeconds":10,"causes":[{"reason":"DisruptionBudget","message":"needs 1"}]}}"#;
        let KubeError::Refused { details, .. } = judged("/api/v1/namespaces/a/pods/b/eviction", 429, budget)
        else {
            panic!("it is refused")
        };
        assert_eq!((details.budget.as_deref(), details.retry_after), (Some("needs 1"), 10));
        for code in [429, 500, 502, 503, 504] {
            let eviction = judged("/api/v1/namespaces/a/pods/b/eviction", code, "{}");
            assert!(matches!(eviction, KubeError::Refused { status, .. } if status == code), "{code}");
        }
    }

    #[test]
    fn request_names_its_object() {
        let watch = Request::get("/api/v1/nodes?watch=true").body(()).unwrap();
        let desired = RequestInfo { object: "Node".to_owned(), once: false, repeatable: true, watch: true };
        assert_eq!(RequestInfo::from_request(&watch), desired);
        let eviction = Request::post("/api/v1/namespaces/a/pods/b/eviction").body(()).unwrap();
        let desired =
            RequestInfo { object: "Pod a/b".to_owned(), once: true, repeatable: false, watch: false };
        assert_eq!(RequestInfo::from_request(&eviction), desired);
    }

    #[test]
    fn wait_is_honoured_within_reason() {
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
}
