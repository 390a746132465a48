//! A registry that has every image but those that it lost, and notes what is deleted.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::proxy::Failing;

#[derive(Default)]
struct State {
    lost: BTreeSet<String>,
    deleted: Vec<String>,
    /// Its answer to everything.
    refusal: Option<&'static str>,
    /// How requests fail that have this in their path.
    failing: Option<(String, Failing)>,
    met: watch::Sender<u64>,
    mended: watch::Sender<bool>,
}

pub struct FakeRegistry {
    pub host: String,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl FakeRegistry {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let state = Arc::<Mutex<State>>::default();
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Self { host, state, task }
    }

    pub fn lose(&self, digest: &str) {
        self.state.lock().unwrap().lost.insert(digest.to_owned());
    }

    /// Answers everything with a status, until it has none.
    pub fn refuse(&self, status: Option<&'static str>) {
        self.state.lock().unwrap().refusal = status;
    }

    /// Has the requests of a path fail from now on: unanswered, late, or with the page of a login.
    pub fn fail(&self, part: &str, failing: Failing) {
        let mut state = self.state.lock().unwrap();
        state.met.send_replace(0);
        state.mended.send_replace(false);
        state.failing = Some((part.to_owned(), failing));
    }

    /// Waits until a request failed so.
    pub async fn failed(&self) {
        let mut met = self.state.lock().unwrap().met.subscribe();
        crate::cluster::within("a request to the registry", met.wait_for(|met| *met > 0)).await.unwrap();
    }

    pub fn mend(&self) {
        let mut state = self.state.lock().unwrap();
        state.failing = None;
        state.mended.send_replace(true);
    }

    pub fn deleted(&self) -> Vec<String> {
        self.state.lock().unwrap().deleted.clone()
    }
}

impl Drop for FakeRegistry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers one request of a connection.
async fn serve(mut stream: TcpStream, state: Arc<Mutex<State>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let mut words = head.split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let digest = path.rsplit('/').next().unwrap();
    let failing = {
        let state = state.lock().unwrap();
        let failing = state.failing.as_ref().filter(|(part, _)| path.contains(part));
        failing
            .map(|(_, failing)| (*failing, state.mended.subscribe()))
            .inspect(|_| state.met.send_modify(|met| *met += 1))
    };
    if let Some((failing, mut mended)) = failing {
        match failing {
            Failing::AnswersSomethingElse | Failing::EndsAtOnce => {
                let page = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                drop(stream.write_all(page.as_bytes()).await);
                return;
            }
            Failing::AnswersLate => drop(mended.wait_for(|mended| *mended).await.map(drop)),
            Failing::NeverAnswers | Failing::AnswersWithOlderNews | Failing::Refuses(..) => {
                return drop(mended.wait_for(|mended| *mended).await.map(drop));
            }
        }
    }
    let answer = {
        let mut state = state.lock().unwrap();
        if let Some(refusal) = state.refusal {
            refusal.to_owned()
        } else if !path.contains("/manifests/") {
            "200 OK".to_owned()
        } else if state.lost.contains(digest) && method != "DELETE" {
            "404 Not Found".to_owned()
        } else if method == "DELETE" {
            state.deleted.push(digest.to_owned());
            "202 Accepted".to_owned()
        } else {
            let kind = "application/vnd.oci.image.manifest.v1+json";
            format!("200 OK\r\nContent-Type: {kind}\r\nDocker-Content-Digest: {digest}")
        }
    };
    let answer = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    drop(stream.write_all(answer.as_bytes()).await);
}
