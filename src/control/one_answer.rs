//! A TCP server of tests that gives one answer.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// Starts it; returns its address, and the head of the request once it has answered.
pub(in crate::control) async fn answering(
    answer: Vec<u8>,
) -> (std::net::SocketAddr, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(tcp.read_u8().await.unwrap());
        }
        // The client may have left in the middle of the answer. It closes the connection, not this server.
        drop(tcp.write_all(&answer).await);
        drop(tcp.read(&mut [0]).await);
        String::from_utf8(head).unwrap()
    });
    (address, task)
}
