//! A link of a bounded rate between a registry and its clients: all of them share it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that go at a time.
const CHUNK: usize = 64 << 10;

/// The link. It lives as long as the process.
pub(crate) struct Link {
    pub(crate) address: String,
}

/// When the link is free again.
struct Budget {
    rate: u64,
    free: Mutex<Instant>,
}

impl Link {
    /// Starts one before the server at an address.
    pub(crate) fn start(server: &str, rate: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let budget = Arc::new(Budget { rate, free: Mutex::new(Instant::now()) });
        let server = server.to_owned();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&server) else { continue };
                let (up, down) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let budget = Arc::clone(&budget);
                // A client that leaves in the middle is its own business.
                std::thread::spawn(move || drop(pass(up, server, None)));
                std::thread::spawn(move || drop(pass(down, client, Some(&budget))));
            }
        });
        Self { address }
    }
}

impl Budget {
    /// Waits until so many bytes may go.
    fn wait(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap();
        let until = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            let start = (*free).max(Instant::now());
            *free = start + Duration::from_micros(bytes * 1_000_000 / self.rate);
            *free
        };
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, budget: Option<&Budget>) -> std::io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        let count = from.read(&mut chunk)?;
        if count == 0 {
            return to.shutdown(Shutdown::Write);
        }
        if let Some(budget) = budget {
            budget.wait(count);
        }
        to.write_all(chunk.get(..count).unwrap_or_default())?;
    }
}
