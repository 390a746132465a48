//! Images in OCI layout: a new one from an old one and one more layer, as a container build with one `COPY` makes it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::{IMAGES, SandboxError};
use crate::model::{ImageRef, Sha256};

/// The annotation of the index that holds a tag.
const TAG: &str = "org.opencontainers.image.ref.name";

/// A layer that is not compressed has one digest instead of two.
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// The type of a link, in a mode.
pub const LINK: u32 = 0o120_000;

/// The type of a directory, in a mode.
pub const DIRECTORY: u32 = 0o040_000;

/// One file of a layer, below the root of the image.
#[derive(Debug, Clone)]
pub struct LayerFile {
    /// The path, for instance `etc/motd`.
    pub path: String,
    /// Permission bits; with [`LINK`] it is a link, with [`DIRECTORY`] an empty directory.
    pub mode: u32,
    /// The bytes, or the text of a link.
    pub contents: Vec<u8>,
}

/// Returns the name that an image has inside.
pub(super) fn name(digest: Sha256) -> Result<ImageRef, SandboxError> {
    let text = format!("oci:{IMAGES}@sha256:{digest}");
    ImageRef::parse(&text).map_err(|e| SandboxError::NoImage(e.to_string()))
}

/// Adds an image: `base` with one layer more and other labels.
pub(super) fn derive(
    layout: &Path,
    base: Sha256,
    tag: &str,
    files: &[LayerFile],
    labels: &BTreeMap<String, String>,
) -> Result<Sha256, SandboxError> {
    let mut manifest = read(layout, base)?;
    let config = manifest.pointer("/config/digest").and_then(Value::as_str).and_then(parse);
    let mut config = read(layout, config.ok_or_else(|| SandboxError::NoImage(base.to_string()))?)?;

    let layer = archive(files);
    let layer_digest = write(layout, &layer)?;
    push(&mut config, "/rootfs/diff_ids", json!(format!("sha256:{layer_digest}")));
    push(&mut config, "/history", json!({"created_by": "sandbox"}));
    let entries = labels.iter().map(|(k, v)| (k.clone(), json!(v)));
    if let Some(all) = config.pointer_mut("/config/Labels").and_then(Value::as_object_mut) {
        all.extend(entries);
    } else if let Some(section) = config.pointer_mut("/config").and_then(Value::as_object_mut) {
        section.insert("Labels".to_owned(), Value::Object(entries.collect::<Map<_, _>>()));
    }

    let text = config.to_string();
    push(&mut manifest, "/layers", descriptor(LAYER, layer_digest, layer.len()));
    if let Some(entry) = manifest.pointer_mut("/config") {
        *entry = descriptor(
            "application/vnd.oci.image.config.v1+json",
            write(layout, text.as_bytes())?,
            text.len(),
        );
    }
    let text = manifest.to_string();
    let digest = write(layout, text.as_bytes())?;
    let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", digest, text.len());
    if let Some(entry) = entry.as_object_mut() {
        entry.insert("annotations".to_owned(), json!({TAG: tag}));
    }
    tagged(layout, tag, entry)?;
    Ok(digest)
}

/// Returns the image with a tag.
pub(super) fn find(layout: &Path, tag: &str) -> Result<Sha256, SandboxError> {
    let index = index(layout)?;
    let entries = index.pointer("/manifests").and_then(Value::as_array).into_iter().flatten();
    entries
        .filter(|entry| tag_of(entry) == Some(tag))
        .find_map(|entry| parse(entry.get("digest")?.as_str()?))
        .ok_or_else(|| SandboxError::NoImage(tag.to_owned()))
}

fn tag_of(entry: &Value) -> Option<&str> {
    entry.get("annotations")?.get(TAG)?.as_str()
}

/// Puts an entry into the index, in place of one with the same tag.
fn tagged(layout: &Path, tag: &str, entry: Value) -> Result<(), SandboxError> {
    let mut index = index(layout)?;
    if let Some(entries) = index.pointer_mut("/manifests").and_then(Value::as_array_mut) {
        entries.retain(|entry| tag_of(entry) != Some(tag));
        entries.push(entry);
    }
    let (path, new) = (layout.join("index.json"), layout.join("index.json.new"));
    fs::write(&new, index.to_string())
        .and_then(|()| fs::rename(&new, &path))
        .map_err(|e| SandboxError::io("write", path, e))
}

fn descriptor(media_type: &str, digest: Sha256, size: usize) -> Value {
    json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": size})
}

fn parse(digest: &str) -> Option<Sha256> {
    Sha256::parse(digest.strip_prefix("sha256:")?).ok()
}

