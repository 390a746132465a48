//! Two ends between whoever sees what is desired and whoever carries it out, beside the target: such work delays no update.

use std::sync::Arc;

use tokio::sync::watch::{Receiver, Sender, channel};

/// The end of whoever carries it out.
#[derive(Debug)]
pub struct Link<D, R> {
    /// The desire.
    pub desired: Receiver<D>,
    /// The progress.
    pub report: Sender<R>,
}

/// The end of whoever sees what is desired.
#[derive(Debug)]
pub struct Source<D, R> {
    /// The desire.
    pub desired: Sender<D>,
    /// The progress.
    pub report: Receiver<R>,
}

/// Known progress of work whose state the agent keeps on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reports<T> {
    /// The agent's own state was read: without a report there is none.
    pub is_read: bool,
    /// The last report.
    pub last: Option<Arc<T>>,
}

impl<T> Default for Reports<T> {
    fn default() -> Self {
        Self { is_read: false, last: None }
    }
}

/// Makes both ends; nothing is known yet.
pub fn link<D: Default, R: Default>() -> (Source<D, R>, Link<D, R>) {
    let (desired, desires) = channel(D::default());
    let (report, reports) = channel(R::default());
    (Source { desired, report: reports }, Link { desired: desires, report })
}

impl<D, R> Source<D, R> {
    /// Waits for another report. Cancel-safe: it only waits.
    pub async fn reported(&mut self) {
        changed(&mut self.report).await;
    }
}

impl<D, T: PartialEq> Link<D, Reports<T>> {
    /// Reports, if it is another report.
    pub fn publish(&self, is_read: bool, last: Option<T>) {
        let report = Reports { is_read, last: last.map(Arc::new) };
        self.report.send_if_modified(|known| {
            let is_news = *known != report;
            *known = report;
            is_news
        });
    }
}

/// Waits for another value; without end when its sender is gone.
pub async fn changed<T>(receiver: &mut Receiver<T>) {
    if receiver.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
