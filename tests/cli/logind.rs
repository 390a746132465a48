//! A system bus of its own (a real `dbus-daemon`) for a host in a directory, and logind played on it: who blocks, what
//! comes of a reboot.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use zbus::object_server::SignalEmitter;

const OBJECT: &str = "/org/freedesktop/login1";

/// What, who, why, mode, uid, pid.
pub type Row = (String, String, String, String, u32, u32);

pub fn block(who: &str, why: &str) -> Row {
    ("sleep:shutdown".into(), who.into(), why.into(), "block".into(), 0, 4711)
}

/// Result of a requested reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comes {
    /// The shutdown begins.
    Begun,
    /// It is begun and taken back.
    TakenBack,
    /// It is refused.
    Refused,
}

#[derive(Debug)]
struct State {
    blocks: Vec<Row>,
    preparing: bool,
    comes: Vec<Comes>,
}

/// The bus and logind. Dropping it ends both.
pub struct Logind {
    bus: zbus::Connection,
    state: Arc<Mutex<State>>,
    asked: watch::Receiver<Vec<u64>>,
    daemon: Child,
}

struct Manager {
    state: Arc<Mutex<State>>,
    asked: watch::Sender<Vec<u64>>,
}

#[zbus::interface(name = "org.freedesktop.login1.Manager")]
impl Manager {
    fn list_inhibitors(&self) -> Vec<Row> {
        self.state.lock().unwrap().blocks.clone()
    }

    #[zbus(property)]
    fn block_inhibited(&self) -> String {
        let state = self.state.lock().unwrap();
        state.blocks.iter().map(|row| row.0.clone()).collect::<Vec<_>>().join(":")
    }

    #[zbus(property)]
    fn preparing_for_shutdown(&self) -> bool {
        self.state.lock().unwrap().preparing
    }

    async fn reboot_with_flags(
        &self,
        flags: u64,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> zbus::fdo::Result<()> {
        let comes = {
            let mut state = self.state.lock().unwrap();
            let comes = if state.comes.is_empty() { Comes::Begun } else { state.comes.remove(0) };
            state.preparing = comes == Comes::Begun;
            comes
        };
        self.asked.send_modify(|asked| asked.push(flags));
        match comes {
            Comes::Begun => Self::prepare_for_shutdown(&emitter, true).await?,
            Comes::TakenBack => {
                Self::prepare_for_shutdown(&emitter, true).await?;
                Self::prepare_for_shutdown(&emitter, false).await?;
            }
            Comes::Refused => {
                return Err(zbus::fdo::Error::AccessDenied("somebody else is in charge".to_owned()));
            }
        }
        Ok(())
    }

    #[zbus(signal)]
    async fn prepare_for_shutdown(emitter: &SignalEmitter<'_>, start: bool) -> zbus::Result<()>;
}

/// Starts a bus at the path where a host has it; returns its address.
pub fn start_bus(root: &Path) -> (Child, String) {
    let socket = root.join("run/dbus/system_bus_socket");
    std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let config = root.join("run/dbus/bus.conf");
    let text = format!(
        "<busconfig><listen>unix:path={}</listen><auth>EXTERNAL</auth>\
         <policy context=\"default\"><allow send_destination=\"*\" eavesdrop=\"false\"/>\
         <allow receive_sender=\"*\"/><allow own=\"*\"/><allow user=\"*\"/></policy></busconfig>",
        socket.display()
    );
    std::fs::write(&config, text).unwrap();
    let mut daemon = Command::new("dbus-daemon")
        .arg(format!("--config-file={}", config.display()))
        .args(["--nofork", "--nopidfile", "--nosyslog", "--print-address"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut address = String::new();
    BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut address).unwrap();
    (daemon, address)
}

impl Logind {
    /// Starts the bus at the path where a host has it, and logind on it.
    pub async fn start(root: &Path, blocks: Vec<Row>, comes: Vec<Comes>) -> Self {
        let (daemon, address) = start_bus(root);
        let state = Arc::new(Mutex::new(State { blocks, preparing: false, comes }));
        let (tell, asked) = watch::channel(vec![]);
        let manager = Manager { state: Arc::clone(&state), asked: tell };
        let bus = zbus::connection::Builder::address(address.trim())
            .unwrap()
            .name("org.freedesktop.login1")
            .unwrap()
            .serve_at(OBJECT, manager)
            .unwrap()
            .build()
            .await
            .unwrap();
        Self { bus, state, asked, daemon }
    }

    /// Sets the block inhibitors, and signals that as logind does: the property's name without its value.
    pub async fn block(&self, blocks: Vec<Row>) {
        self.state.lock().unwrap().blocks = blocks;
        self.bus
            .emit_signal(
                None::<()>,
                OBJECT,
                "org.freedesktop.DBus.Properties",
                "PropertiesChanged",
                &(
                    "org.freedesktop.login1.Manager",
                    std::collections::HashMap::<String, zbus::zvariant::Value<'_>>::new(),
                    vec!["BlockInhibited"],
                ),
            )
            .await
            .unwrap();
    }

    /// The flags of every reboot that was asked for.
    pub fn requests(&self) -> Vec<u64> {
        self.asked.borrow().clone()
    }

    /// Waits until a reboot was asked for so often.
    pub async fn requested_times(&mut self, times: usize) -> Vec<u64> {
        let wait = self.asked.wait_for(|asked| asked.len() >= times);
        let asked = tokio::time::timeout(std::time::Duration::from_secs(120), wait).await;
        asked.unwrap_or_else(|_| panic!("the reboot is not asked for")).unwrap().clone()
    }
}

impl Drop for Logind {
    fn drop(&mut self) {
        drop(self.daemon.kill());
        drop(self.daemon.wait());
    }
}
