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

/// The container of a build's pod that builds.
const CONTAINER: &str = "image-build";

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

    /// Reads them once. The Jobs are given by namespace and name.
    pub(super) async fn read(&mut self, running: BTreeMap<String, (String, String)>) {
        for (build, job) in running.into_iter().take(MAX_BUILDS) {
            let reading = read(&self.client, &job, false, |line| put(&self.known, &build, line));
            drop(timeout(READ_TIMEOUT, reading).await);
        }
    }

    /// Follows them for as long as the builds run.
    pub(super) fn follow(&mut self, running: BTreeMap<String, (String, String)>) {
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
        for (build, job) in running {
            if self.followed.len() >= MAX_BUILDS || self.followed.contains_key(&build) {
                continue;
            }
            let (client, cache, known) = (self.client.clone(), self.cache.clone(), Arc::clone(&self.known));
            let name = build.clone();
            let task = self.tasks.spawn(async move {
                loop {
                    let sink = |line| cache.change(|_| put(&known, &name, line));
                    read(&client, &job, true, sink).await;
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

/// Reads the log of a Job's newest pod, from its last line on.
async fn read<T>(client: &Client, job: &(String, String), follow: bool, mut sink: impl FnMut(String) -> T) {
    let (namespace, name) = job;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
    let Ok(found) = pods.list(&of_job).await else { return };
    let newest = found.items.into_iter().max_by_key(|pod| pod.metadata.creation_timestamp.clone());
    let Some(pod) = newest.and_then(|pod| pod.metadata.name) else { return };
    let how = LogParams {
        container: Some(CONTAINER.to_owned()),
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
    use super::*;

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
