//! Digests of contents that were replaced. The Machine Config Operator's merge takes the new source of a file and keeps the digest
//! of the old one: no node fails for that, and a new machine must not get it.

use ignition_config::v3_6::Resource;
use serde::Deserialize as _;
use serde_json::Value;

use super::super::decode::Decoder;
use super::super::text::short;
use super::super::{NotApplied, NotAppliedReason};

/// Returns the remark on a file.
pub(super) fn stale(path: &str) -> NotApplied {
    let field = format!("storage.files {:?} contents.verification.hash", short(path, 200));
    let message = "it does not match the contents and is ignored; correct or remove it in its MachineConfig";
    NotApplied::new(field, NotAppliedReason::Stale, message)
}

/// Removes the digests of files that are not those of their contents, and names them. A file that can't be decoded is left to the
/// reader.
pub fn drop_stale_digests(config: &mut Value) -> Vec<NotApplied> {
    let mut dropped = Vec::new();
    let files = config.pointer_mut("/storage/files").and_then(Value::as_array_mut);
    for file in files.into_iter().flatten() {
        let Some(contents) = file.get("contents").filter(|one| one.pointer("/verification/hash").is_some())
        else {
            continue;
        };
        let resource = Resource::deserialize(contents).ok();
        let decoded = resource.and_then(|resource| Decoder::default().decode(Some(&resource)).ok());
        if !decoded.is_some_and(|decoded| decoded.is_stale) {
            continue;
        }
        dropped.push(stale(file.get("path").and_then(Value::as_str).unwrap_or_default()));
        if let Some(contents) = file.get_mut("contents").and_then(Value::as_object_mut) {
            contents.remove("verification");
        }
    }
    dropped
}
