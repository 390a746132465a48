//! The image of a seed, as a directory in OCI layout: from scratch, or the layers of the booted image and one more.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use ostree_ext::oci_spec::image::Descriptor;
use serde_json::{Map, Value, json};
use tokio::io::AsyncReadExt as _;

use super::super::super::super::error::{OsError, OsErrorKind};
use super::super::super::super::worker::protocol::Secret;
use super::super::super::image::{Source, pull_failed};
use super::super::failure::unpack_failed;
use crate::model::{ImageRef, Sha256};

/// The layout in the directory of a seed in the making.
const LAYOUT: &str = "image";

/// Manifest and config of the booted image.
const BASE_MANIFEST: &str = "base-manifest.json";
const BASE_CONFIG: &str = "base-config.json";

/// A layer that is not compressed has one digest instead of two.
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// Bytes that are moved from a registry to the disk at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Returns the path of a blob.
fn blob(directory: &Path, digest: &str) -> PathBuf {
    directory.join(LAYOUT).join("blobs/sha256").join(digest)
}

fn make_layout(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory.join(LAYOUT).join("blobs/sha256"))
}

/// Fetches the booted image: its layers as they are at their source, where skopeo holds each against its digest.
pub(in super::super) async fn fetch_base(
    directory: &Path,
    image: &ImageRef,
    credentials: Option<&Secret>,
    progress: &dyn Fn(String, Option<u8>),
) -> Result<(), OsError> {
    let written = |error: io::Error| unpack_failed(&directory.display().to_string(), &error);
    make_layout(directory).map_err(written)?;
    let open = Source::new(image, credentials)?.open(image).await?;
    let (_, manifest) = open.proxy.fetch_manifest(&open.image).await.map_err(|e| pull_failed(image, e))?;
    let config = open.proxy.fetch_config_raw(&open.image).await.map_err(|e| pull_failed(image, e))?;
    let total: u64 = manifest.layers().iter().map(Descriptor::size).sum();
    let mut done = 0;
    for layer in manifest.layers() {
        let digest = layer.digest().digest();
        let (mut bytes, finished) = open
            .proxy
            .get_blob(&open.image, layer.digest(), layer.size())
            .await
            .map_err(|e| pull_failed(image, e))?;
        let mut file = File::create(blob(directory, digest)).map_err(written)?;
        let copy = async {
            let mut chunk = vec![0; CHUNK_BYTES];
            loop {
                let read = bytes.read(&mut chunk).await.map_err(|e| pull_failed(image, e))?;
                if read == 0 {
                    break;
                }
                file.write_all(chunk.get(..read).unwrap_or_default()).map_err(written)?;
                done += u64::try_from(read).unwrap_or_default();
                let percent = (done.min(total) * 100).checked_div(total).and_then(|p| u8::try_from(p).ok());
                progress("fetching the booted image".to_owned(), percent);
            }
            drop(bytes);
            Ok(())
        };
        let (copied, finished) = tokio::join!(copy, finished);
        copied?;
        finished.map_err(|e| pull_failed(image, e))?;
    }
    let manifest = serde_json::to_vec(&manifest).map_err(super::super::super::failed::failed)?;
    fs::write(directory.join(BASE_MANIFEST), manifest)
        .and_then(|()| fs::write(directory.join(BASE_CONFIG), &config))
        .map_err(written)
}

/// Puts the image together; returns the digest of its manifest.
pub(super) fn assemble(
    directory: &Path,
    layer: (&Path, Sha256, u64),
    labels: &BTreeMap<String, String>,
    is_on_base: bool,
) -> Result<Sha256, OsError> {
    let written = |error: io::Error| unpack_failed(&directory.display().to_string(), &error);
    let (path, digest, size) = layer;
    make_layout(directory)
        .and_then(|()| fs::rename(path, blob(directory, &digest.to_string())))
        .map_err(written)?;
    let base = |name: &str| -> Result<Value, OsError> {
        let bytes = fs::read(directory.join(name)).map_err(written)?;
        let unread = |error: serde_json::Error| {
            OsError::new(OsErrorKind::PullFailed, name, format!("it can't be read: {error}"))
        };
        serde_json::from_slice(&bytes).map_err(unread)
    };
    let (mut manifest, mut config) = if is_on_base {
        (base(BASE_MANIFEST)?, base(BASE_CONFIG)?)
    } else {
        (json!({"layers": []}), json!({"rootfs": {"type": "layers", "diff_ids": []}}))
    };
    extend_config(&mut config, digest, labels, is_on_base);
    let config = config.to_string();
    push(&mut manifest, "/layers", descriptor(LAYER, digest, size));
    let config_digest = put(directory, config.as_bytes()).map_err(written)?;
    let kind = "application/vnd.oci.image.config.v1+json";
    set(&mut manifest, "config", descriptor(kind, config_digest, length(config.as_bytes())));
    set(&mut manifest, "schemaVersion", json!(2));
    let kind = "application/vnd.oci.image.manifest.v1+json";
    set(&mut manifest, "mediaType", json!(kind));
    let manifest = manifest.to_string();
    let digest = put(directory, manifest.as_bytes()).map_err(written)?;
    let mut entry = descriptor(kind, digest, length(manifest.as_bytes()));
    set(&mut entry, "annotations", json!({"org.opencontainers.image.ref.name": "seed"}));
    let index = json!({"schemaVersion": 2, "manifests": [entry]}).to_string();
    let layout = directory.join(LAYOUT);
    fs::write(layout.join("oci-layout"), json!({"imageLayoutVersion": "1.0.0"}).to_string())
        .and_then(|()| fs::write(layout.join("index.json"), index))
        .map_err(written)?;
    Ok(digest)
}

fn extend_config(config: &mut Value, layer: Sha256, labels: &BTreeMap<String, String>, is_on_base: bool) {
    if !is_on_base {
        set(config, "architecture", json!(architecture()));
        set(config, "os", json!("linux"));
    }
    push(config, "/rootfs/diff_ids", json!(format!("sha256:{layer}")));
    if config.get("history").is_some_and(Value::is_array) {
        push(config, "/history", json!({"created_by": "machine-config-agent"}));
    }
    if !config.get("config").is_some_and(Value::is_object) {
        set(config, "config", json!({}));
    }
    let Some(section) = config.get_mut("config") else { return };
    let mut all: Map<String, Value> =
        section.get("Labels").and_then(Value::as_object).cloned().unwrap_or_default();
    all.extend(labels.iter().map(|(key, value)| (key.clone(), json!(value))));
    set(section, "Labels", Value::Object(all));
}

/// Returns the name that images have for this machine's architecture.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

fn put(directory: &Path, bytes: &[u8]) -> io::Result<Sha256> {
    let digest = Sha256::digest(bytes);
    fs::write(blob(directory, &digest.to_string()), bytes)?;
    Ok(digest)
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

fn descriptor(kind: &str, digest: Sha256, size: u64) -> Value {
    json!({"mediaType": kind, "digest": format!("sha256:{digest}"), "size": size})
}

fn set(value: &mut Value, key: &str, item: Value) {
    if let Some(object) = value.as_object_mut() {
        object.insert(key.to_owned(), item);
    }
}

fn push(value: &mut Value, pointer: &str, item: Value) {
    if let Some(list) = value.pointer_mut(pointer).and_then(Value::as_array_mut) {
        list.push(item);
    }
}
