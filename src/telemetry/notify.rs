//! systemd's readiness, status line and watchdog (`sd_notify(3)`).
//!
//! A sign of life is progress: a reported state, a step of a pull, or an idle wait that still works. Silent work
//! feeds nothing, so systemd ends an agent that hangs; a pull that moves is fed by its own steps.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use crate::report::{NodeReport, NodeState};

/// The manager that started the agent, when there is one.
#[derive(Debug, Default)]
pub struct Notify {
    socket: Option<PathBuf>,
    watchdog: Option<Duration>,
    fed: Option<Instant>,
    last: String,
}

impl Notify {
    /// Takes the socket of `NOTIFY_SOCKET`, and the interval of the watchdog.
    pub fn new(socket: Option<PathBuf>, watchdog: Option<Duration>) -> Self {
        Self { socket, watchdog, fed: None, last: String::new() }
    }

    /// Notifies the manager of the state, without a wait: a message that can't be sent is dropped.
    pub fn report(&mut self, report: &NodeReport) {
        let status = line(report);
        if status != self.last {
            self.send(&format!("READY=1\nSTATUS={status}\n"));
            self.last = status;
        }
        self.progressed();
    }

    /// Takes note of progress: a sign of life, when one is due.
    pub fn progressed(&mut self) {
        let Some(every) = self.watchdog else { return };
        // An eighth: a fast pull has thousands of steps, and one of its signs may be the last for a while.
        if self.fed.is_none_or(|fed| fed.elapsed() >= every / 8) {
            self.alive();
        }
    }

    /// Gives signs of life as long as it is polled: one for each half of the interval. Cancel-safe.
    pub async fn idle(&mut self) {
        let Some(every) = self.watchdog else { return std::future::pending().await };
        loop {
            tokio::time::sleep(every / 2).await;
            self.alive();
        }
    }

    /// Notifies the manager of a reload of the settings; `now` is the monotonic clock, in microseconds.
    pub fn reloading(&mut self, now: u64) {
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={now}\n"));
    }

    /// Notifies the manager of the end of the reload.
    pub fn reloaded(&mut self) {
        self.send("READY=1\n");
    }

    fn alive(&mut self) {
        self.fed = Some(Instant::now());
        self.send("WATCHDOG=1\n");
    }

    fn send(&self, message: &str) {
        if let Some(socket) = &self.socket {
            send(socket, message);
        }
    }
}

/// The line of `systemctl status`.
fn line(report: &NodeReport) -> String {
    let config = report.desired_config.as_ref().map_or("no config", |config| config.as_str());
    let percent = report.progress.as_ref().and_then(|progress| progress.percent);
    let percent = percent.map(|percent| format!(", {percent} %")).unwrap_or_default();
    let waits = report.waiting.as_ref().map(|what| format!("; waits for {what}")).unwrap_or_default();
    match report.state {
        NodeState::Done => format!("Done: {config}"),
        NodeState::Working => format!("Working: {} for {config}{percent}{waits}", report.phase),
        NodeState::Degraded | NodeState::Unreconcilable => format!("{:?}: {}", report.state, report.reason),
    }
}

fn send(socket: &Path, message: &str) {
    let address = match socket.as_os_str().as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(socket),
    };
    if let (Ok(address), Ok(sender)) = (address, UnixDatagram::unbound())
        // A manager that does not read delays nothing.
        && sender.set_nonblocking(true).is_ok()
    {
        drop(sender.send_to_addr(message.as_bytes(), &address));
    }
}