fn push(value: &mut Value, pointer: &str, item: Value) {
    if let Some(list) = value.pointer_mut(pointer).and_then(Value::as_array_mut) {
        list.push(item);
    }
}

fn index(layout: &Path) -> Result<Value, SandboxError> {
    let path = layout.join("index.json");
    let bytes = fs::read(&path).map_err(|e| SandboxError::io("read", &path, e))?;
    serde_json::from_slice(&bytes).map_err(|e| SandboxError::Damaged { path, cause: e.to_string() })
}

fn read(layout: &Path, digest: Sha256) -> Result<Value, SandboxError> {
    let bytes = fs::read(layout.join("blobs/sha256").join(digest.to_string()))
        .map_err(|_| SandboxError::NoImage(digest.to_string()))?;
    serde_json::from_slice(&bytes)
        .map_err(|e| SandboxError::Damaged { path: layout.to_owned(), cause: format!("blob {digest}: {e}") })
}

fn write(layout: &Path, bytes: &[u8]) -> Result<Sha256, SandboxError> {
    let digest = Sha256::digest(bytes);
    let path = layout.join("blobs/sha256").join(digest.to_string());
    fs::write(&path, bytes).map_err(|e| SandboxError::io("write", path, e))?;
    Ok(digest)
}

/// Makes a tar archive of files, links and their directories, in the order given.
fn archive(files: &[LayerFile]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut made = std::collections::BTreeSet::new();
    for file in files {
        let path = file.path.trim_start_matches('/');
        for (at, _) in path.match_indices('/') {
            let directory = path.get(..=at).unwrap_or_default();
            if made.insert(directory.to_owned()) {
                out.extend(extension(directory));
                out.extend(header(directory, 0o755, 0, b'5'));
            }
        }
        out.extend(extension(path));
        if file.mode & LINK == LINK {
            out.extend(link(path, &file.contents));
            continue;
        }
        if file.mode & DIRECTORY == DIRECTORY {
            let path = format!("{path}/");
            out.extend(header(&path, file.mode & 0o7777, 0, b'5'));
            made.insert(path);
            continue;
        }
        out.extend(header(path, file.mode, file.contents.len(), b'0'));
        out.extend(&file.contents);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    // Two empty blocks end an archive.
    out.resize(out.len() + 1024, 0);
    out
}

/// The PAX header of a name that the plain one can't hold, as builders of images write it: not ASCII, or too long to be split.
fn extension(name: &str) -> Vec<u8> {
    let fits = name.is_ascii() && (name.len() <= 100 || cut(name).is_some());
    if fits {
        return Vec::new();
    }
    // The length counts its own digits.
    let record = |length: usize| format!("{length} path={name}\n");
    let mut length = record(0).len();
    while record(length).len() != length {
        length = record(length).len();
    }
    let record = record(length).into_bytes();
    let mut out = entry("PaxHeaders.0/entry", 0o644, record.len(), b'x', &[]).to_vec();
    out.extend(&record);
    out.resize(out.len().next_multiple_of(512), 0);
    out
}

/// Returns where a name of more than 100 bytes is split.
fn cut(name: &str) -> Option<usize> {
    name.match_indices('/').map(|(at, _)| at).find(|at| *at <= 155 && name.len() - at <= 101)
}

/// One ustar header. A name of more than 100 bytes is split at a `/`: the first part has a field of its own.
fn header(name: &str, mode: u32, size: usize, kind: u8) -> [u8; 512] {
    entry(name, mode, size, kind, &[])
}

/// The header of a link.
fn link(name: &str, target: &[u8]) -> [u8; 512] {
    entry(name, 0o777, 0, b'2', target)
}

fn entry(name: &str, mode: u32, size: usize, kind: u8, target: &[u8]) -> [u8; 512] {
    let mut block = [0_u8; 512];
    let mut put = |at: usize, bytes: &[u8]| {
        for (place, byte) in block.iter_mut().skip(at).zip(bytes) {
            *place = *byte;
        }
    };
    let cut = if name.len() <= 100 { None } else { cut(name) };
    let (prefix, name) =
        cut.and_then(|at| Some((name.get(..at)?, name.get(at + 1..)?))).unwrap_or(("", name));
    put(0, name.as_bytes().get(..100).unwrap_or(name.as_bytes()));
    put(345, prefix.as_bytes());
    put(100, format!("{mode:07o}\0{:07o}\0{:07o}\0{size:011o}\0{:011o}\0", 0, 0, 0).as_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    put(157, target.get(..100).unwrap_or(target));
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    for (place, byte) in block.iter_mut().skip(148).zip(format!("{sum:06o}\0 ").as_bytes()) {
        *place = *byte;
    }
    block
}
