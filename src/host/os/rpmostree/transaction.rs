//! One transaction: a socket of its own, which reports its progress and its end.
//!
//! Invariants: the socket is closed as soon as the end is known, because the daemon counts a transaction as running
//! until everybody has hung up; and hanging up does not stop the work: only [`Peer::cancel`] does.

use std::path::Path;

use zbus::{Connection, Message, MessageStream};

use crate::host::HostError;
use crate::host::os::OsProgress;

use super::messages::{is_loss, next};

const INTERFACE: &str = "org.projectatomic.rpmostree1.Transaction";

/// End of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TransactionResult {
    /// It did its work.
    Done,
    /// It failed, with this message.
    Failed(String),
    /// Unknown: the daemon is gone.
    Lost(String),
}

/// A connection to a transaction.
#[derive(Debug)]
pub(super) struct Peer {
    connection: Connection,
    messages: MessageStream,
}

impl Peer {
    /// Connects to the socket, which is the host's: its path is below the host's root. Messages from now on are kept.
    pub(super) async fn open(root: &Path, address: &str) -> Result<Self, HostError> {
        let failed = |source: zbus::Error| error("connecting", source);
        let address = match address.strip_prefix("unix:path=") {
            Some(rest) => {
                let path = rest.split_once(',').map_or(rest, |(path, _)| path);
                format!("unix:path={}", root.join(path.trim_start_matches('/')).display())
            }
            None => address.to_owned(),
        };
        let builder = zbus::connection::Builder::address(address.as_str()).map_err(failed)?;
        let connection = builder.p2p().build().await.map_err(failed)?;
        let messages = MessageStream::from(&connection);
        Ok(Self { connection, messages })
    }

    /// Starts the work, or joins it if it runs or has ended, and waits for its end.
    pub(super) async fn run(
        &mut self,
        owners: &mut MessageStream,
        progress: &(dyn Fn(OsProgress) + '_),
    ) -> Result<TransactionResult, HostError> {
        let connection = self.connection.clone();
        let start = connection.call_method(None::<&str>, "/", Some(INTERFACE), "Start", &());
        tokio::pin!(start);
        let mut started = false;
        loop {
            tokio::select! {
                biased;
                // Cancel-safe: a message is taken from the queue only when it is returned.
                message = next(&mut self.messages) => match message {
                    Some(Ok(message)) => if let Some(ended) = handle_message(&message, progress) { return Ok(ended) },
                    Some(Err(source)) => return Ok(TransactionResult::Lost(format!("its transaction socket: {source}"))),
                    None => return Ok(TransactionResult::Lost("its transaction socket was closed".to_owned())),
                },
                // Cancel-safe, as above.
                message = next(owners) => match message {
                    Some(Ok(message)) if is_loss(&message) => {
                        return Ok(TransactionResult::Lost("its name has left the bus".to_owned()));
                    }
                    Some(_) => {}
                    None => return Ok(TransactionResult::Lost("the bus closed the connection".to_owned())),
                },
                // Not cancelled: the same future is polled until it ends.
                reply = &mut start, if !started => {
                    started = true;
                    // If the socket is closed, the messages end too; they may hold the end of the work.
                    if let Err(source @ zbus::Error::MethodError(..)) = reply {
                        return Err(error("Start", source));
                    }
                }
            }
        }
    }

    /// Returns the transaction's own title, and its owner.
    pub(super) async fn title(&self) -> Result<(String, String), HostError> {
        Ok((self.property("Title").await?, self.property("InitiatingClientDescription").await?))
    }

    /// Requests the work to stop; its end is still to be waited for.
    pub(super) async fn cancel(&self) -> Result<(), HostError> {
        let reply = self.connection.call_method(None::<&str>, "/", Some(INTERFACE), "Cancel", &()).await;
        reply.map(drop).map_err(|source| error("Cancel", source))
    }

    /// Hangs up.
    pub(super) async fn close(self) {
        let Self { connection, messages } = self;
        drop(messages);
        // It is closed either way.
        connection.close().await.unwrap_or_default();
    }

    async fn property(&self, name: &'static str) -> Result<String, HostError> {
        let properties = Some("org.freedesktop.DBus.Properties");
        let reply =
            self.connection.call_method(None::<&str>, "/", properties, "Get", &(INTERFACE, name)).await;
        let reply = reply.map_err(|source| error(name, source))?;
        let body = reply.body();
        let value: zbus::zvariant::Value<'_> = body.deserialize().map_err(|source| error(name, source))?;
        String::try_from(value).map_err(|source| error(name, source.into()))
    }
}

/// Passes progress on; returns the end.
fn handle_message(message: &Message, progress: &(dyn Fn(OsProgress) + '_)) -> Option<TransactionResult> {
    let header = message.header();
    if message.message_type() != zbus::message::Type::Signal || header.interface()?.as_str() != INTERFACE {
        return None;
    }
    let body = message.body();
    match header.member()?.as_str() {
        "Finished" => {
            let ended = body.deserialize::<(bool, String)>();
            return Some(match ended {
                Ok((true, _)) => TransactionResult::Done,
                Ok((false, text)) => TransactionResult::Failed(text),
                Err(error) => TransactionResult::Failed(format!("its end can't be read: {error}")),
            });
        }
        "Message" | "TaskBegin" => {
            let text: String = body.deserialize().ok()?;
            progress(step(&text, None));
        }
        "PercentProgress" => {
            let (text, percent): (String, u32) = body.deserialize().ok()?;
            progress(step(&text, u8::try_from(percent.min(100)).ok()));
        }
        _ => {}
    }
    None
}

/// Reads the progress. Of `[3/6] Fetching ...` and `Installing (2/9)` the count says more than the number beside it.
fn step(text: &str, percent: Option<u8>) -> OsProgress {
    let text = text.replace('\u{a0}', " ");
    let begun = text.strip_prefix('[').and_then(|rest| counted(rest.split_once(']')?.0, 1));
    let ended = || text.strip_suffix(')').and_then(|rest| counted(rest.rsplit_once('(')?.1, 0));
    OsProgress::new(&text, begun.or_else(ended).or(percent))
}

/// Reads `n/m`, of which the first `less` are not yet done.
fn counted(pair: &str, less: u32) -> Option<u8> {
    let (done, of) = pair.split_once('/')?;
    let (done, of): (u32, u32) = (done.trim().parse().ok()?, of.trim().parse().ok()?);
    let done = done.saturating_sub(less).min(of);
    u8::try_from((done.checked_mul(100)?).checked_div(of)?).ok()
}

fn error(what: &'static str, source: zbus::Error) -> HostError {
    HostError::Bus { call: format!("{what} of an rpm-ostree transaction"), source: Box::new(source) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_follows_counts() {
        for (text, given, expected) in [
            ("[1/6] Fetching ostree chunk abc (211.0\u{a0}MB)", None, Some(0)),
            ("[4/6] Fetching layer", None, Some(50)),
            ("Installing packages (2/8)", Some(0), Some(25)),
            ("Staging deployment", None, None),
            ("Writing rpmdb", Some(40), Some(40)),
            ("[x/y] odd (1/0)", None, None),
        ] {
            assert_eq!(step(text, given).percent, expected, "{text}");
        }
        assert_eq!(step(&"x".repeat(1 << 20), None).text.len(), 200);
        assert_eq!(
            step("custom layers needed: 1 (2.0\u{a0}kB)", None).text,
            "custom layers needed: 1 (2.0 kB)"
        );
    }
}
