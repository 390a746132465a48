//! The one transaction: its clients, its work, and its end.
//!
//! As in the real daemon it is active until all peers have hung up.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::net::UnixListener;
use tokio::sync::Notify;
use zbus::Connection;
use zbus::object_server::SignalEmitter;

use crate::backing::{Job, Sources};
use crate::peer::{self, Peer};
use crate::{Daemon, NAME, SOCKET, bus};

/// A transaction.
pub(crate) struct Transaction {
    pub(crate) method: String,
    /// The arguments: the same call joins.
    pub(crate) arguments: String,
    pub(crate) sender: String,
    pub(crate) title: String,
    pub(crate) client: String,
    job: Job,
    pub(crate) started: AtomicBool,
    pub(crate) cancelled: Notify,
    pub(crate) ended: Mutex<Option<(bool, String)>>,
    peers: Mutex<Vec<Connection>>,
    connected: AtomicUsize,
}

impl Transaction {
    /// Makes it, and a socket for it.
    pub(crate) fn make(
        daemon: &Arc<Daemon>,
        method: &str,
        arguments: String,
        sender: String,
        title: String,
        job: Job,
    ) {
        let client = daemon.clients.lock().unwrap().get(&sender).cloned().unwrap_or_default();
        let transaction = Arc::new(Self {
            method: method.to_owned(),
            arguments,
            client: format!("client(id:{client} dbus:{sender} uid:0)"),
            sender,
            title,
            job,
            started: AtomicBool::new(false),
            cancelled: Notify::new(),
            ended: Mutex::default(),
            peers: Mutex::default(),
            connected: AtomicUsize::new(0),
        });
        daemon.log.lock().unwrap().push(method.to_owned());
        daemon.print("begun", method);
        let path = daemon.root.join(SOCKET);
        drop(std::fs::remove_file(&path));
        let listener = UnixListener::bind(path).unwrap();
        *daemon.active.lock().unwrap() = Some(Arc::clone(&transaction));
        tokio::spawn(accept(Arc::clone(daemon), transaction, listener));
    }

    /// Starts the work; false if it was started already.
    pub(crate) fn start(self: &Arc<Self>, daemon: &Arc<Daemon>) -> bool {
        let first = !self.started.swap(true, Ordering::SeqCst);
        if first {
            tokio::spawn(work(Arc::clone(daemon), Arc::clone(self)));
        }
        first
    }

    async fn send_message(&self, text: &str) {
        let peers = self.peers.lock().unwrap().clone();
        for peer in peers {
            let emitter = SignalEmitter::new(&peer, "/").unwrap();
            drop(Peer::message(&emitter, text).await);
            if text.starts_with('[') {
                drop(Peer::task_begin(&emitter, text).await);
                drop(Peer::task_end(&emitter, "done").await);
            }
        }
    }
}

/// Takes peers until the transaction is over.
async fn accept(daemon: Arc<Daemon>, transaction: Arc<Transaction>, listener: UnixListener) {
    loop {
        let still = daemon.active.lock().unwrap().as_ref().is_some_and(|one| Arc::ptr_eq(one, &transaction));
        if !still {
            return;
        }
        let Ok((stream, _)) = listener.accept().await else { return };
        let (daemon, transaction) = (Arc::clone(&daemon), Arc::clone(&transaction));
        transaction.connected.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(async move {
            if let Some(connection) = peer::serve(&daemon, &transaction, stream).await {
                transaction.peers.lock().unwrap().push(connection.clone());
                peer::until_closed(connection).await;
            }
            let left = transaction.connected.fetch_sub(1, Ordering::SeqCst) - 1;
            if left == 0 && transaction.ended.lock().unwrap().is_some() {
                bus::over(&daemon, &transaction).await;
            }
        });
    }
}

async fn work(daemon: Arc<Daemon>, transaction: Arc<Transaction>) {
    let outcome = tokio::select! {
        outcome = done(&daemon, &transaction) => outcome,
        () = transaction.cancelled.notified() => Err("Operation was cancelled".to_owned()),
    };
    if daemon.faults.lock().unwrap().die_after {
        std::process::exit(9);
    }
    let ended = (outcome.is_ok(), outcome.err().unwrap_or_default());
    daemon.print(if ended.0 { "done" } else { "failed" }, &transaction.method);
    *transaction.ended.lock().unwrap() = Some(ended.clone());
    let peers = transaction.peers.lock().unwrap().clone();
    for peer in peers {
        let emitter = SignalEmitter::new(&peer, "/").unwrap();
        drop(Peer::finished(&emitter, ended.0, &ended.1).await);
    }
    if transaction.connected.load(Ordering::SeqCst) == 0 {
        bus::over(&daemon, &transaction).await;
    }
}

async fn done(daemon: &Arc<Daemon>, transaction: &Transaction) -> Result<(), String> {
    let faults = daemon.faults.lock().unwrap().clone();
    transaction.send_message(&format!("Pulling manifest: {}", transaction.title)).await;
    for count in 0..faults.chatter {
        transaction.send_message(&format!("remark {count}")).await;
    }
    if faults.die {
        std::process::exit(9);
    }
    if faults.drop_name {
        daemon.connection.get().unwrap().release_name(NAME).await.unwrap();
    }
    if faults.hold {
        daemon.held.notify_one();
        daemon.released.notified().await;
    }
    let only = faults.fail_only.as_ref().is_none_or(|method| *method == transaction.method);
    if let Some(message) = faults.fail.filter(|_| only) {
        return Err(message);
    }
    let mut job = transaction.job.clone();
    if let Job::Update { refspec, install, .. } = &mut job {
        if faults.wrong.is_some() {
            *refspec = faults.wrong;
        }
        if faults.forget_packages {
            install.clear();
        }
    }
    let (sender, mut lines) = tokio::sync::mpsc::unbounded_channel();
    let repositories =
        std::fs::read_dir(daemon.root.join("etc/yum.repos.d")).is_ok_and(|mut all| all.next().is_some());
    let sources = Sources { repositories, images: faults.images };
    let work = daemon.backing.work(job, &sources, sender);
    tokio::pin!(work);
    loop {
        tokio::select! {
            biased;
            Some(line) = lines.recv() => transaction.send_message(&line).await,
            result = &mut work => {
                daemon.backing.mark(&daemon.root);
                return result;
            }
        }
    }
}
