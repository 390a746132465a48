//! The container runtime's images, over CRI: whether one is there, its pull, and that the kubelet keeps it.
//!
//! No gRPC library: tonic with prost would be a second HTTP/2 client, and the seven messages are the few lines of `wire`.
//! hyper is linked already, and a connection lives while there is something to pin, so that an idle agent has none of it.
//!
//! CRI has no call that pins. CRI-O reads a list from its configuration; containerd takes a label on the image, over its
//! own API on the same socket (CRI says what came of it: `Image.pinned`, from containerd 1.7 on).

mod call;
mod error;
mod wire;

use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::statvfs;

use super::Root;
use call::{Connection, TIMEOUT};
use wire::{Fields, Message};

pub use error::CriError;

/// The runtimes, and where they listen.
const SOCKETS: [(Runtime, &str); 2] =
    [(Runtime::CriO, "/run/crio/crio.sock"), (Runtime::Containerd, "/run/containerd/containerd.sock")];

/// Time limit of a pull.
const PULL_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// The label that containerd's CRI reads.
const PINNED: (&str, &str) = ("io.cri-containerd.pinned", "pinned");

/// Labels that are the agent's: containerd pins its own pause image.
const OWN: (&str, &str) = ("machine-config-agent.io/pinned", "true");

/// The field of containerd's images that says which manifest they are.
const TARGET: u64 = 3;

/// A container runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    /// CRI-O.
    CriO,
    /// containerd.
    Containerd,
}

/// An image that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeImage {
    /// Its id: the digest of its config.
    pub id: String,
    /// The kubelet keeps it.
    pub is_pinned: bool,
}

/// Credentials for a registry. `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct PullAuth(String);

impl PullAuth {
    /// Takes `user:password` in base64, as a pull secret has it.
    pub fn new(auth: String) -> Self {
        Self(auth)
    }
}

impl std::fmt::Debug for PullAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PullAuth(***)")
    }
}

/// A connection to the node's container runtime.
#[derive(Debug)]
pub struct Cri {
    /// Its kind.
    pub runtime: Runtime,
    connection: Connection,
    root: Root,
}

impl Cri {
    /// Connects to the runtime that listens, CRI-O before containerd.
    pub async fn connect(root: &Root) -> Result<Self, CriError> {
        let place = |socket: &str| root.base().join(socket.trim_start_matches('/'));
        let there = |(_, socket): &&(Runtime, &str)| place(socket).exists();
        let Some((runtime, socket)) = SOCKETS.iter().find(there) else {
            let (socket, cause) =
                (SOCKETS.map(|(_, socket)| socket).join(" and "), "there is no such socket".to_owned());
            return Err(CriError::Away { socket, cause });
        };
        let connection = Connection::open(&place(socket)).await?;
        Ok(Self { runtime: *runtime, connection, root: root.clone() })
    }

    /// Returns an image, if it is there.
    pub async fn image(&self, name: &str) -> Result<Option<RuntimeImage>, CriError> {
        let request = Message::default().message(1, &spec(name));
        let answer = self.call("/runtime.v1.ImageService/ImageStatus", request).await?.unwrap_or_default();
        let image = Fields(&answer).message(1).filter(|image| !image.text(1).is_empty());
        Ok(image.map(|image| RuntimeImage { id: image.text(1), is_pinned: image.flag(8) }))
    }

    /// Pulls an image.
    pub async fn pull(&self, name: &str, auth: Option<&PullAuth>) -> Result<(), CriError> {
        let mut request = Message::default().message(1, &spec(name));
        if let Some(PullAuth(auth)) = auth {
            request = request.message(2, &Message::default().text(3, auth));
        }
        let method = "/runtime.v1.ImageService/PullImage";
        if self.connection.call(method, request, PULL_TIMEOUT).await?.is_some() {
            return Ok(());
        }
        let (method, message) = ("PullImage".to_owned(), format!("{name}: not found"));
        Err(CriError::Refused { socket: "CRI".to_owned(), method, code: 5, message })
    }

    /// Returns the bytes of the images' file system, all of them and those that are free; `None` where it is not told.
    pub async fn space(&self) -> Result<Option<(u64, u64)>, CriError> {
        let answer =
            self.call("/runtime.v1.ImageService/ImageFsInfo", Message::default()).await?.unwrap_or_default();
        let mountpoint = Fields(&answer).message(1).and_then(|usage| usage.message(2)).map(|id| id.text(1));
        let Some(mountpoint) = mountpoint.filter(|mountpoint| !mountpoint.is_empty()) else {
            return Ok(None);
        };
        let place: PathBuf = self.root.base().join(mountpoint.trim_start_matches('/'));
        Ok(statvfs(place).ok().map(|stat| (stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize)))
    }

    /// Returns the names that the agent has pinned in containerd.
    pub async fn pinned(&self) -> Result<Vec<String>, CriError> {
        let filter = format!("labels.\"{}\"=={}", OWN.0, OWN.1);
        let request = Message::default().text(1, &filter);
        let answer =
            self.call("/containerd.services.images.v1.Images/List", request).await?.unwrap_or_default();
        Ok(Fields(&answer).all(1).map(|image| Fields(image).text(1)).collect())
    }

    /// Pins an image in containerd by name, or no longer. One that is gone is nobody's loss.
    pub async fn set_pinned(&self, name: &str, pinned: bool) -> Result<(), CriError> {
        // An empty value is what no label says: this call can't remove one.
        let value = |label: (&'static str, &'static str)| if pinned { label.1 } else { "" };
        let image =
            Message::default().text(1, name).entry(2, PINNED.0, value(PINNED)).entry(2, OWN.0, value(OWN));
        // containerd (1.7.24) reads it before the mask, and ends where there is none.
        let image = image.message(TARGET, &Message::default());
        let paths = [PINNED.0, OWN.0].map(|label| format!("labels.{label}"));
        let mask = paths.iter().fold(Message::default(), |mask, path| mask.text(1, path));
        let request = Message::default().message(1, &image).message(2, &mask);
        self.call("/containerd.services.images.v1.Images/Update", request).await.map(drop)
    }

    async fn call(&self, method: &'static str, request: Message) -> Result<Option<Vec<u8>>, CriError> {
        self.connection.call(method, request, TIMEOUT).await
    }
}

fn spec(name: &str) -> Message {
    Message::default().text(1, name)
}
