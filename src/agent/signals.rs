//! SIGTERM, SIGINT and SIGHUP as events. During a batch they wait; a pull is interrupted, and the next process restarts it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use tokio::signal::unix::{self, Signal, signal};

/// The two kinds of signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignalKind {
    /// SIGTERM, SIGINT: stop.
    Stop,
    /// SIGHUP: read the settings again.
    Reload,
}

/// The signals of this process.
#[derive(Debug)]
pub struct ProcessSignals {
    streams: Option<Streams>,
    stop_requested: bool,
}

#[derive(Debug)]
struct Streams {
    /// Set by the handler itself: a stream is known to be ready only after the runtime has looked, and other effects of
    /// a stop may be seen before.
    stopped: Arc<AtomicBool>,
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl ProcessSignals {
    /// Registers the signals. Within a tokio runtime.
    pub fn register() -> io::Result<Self> {
        let stopped = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            signal_hook::flag::register(signal, Arc::clone(&stopped))?;
        }
        let streams = Streams {
            stopped,
            terminate: signal(unix::SignalKind::terminate())?,
            interrupt: signal(unix::SignalKind::interrupt())?,
            hangup: signal(unix::SignalKind::hangup())?,
        };
        Ok(Self { streams: Some(streams), stop_requested: false })
    }

    /// Creates a source without signals, for work that ends by itself.
    pub fn never() -> Self {
        Self { streams: None, stop_requested: false }
    }

    /// Returns true if a stop was requested.
    pub(super) fn is_stopping(&mut self) -> bool {
        self.stop_requested |=
            self.streams.as_ref().is_some_and(|streams| streams.stopped.load(Ordering::Relaxed));
        self.stop_requested
    }

    /// Waits for a stop. Cancel-safe: a stop is remembered.
    pub async fn stopped(&mut self) {
        if self.is_stopping() {
            return;
        }
        let Some(Streams { terminate, interrupt, .. }) = &mut self.streams else {
            return std::future::pending().await;
        };
        tokio::select! {
            // Cancel-safe, both: a signal that was not returned comes again.
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        self.stop_requested = true;
    }

    /// Waits for a signal. Cancel-safe: a signal that was not returned comes again, and several of a kind are one.
    pub(super) async fn recv(&mut self) -> SignalKind {
        if self.is_stopping() {
            return SignalKind::Stop;
        }
        let Some(Streams { terminate, interrupt, hangup, .. }) = &mut self.streams else {
            return std::future::pending().await;
        };
        tokio::select! {
            biased;
            // Cancel-safe, all three, as above.
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => return SignalKind::Reload,
        }
        self.stop_requested = true;
        SignalKind::Stop
    }
}
