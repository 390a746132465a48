//! Last log line of each build's pod, for the status screen. Best effort: a log that can't be read leaves its line empty.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::AsyncReadExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams};
use kube::{Api, Client};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::cache::Cache;
use super::layering::BuildPods;

/// The most builds whose lines are read.
const MAX_BUILDS: usize = 16;

/// The most bytes of a line; of a longer one its end.
const MAX_LINE: usize = 2000;

/// Timeout of one read.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Wait for the next request for a log: the pod may not have started.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Lines by build.
type Known = Arc<Mutex<BTreeMap<String, String>>>;

/// The last lines of builds.
pub(super) struct LastLines {
    client: Client,
    cache: Cache,
    known: Known,
    followed: BTreeMap<String, AbortHandle>,
    tasks: JoinSet<()>,
}

impl LastLines {
    pub(super) fn new(client: Client, cache: Cache) -> Self {
        Self { client, cache, known: Known::default(), followed: BTreeMap::new(), tasks: JoinSet::new() }
    }

    /// Returns the lines as they are now.
    pub(super) fn known(&self) -> BTreeMap<String, String> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads them once.
    pub(super) async fn read(&mut self, running: BTreeMap<String, BuildPods>) {
        for (build, pods) in running.into_iter().take(MAX_BUILDS) {
            let reading = read(&self.client, &pods, false, |line| put(&self.known, &build, line));
            drop(timeout(READ_TIMEOUT, reading).await);
        }
    }

    /// Follows them for as long as the builds run.
    pub(super) fn follow(&mut self, running: BTreeMap<String, BuildPods>) {
        self.followed.retain(|build, task| {
            let is_running = running.contains_key(build);
            if !is_running {
                task.abort();
                self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(build);
            }
            is_running
        });
        // Removes tasks that ended or were aborted above.
        while self.tasks.try_join_next().is_some() {}
        for (build, pods) in running {
            if self.followed.len() >= MAX_BUILDS || self.followed.contains_key(&build) {
                continue;
            }
            let (client, cache, known) = (self.client.clone(), self.cache.clone(), Arc::clone(&self.known));
            let name = build.clone();
            let task = self.tasks.spawn(async move {
                loop {
                    let sink = |line| cache.change(|_| put(&known, &name, line));
                    read(&client, &pods, true, sink).await;
                    sleep(RETRY_INTERVAL).await;
                }
            });
            self.followed.insert(build, task);
        }
    }
}

/// Keeps a line; true if that is news.
fn put(known: &Known, build: &str, line: String) -> bool {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    let is_news = known.get(build) != Some(&line);
    known.insert(build.to_owned(), line);
    is_news
}

/// Reads the log of a build's newest pod, from its last line on.
async fn read<T>(client: &Client, of: &BuildPods, follow: bool, mut sink: impl FnMut(String) -> T) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &of.namespace);
    let Ok(found) = pods.list(&ListParams::default().labels(&of.selector)).await else { return };
    let newest = found.items.into_iter().max_by_key(|pod| pod.metadata.creation_timestamp.clone());
    let Some(pod) = newest.and_then(|pod| pod.metadata.name) else { return };
    let how = LogParams {
        container: Some(of.container.to_owned()),
        follow,
        tail_lines: Some(1),
        ..LogParams::default()
    };
    let Ok(stream) = pods.log_stream(&pod, &how).await else { return };
    let mut stream = pin!(stream);
    let mut tail = Tail::default();
    let mut bytes = [0; 4096];
    while let Ok(count) = stream.read(&mut bytes).await {
        let Some(read) = bytes.get(..count).filter(|read| !read.is_empty()) else { return };
        if let Some(line) = tail.push(read) {
            sink(line);
        }
    }
}

/// The end of a text that comes in parts.
#[derive(Debug, Default)]
struct Tail {
    part: Vec<u8>,
}

impl Tail {
    /// Takes more; returns the last line that has something in it, if it is another one or has grown.
    fn push(&mut self, more: &[u8]) -> Option<String> {
        let mut last = None;
        for byte in more {
            if matches!(byte, b'\n' | b'\r') {
                last = self.line().or(last);
                self.part.clear();
            } else {
                if self.part.len() >= MAX_LINE {
                    self.part.drain(..MAX_LINE / 2);
                }
                self.part.push(*byte);
            }
        }
        self.line().or(last)
    }

    fn line(&self) -> Option<String> {
        let line = String::from_utf8_lossy(&self.part).trim().to_owned();
        (!line.is_empty()).then_some(line)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Answers one request a connection; returns the paths with their queries.
    async fn serve(listener: TcpListener, answers: [String; 2]) -> Vec<String> {
        let mut requests = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = [0; 8192];
            let count = stream.read(&mut bytes).await.unwrap();
            let head = String::from_utf8_lossy(&bytes[..count]).into_owned();
            requests.push(head.split(' ').nth(1).unwrap().to_owned());
            let length = answer.len();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
            stream.write_all((head + &answer).as_bytes()).await.unwrap();
        }
        requests
    }

    #[tokio::test]
    async fn newest_pod_of_build_is_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = kube::Config::new(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
        let client = Client::try_from(config).unwrap();
        let pod = |name: &str, made: u8| json!({ "metadata": { "name": name, "creationTimestamp": format!("2026-01-01T00:00:0{made}Z") } });
        let pods = json!({
            "apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [pod("new", 2), pod("old", 1)],
        });
        let server = tokio::spawn(serve(listener, [pods.to_string(), "STEP 1\nSTEP 2\n".to_owned()]));
        let of = BuildPods {
            namespace: "ns".to_owned(),
            selector: "openshift.io/build.name=build-a".to_owned(),
            container: "docker-build",
        };
        let mut lines = Vec::new();
        read(&client, &of, false, |line| lines.push(line)).await;
        let requests = server.await.unwrap();
        assert_eq!(lines, ["STEP 2"]);
        assert!(
            requests[0].contains("/namespaces/ns/pods?&labelSelector=openshift.io%2Fbuild.name%3Dbuild-a"),
            "{requests:?}"
        );
        assert!(requests[1].contains("/namespaces/ns/pods/new/log?&container=docker-build"), "{requests:?}");
    }

    #[test]
    fn last_line_is_not_empty() {
        let mut tail = Tail::default();
        assert_eq!(tail.push(b"STEP 1/9: FROM a\nSTEP 2/9: RUN"), Some("STEP 2/9: RUN".to_owned()));
        assert_eq!(tail.push(b" b\n\n  \n"), Some("STEP 2/9: RUN b".to_owned()));
        assert_eq!(tail.push(b"\n"), None);
        // A progress bar.
        assert_eq!(tail.push(b"10%\r20%\r"), Some("20%".to_owned()));
        assert_eq!(tail.push(&[0xff, b'a']), Some("\u{fffd}a".to_owned()));
        let endless = tail.push("x".repeat(100_000).as_bytes()).unwrap();
        assert!(endless.len() <= MAX_LINE && tail.part.len() <= MAX_LINE);
    }
}
