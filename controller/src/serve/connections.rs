//! The open connections of a listener: how many, of whom, and how long.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};

/// Limits of a listener.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Maximum open connections.
    pub(crate) total: usize,
    /// Maximum open connections per address.
    pub(crate) per_client: usize,
    /// Lifetime of a connection, whatever it does.
    pub(crate) lifetime: Duration,
}

/// The open connections, oldest first. All are closed when this is dropped.
#[derive(Debug)]
pub(crate) struct Connections {
    limits: Limits,
    tasks: JoinSet<()>,
    open: VecDeque<Connection>,
}

#[derive(Debug)]
struct Connection {
    client: IpAddr,
    /// Its request was read.
    has_request: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Connections {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, tasks: JoinSet::new(), open: VecDeque::new() }
    }

    /// Serves one more connection. If its client has too many, it closes an older one of that client; if there are too many
    /// altogether, an older one of anybody. One without a request goes first.
    pub(crate) fn admit(
        &mut self,
        client: IpAddr,
        talk: impl Future<Output = ()> + Send + 'static,
        has_request: Arc<AtomicBool>,
    ) {
        while self.tasks.try_join_next().is_some() {}
        self.open.retain(|connection| !connection.task.is_finished());
        let client = client.to_canonical();
        let own = self.open.iter().filter(|connection| connection.client == client).count();
        if own >= self.limits.per_client {
            self.close_one(|connection| connection.client == client);
        } else if self.open.len() >= self.limits.total {
            self.close_one(|_| true);
        }
        let lifetime = self.limits.lifetime;
        let task = self.tasks.spawn(async move {
            drop(tokio::time::timeout(lifetime, talk).await);
        });
        self.open.push_back(Connection { client, has_request, task });
    }

    fn close_one(&mut self, may_close: impl Fn(&Connection) -> bool) {
        let is_silent = |connection: &Connection| !connection.has_request.load(Ordering::Relaxed);
        let silent = self.open.iter().position(|connection| may_close(connection) && is_silent(connection));
        let oldest = silent.or_else(|| self.open.iter().position(may_close));
        if let Some(closed) = oldest.and_then(|oldest| self.open.remove(oldest)) {
            closed.task.abort();
        }
    }

    pub(crate) fn len(&mut self) -> usize {
        self.open.retain(|connection| !connection.task.is_finished());
        self.open.len()
    }

    /// Waits for those whose request was read; the others end.
    pub(crate) async fn ended(&mut self) {
        for connection in self.open.drain(..) {
            if !connection.has_request.load(Ordering::Relaxed) {
                connection.task.abort();
            }
        }
        while self.tasks.join_next().await.is_some() {}
    }
}
