//! A double of rpm-ostree's daemon: the real names, signatures, properties and error names on a real bus, a real socket
//! for each transaction, and deployments in memory or of a real sysroot.
//!
//! `rpm-ostreed --bus ADDRESS --root DIR (--sysroot | --deployments JSON)`. The socket of a transaction is
//! `DIR/run/rpm-ostree-transaction.sock`, given to clients without `DIR`, as a container sees the host's. With
//! `--sysroot` the work is done by the agent's own worker on `/`. Faults are set over the bus (`faults.rs`). With
//! `--idle-exit SECONDS` it ends as the real one does (after 60 s) when it had no client and no transaction for so long, and
//! no faults, which it would forget. With `--tell` its clients and transactions are logged on standard error.
#![expect(
    clippy::unwrap_used,
    clippy::exit,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::needless_pass_by_value,
    clippy::unused_self,
    clippy::used_underscore_binding,
    clippy::struct_excessive_bools,
    reason = "a double for tests: it ends at the first surprise, and its methods have the shape of the interface"
)]

mod backing;
mod bus;
mod faults;
mod peer;
mod transaction;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use backing::Backing;
use faults::Faults;
use transaction::Transaction;

/// The name on the bus.
const NAME: &str = "org.projectatomic.rpmostree1";

/// The socket of the transaction, as clients get it.
const SOCKET: &str = "run/rpm-ostree-transaction.sock";

/// State that all interfaces share.
struct Daemon {
    root: PathBuf,
    backing: Backing,
    faults: Mutex<Faults>,
    /// Notified when a held transaction may go on.
    released: tokio::sync::Notify,
    /// Notified when a transaction is held.
    held: tokio::sync::Notify,
    /// Notified when a call joins the transaction that runs.
    joined: tokio::sync::Notify,
    /// After how long without clients it ends; `None` for never.
    idle_exit: Option<std::time::Duration>,
    tells: bool,
    active: Mutex<Option<Arc<Transaction>>>,
    /// Ids of registered clients by their names on the bus.
    clients: Mutex<std::collections::BTreeMap<String, String>>,
    /// The methods that made a transaction, in order: tests count them.
    log: Mutex<Vec<String>>,
    /// Number of reloads that clients requested.
    reloads: std::sync::atomic::AtomicU32,
    connection: std::sync::OnceLock<zbus::Connection>,
}

impl Daemon {
    /// Signals the result of a transaction.
    fn print(&self, what: &str, method: &str) {
        if self.tells {
            eprintln!("{what} {method}");
        }
    }

    /// Returns true if it has no clients and no work.
    fn is_idle(&self) -> bool {
        self.clients.lock().unwrap().is_empty()
            && self.active.lock().unwrap().is_none()
            && self.faults.lock().unwrap().are_none()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut args = std::env::args().skip(1);
    let (mut address, mut root, mut backing) = (String::new(), PathBuf::from("/"), None);
    let (mut idle_exit, mut tells) = (None, false);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--bus" => address = args.next().unwrap(),
            "--root" => root = args.next().unwrap().into(),
            "--sysroot" => backing = Some(Backing::sysroot()),
            "--deployments" => backing = Some(Backing::memory(&args.next().unwrap())),
            "--idle-exit" => {
                idle_exit = Some(std::time::Duration::from_secs(args.next().unwrap().parse().unwrap()));
            }
            "--tell" => tells = true,
            _ => std::process::exit(2),
        }
    }
    let daemon = Arc::new(Daemon {
        root,
        backing: backing.unwrap(),
        faults: Mutex::default(),
        released: tokio::sync::Notify::new(),
        held: tokio::sync::Notify::new(),
        joined: tokio::sync::Notify::new(),
        idle_exit,
        tells,
        active: Mutex::default(),
        clients: Mutex::default(),
        log: Mutex::default(),
        reloads: std::sync::atomic::AtomicU32::default(),
        connection: std::sync::OnceLock::new(),
    });
    let connection = zbus::connection::Builder::address(address.as_str())
        .unwrap()
        .serve_at("/org/projectatomic/rpmostree1/Sysroot", bus::Sysroot(Arc::clone(&daemon)))
        .unwrap()
        .serve_at("/org/projectatomic/rpmostree1/os", bus::Os(Arc::clone(&daemon)))
        .unwrap()
        .serve_at("/double", faults::Control(Arc::clone(&daemon)))
        .unwrap()
        .build()
        .await
        .unwrap();
    daemon.connection.set(connection.clone()).unwrap();
    connection.request_name(NAME).await.unwrap();
    println!("ready");
    bus::watch_clients(daemon, connection).await;
}
