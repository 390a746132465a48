//! The body of an answer, bounded: in bytes, in time, and a watch in the bytes of one line.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame};
use tokio::time::{Instant, Sleep};
use tower::BoxError;

use super::adaptive_timeout::AdaptiveTimeout;
use super::error::KubeError;
use crate::model::text::chain;

/// The largest answer, and the largest line of a watch: etcd's objects end at 1.5 MiB, and a server that sends more
/// without end is cut off.
pub(super) const MAX_BYTES: usize = 16 * 1024 * 1024;

/// Limits of a body.
#[derive(Debug, Clone, Default)]
pub(super) struct Bounds {
    /// Names the requested object, and its source.
    pub(super) object: String,
    pub(super) server: String,
    /// The body is that of a watch: it has no end, but its lines have one.
    pub(super) watch: bool,
    pub(super) timeout: Arc<AdaptiveTimeout>,
}

/// A body within its bounds.
pub(super) struct Bounded<B> {
    body: Pin<Box<B>>,
    bounds: Bounds,
    left: usize,
    began: Instant,
    late: Option<Pin<Box<Sleep>>>,
}

impl<B> Bounded<B> {
    /// Bounds a body. Its time begins now.
    pub(super) fn new(body: B, bounds: Bounds) -> Self {
        let limit = bounds.timeout.timeout();
        let late = (!bounds.watch).then(|| Box::pin(tokio::time::sleep(limit)));
        Self { body: Box::pin(body), bounds, left: MAX_BYTES, began: Instant::now(), late }
    }

    fn away(&self, cause: String) -> BoxError {
        KubeError::Away { server: self.bounds.server.clone(), cause }.into()
    }

    /// Counts read bytes; returns false when they are too many.
    fn count(&mut self, data: &[u8]) -> bool {
        let last_line = data.iter().rev().position(|byte| *byte == b'\n');
        let (limit, read) = match last_line {
            Some(read) if self.bounds.watch => (MAX_BYTES, read),
            Some(_) | None => (self.left, data.len()),
        };
        let left = limit.checked_sub(read);
        self.left = left.unwrap_or_default();
        left.is_some()
    }
}

impl<B: Body<Data = Bytes>> Body for Bounded<B>
where
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if let Some(late) = &mut this.late
            && late.as_mut().poll(context).is_ready()
        {
            let took = this.began.elapsed().as_secs();
            this.bounds.timeout.exceeded();
            let cause = format!("no answer for {} within {took} s", this.bounds.object);
            return Poll::Ready(Some(Err(this.away(cause))));
        }
        Poll::Ready(match ready!(this.body.as_mut().poll_frame(context)) {
            None => {
                if !this.bounds.watch {
                    this.bounds.timeout.answered(this.began.elapsed());
                }
                None
            }
            Some(Err(error)) => {
                let error: BoxError = error.into();
                Some(Err(this.away(chain(&*error))))
            }
            Some(Ok(frame)) if frame.data_ref().is_none_or(|data| this.count(data)) => Some(Ok(frame)),
            Some(Ok(_)) => {
                let what = if this.bounds.watch { "it sends a line of" } else { "its answer has" };
                Some(Err(this.away(format!("{what} more than {MAX_BYTES} bytes"))))
            }
        })
    }
}
