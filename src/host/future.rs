//! The futures of the handles that have several implementors.

use std::pin::Pin;

/// A future of a handle that has several implementors. The agent is single-threaded: it need not be `Send`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;
