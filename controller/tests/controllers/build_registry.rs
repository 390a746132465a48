//! A registry that has every image but those that it lost, and notes what is deleted.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

#[derive(Default)]
struct State {
    lost: BTreeSet<String>,
    deleted: Vec<String>,
    /// Its answer to everything.
    refusal: Option<&'static str>,
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
