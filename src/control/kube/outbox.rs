//! The MachineConfigNode and the Events: written in order by a task of their own, so that no update waits for them.
//!
//! Controllers act on the Node's annotations, which the loop writes itself. The queued writes are
//! for people and dashboards. Invariant: all of it was sent, or can't be sent now, when [`Outbox::flush`] returns; a
//! reboot and the end wait for that, not for long.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::error::KubeError;
use super::events::Events;
use super::mcn::Mcn;
use super::node::NodeView;
use super::node_watch::NodeSnapshot;
use crate::model::backoff::Backoff;
use crate::model::message;
use crate::report::{Event, NodeReport};

/// Writes that may wait: an update makes about ten. A further write waits for the first to be sent.
const MAX_QUEUED: usize = 64;

/// Longest wait of a reboot or of the end for the last of them: a busy API server takes them in that time.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);

/// Something to write.
#[derive(Debug)]
enum Write {
    /// The report for the MachineConfigNode.
    Report(Box<(NodeView, NodeReport)>),
    /// An Event about the Node.
    Event(Box<(NodeView, Event)>),
    /// Nothing: the stored object may be another one.
    Reread,
}

/// Progress of the task.
#[derive(Debug, Default)]
struct Progress {
    written: u64,
    /// Reports that were not written.
    failures: u64,
    /// The last report was written.
    well: bool,
}

/// The queue. Dropped, its task ends.
#[derive(Debug)]
pub(super) struct Outbox {
    writes: mpsc::Sender<Write>,
    progress: watch::Receiver<Progress>,
    queued: u64,
    /// Failures that were seen here.
    failures: u64,
    /// Time of the next try of a report that failed.
    due: Option<Instant>,
    backoff: Backoff,
    task: AbortHandle,
}

impl Outbox {
    /// Begins. Within a tokio runtime.
    pub(super) fn start(
        mcn: Mcn,
        events: Events,
        snapshot: watch::Receiver<NodeSnapshot>,
        node: &str,
    ) -> Self {
        let (writes, queue) = mpsc::channel(MAX_QUEUED);
        let (done, progress) = watch::channel(Progress::default());
        let task = tokio::spawn(Writer { mcn, events, snapshot, done }.run(queue)).abort_handle();
        let backoff = Backoff::for_requests(&format!("{node}/outbox"));
        Self { writes, progress, queued: 0, failures: 0, due: None, backoff, task }
    }

    /// Queues a report. One that failed before is due no more: this is its next try.
    pub(super) async fn report(&mut self, node: NodeView, report: NodeReport) {
        self.due = None;
        if self.progress.borrow().well {
            self.backoff.reset();
        }
        self.put(Write::Report(Box::new((node, report)))).await;
    }

    /// Queues an Event.
    pub(super) async fn event(&mut self, node: NodeView, event: Event) {
        self.put(Write::Event(Box::new((node, event)))).await;
    }

    /// Has the stored object read again before the next report.
    pub(super) async fn reread(&mut self) {
        self.put(Write::Reread).await;
    }

    async fn put(&mut self, write: Write) {
        // It fails when the task is gone, which only the end of the runtime does.
        if self.writes.send(write).await.is_ok() {
            self.queued += 1;
        }
    }

    /// Waits until a report that was not written is due again. Cancel-safe: the time that was chosen stays.
    pub(super) async fn due(&mut self) {
        let due = if let Some(due) = self.due {
            due
        } else {
            let known = self.failures;
            match self.progress.wait_for(|progress| progress.failures > known).await {
                Ok(progress) => self.failures = progress.failures,
                Err(_) => std::future::pending().await,
            }
            *self.due.insert(Instant::now() + self.backoff.next_wait())
        };
        tokio::time::sleep_until(due).await;
    }

    /// Waits until all queued writes are sent or could not be, at most [`FLUSH_TIMEOUT`]; returns the number of writes
    /// left then.
    pub(super) async fn flush(&mut self) -> u64 {
        // Writes left then are lost.
        let left = timeout(FLUSH_TIMEOUT, self.sent())
            .await
            .map_or_else(|_| self.queued.saturating_sub(self.progress.borrow().written), |()| 0);
        if left > 0 {
            warn!(
                MESSAGE_ID = message::NOT_PUBLISHED,
                MCA_FAULT = "ApiServerUnreachable",
                "{left} events and reports for the API server were not sent in {} s: nobody waits for them any longer; the \
                 journal has what they say",
                FLUSH_TIMEOUT.as_secs()
            );
        }
        left
    }

