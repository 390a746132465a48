//! The wait between two passes over stages or seeds.

use std::time::Duration;

use tokio::sync::watch::Receiver;

use crate::control::link::changed;
use crate::host::clock::elapsed;
use crate::host::watch::Watch;

/// Waits for another desire, a change of what is watched, or a time. A watch that is lost is dropped.
pub(super) async fn wait<D>(desired: &mut Receiver<D>, watch: &mut Option<Watch>, delay: Option<Duration>) {
    let is_watched = async {
        match watch {
            Some(watch) => watch.changed().await.is_ok(),
            None => std::future::pending().await,
        }
    };
    let is_lost = tokio::select! {
        // Each only waits: what came is read again.
        () = changed(desired) => false,
        () = elapsed(delay) => false,
        is_watched = is_watched => !is_watched,
    };
    if is_lost {
        *watch = None;
    }
}
