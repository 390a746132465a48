//! Connections to the API server: one, and another for as long as one has no room for a request more. A server takes only so many
//! requests at a time on a connection, and a watch is one of them all its life; what comes after these would wait for their end, the
//! renewal of the Lease as well.

use std::sync::{Arc, Mutex, PoisonError};

/// Requests at a time on a connection: kube-apiserver takes 100, as most that stand before one.
const MAX_REQUESTS: usize = 80;

/// Clients of which each has a connection.
#[derive(Debug, Clone)]
pub(super) struct Connections<C> {
    // What is made like this one has a connection of its own.
    connect: fn(&C) -> C,
    open: Arc<Mutex<Vec<Connection<C>>>>,
}

#[derive(Debug)]
struct Connection<C> {
    client: C,
    // Each request has a clone.
    requests: Arc<()>,
}

/// Place of a request on a connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Place(#[expect(dead_code, reason = "counted by its connection")] Arc<()>);

impl Place {
    /// Has a closure own it.
    #[expect(clippy::unused_self, reason = "a closure owns what it names")]
    pub(super) const fn hold(&self) {}
}

impl<C: Clone> Connections<C> {
    /// Begins with one.
    pub(super) fn new(first: C, connect: fn(&C) -> C) -> Self {
        let first = Connection { client: first, requests: Arc::default() };
        Self { connect, open: Arc::new(Mutex::new(vec![first])) }
    }

    /// Returns the first client with room, and the place.
    pub(super) fn take(&self) -> Option<(C, Place)> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = |one: &&Connection<C>| Arc::strong_count(&one.requests) <= MAX_REQUESTS;
        if let Some(one) = open.iter().find(has_room) {
            return Some((one.client.clone(), Place(Arc::clone(&one.requests))));
        }
        let client = (self.connect)(&open.first()?.client);
        let requests = Arc::default();
        let place = Place(Arc::clone(&requests));
        open.push(Connection { client: client.clone(), requests });
        Some((client, place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place that is given back is taken again, before another connection is.
    #[test]
    fn first_connection_with_room_is_taken() {
        let connections = Connections::new(0, |first| first + 1);
        let take = || connections.take().unwrap();
        let held: Vec<_> = (0..MAX_REQUESTS).map(|_| take()).collect();
        assert!(held.iter().all(|(client, _)| *client == 0));
        let more = [take(), take()];
        assert_eq!(more.each_ref().map(|(client, _)| *client), [1, 1]);
        drop(held);
        assert_eq!(take().0, 0);
        drop(more);
        assert_eq!(connections.open.lock().unwrap().len(), 2);
    }
}
