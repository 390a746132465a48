//! A proxy in front of the registry with faults: every request is passed on, and some answers are changed.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Fault of the proxy.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Requests whose path holds a part are answered with a status line and a body.
    Answer { on: String, status: &'static str, body: &'static str },
    /// A bit of the answer's body is another one.
    Alter { on: String },
    /// The second half of the answer does not come.
    Cut { on: String },
}

pub struct Faulty {
    pub address: String,
    fault: Arc<Mutex<Option<Fault>>>,
}

impl Faulty {
    /// Listens before a registry. Its thread ends with the process.
    pub fn before(registry: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let fault = Arc::new(Mutex::new(None));
        let (shared, registry) = (Arc::clone(&fault), registry.to_owned());
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let fault = shared.lock().unwrap().clone();
                // A client that hangs up in the middle is what some of the faults are about.
                drop(serve(client, &registry, fault));
            }
        });
        Self { address, fault }
    }

    pub fn set(&self, fault: Option<Fault>) {
        *self.fault.lock().unwrap() = fault;
    }
}

fn serve(mut client: TcpStream, registry: &str, fault: Option<Fault>) -> std::io::Result<()> {
    let head = head(&mut client)?;
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    if let Some(Fault::Answer { on, status, body }) = &fault
        && path.contains(on)
    {
        // No wait is requested: the client's own backoff is not under test.
        let answer = format!(
            "HTTP/1.1 {status}\r\nRetry-After: 0\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        return client.write_all(answer.as_bytes());
    }
    let answer = pass_on(&head, registry)?;
    let start = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").map_or(answer.len(), |at| at + 4);
    match fault {
        Some(Fault::Alter { on }) if path.contains(&on) && start < answer.len() => {
            let mut answer = answer;
            let middle = start + (answer.len() - start) / 2;
            answer[middle] ^= 1;
            client.write_all(&answer)
        }
        Some(Fault::Cut { on }) if path.contains(&on) => {
            client.write_all(&answer[..start + (answer.len() - start) / 2])
        }
        _ => client.write_all(&answer),
    }
}

fn head(client: &mut TcpStream) -> std::io::Result<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte)? > 0 {
        head.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// Asks the registry the same, and returns its whole answer.
fn pass_on(head: &str, registry: &str) -> std::io::Result<Vec<u8>> {
    let kept = |line: &&str| !line.to_ascii_lowercase().starts_with("connection:");
    let lines: Vec<&str> = head.trim_end().split("\r\n").filter(kept).collect();
    let mut upstream = TcpStream::connect(registry)?;
    write!(upstream, "{}\r\nConnection: close\r\n\r\n", lines.join("\r\n"))?;
    let mut answer = Vec::new();
    upstream.read_to_end(&mut answer)?;
    Ok(answer)
}
