//! systemd's readiness and status line (`sd_notify(3)`).

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};

use crate::report::{NodeReport, State};

/// The manager that started the agent, when there is one.
#[derive(Debug, Default)]
pub struct Notify {
    socket: Option<PathBuf>,
    last: String,
}

impl Notify {
    /// Takes the socket of `NOTIFY_SOCKET`.
    pub fn new(socket: Option<PathBuf>) -> Self {
        Self { socket, last: String::new() }
    }

    /// Tells the manager the state. Nobody waits for it: a message that can't be sent is dropped.
    pub fn report(&mut self, report: &NodeReport) {
        let Some(socket) = &self.socket else { return };
        let status = line(report);
        if status != self.last {
            send(socket, &format!("READY=1\nSTATUS={status}\n"));
            self.last = status;
        }
    }
}

/// The line of `systemctl status`.
fn line(report: &NodeReport) -> String {
    let config = report.desired_config.as_ref().map_or("no config", |config| config.as_str());
    match report.state {
        State::Done => format!("Done: {config}"),
        State::Working => format!("Working: {} for {config}", report.phase),
        State::Degraded | State::Unreconcilable => format!("{:?}: {}", report.state, report.reason),
    }
}

fn send(socket: &Path, message: &str) {
    let address = match socket.as_os_str().as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(socket),
    };
    if let (Ok(address), Ok(sender)) = (address, UnixDatagram::unbound()) {
        drop(sender.send_to_addr(message.as_bytes(), &address));
    }
}
