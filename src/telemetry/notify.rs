//! systemd's readiness, status line and watchdog (`sd_notify(3)`).
//!
//! A sign of life is progress: a reported state, a step of a pull, or an idle wait that still works. Silent work
//! feeds nothing, so systemd ends an agent that hangs; a pull that moves is fed by its own steps. systemd watches no service
//! that starts, so a start as long as the first boot extends its timeout instead.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use crate::report::{NodeReport, NodeState};

/// Begins the status line of an agent without a first target.
pub const WAITS_FOR: &str = "Waits for ";

/// The manager that started the agent, when there is one.
#[derive(Debug, Default)]
pub struct Notify {
    socket: Option<PathBuf>,
    watchdog: Option<Duration>,
    sign: String,
    fed: Option<Instant>,
    last: String,
}

impl Notify {
    /// Takes the socket of `NOTIFY_SOCKET`, and the interval of the watchdog.
    pub fn new(socket: Option<PathBuf>, watchdog: Option<Duration>) -> Self {
        Self { socket, watchdog, sign: "WATCHDOG=1\n".to_owned(), fed: None, last: String::new() }
    }

    /// The same for a service whose work is its start: each sign of life gives it so long for the next one.
    pub fn starting(socket: Option<PathBuf>, silence: Duration) -> Self {
        let sign = format!("EXTEND_TIMEOUT_USEC={}\n", silence.as_micros());
        Self { sign, ..Self::new(socket, Some(silence)) }
    }

    /// Waits for work that has no reports.
    pub async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        self.progressed();
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = self.idle() => {}
            }
        }
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

    /// Notifies the manager of a service that is well and has nothing to do before something is there.
    pub fn waits_for(&mut self, what: &str) {
        self.send(&format!("READY=1\nSTATUS={WAITS_FOR}{what}\n"));
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
        self.send(&self.sign);
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
        NodeState::Working => match &report.doing {
            Some(doing) => format!("Working: {doing}{waits}"),
            None => format!("Working: {} for {config}{percent}{waits}", report.phase),
        },
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A start that goes on gives a sign each half of the time that it asked for; one that is silent gives none.
    #[tokio::test(start_paused = true)]
    async fn start_that_waits_extends_its_timeout_and_silent_one_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let signs = || {
            let mut bytes = [0; 64];
            std::iter::from_fn(|| {
                let count = socket.recv(&mut bytes).ok()?;
                Some(String::from_utf8(bytes[..count].to_vec()).unwrap())
            })
            .collect::<Vec<_>>()
        };
        let mut notify = Notify::starting(Some(path.clone()), Duration::from_secs(60));
        notify.during(tokio::time::sleep(Duration::from_secs(95))).await;
        assert_eq!(signs(), ["EXTEND_TIMEOUT_USEC=60000000\n"; 4]);
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(signs(), [""; 0]);
        notify.progressed();
        assert_eq!(signs().len(), 1);
    }
}
