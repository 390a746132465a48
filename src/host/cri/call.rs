//! One gRPC call over a Unix socket, on the HTTP/2 that the agent links anyway.

use std::path::Path;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Request};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;
use tokio::task::AbortHandle;

use super::error::CriError;
use super::wire::Message;

/// The longest answer: that on one image, or on the file systems.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Time limit of a connection, and of every call but a pull.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);

/// gRPC's status of what is not there.
const NOT_FOUND: u32 = 5;

/// The header that names containerd's namespace, and the kubelet's namespace.
const NAMESPACE: (&str, HeaderValue) = ("containerd-namespace", HeaderValue::from_static("k8s.io"));

/// A connection to a container runtime. Dropped, it ends.
#[derive(Debug)]
pub(super) struct Connection {
    socket: String,
    sender: http2::SendRequest<Full<Bytes>>,
    task: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Connection {
    /// Connects. Within a tokio runtime.
    pub(super) async fn open(path: &Path) -> Result<Self, CriError> {
        let socket = path.display().to_string();
        let failed = |cause: String| CriError::Away { socket: socket.clone(), cause };
        let connect = async {
            let stream = UnixStream::connect(path).await.map_err(|error| failed(error.to_string()))?;
            let made = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
            made.map_err(|error| failed(error.to_string()))
        };
        let late = |_| failed(format!("no connection within {} s", TIMEOUT.as_secs()));
        let (sender, connection) = tokio::time::timeout(TIMEOUT, connect).await.map_err(late)??;
        // How it ends shows in the calls.
        let task = tokio::spawn(async move { drop(connection.await) }).abort_handle();
        Ok(Self { socket, sender, task })
    }

    /// Calls a method; `None` where it answers that there is no such thing.
    pub(super) async fn call(
        &self,
        method: &str,
        message: Message,
        timeout: Duration,
    ) -> Result<Option<Vec<u8>>, CriError> {
        let failed = |cause: String| CriError::Away { socket: self.socket.clone(), cause };
        let name = method.rsplit('/').next().unwrap_or(method).to_owned();
        let call = tokio::time::timeout(timeout, self.exchange(method, message)).await;
        let late = |_| failed(format!("{name} did not end within {} s", timeout.as_secs()));
        let (status, body) = call.map_err(late)?.map_err(failed)?;
        match status {
            (0, _) => {
                unframed(&body).map(Some).ok_or_else(|| failed(format!("its answer to {name} is cut off")))
            }
            (NOT_FOUND, _) => Ok(None),
            (code, message) => {
                Err(CriError::Refused { socket: self.socket.clone(), method: name, code, message })
            }
        }
    }

    async fn exchange(&self, method: &str, message: Message) -> Result<((u32, String), Bytes), String> {
        let request = Request::post(format!("http://localhost{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header(NAMESPACE.0, NAMESPACE.1)
            .body(Full::new(framed(message)))
            .map_err(|error| error.to_string())?;
        let mut sender = self.sender.clone();
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let (parts, body) = response.into_parts();
        let collected =
            Limited::new(body, MAX_ANSWER_BYTES).collect().await.map_err(|error| error.to_string())?;
        let status = collected.trailers().and_then(status).or_else(|| status(&parts.headers));
        let status = status.ok_or_else(|| format!("its answer is not gRPC (HTTP {})", parts.status))?;
        Ok((status, collected.to_bytes()))
    }
}

/// Puts gRPC's prefix before a message: not compressed, and its length.
fn framed(message: Message) -> Bytes {
    let message = message.into_bytes();
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0][..], &length.to_be_bytes(), &message].concat().into()
}

fn unframed(body: &[u8]) -> Option<Vec<u8>> {
    let (prefix, message) = body.split_first_chunk::<5>()?;
    let [packed, length @ ..] = *prefix;
    let length = usize::try_from(u32::from_be_bytes(length)).ok()?;
    (packed == 0 && message.len() == length).then(|| message.to_vec())
}

fn status(headers: &HeaderMap) -> Option<(u32, String)> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let code = text("grpc-status")?.parse().ok()?;
    Some((code, decoded(text("grpc-message").unwrap_or_default())))
}

/// Undoes gRPC's percent encoding of a message.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        let code = code.and_then(|code| u8::from_str_radix(code, 16).ok()).filter(|_| *first == b'%');
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_grpc_are_decoded() {
        assert_eq!(decoded("no space: 100%25 of %2Fvar%"), "no space: 100% of /var%");
        assert_eq!(decoded("%e4%bd%a0"), "\u{4f60}");
    }

    #[test]
    fn answer_that_is_cut_off_is_none() {
        let whole = framed(Message::default().text(1, "a"));
        assert_eq!(unframed(&whole).unwrap(), [0x0a, 1, b'a']);
        assert_eq!(unframed(whole.get(..6).unwrap()), None);
        assert_eq!(unframed(&[1, 0, 0, 0, 0]), None);
        assert_eq!(unframed(b""), None);
    }
}
