//! The fault switches of `tests/apiserver` (see its `faults.go`).

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::{Bench, LIMIT};

/// A request that is not answered as it should be. All the starts that are set have to fit.
#[derive(Debug, Clone, Default)]
pub struct Fault {
    what: Value,
}

impl Fault {
    /// Answered with a status, 4xx or 5xx.
    pub fn status(code: u16) -> Self {
        Self { what: json!({ "status": code }) }
    }

    /// Ends a watch because its version is too old.
    pub fn expired() -> Self {
        Self { what: json!({ "expire": true }) }
    }

    /// Waits until the faults are cleared.
    pub fn held() -> Self {
        Self { what: json!({ "hold": true }) }
    }

    /// Served so much later.
    pub fn late(by: std::time::Duration) -> Self {
        Self { what: json!({ "delay": by.as_millis() }) }
    }

    /// A write is made, and the connection closed in its answer's place. A refusal is answered.
    pub fn answer_lost() -> Self {
        Self { what: json!({ "lose": true }) }
    }

    fn with(mut self, key: &str, value: Value) -> Self {
        self.what.as_object_mut().unwrap().insert(key.to_owned(), value);
        self
    }

    /// With a `Retry-After` of so many seconds.
    pub fn retry_after(self, seconds: u32) -> Self {
        self.with("retryAfter", json!(seconds))
    }

    /// Only the next so many; all of them when it is not set.
    pub fn count(self, count: u32) -> Self {
        self.with("count", json!(count))
    }

    /// Of answers that are lost: not the first so many.
    pub fn skip(self, skip: u32) -> Self {
        self.with("skip", json!(skip))
    }

    /// Only this method, such as `PATCH`.
    pub fn method(self, method: &str) -> Self {
        self.with("method", json!(method))
    }

    /// Only paths that start so.
    pub fn path(self, path: &str) -> Self {
        self.with("path", json!(path))
    }

    /// Only user agents that start so.
    pub fn agent(self, agent: &str) -> Self {
        self.with("agent", json!(agent))
    }
}

/// Fate of the connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connections {
    /// All are closed; new ones are served.
    Dropped,
    /// Half-open: all stay, also new ones, and nothing goes through.
    Hung,
    /// Those that hung are closed; new ones are served.
    Resumed,
}

impl Bench {
    /// Sets a fault, besides those that are set.
    pub fn fault(&self, fault: &Fault) {
        self.switch("POST", "/faults", &fault.what);
    }

    /// Removes all faults; returns the number of requests that each of them met.
    pub fn clear_faults(&self) -> Vec<u64> {
        serde_json::from_str(&self.switch("DELETE", "/faults", &Value::Null)).unwrap()
    }

    /// Cuts or silences the connections.
    pub fn connections(&self, state: Connections) {
        let state = match state {
            Connections::Dropped => "drop",
            Connections::Hung => "hang",
            Connections::Resumed => "resume",
        };
        self.switch("POST", "/connections", &json!({ "state": state }));
    }

    /// The connections to the server now: address and user agent.
    pub fn connected(&self) -> BTreeMap<String, String> {
        serde_json::from_str(&self.switch("GET", "/connections", &Value::Null)).unwrap()
    }

    fn switch(&self, method: &str, path: &str, body: &Value) -> String {
        let mut stream = TcpStream::connect(self.admin()).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let body = body.to_string();
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.0\r\nHost: bench\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all((head + &body).as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.split(' ').nth(1) == Some("200"), "{method} {path}: {answer}");
        body.to_owned()
    }
}
