//! The host after a seed that was cut short: restored at the start of the daemon, and tried again until it is.

use tokio::sync::watch::{Receiver, Sender, channel};
use tracing::{info, warn};

use super::AgentError;
use super::seed::restore_seed;
use crate::apply::SeedHost;
use crate::decide::stage::StageRetry;
use crate::host::failpoint::FailPoints;
use crate::host::{Host, Root, Systemd};
use crate::journal::seed::{SeedJournal, load_record};
use crate::update::Fault;

/// Restores the host.
#[derive(Debug)]
pub struct SeedRestorer {
    root: Root,
    systemd: Systemd,
    fail_points: FailPoints,
    retry: StageRetry,
    unrestored: Sender<Option<Fault>>,
}

/// Result of one try.
enum Tried {
    /// There was nothing to do.
    Nothing,
    /// It is restored.
    Restored,
    /// Another process makes a seed.
    Busy,
}

impl SeedRestorer {
    /// Takes the parts of the host. Nothing is read yet.
    pub fn new(host: &Host, node: &str) -> Self {
        Self {
            root: host.root.clone(),
            systemd: host.systemd.clone(),
            fail_points: host.fail_points.clone(),
            retry: StageRetry::new(&format!("{node}/seed-restorer")),
            unrestored: channel(None).0,
        }
    }

    /// Returns why the host is not restored yet.
    pub fn unrestored(&self) -> Receiver<Option<Fault>> {
        self.unrestored.subscribe()
    }

    /// Tries once. Returns true if nothing is left to do; a failure is logged when it is another one: the node has other work, too.
    pub async fn restore(&self) -> bool {
        let (is_done, fault) = match self.try_once().await {
            Ok(Tried::Nothing) => (true, None),
            Ok(Tried::Restored) => {
                info!("Restored the host after an interrupted seed: its services run, its files are gone");
                (true, None)
            }
            Ok(Tried::Busy) => (false, None),
            Err(error) => (false, Some(error.fault())),
        };
        self.unrestored.send_if_modified(|known| {
            let is_news = *known != fault;
            if let Some(Fault { message, next, .. }) = fault.as_ref().filter(|_| is_news) {
                warn!("Failed to restore the host after an interrupted seed: {message}. Next: {next}");
            }
            *known = fault;
            is_news
        });
        is_done
    }

    /// Goes on after a try, until nothing is left to do; it does not end.
    pub async fn run(mut self, mut is_done: bool) {
        while !is_done {
            tokio::time::sleep(self.retry.fail()).await;
            is_done = self.restore().await;
        }
        std::future::pending::<()>().await;
    }

    async fn try_once(&self) -> Result<Tried, AgentError> {
        // Without a record there is no lock to take.
        if load_record(&self.root)?.is_none() {
            return Ok(Tried::Nothing);
        }
        let Some(mut journal) = SeedJournal::open(self.root.clone(), self.fail_points.clone())? else {
            return Ok(Tried::Busy);
        };
        let host = SeedHost { root: &self.root, systemd: &self.systemd };
        Ok(if restore_seed(&mut journal, &host).await? { Tried::Restored } else { Tried::Nothing })
    }
}
