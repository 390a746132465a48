//! Unsolicited messages of a bus, one after the other.

use std::pin::Pin;

use zbus::export::futures_core::Stream as _;
use zbus::names::OwnedUniqueName;
use zbus::{Message, MessageStream};

/// Returns true if a message signals that the daemon's name has lost its owner.
pub(super) fn is_loss(message: &Message) -> bool {
    let body = message.body();
    let owners = body.deserialize::<(String, String, String)>();
    owners.is_ok_and(|(_, old, new)| OwnedUniqueName::try_from(old).is_ok() && new.is_empty())
}

/// Returns the next message of a stream; `None` when the connection is closed.
pub(super) async fn next(stream: &mut MessageStream) -> Option<zbus::Result<Message>> {
    std::future::poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await
}
