//! SIGTERM and SIGINT as an event. During a batch they wait; a pull is left, and begun again by the next process.

use std::io;
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGINT, SIGTERM};

/// The signals, as the end of a pipe that their handler writes to.
#[derive(Debug)]
pub struct Stop {
    reader: Option<tokio::net::UnixStream>,
    asked: bool,
}

impl Stop {
    /// Registers the signals. Within a tokio runtime.
    pub fn signals() -> io::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(SIGTERM, writer.try_clone()?)?;
        signal_hook::low_level::pipe::register(SIGINT, writer)?;
        Ok(Self { reader: Some(tokio::net::UnixStream::from_std(reader)?), asked: false })
    }

    /// A stop that never comes, for work that ends by itself.
    pub fn never() -> Self {
        Self { reader: None, asked: false }
    }

    /// Says whether a signal has come.
    pub(super) fn is_asked(&mut self) -> bool {
        let mut byte = [0; 1];
        let came = self.reader.as_ref().is_some_and(|reader| reader.try_read(&mut byte).is_ok());
        self.asked |= came;
        self.asked
    }

    /// Waits for a signal. Cancel-safe: what came is remembered.
    pub(super) async fn asked(&mut self) {
        while !self.is_asked() {
            match &self.reader {
                // An error means that the pipe is broken: the next look says so by ending the wait.
                Some(reader) => self.asked |= reader.readable().await.is_err(),
                None => std::future::pending().await,
            }
        }
    }
}
