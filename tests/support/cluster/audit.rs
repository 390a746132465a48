//! Every request that reached the server, from its audit log. The log is a pipe: writes are seen at once.

use std::ops::Range;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde_json::Value;
use tokio::sync::watch;

/// One request.
#[derive(Debug, Clone)]
pub struct Request {
    pub id: String,
    pub user: String,
    pub agent: String,
    pub verb: String,
    /// The group of the resource; empty for the core kinds and for paths that are no resources.
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub uri: String,
    /// The answer's code; none before there is an answer.
    pub code: Option<u64>,
    /// When it was answered, in microseconds since 1970.
    pub answered: Option<i64>,
    /// Body of the request, known with the answer, for writes of nodes, `MachineConfigNode`s, events and evictions.
    pub body: Option<Value>,
    /// A watch goes on after its answer; this is true when it is over.
    pub over: bool,
}

impl Request {
    /// `patch nodes/status worker-0`, for messages and comparisons.
    pub fn line(&self) -> String {
        if self.resource.is_empty() {
            return format!("{} {}", self.verb, self.uri);
        }
        let slash = if self.subresource.is_empty() { "" } else { "/" };
        format!("{} {}{slash}{} {}", self.verb, self.resource, self.subresource, self.name)
            .trim_end()
            .to_owned()
    }
}

/// All requests so far, in the order in which they came in.
#[derive(Debug, Clone)]
pub struct Audit {
    requests: Arc<watch::Sender<Vec<Request>>>,
}

impl Audit {
    pub fn new() -> Self {
        Self { requests: Arc::new(watch::Sender::new(vec![])) }
    }

    /// Takes in a line of the log.
    pub fn line(&self, line: &str) {
        let Ok(entry) = serde_json::from_str::<Value>(line) else { return };
        let text =
            |pointer: &str| entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let id = text("/auditID");
        let stage = text("/stage");
        let code = entry.pointer("/responseStatus/code").and_then(Value::as_u64);
        let body = entry.pointer("/requestObject").cloned();
        self.requests.send_modify(|all| {
            let known = all.iter().rposition(|request| request.id == id);
            let at = known.unwrap_or_else(|| {
                all.push(Request {
                    id,
                    user: text("/user/username"),
                    agent: text("/userAgent"),
                    verb: text("/verb"),
                    group: text("/objectRef/apiGroup"),
                    resource: text("/objectRef/resource"),
                    subresource: text("/objectRef/subresource"),
                    namespace: text("/objectRef/namespace"),
                    name: text("/objectRef/name"),
                    uri: text("/requestURI"),
                    code: None,
                    answered: None,
                    body: None,
                    over: false,
                });
                all.len() - 1
            });
            let request = &mut all[at];
            request.code = code.or(request.code);
            request.body = body.or_else(|| request.body.take());
            // A created object's name is known only afterwards.
            if request.name.is_empty() {
                request.name = text("/objectRef/name");
            }
            if stage == "ResponseComplete" {
                let at = entry.pointer("/stageTimestamp").cloned().unwrap_or_default();
                request.answered = serde_json::from_value(at).ok().map(|at: MicroTime| at.0.as_microsecond());
            }
            // The server logs a refused identity when it begins to answer, and not again.
            let is_refused = stage == "ResponseStarted" && code == Some(401);
            request.over |= is_refused || stage == "ResponseComplete" || stage == "Panic";
        });
    }

    pub fn all(&self) -> Vec<Request> {
        self.requests.borrow().clone()
    }

    pub fn count(&self) -> usize {
        self.requests.borrow().len()
    }

    /// Waits until all of these are answered that are to be: a client sees an answer a moment before the log has it.
    pub async fn settled(&self, which: Range<usize>) {
        let mut seen = self.requests.subscribe();
        let is_over = |request: &Request| request.over || request.verb == "watch";
        let settled = seen.wait_for(|all| all[which.clone()].iter().all(is_over));
        if tokio::time::timeout(super::LIMIT, settled).await.is_err() {
            let open: Vec<_> = self.all().drain(which).filter(|request| !is_over(request)).collect();
            panic!("waited {:?} in vain for answers to {open:#?}", super::LIMIT);
        }
    }

    /// Waits until some request of the log is the one meant.
    pub async fn until(&self, what: &str, meant: impl FnMut(&Request) -> bool) -> Request {
        self.since(0, what, meant).await
    }

    /// The same among those since a mark.
    pub async fn since(&self, mark: usize, what: &str, mut meant: impl FnMut(&Request) -> bool) -> Request {
        let mut seen = self.requests.subscribe();
        let found = super::within(what, seen.wait_for(|all| all.iter().skip(mark).any(&mut meant))).await;
        let all = found.unwrap().clone();
        all.into_iter().skip(mark).find(meant).unwrap()
    }
}
