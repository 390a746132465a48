//! A proxy before the API server, whichever that is: the requests of a seam fail as a test tells it to, all others pass.
//!
//! Plain HTTP on loopback. It is its own client of the server, so an answer can be kept back, replaced or lost without the
//! server knowing.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cluster::within;

type Answer = Response<UnsyncBoxBody<Bytes, kube::Error>>;

/// A way of failing. It ends with [`Proxy::mend`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failing {
    /// No answer, and nothing reaches the server.
    NeverAnswers,
    /// The server does it at the end of the fault, also where the client has given up.
    AnswersLate,
    /// Reads get what they got when [`Proxy::remember`] was called; a watch brings nothing.
    AnswersWithOlderNews,
    /// Refused with this status and these words.
    Refuses(u16, &'static str),
    /// Answered with a page of a proxy that wants a login.
    AnswersSomethingElse,
    /// Answered well, with nothing: a watch that ends at once.
    EndsAtOnce,
}

/// The requests that fail.
#[derive(Debug, Clone)]
pub struct Seam {
    method: Method,
    /// All of these are in the path and the query.
    parts: Vec<String>,
    /// None of these.
    without: Vec<String>,
    /// This is in the body.
    body: Option<String>,
}

impl Seam {
    pub fn new(method: Method, parts: &[&str]) -> Self {
        let parts = parts.iter().map(|part| (*part).to_owned()).collect();
        Self { method, parts, without: Vec::new(), body: None }
    }

    /// Only requests with this in their body: a creation has its object's name there.
    pub fn with_body(mut self, part: &str) -> Self {
        self.body = Some(part.to_owned());
        self
    }

    pub fn without(mut self, part: &str) -> Self {
        self.without.push(part.to_owned());
        self
    }

    fn holds(&self, method: &Method, path: &str, body: &[u8]) -> bool {
        *method == self.method
            && self.parts.iter().all(|part| path.contains(part))
            && !self.without.iter().any(|part| path.contains(part))
            && self.body.as_ref().is_none_or(|part| String::from_utf8_lossy(body).contains(part))
    }
}

struct Fault {
    seam: Seam,
    failing: Failing,
    met: watch::Sender<u64>,
    mended: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    faults: Vec<Arc<Fault>>,
    /// Answers to reads, by path and query, while they are remembered.
    answers: BTreeMap<String, Bytes>,
    remembers: bool,
}

/// The proxy; it ends with this.
pub struct Proxy {
    pub url: String,
    state: Arc<Mutex<State>>,
    accepting: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Proxy {
    /// Stands before the server of this client.
    pub async fn new(server: Client) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::<Mutex<State>>::default();
        let served = Arc::clone(&state);
        let accepting = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (server, state) = (server.clone(), Arc::clone(&served));
                let service = service_fn(move |request| {
                    let (server, state) = (server.clone(), Arc::clone(&state));
                    async move { Ok::<_, Infallible>(serve(request, server, &state).await) }
                });
                // A client that goes is no error here.
                let http = hyper::server::conn::http1::Builder::new();
                tokio::spawn(async move { drop(http.serve_connection(TokioIo::new(stream), service).await) });
            }
        });
        Self { url, state, accepting }
    }

    /// Keeps the answers to reads from now on, for [`Failing::AnswersWithOlderNews`].
    pub fn remember(&self) {
        self.state.lock().unwrap().remembers = true;
    }

    /// Has the requests of a seam fail from now on.
    pub fn fail(&self, seam: Seam, failing: Failing) {
        let fault = Fault { seam, failing, met: watch::channel(0).0, mended: watch::channel(false).0 };
        self.state.lock().unwrap().faults.push(Arc::new(fault));
    }

    /// Waits until so many requests failed since the last fault was set.
    pub async fn failed(&self, count: u64) {
        let mut met = self.state.lock().unwrap().faults.last().unwrap().met.subscribe();
        within("requests of the seam", met.wait_for(|met| *met >= count)).await.unwrap();
    }

    /// Waits until so many more requests failed by the last fault.
    pub async fn failed_again(&self, count: u64) {
        let mut met = self.state.lock().unwrap().faults.last().unwrap().met.subscribe();
        let before = *met.borrow_and_update();
        within("more requests of the seam", met.wait_for(|met| *met >= before + count)).await.unwrap();
    }

    /// Waits until each fault that is set met a request.
    pub async fn all_failed(&self) {
        let faults = self.state.lock().unwrap().faults.clone();
        for fault in faults {
            let what = format!("a request of {:?}", fault.seam);
            within(&what, fault.met.subscribe().wait_for(|met| *met > 0)).await.unwrap();
        }
    }

    /// Ends the faults of the seams that have a part, and no others.
    pub fn mend_part(&self, part: &str) {
        let is_meant = |fault: &Arc<Fault>| fault.seam.parts.iter().any(|one| one.contains(part));
        let mut state = self.state.lock().unwrap();
        let (meant, others) = std::mem::take(&mut state.faults).into_iter().partition(is_meant);
        state.faults = others;
        let meant: Vec<Arc<Fault>> = meant;
        for fault in meant {
            fault.mended.send_replace(true);
        }
    }

    /// Ends all faults; returns the number of requests that each met.
    pub fn mend(&self) -> Vec<u64> {
        let faults = std::mem::take(&mut self.state.lock().unwrap().faults);
        faults
            .iter()
            .map(|fault| {
                fault.mended.send_replace(true);
                *fault.met.borrow()
            })
            .collect()
    }
}

