//! Signals that end a command.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Registers SIGINT, SIGTERM and SIGHUP; the future ends with the first of them.
pub fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    let mut all =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    Ok(async move {
        tokio::select! {
            // Each only waits.
            _ = all.0.recv() => {}
            _ = all.1.recv() => {}
            _ = all.2.recv() => {}
        }
    })
}
