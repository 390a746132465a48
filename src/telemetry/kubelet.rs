//! The kubelet's own health probe: requested while a scrape waits, so a node without scrapes sends no request.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http_body_util::Empty;
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// Default port of the kubelet's probe.
const PORT: u16 = 10248;

/// Shortest interval of requests: two scrapers count a failure once.
const INTERVAL: Duration = Duration::from_secs(30);

/// Time limit of the probe: a scrape waits for it.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// The kubelet's health, as MCD counts it (MCD-253).
#[derive(Debug)]
pub struct KubeletProbe {
    endpoint: SocketAddr,
    last_probe: Mutex<Option<Instant>>,
    failures: AtomicU32,
}

impl Default for KubeletProbe {
    fn default() -> Self {
        Self::new(SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)))
    }
}

impl KubeletProbe {
    /// Takes the kubelet's endpoint. Nothing is requested yet.
    pub fn new(endpoint: SocketAddr) -> Self {
        Self { endpoint, last_probe: Mutex::default(), failures: AtomicU32::default() }
    }

    /// Returns the kubelet's failures in a row, by the last probe.
    pub fn failures(&self) -> u32 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Probes it, unless it was probed just now. Any answer counts: its content is for the kubelet's own probes.
    pub async fn probe(&self) {
        let mut last_probe = self.last_probe.lock().await;
        if last_probe.is_some_and(|at| at.elapsed() < INTERVAL) {
            return;
        }
        let has_answered = timeout(PROBE_TIMEOUT, is_healthy(self.endpoint)).await.ok().flatten().is_some();
        *last_probe = Some(Instant::now());
        let failures = if has_answered { 0 } else { self.failures().saturating_add(1) };
        self.failures.store(failures, Ordering::Relaxed);
    }
}

async fn is_healthy(endpoint: SocketAddr) -> Option<()> {
    let stream = TcpStream::connect(endpoint).await.ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    let request = Request::get("/healthz").header(HOST, "localhost").body(Empty::<Bytes>::new()).ok()?;
    let answer = sender.send_request(request);
    tokio::pin!(answer, connection);
    tokio::select! {
        // Both are only polled here; the connection ends with its answer, or with an error of its own.
        biased;
        answer = &mut answer => answer.ok().map(drop),
        _ = &mut connection => (&mut answer).await.ok().map(drop),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// MCD-253: failures in a row are counted, at most one in half a minute; any answer of HTTP ends the count.
    #[tokio::test(flavor = "current_thread")]
    async fn failures_in_row_are_counted_until_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let probe = KubeletProbe::new(listener.local_addr().unwrap());
        let later = async |probe: &KubeletProbe| *probe.last_probe.lock().await = None;
        // Closed without an answer.
        for count in 1..=3 {
            let ((), ()) = tokio::join!(probe.probe(), async { drop(listener.accept().await.unwrap()) });
            assert_eq!(probe.failures(), count);
            probe.probe().await;
            assert_eq!(probe.failures(), count, "within the interval nobody is asked");
            later(&probe).await;
        }
        let answer = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 1024];
            let read = stream.read(&mut head).await.unwrap();
            assert!(head[..read].starts_with(b"GET /healthz HTTP/1.1\r\n"));
            let unwell = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(unwell).await.unwrap();
            stream
        };
        let ((), _stream) = tokio::join!(probe.probe(), answer);
        assert_eq!(probe.failures(), 0);
        later(&probe).await;
        drop(listener);
        probe.probe().await;
        assert_eq!(probe.failures(), 1);
    }
}
