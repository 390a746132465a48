//! The download of a prefetch, and its progress.

use std::fmt;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::decide::prefetch::DOWNLOAD_TIMEOUT;
use crate::host::os::Prefetched;
use crate::host::{BoxFuture, HostError, OsProgress};
use crate::journal::Journal;
use crate::model::{FaultClass, ImageRef};
use crate::report::{LoopState, report};
use crate::telemetry::LastReport;

/// The prefetch of an agent.
#[derive(Debug, Default)]
pub(super) struct Prefetching {
    /// The image that is requested.
    pub(super) requested: Option<ImageRef>,
    /// The text of a request that is no image, as it was logged.
    pub(super) refused: Option<String>,
    download: Option<Download>,
    ended: Option<Result<Prefetched, HostError>>,
}

/// A download that runs.
struct Download {
    image: Option<ImageRef>,
    work: BoxFuture<'static, Result<Prefetched, HostError>>,
    progress: watch::Receiver<Option<OsProgress>>,
    /// Time of the last progress.
    moved: Instant,
    end: Instant,
}

impl fmt::Debug for Download {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Download({:?})", self.image)
    }
}

impl Prefetching {
    /// Begins a download.
    pub(super) fn begin(
        &mut self,
        image: Option<ImageRef>,
        work: BoxFuture<'static, Result<Prefetched, HostError>>,
        progress: watch::Receiver<Option<OsProgress>>,
    ) {
        let moved = Instant::now();
        self.download = Some(Download { image, work, progress, moved, end: moved + DOWNLOAD_TIMEOUT });
    }

    /// Ends the download, and drops its result.
    pub(super) fn end(&mut self) {
        self.download = None;
        self.ended = None;
    }

    /// Takes a download's result.
    pub(super) fn take(&mut self) -> Option<Result<Prefetched, HostError>> {
        self.ended.take()
    }

    /// Waits for the end of the download, and reports its progress on this node. Cancel-safe: its result is kept.
    pub(super) async fn ended(
        &mut self,
        stall: Duration,
        journal: &Journal,
        health: &mut LoopState,
        last: &mut LastReport,
    ) {
        let Some(download) = &mut self.download else { return std::future::pending().await };
        let result = loop {
            let late = download.end.min(download.moved + stall);
            tokio::select! {
                // The work is only borrowed, and the others only wait.
                result = &mut download.work => break result,
                Ok(()) = download.progress.changed() => {
                    download.moved = Instant::now();
                    let percent = download.progress.borrow_and_update().as_ref().and_then(|step| step.percent);
                    if let Some(status) = health.prefetch.as_mut().filter(|status| status.percent != percent) {
                        status.percent = percent;
                        last.write(&report(journal.record(), health));
                    }
                }
                () = sleep_until(late) => break Err(stalled(download)),
            }
        };
        self.download = None;
        self.ended = Some(result);
    }
}

fn stalled(download: &Download) -> HostError {
    let object = download.image.as_ref().map_or_else(|| "prefetched images".to_owned(), ToString::to_string);
    HostError::Os {
        object,
        cause: "the download shows no progress, or takes longer than a day".to_owned(),
        class: FaultClass::Retry,
        reason: "OsStalled",
        next: "Check the registry and the disk; the agent retries.".to_owned(),
    }
}
