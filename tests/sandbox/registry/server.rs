//! A registry for tests: Debian's `docker-registry` as a child on a port of its own.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use machine_config_agent::model::{ImageRef, Sha256};
use serde_json::{Value, json};

const PROGRAM: &str = "/usr/bin/docker-registry";

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Far more than the registry takes for one line; a test that reaches it has failed.
const TIMEOUT: Duration = Duration::from_secs(120);

pub const USER: &str = "sandbox";
pub const PASSWORD: &str = "sandbox-password";

/// `USER` and `PASSWORD` with bcrypt of cost 5.
const HTPASSWD: &str = "sandbox:$2y$05$abcdefghijklmnopqrstuuTPHCjDv7wlHzVGkCj1wvmvMc9m6iDlK\n";

pub struct Registry {
    // The directory is removed with it.
    dir: tempfile::TempDir,
    auth: bool,
    child: Option<Child>,
    lines: Receiver<String>,
    pub address: String,
}

pub fn is_here() -> bool {
    Path::new(PROGRAM).exists()
}

impl Registry {
    /// Starts one that anybody may use, or only [`USER`].
    pub fn start(auth: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("htpasswd"), HTPASSWD).unwrap();
        let (_, lines) = channel();
        let mut registry = Self { dir, auth, child: None, lines, address: "127.0.0.1:0".to_owned() };
        registry.start_again();
        registry
    }

    /// Starts it at the address it had.
    pub fn start_again(&mut self) {
        let dir = self.dir.path().display();
        let config = self.dir.path().join("config.yml");
        let mut text = format!(
            "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {dir}/storage}}}}\nhttp: {{addr: '{}'}}\n",
            self.address
        );
        if self.auth {
            text += &format!("auth: {{htpasswd: {{realm: sandbox, path: {dir}/htpasswd}}}}\n");
        }
        std::fs::write(&config, text).unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let mut command = Command::new(PROGRAM);
        command.arg("serve").arg(&config).stdout(writer.try_clone().unwrap()).stderr(writer);
        self.child = Some(command.spawn().unwrap());
        let (sender, lines) = channel();
        // It ends with the pipe, or when the receiver is gone.
        std::thread::spawn(move || {
            BufReader::new(reader).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        self.lines = lines;
        let ready = self.lines_until("listening on ").pop().unwrap();
        let address = ready.split("listening on ").nth(1).unwrap();
        address.split([' ', '"', ',']).next().unwrap().clone_into(&mut self.address);
    }

    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    fn lines_until(&self, mark: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let line = self.lines.recv_timeout(TIMEOUT).unwrap_or_else(|e| panic!("{mark}: {e}: {lines:#?}"));
            lines.push(line);
            if lines.last().unwrap().contains(mark) {
                return lines;
            }
        }
    }

    /// Returns how many blobs were fetched since it was last asked.
    pub fn blobs_fetched(&self) -> usize {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "GET /v2/?mark HTTP/1.0\r\n\r\n").unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
        let lines = self.lines_until("GET /v2/?mark");
        lines.iter().filter(|line| line.contains("\"GET /v2/") && line.contains("/blobs/sha256:")).count()
    }

    /// Puts a manifest list with images of this registry, each for an architecture; returns its name.
    pub fn list(&self, images: &[(&ImageRef, &str)]) -> ImageRef {
        let entries: Vec<Value> = images
            .iter()
            .map(|(image, architecture)| {
                let digest = format!("sha256:{}", image.digest());
                let blob = self.ask("GET", &format!("manifests/{digest}"), "");
                json!({"mediaType": MANIFEST, "digest": digest, "size": blob.len(),
                    "platform": {"architecture": architecture, "os": "linux"}})
            })
            .collect();
        let index = "application/vnd.oci.image.index.v1+json";
        let list = json!({"schemaVersion": 2, "mediaType": index, "manifests": entries}).to_string();
        let digest = Sha256::digest(list.as_bytes());
        let headers = format!("Content-Type: {index}\r\nContent-Length: {}\r\n\r\n{list}", list.len());
        self.ask("PUT", &format!("manifests/sha256:{digest}"), &headers);
        ImageRef::parse(&format!("{}/os/sandbox@sha256:{digest}", self.address)).unwrap()
    }

    /// Asks for something of the repository of images; returns the body of the answer.
    fn ask(&self, verb: &str, what: &str, more: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let end = if more.is_empty() { "\r\n" } else { more };
        write!(stream, "{verb} /v2/os/sandbox/{what} HTTP/1.0\r\nAccept: {MANIFEST}\r\n{end}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(" 200 ") || head.contains(" 201 "), "{answer}");
        body.to_owned()
    }

    /// Pushes an image of a layout under a tag, as it is; returns the name by which it is pulled.
    pub fn push(&self, layout: &Path, tag: &str, image: &ImageRef, as_tag: &str) -> ImageRef {
        let mut command = Command::new("skopeo");
        command.args(["--insecure-policy", "copy", "--preserve-digests", "--dest-tls-verify=false"]);
        if self.auth {
            command.arg(format!("--dest-creds={USER}:{PASSWORD}"));
        }
        let name = format!("{}/os/sandbox", self.address);
        command.arg(format!("oci:{}:{tag}", layout.display())).arg(format!("docker://{name}:{as_tag}"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        ImageRef::parse(&format!("{name}@sha256:{}", image.digest())).unwrap()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.stop();
    }
}
