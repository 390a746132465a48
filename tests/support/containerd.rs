//! A real containerd below a host's root, and a registry that it pulls one image from.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    unreachable_pub,
    missing_docs,
    missing_debug_implementations,
    reason = "shared by tests and benchmarks: it fails by panicking"
)]

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use machine_config_agent::model::Sha256;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

const LIMIT: Duration = Duration::from_secs(90);

/// Returns the path of containerd 1.7 or later: installed, or unpacked beside (`setup everything`).
pub fn program() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/containerd/usr/bin/containerd");
    let text = |path: &PathBuf| {
        let output = std::process::Command::new(path).arg("--version").output().ok()?;
        String::from_utf8(output.stdout).ok()
    };
    let is_new = |path: &PathBuf| {
        let version = text(path).unwrap_or_default();
        let number = version.split(' ').nth(2).unwrap_or_default().trim_start_matches('v').to_owned();
        let mut parts = number.split('.').map(|part| part.parse::<u32>().unwrap_or_default());
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default()) >= (1, 7)
    };
    [beside, PathBuf::from("/usr/bin/containerd")].into_iter().find(is_new)
}

/// One image, with a layer that has nothing, and what it is asked for.
pub struct Registry {
    manifest: Vec<u8>,
    blobs: Vec<Vec<u8>>,
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", Sha256::digest(bytes))
}

impl Registry {
    pub fn new() -> Self {
        // The end of an archive.
        let layer = vec![0; 1024];
        let config = json!({ "architecture": "amd64", "os": "linux", "config": {},
            "rootfs": { "type": "layers", "diff_ids": [digest(&layer)] }, "history": [] });
        let config = config.to_string().into_bytes();
        let entry = |kind: &str, bytes: &[u8]| json!({ "mediaType": format!("application/vnd.oci.image.{kind}"), "digest": digest(bytes), "size": bytes.len() });
        let manifest = json!({ "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": entry("config.v1+json", &config), "layers": [entry("layer.v1.tar", &layer)] });
        Self { manifest: manifest.to_string().into_bytes(), blobs: vec![config, layer] }
    }

    /// Serves it on loopback, where containerd asks without TLS; returns the image's name.
    pub async fn serve(self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = listener.local_addr().unwrap();
        let name = format!("{place}/pinned@{}", digest(&self.manifest));
        let registry = Arc::new(self);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let registry = Arc::clone(&registry);
                let answer = service_fn(move |request: Request<Incoming>| {
                    let answer = registry.answer(request.uri().path());
                    async move { Ok::<_, Infallible>(answer) }
                });
                let server = hyper::server::conn::http1::Builder::new();
                tokio::spawn(server.serve_connection(TokioIo::new(stream), answer));
            }
        });
        name
    }

    fn answer(&self, path: &str) -> Response<Full<Bytes>> {
        let answer = Response::builder();
        let known = [&self.manifest].into_iter().chain(&self.blobs);
        let found = known.into_iter().find(|bytes| path.ends_with(&digest(bytes)));
        match found {
            Some(bytes) if bytes == &self.manifest => answer
                .header("content-type", "application/vnd.oci.image.manifest.v1+json")
                .header("docker-content-digest", digest(bytes)),
            Some(_) => answer,
            None if path == "/v2/" => answer,
            None => answer.status(404),
        }
        .body(Full::new(Bytes::from(found.cloned().unwrap_or_default())))
        .unwrap()
    }
}

/// Starts containerd below a host's root, and waits until it serves.
pub async fn containerd(program: &Path, root: &Path) -> Child {
    // Where containerd says that its images are: on the machine, not below this host's root.
    let first = root.components().nth(1).unwrap();
    std::os::unix::fs::symlink(Path::new("/").join(first), root.join(first)).unwrap();
    let run = root.join("run/containerd");
    std::fs::create_dir_all(&run).unwrap();
    let config = format!(
        "version = 2\nroot = \"{0}/var/lib/containerd\"\nstate = \"{0}/run/containerd/state\"\n\
         disabled_plugins = [\"io.containerd.internal.v1.opt\", \"io.containerd.nri.v1.nri\"]\n\
         [grpc]\n  address = \"{0}/run/containerd/containerd.sock\"\n\
         [plugins.\"io.containerd.grpc.v1.cri\"]\n  disable_apparmor = true\n\
         [plugins.\"io.containerd.grpc.v1.cri\".containerd]\n    snapshotter = \"native\"\n",
        root.display()
    );
    let file = run.join("config.toml");
    std::fs::write(&file, config).unwrap();
    let mut child = Command::new(program)
        .arg("--config")
        .arg(file)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let served =
        async { while !lines.next_line().await.unwrap().unwrap().contains("successfully booted") {} };
    tokio::time::timeout(LIMIT, served).await.unwrap();
    // Nobody is to wait for a reader.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    child
}
