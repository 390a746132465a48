//! The cluster's trust on its way to its receivers: the newest version, and the signal of another one.
//!
//! It is a value of its own beside the target, so that a long step of an update does not delay its receivers.

use std::sync::Arc;

use tokio::sync::watch::{Receiver, Sender, channel};

use super::link::changed;
use crate::model::ClusterTrust;

/// The newest trust.
#[derive(Debug, Clone, Default)]
struct Known {
    /// The first observation is over, however it ended.
    observed: bool,
    trust: Option<Arc<ClusterTrust>>,
}

/// Sender of the cluster's trust.
#[derive(Debug)]
pub struct TrustSender {
    sender: Sender<Known>,
}

/// Receiver of the newest trust.
#[derive(Debug, Clone, Default)]
pub struct TrustReceiver {
    receiver: Option<Receiver<Known>>,
}

/// Makes a feed and its source.
pub fn trust_channel() -> (TrustSender, TrustReceiver) {
    let (sender, receiver) = channel(Known::default());
    (TrustSender { sender }, TrustReceiver { receiver: Some(receiver) })
}

impl TrustSender {
    /// Sends the trust; `None` when no source exists. Sending an equal value does not wake receivers.
    pub fn put(&self, trust: Option<ClusterTrust>) {
        self.sender.send_if_modified(|known| {
            let news = known.trust.as_deref() != trust.as_ref();
            if news {
                known.trust = trust.map(Arc::new);
            }
            // A receiver that waits for the first observation is to continue.
            let first = !std::mem::replace(&mut known.observed, true);
            news || first
        });
    }

    /// Marks the value as observed, without a change.
    pub fn observed(&self) {
        self.sender.send_if_modified(|known| !std::mem::replace(&mut known.observed, true));
    }
}

impl TrustReceiver {
    /// Returns the newest trust; it is no news from then on.
    pub fn now(&mut self) -> Option<Arc<ClusterTrust>> {
        self.receiver.as_mut()?.borrow_and_update().trust.clone()
    }

    /// Waits for news. Cancel-safe: news that were not returned stay news.
    pub async fn changed(&mut self) {
        match &mut self.receiver {
            Some(receiver) => changed(receiver).await,
            None => std::future::pending().await,
        }
    }

    /// Waits until the first observation is over. Cancel-safe: it only waits.
    pub async fn observed(&self) {
        if let Some(receiver) = &self.receiver {
            // A source that is gone observes no more.
            drop(receiver.clone().wait_for(|known| known.observed).await);
        }
    }
}
