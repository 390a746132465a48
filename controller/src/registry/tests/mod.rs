//! Against Debian's docker-registry, and against servers with given answers.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests: they start a registry")]

mod answers;
mod real;

use crate::ran;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::client::MAX_MANIFEST;
use super::credentials::Credentials;
use super::failure::{Failure, Retry};
use super::reference::Reference;
use super::session::MAX_RETRY_AFTER;
use super::*;
use sha2::{Digest as _, Sha256};
use std::time::Duration;

const HEX: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A server with given answers; it keeps the heads of all requests.
struct FakeRegistry {
    address: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl FakeRegistry {
    /// `answer` gets the head of a request and this server's address, and returns the whole answer.
    async fn new(answer: impl Fn(&str, &str) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (recorded, own, answer) = (Arc::clone(&heads), address.clone(), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (recorded, own, answer) = (Arc::clone(&recorded), own.clone(), Arc::clone(&answer));
                tokio::spawn(one(client, recorded, move |head: &str| answer(head, &own)));
            }
        });
        Self { address, heads }
    }

    fn client(&self) -> Client {
        Client::new(Options { insecure: vec![self.address.clone()], trust: Vec::new() })
    }

    fn image(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    /// The first lines of the requests.
    fn lines(&self) -> Vec<String> {
        let heads = self.heads.lock().unwrap();
        heads.iter().map(|head| head.lines().next().unwrap().replace(" HTTP/1.1", "")).collect()
    }
}

async fn one(mut client: TcpStream, recorded: Arc<Mutex<Vec<String>>>, answer: impl Fn(&str) -> String) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if client.read(&mut byte).await.unwrap_or(0) == 0 {
            return;
        }
        // A greeting of TLS is none of HTTP.
        if !byte[0].is_ascii() || byte[0] == 0x16 {
            return;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let text = answer(&head);
    recorded.lock().unwrap().push(head);
    drop(client.write_all(text.as_bytes()).await);
}

fn answer(status: &str, headers: &[&str], body: &str) -> String {
    let length = body.len();
    let head = [&[status], headers].concat().join("\r\n");
    format!("HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
}

fn account(host: &str, user: &str, password: &str) -> Credentials {
    let text = serde_json::json!({ "auths": { host: { "username": user, "password": password } } });
    Credentials::parse(text.to_string().as_bytes()).unwrap()
}
