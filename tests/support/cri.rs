//! A container runtime as the agent meets one: gRPC over HTTP/2 on its socket, with CRI's image service and, as containerd,
//! its own API of images beside it. Messages are read and written here a second time, so that a fault in the agent's own
//! reading does not hide itself.
#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    unreachable_pub,
    missing_docs,
    missing_debug_implementations,
    dead_code,
    reason = "shared by tests: it fails by panicking, and each uses its own part of it"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixListener;
use tokio::sync::Semaphore;

pub const CONTAINERD: &str = "run/containerd/containerd.sock";
pub const CRIO: &str = "run/crio/crio.sock";

/// What the runtime has, and what it was asked for.
#[derive(Default)]
pub struct State {
    /// The images that are there, by name.
    pub images: BTreeSet<String>,
    /// The labels of containerd's entries.
    pub labels: BTreeMap<String, BTreeMap<String, String>>,
    /// The images that were pulled, and the `auth` of each.
    pub pulled: Vec<(String, String)>,
    /// Images that need this `auth`.
    pub secrets: BTreeMap<String, String>,
    /// Refuses every pull with these words.
    pub refuses: Option<String>,
    /// Where it says that its images are; empty as long as it does not say.
    pub mountpoint: String,
    /// Labels have no effect, as in containerd 1.6.
    pub is_old: bool,
    /// The pulls that run, and the most there were.
    pub running: (usize, usize),
    /// The connections that were made.
    pub connections: usize,
}

/// The runtime. Dropped, its tasks end with the test's event loop.
#[derive(Clone)]
pub struct Runtime {
    state: Arc<Mutex<State>>,
    /// A pull takes one of these.
    pub gate: Arc<Semaphore>,
}

impl Runtime {
    /// Listens below a root.
    pub fn listen(root: &Path, socket: &str) -> Self {
        let place = root.join(socket);
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        let listener = UnixListener::bind(place).unwrap();
        let runtime = Self { state: Arc::default(), gate: Arc::new(Semaphore::new(1000)) };
        let served = runtime.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                served.state().connections += 1;
                let served = served.clone();
                tokio::spawn(async move {
                    let answer = service_fn(move |request| {
                        let served = served.clone();
                        async move { Ok::<_, Infallible>(served.answer(request).await) }
                    });
                    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    drop(server.serve_connection(TokioIo::new(stream), answer).await);
                });
            }
        });
        runtime
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The names that are pinned.
    pub fn pinned(&self) -> Vec<String> {
        let state = self.state();
        let is_pinned = |labels: &BTreeMap<String, String>| {
            labels.get("io.cri-containerd.pinned").is_some_and(|value| value == "pinned")
        };
        state.labels.iter().filter(|(_, labels)| is_pinned(labels)).map(|(name, _)| name.clone()).collect()
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        assert_eq!(parts.headers.get("content-type").unwrap(), "application/grpc");
        assert_eq!(parts.headers.get("te").unwrap(), "trailers");
        let body = body.collect().await.unwrap().to_bytes();
        let length = u32::from_be_bytes(body.get(1..5).unwrap().try_into().unwrap());
        assert_eq!((body.first(), body.len() - 5), (Some(&0), length.try_into().unwrap()));
        let message = body.get(5..).unwrap();
        match parts.uri.path() {
            "/runtime.v1.ImageService/ImageStatus" => self.status(message),
            "/runtime.v1.ImageService/PullImage" => self.pull(message).await,
            "/runtime.v1.ImageService/ImageFsInfo" => {
                let mountpoint = self.state().mountpoint.clone();
                done(&field(1, &field(2, &field(1, mountpoint.as_bytes()))))
            }
            "/containerd.services.images.v1.Images/List" => self.list(&parts.headers, message),
            "/containerd.services.images.v1.Images/Update" => self.update(&parts.headers, message),
            other => ended(12, &format!("unknown method {other}"), &[]),
        }
    }

    fn status(&self, message: &[u8]) -> Response<Body> {
        let name = text(&bytes(message, 1).remove(0), 1);
        let state = self.state();
        if !state.images.contains(&name) {
            return done(&[]);
        }
        let label = |name: &str| state.labels.get(name)?.get("io.cri-containerd.pinned").cloned();
        let is_pinned = !state.is_old && label(&name).is_some_and(|value| value == "pinned");
        let mut image = [field(1, id(&name).as_bytes()), field(3, name.as_bytes())].concat();
        if is_pinned {
            image.extend([0x40, 1]);
        }
        done(&field(1, &image))
    }

    async fn pull(&self, message: &[u8]) -> Response<Body> {
        let name = text(&bytes(message, 1).remove(0), 1);
        let auth = bytes(message, 2).first().map(|auth| text(auth, 3)).unwrap_or_default();
        {
            let mut state = self.state();
            state.pulled.push((name.clone(), auth.clone()));
            state.running.0 += 1;
            state.running.1 = state.running.1.max(state.running.0);
        }
        self.gate.acquire().await.unwrap().forget();
        let mut state = self.state();
        state.running.0 -= 1;
        if let Some(words) = state.refuses.clone() {
            return ended(2, &words, &[]);
        }
        if state.secrets.get(&name).is_some_and(|secret| *secret != auth) {
            return ended(2, "401 Unauthorized", &[]);
        }
        for entry in [name.clone(), id(&name)] {
            state.labels.entry(entry).or_default();
        }
        state.images.insert(name.clone());
        done(&field(1, id(&name).as_bytes()))
    }

    fn list(&self, headers: &HeaderMap, message: &[u8]) -> Response<Body> {
        assert_eq!(headers.get("containerd-namespace").unwrap(), "k8s.io");
        assert_eq!(text(message, 1), "labels.\"machine-config-agent.io/pinned\"==true");
        let state = self.state();
        let own = |labels: &BTreeMap<String, String>| {
            labels.get("machine-config-agent.io/pinned").is_some_and(|value| value == "true")
        };
        let names = state.labels.iter().filter(|(_, labels)| own(labels)).map(|(name, _)| name);
        let images: Vec<u8> = names.flat_map(|name| field(1, &field(1, name.as_bytes()))).collect();
        done(&images)
    }

    fn update(&self, headers: &HeaderMap, message: &[u8]) -> Response<Body> {
        assert_eq!(headers.get("containerd-namespace").unwrap(), "k8s.io");
        let image = bytes(message, 1).remove(0);
        // The real one ends with a nil pointer without it.
        assert_eq!(bytes(&image, 3).len(), 1);
        let mut state = self.state();
        let Some(labels) = state.labels.get_mut(&text(&image, 1)) else {
            return ended(5, "image not found", &[]);
        };
        let new: BTreeMap<String, String> =
            bytes(&image, 2).iter().map(|entry| (text(entry, 1), text(entry, 2))).collect();
        for path in bytes(&bytes(message, 2).remove(0), 1) {
            let path = String::from_utf8(path).unwrap();
            let key = path.strip_prefix("labels.").unwrap();
            labels.insert(key.to_owned(), new.get(key).cloned().unwrap_or_default());
        }
        done(&[])
    }
}