    /// Waits until everything that was queued is sent, or could not be.
    async fn sent(&mut self) {
        let queued = self.queued;
        drop(self.progress.wait_for(|progress| progress.written >= queued).await);
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The task.
struct Writer {
    mcn: Mcn,
    events: Events,
    snapshot: watch::Receiver<NodeSnapshot>,
    done: watch::Sender<Progress>,
}

impl Writer {
    async fn run(mut self, mut queue: mpsc::Receiver<Write>) {
        while let Some(write) = queue.recv().await {
            // Boxed: the memory is needed only while something is written.
            let well = Box::pin(self.write(write)).await;
            self.done.send_modify(|progress| {
                progress.written += 1;
                if let Some(well) = well {
                    progress.well = well;
                    progress.failures += u64::from(!well);
                }
            });
        }
    }

    /// Writes one; returns for a report whether it was written.
    async fn write(&mut self, write: Write) -> Option<bool> {
        let up = self.snapshot.borrow().up;
        match write {
            Write::Report(report) => {
                let (node, report) = *report;
                let well = up && self.mcn.publish(&node, &report).await.inspect_err(unwritten).is_ok();
                Some(well)
            }
            Write::Event(event) => {
                let (node, event) = *event;
                if up && let Err(error) = self.events.emit(&node, &event).await {
                    log_dropped(&event, &error);
                }
                None
            }
            Write::Reread => {
                self.mcn.check_again();
                None
            }
        }
    }
}

fn unwritten(error: &KubeError) {
    // The watch of the Node reports an API server that is away.
    if !error.is_away() {
        warn!(
            MESSAGE_ID = message::NOT_PUBLISHED,
            MCA_FAULT = error.reason(),
            "Failed to write the MachineConfigNode: {error}. Next: {}",
            error.next()
        );
    }
}

fn log_dropped(event: &Event, error: &KubeError) {
    warn!(
        MESSAGE_ID = message::NOT_PUBLISHED,
        MCA_FAULT = error.reason(),
        "Failed to emit Event {}: {error}",
        event.reason()
    );
}

#[cfg(test)]
mod tests {
    use super::super::client::ApiClient;
    use super::super::identity::Identity;
    use super::*;
    use crate::report::{LoopState, report};

    /// An API server that takes connections and never answers.
    #[expect(clippy::disallowed_methods, reason = "a test: it writes the files of a kubeconfig")]
    fn silent(directory: &std::path::Path, listener: &std::net::TcpListener) -> ApiClient {
        let authority = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert.pem();
        std::fs::write(directory.join("ca.crt"), authority).unwrap();
        std::fs::write(directory.join("token"), "secret").unwrap();
        let port = listener.local_addr().unwrap().port();
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {{server: 'https://127.0.0.1:{port}', certificate-authority: ca.crt}}}}]\n\
             users: [{{name: u, user: {{tokenFile: token}}}}]\n"
        );
        std::fs::write(directory.join("kubeconfig"), text).unwrap();
        ApiClient::new(Identity::kubeconfig(&[directory.join("kubeconfig")]).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn update_does_not_wait_for_events_but_reboot_does() {
        let directory = tempfile::tempdir().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let api = silent(directory.path(), &listener);
        let (_sender, snapshot) =
            watch::channel(NodeSnapshot { tried: true, up: true, ..NodeSnapshot::default() });
        let (mcn, events) = (Mcn::new(&api, "w"), Events::new(api, "w", "default"));
        let mut outbox = Outbox::start(mcn, events, snapshot, "w");
        let node = NodeView::parse(br#"{"metadata":{"name":"w","uid":"u"}}"#, "Node w").unwrap();
        let began = Instant::now();
        for _ in 0..2 {
            outbox.report(node.clone(), report(None, &LoopState::default())).await;
        }
        outbox.event(node.clone(), Event::Cordon).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert_eq!(outbox.progress.borrow().written, 0);
        let left = outbox.flush().await;
        assert_eq!(began.elapsed(), FLUSH_TIMEOUT);
        assert!(left > 0, "the server never answers");
        outbox.sent().await;
        assert_eq!(outbox.progress.borrow().written, 3);
        assert_eq!(outbox.flush().await, 0);
        assert!(began.elapsed() >= Duration::from_secs(10));
        // The report failed: it is due again after a wait, once.
        outbox.due().await;
        outbox.report(node, report(None, &LoopState::default())).await;
        outbox.sent().await;
        assert_eq!(outbox.progress.borrow().failures, 3);
    }
}
