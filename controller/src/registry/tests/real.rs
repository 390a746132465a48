//! Debian's docker-registry.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use reqwest::Url;

use super::*;

const PROGRAM: &str = "/usr/bin/docker-registry";
const PASSWORD: &str = "sandbox-password";
/// `sandbox` and its password, with bcrypt of cost 5.
const HTPASSWD: &str = "sandbox:$2y$05$abcdefghijklmnopqrstuuTPHCjDv7wlHzVGkCj1wvmvMc9m6iDlK\n";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Settings of a started registry.
#[derive(Default, Clone, Copy)]
struct Settings<'a> {
    account: bool,
    deletes: bool,
    /// Certificate and key.
    tls: Option<(&'a str, &'a str)>,
}

struct Registry {
    _directory: tempfile::TempDir,
    child: Child,
    address: String,
}

impl Drop for Registry {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Registry {
    /// Starts one; none where there is no such program, which is said.
    fn new(test: &str, settings: Settings<'_>) -> Option<Self> {
        if !Path::new(PROGRAM).exists() {
            ran::not_run(test, "docker-registry");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().display();
        let mut text = format!(
            "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {place}/storage}}, delete: {{enabled: {}}}}}\n",
            settings.deletes
        );
        if settings.account {
            std::fs::write(directory.path().join("htpasswd"), HTPASSWD).unwrap();
            text += &format!("auth: {{htpasswd: {{realm: sandbox, path: {place}/htpasswd}}}}\n");
        }
        let tls = settings.tls.map(|(certificate, key)| {
            std::fs::write(directory.path().join("crt"), certificate).unwrap();
            std::fs::write(directory.path().join("key"), key).unwrap();
            format!(", tls: {{certificate: {place}/crt, key: {place}/key}}")
        });
        text += &format!("http: {{addr: '127.0.0.1:0'{}}}\n", tls.unwrap_or_default());
        let config = directory.path().join("config.yml");
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new(PROGRAM);
        command.arg("serve").arg(&config).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let ready = lines.find(|line| line.as_ref().unwrap().contains("listening on ")).unwrap().unwrap();
        let address = ready.split("listening on ").nth(1).unwrap();
        let address = address.split([' ', '"', ',']).next().unwrap().to_owned();
        // Its log goes on; a pipe that nobody reads would stop it.
        std::thread::spawn(move || lines.for_each(drop));
        Some(Self { _directory: directory, child, address })
    }

    fn client(&self) -> Client {
        Client::new(Options { insecure: vec![self.address.clone()], trust: Vec::new() })
    }

    /// Pushes an image without layers; returns its digest.
    async fn push(&self, http: &reqwest::Client, scheme: &str, name: &str, tag: &str) -> String {
        let root = format!("{scheme}://{}/v2/{name}", self.address);
        let config = "{}";
        let digest = |text: &str| format!("sha256:{:x}", Sha256::digest(text.as_bytes()));
        let send = |request: reqwest::RequestBuilder| async {
            let answer = request.basic_auth("sandbox", Some(PASSWORD)).send().await.unwrap();
            assert!(answer.status().is_success(), "{answer:?}");
            answer
        };
        let upload = send(http.post(format!("{root}/blobs/uploads/"))).await;
        let mut place = Url::parse(upload.headers()["location"].to_str().unwrap()).unwrap();
        place.query_pairs_mut().append_pair("digest", &digest(config));
        send(http.put(place).body(config)).await;
        let manifest = serde_json::json!({ "schemaVersion": 2, "mediaType": MANIFEST, "layers": [],
            "config": { "mediaType": "application/vnd.oci.image.config.v1+json", "size": 2, "digest": digest(config) } })
        .to_string();
        let put = http.put(format!("{root}/manifests/{tag}")).header("Content-Type", MANIFEST);
        send(put.body(manifest.clone())).await;
        digest(&manifest)
    }
}

fn http() -> reqwest::Client {
    drop(rustls::crypto::ring::default_provider().install_default());
    reqwest::Client::builder().no_proxy().danger_accept_invalid_certs(true).build().unwrap()
}

#[tokio::test]
async fn image_is_found_and_deleted_with_account() {
    let settings = Settings { account: true, deletes: true, tls: None };
    let Some(registry) = Registry::new("image_is_found_and_deleted_with_account", settings) else { return };
    let (client, at) = (registry.client(), registry.address.clone());
    let credentials = account(&at, "sandbox", PASSWORD);
    let pushed = registry.push(&http(), "http", "a/os", "build-1").await;
    let (by_tag, by_digest) = (format!("{at}/a/os:build-1"), format!("{at}/a/os@{pushed}"));
    for image in [&by_tag, &by_digest] {
        assert_eq!(client.find(image, &credentials).await.unwrap().as_ref(), Some(&pushed));
    }
    assert_eq!(client.find(&format!("{at}/a/os:other"), &credentials).await.unwrap(), None);
    assert_eq!(client.find(&format!("{at}/nothing:1"), &credentials).await.unwrap(), None);

    assert!(client.refusal(&by_tag, &credentials).await.unwrap().is_none());
    for wrong in
        [Credentials::default(), account(&at, "sandbox", "wr0ng"), account("r.example", "sandbox", PASSWORD)]
    {
        let found = client.refusal(&by_tag, &wrong).await.unwrap();
        assert!(matches!(found, Some(Failure::Denied { status: 401, .. })), "{found:?}");
        let found = client.find(&by_digest, &wrong).await.unwrap_err();
        assert!(matches!(found, Failure::Denied { status: 401, .. }), "{found}");
        assert!(!found.to_string().contains("wr0ng"), "{found}");
        let found = client.remove(&by_digest, &wrong).await.unwrap_err();
        assert!(matches!(found, Failure::Denied { status: 401, .. }), "{found}");
    }

    // Also once more.
    for image in [&by_tag, &by_tag, &by_digest] {
        client.remove(image, &credentials).await.unwrap();
        assert_eq!(client.find(&by_tag, &credentials).await.unwrap(), None);
        assert_eq!(client.find(&by_digest, &credentials).await.unwrap(), None);
    }
}

#[tokio::test]
async fn registry_that_deletes_nothing_is_named() {
    let Some(registry) = Registry::new("registry_that_deletes_nothing_is_named", Settings::default()) else {
        return;
    };
    let image = format!("{}/os@{}", registry.address, registry.push(&http(), "http", "os", "1").await);
    let found = registry.client().remove(&image, &Credentials::default()).await.unwrap_err();
    assert!(matches!(found, Failure::DeletionOff { .. }) && found.retry() == Retry::OnChange, "{found}");
    assert!(registry.client().find(&image, &Credentials::default()).await.unwrap().is_some());
}

#[tokio::test]
async fn certificate_is_checked() {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let settings = Settings { tls: Some((&certificate, &key)), ..Settings::default() };
    let Some(registry) = Registry::new("certificate_is_checked", settings) else { return };
    let pushed = registry.push(&http(), "https", "os", "1").await;
    let image = format!("{}/os:1", registry.address);
    let find = |trust: &[u8]| {
        let (client, image) =
            (Client::new(Options { insecure: Vec::new(), trust: trust.to_vec() }), image.clone());
        async move { client.find(&image, &Credentials::default()).await }
    };
    assert_eq!(find(certificate.as_bytes()).await.unwrap(), Some(pushed));
    let found = find(b"").await.unwrap_err();
    assert!(
        matches!(found, Failure::Unreachable { .. }) && found.to_string().contains("certificate"),
        "{found}"
    );
    let found = find(b"-----BEGIN CERTIFICATE-----\nrubbish\n-----END CERTIFICATE-----\n").await.unwrap_err();
    assert!(matches!(found, Failure::Trust { .. }), "{found}");
}
