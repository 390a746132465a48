//! The socket of a transaction: no bus behind it, no names, no destinations.

use std::pin::Pin;
use std::sync::Arc;

use tokio::net::UnixStream;
use zbus::export::futures_core::Stream as _;
use zbus::object_server::SignalEmitter;
use zbus::{Connection, Guid, MessageStream, interface};

use crate::Daemon;
use crate::transaction::Transaction;

/// The interface on it.
pub(crate) struct Peer {
    daemon: Arc<Daemon>,
    transaction: Arc<Transaction>,
}

#[interface(name = "org.projectatomic.rpmostree1.Transaction")]
impl Peer {
    async fn start(&self, #[zbus(signal_emitter)] emitter: SignalEmitter<'_>) -> bool {
        let ended = self.transaction.ended.lock().unwrap().clone();
        if let Some((ok, text)) = ended {
            drop(Self::finished(&emitter, ok, &text).await);
            return false;
        }
        self.transaction.start(&self.daemon)
    }

    fn cancel(&self) {
        self.transaction.cancelled.notify_one();
    }

    #[zbus(property)]
    fn title(&self) -> String {
        self.transaction.title.clone()
    }

    #[zbus(property)]
    fn initiating_client_description(&self) -> String {
        self.transaction.client.clone()
    }

    #[zbus(signal)]
    pub(crate) async fn finished(emitter: &SignalEmitter<'_>, success: bool, error: &str)
    -> zbus::Result<()>;

    #[zbus(signal)]
    pub(crate) async fn message(emitter: &SignalEmitter<'_>, text: &str) -> zbus::Result<()>;

    #[zbus(signal)]
    pub(crate) async fn task_begin(emitter: &SignalEmitter<'_>, text: &str) -> zbus::Result<()>;

    #[zbus(signal)]
    pub(crate) async fn task_end(emitter: &SignalEmitter<'_>, text: &str) -> zbus::Result<()>;
}

/// Takes one peer; `None` where it hung up at once.
pub(crate) async fn serve(
    daemon: &Arc<Daemon>,
    transaction: &Arc<Transaction>,
    stream: UnixStream,
) -> Option<Connection> {
    let peer = Peer { daemon: Arc::clone(daemon), transaction: Arc::clone(transaction) };
    let builder = zbus::connection::Builder::unix_stream(stream).server(Guid::generate()).unwrap().p2p();
    builder.serve_at("/", peer).unwrap().build().await.ok()
}

/// Waits until a peer hangs up.
pub(crate) async fn until_closed(connection: Connection) {
    let mut messages = MessageStream::from(&connection);
    while let Some(Ok(_)) = std::future::poll_fn(|context| Pin::new(&mut messages).poll_next(context)).await {
    }
}
