//! The body of a watch, line by line.

use http_body_util::BodyExt as _;
use kube::client::Body;

use super::error::KubeError;

/// The body of a watch.
#[derive(Debug)]
pub(super) struct Lines {
    body: Body,
    read: Vec<u8>,
    object: String,
}

impl Lines {
    /// Takes a body, whose lines are bounded, and the name of the object.
    pub(super) fn new(body: Body, object: String) -> Self {
        Self { body, read: Vec::new(), object }
    }

    /// Returns the next line; `None` when the server ended the watch. Cancel-safe: what was read stays read.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, KubeError> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let rest = self.read.split_off(end + 1);
                return Ok(Some(std::mem::replace(&mut self.read, rest)));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(KubeError::new(&error, self.object.clone())),
                Some(Ok(frame)) => self.read.extend(frame.into_data().unwrap_or_default()),
            }
        }
    }
}
