//! Verdicts of an API server on the metadata of an object, which no schema holds: `ValidateObjectMeta` of k8s.io/apimachinery. As at a
//! creation: what the server then sets itself (generation, times, uid) is left out.

use std::collections::BTreeSet;

use machine_config_core::model::ids::is_dns_subdomain;
use machine_config_core::model::short;
use serde_json::{Map, Value};

/// The longest name of a qualified name, and the longest value of a label.
const MAX_LABEL: usize = 63;

/// Most bytes of all annotations of an object.
const MAX_ANNOTATIONS: usize = 256 << 10;

/// The longest key or value that an error shows.
const MAX_SHOWN: usize = 100;

const KEY: &str = "write it as NAME or DOMAIN/NAME, with NAME at most 63 of A-Z a-z 0-9 . _ - that begins and ends with a letter or a \
                   digit";
const LABEL_VALUE: &str =
    "write at most 63 of A-Z a-z 0-9 . _ - that begin and end with a letter or a digit, or nothing";

/// Returns fields of the metadata that the API server refuses, and causes. What is of another type is left to the reader.
pub(super) fn faults(object: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let Some(metadata) = object.get("metadata").and_then(Value::as_object) else { return found };
    let mut add = |field: String, cause: String| found.push((format!("metadata.{field}"), cause));
    for (key, value) in map(metadata, "labels") {
        if !is_qualified(key) {
            add("labels".to_owned(), format!("{:?} is not a label key; {KEY}", short(key, MAX_SHOWN)));
        }
        if let Some(value) = value.as_str().filter(|value| !value.is_empty() && !is_name(value)) {
            let (key, value) = (short(key, MAX_SHOWN), short(value, MAX_SHOWN));
            add("labels".to_owned(), format!("{value:?} of {key:?} is not a label value; {LABEL_VALUE}"));
        }
    }
    let prefix = metadata.get("generateName").and_then(Value::as_str).unwrap_or_default();
    if !prefix.is_empty() && !is_dns_subdomain(&format!("{prefix}a")) {
        let cause = format!("{:?} is not a name prefix; remove it", short(prefix, MAX_SHOWN));
        add("generateName".to_owned(), cause);
    }
    let mut bytes = 0;
    for (key, value) in map(metadata, "annotations") {
        // Their keys may have capitals in the domain.
        if !is_qualified(&key.to_lowercase()) {
            let key = short(key, MAX_SHOWN);
            add("annotations".to_owned(), format!("{key:?} is not an annotation key; {KEY}"));
        }
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > MAX_ANNOTATIONS {
        let cause = format!("they have {bytes} bytes, and may have {MAX_ANNOTATIONS}; shorten them");
        add("annotations".to_owned(), cause);
    }
    finalizers(metadata, &mut add);
    owners(metadata, &mut add);
    found
}

fn finalizers(metadata: &Map<String, Value>, add: &mut impl FnMut(String, String)) {
    let names: BTreeSet<&str> = list(metadata, "finalizers").filter_map(Value::as_str).collect();
    for name in names.iter().filter(|name| !is_qualified(name)) {
        add("finalizers".to_owned(), format!("{:?} is not a finalizer name; {KEY}", short(name, MAX_SHOWN)));
    }
    if names.contains("orphan") && names.contains("foregroundDeletion") {
        let cause = "orphan and foregroundDeletion exclude each other; remove one of them";
        add("finalizers".to_owned(), cause.to_owned());
    }
}

fn owners(metadata: &Map<String, Value>, add: &mut impl FnMut(String, String)) {
    let mut controllers = 0;
    for (place, owner) in list(metadata, "ownerReferences").enumerate() {
        let Some(owner) = owner.as_object() else { continue };
        let text = |field: &str| owner.get(field).and_then(Value::as_str).unwrap_or_default();
        for field in ["apiVersion", "kind", "name", "uid"] {
            // One of another type is the reader's.
            let is_text = owner.get(field).is_none_or(|value| value.is_null() || value.is_string());
            let is_empty =
                if field == "apiVersion" { !has_version(text(field)) } else { text(field).is_empty() };
            if is_text && is_empty {
                let cause = "it names nothing; copy it from the owner, or remove the reference".to_owned();
                add(format!("ownerReferences[{place}].{field}"), cause);
            }
        }
        if (text("apiVersion"), text("kind")) == ("v1", "Event") {
            let cause = "an Event can own nothing; remove the reference".to_owned();
            add(format!("ownerReferences[{place}]"), cause);
        }
        controllers += usize::from(owner.get("controller").and_then(Value::as_bool).unwrap_or_default());
    }
    if controllers > 1 {
        let cause = format!("{controllers} have controller: true; an object has one controller");
        add("ownerReferences".to_owned(), cause);
    }
}

fn map<'a>(metadata: &'a Map<String, Value>, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    metadata.get(field).and_then(Value::as_object).into_iter().flatten()
}

fn list<'a>(metadata: &'a Map<String, Value>, field: &str) -> impl Iterator<Item = &'a Value> {
    metadata.get(field).and_then(Value::as_array).into_iter().flatten()
}

/// Returns true for `VERSION` and `GROUP/VERSION`.
fn has_version(text: &str) -> bool {
    let version = text.split_once('/').map_or(text, |(_, version)| version);
    !version.is_empty() && !version.contains('/')
}

/// Returns true for `NAME` and `DOMAIN/NAME`.
fn is_qualified(key: &str) -> bool {
    match key.split_once('/') {
        Some((domain, name)) => is_dns_subdomain(domain) && is_name(name),
        None => is_name(key),
    }
}

fn is_name(name: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    let is_of_it = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    bytes.len() <= MAX_LABEL && ends(bytes.first()) && ends(bytes.last()) && bytes.iter().all(is_of_it)
}