/// The id of an image: no digest of anything, but one for each name.
pub fn id(name: &str) -> String {
    format!("sha256:{}", machine_config_agent::model::Sha256::digest(name.as_bytes()))
}

type Body = http_body_util::StreamBody<
    futures_util::stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>,
>;

fn done(message: &[u8]) -> Response<Body> {
    ended(0, "", message)
}

/// An answer as gRPC sends it: a message where it succeeds, and the status after it.
fn ended(code: u32, words: &str, message: &[u8]) -> Response<Body> {
    let mut frames = Vec::new();
    if code == 0 {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        frames.push(Ok(Frame::data(Bytes::from([&[0][..], &length, message].concat()))));
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", code.into());
    trailers.insert("grpc-message", words.replace('%', "%25").parse().unwrap());
    frames.push(Ok(Frame::trailers(trailers)));
    let body = http_body_util::StreamBody::new(futures_util::stream::iter(frames));
    Response::builder().header("content-type", "application/grpc").body(body).unwrap()
}

fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 128 {
        bytes.push(u8::try_from(number % 128).unwrap() | 128);
        number /= 128;
    }
    bytes.push(u8::try_from(number).unwrap());
    bytes
}

fn field(number: usize, value: &[u8]) -> Vec<u8> {
    [varint(number * 8 + 2), varint(value.len()), value.to_vec()].concat()
}

/// The values of a length-delimited field; the agent sends no other kind.
fn bytes(mut message: &[u8], wanted: usize) -> Vec<Vec<u8>> {
    let number = |message: &mut &[u8]| {
        let (mut number, mut shift) = (0, 0);
        loop {
            let (first, rest) = message.split_first().unwrap();
            *message = rest;
            number |= usize::from(first & 127) << shift;
            shift += 7;
            if *first < 128 {
                return number;
            }
        }
    };
    let mut found = Vec::new();
    while !message.is_empty() {
        let (key, length) = (number(&mut message), number(&mut message));
        assert_eq!(key % 8, 2);
        let (value, rest) = message.split_at(length);
        message = rest;
        if key / 8 == wanted {
            found.push(value.to_vec());
        }
    }
    found
}

fn text(message: &[u8], wanted: usize) -> String {
    bytes(message, wanted).pop().map(|text| String::from_utf8(text).unwrap()).unwrap_or_default()
}