async fn serve(request: Request<Incoming>, server: Client, state: &Arc<Mutex<State>>) -> Answer {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let (parts, body) = request.into_parts();
    // A client that goes in the middle of its request has no answer.
    let Ok(body) = body.collect().await.map(http_body_util::Collected::to_bytes) else {
        return status(400, "the request ended early");
    };
    let (fault, older) = {
        let state = state.lock().unwrap();
        let fault = state.faults.iter().find(|fault| fault.seam.holds(&parts.method, &path, &body)).cloned();
        (fault, state.answers.get(&path).cloned())
    };
    let request = Request::from_parts(parts, body);
    let Some(fault) = fault else { return forward(request, &path, server, state).await };
    fault.met.send_modify(|met| *met += 1);
    let mut mended = fault.mended.subscribe();
    match fault.failing {
        Failing::NeverAnswers => {
            drop(mended.wait_for(|mended| *mended).await);
            status(503, "the proxy ended the request")
        }
        Failing::AnswersLate => {
            let state = Arc::clone(state);
            // Not of the client's connection: that may be gone by then.
            let late = tokio::spawn(async move {
                drop(mended.wait_for(|mended| *mended).await);
                forward(request, &path, server, &state).await
            });
            late.await.unwrap()
        }
        Failing::AnswersWithOlderNews if path.contains("watch=") => silent(mended),
        Failing::AnswersWithOlderNews => match older {
            Some(body) => json_body(StatusCode::OK, body),
            None => forward(request, &path, server, state).await,
        },
        Failing::Refuses(code, words) => status(code, words),
        Failing::EndsAtOnce => json_body(StatusCode::OK, Bytes::new()),
        Failing::AnswersSomethingElse => {
            let page = Full::from("<html><title>Sign in</title></html>").map_err(|never| match never {});
            let mut answer = Response::new(page.boxed_unsync());
            answer.headers_mut().insert(header::CONTENT_TYPE, "text/html".parse().unwrap());
            answer
        }
    }
}

async fn forward(request: Request<Bytes>, path: &str, server: Client, state: &Mutex<State>) -> Answer {
    let (parts, body) = request.into_parts();
    let mut request = Request::builder().method(parts.method.clone()).uri(path);
    for (name, value) in &parts.headers {
        // Those of this connection alone.
        if ![header::HOST, header::CONTENT_LENGTH, header::ACCEPT_ENCODING, header::AUTHORIZATION]
            .contains(name)
        {
            request = request.header(name, value);
        }
    }
    let answer = match server.send(request.body(Body::from(body.to_vec())).unwrap()).await {
        Ok(answer) => answer,
        // As the load balancer before a server that is away.
        Err(error) => return status(502, &error.to_string()),
    };
    let (mut parts_back, body) = answer.into_parts();
    for name in [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONNECTION] {
        parts_back.headers.remove(name);
    }
    if parts.method == Method::GET && !path.contains("watch=") && state.lock().unwrap().remembers {
        let body = body.collect().await.unwrap().to_bytes();
        state.lock().unwrap().answers.entry(path.to_owned()).or_insert_with(|| body.clone());
        return json_body(parts_back.status, body);
    }
    Response::from_parts(parts_back, body.boxed_unsync())
}

/// A watch that is open and brings nothing.
fn silent(mut mended: watch::Receiver<bool>) -> Answer {
    let end = async move {
        drop(mended.wait_for(|mended| *mended).await);
        None::<(Result<Frame<Bytes>, kube::Error>, ())>
    };
    let mut end = Some(end);
    let stream = futures_util::stream::unfold((), move |()| {
        let end = end.take();
        async move { end?.await }
    });
    Response::new(StreamBody::new(stream).boxed_unsync())
}

fn json_body(status: StatusCode, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::from(body).map_err(|never| match never {}).boxed_unsync());
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, "application/json".parse().unwrap());
    answer
}

/// As the API server refuses.
fn status(code: u16, words: &str) -> Answer {
    let status: Value = json!({ "apiVersion": "v1", "kind": "Status", "status": "Failure", "message": words, "code": code,
        "reason": "" });
    json_body(StatusCode::from_u16(code).unwrap(), Bytes::from(status.to_string()))
}
