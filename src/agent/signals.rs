//! SIGTERM, SIGINT and SIGHUP as events. During a batch they wait; a pull is interrupted, and the next process restarts it.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The two kinds of signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignalKind {
    /// SIGTERM, SIGINT: stop.
    Stop,
    /// SIGHUP: read the settings again.
    Reload,
}

/// The signals of this process, as the ends of pipes that their handlers write to.
#[derive(Debug)]
pub struct ProcessSignals {
    pipes: Option<Pipes>,
    asked: bool,
}

#[derive(Debug)]
struct Pipes {
    stop: tokio::net::UnixStream,
    /// Set by the handler itself: a pipe is known to be readable only after the runtime has looked, and what else a stop
    /// brings about may be seen before.
    stopped: Arc<AtomicBool>,
    reload: tokio::net::UnixStream,
}

impl ProcessSignals {
    /// Registers the signals. Within a tokio runtime.
    pub fn register() -> io::Result<Self> {
        let stopped = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            signal_hook::flag::register(signal, Arc::clone(&stopped))?;
        }
        let pipes = Pipes { stop: pipe(&[SIGTERM, SIGINT])?, stopped, reload: pipe(&[SIGHUP])? };
        Ok(Self { pipes: Some(pipes), asked: false })
    }

    /// Creates a source without signals, for work that ends by itself.
    pub fn never() -> Self {
        Self { pipes: None, asked: false }
    }

    /// Returns true if a stop was requested.
    pub(super) fn is_stopping(&mut self) -> bool {
        let came = |pipes: &Pipes| came(&pipes.stop) || pipes.stopped.load(Ordering::Relaxed);
        self.asked |= self.pipes.as_ref().is_some_and(came);
        self.asked
    }

    /// Waits for a stop. Cancel-safe: a stop is remembered.
    pub(super) async fn stopped(&mut self) {
        while !self.is_stopping() {
            match &self.pipes {
                // An error means that the pipe is broken: the next look says so by ending the wait.
                Some(pipes) => self.asked |= pipes.stop.readable().await.is_err(),
                None => std::future::pending().await,
            }
        }
    }

    /// Waits for a signal. Cancel-safe: a signal that was not returned stays in its pipe.
    pub(super) async fn recv(&mut self) -> SignalKind {
        loop {
            if self.is_stopping() {
                return SignalKind::Stop;
            }
            let Some(pipes) = &self.pipes else { return std::future::pending().await };
            if came(&pipes.reload) {
                return SignalKind::Reload;
            }
            tokio::select! {
                // Cancel-safe, both: they only wait.
                ready = pipes.stop.readable() => self.asked |= ready.is_err(),
                ready = pipes.reload.readable() => self.asked |= ready.is_err(),
            }
        }
    }
}

fn pipe(signals: &[i32]) -> io::Result<tokio::net::UnixStream> {
    let (reader, writer) = UnixStream::pair()?;
    reader.set_nonblocking(true)?;
    writer.set_nonblocking(true)?;
    for signal in signals {
        signal_hook::low_level::pipe::register(*signal, writer.try_clone()?)?;
    }
    tokio::net::UnixStream::from_std(reader)
}

/// Empties a pipe. Returns true if it held anything: signals that came together are one.
fn came(reader: &tokio::net::UnixStream) -> bool {
    let mut bytes = [0; 64];
    let mut any = false;
    while reader.try_read(&mut bytes).is_ok_and(|count| count > 0) {
        any = true;
    }
    any
}
