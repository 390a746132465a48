//! A source with its compression, digest and headers.

use ignition_config::v3_6::{HttpHeaders, Resource};

use super::found::{Found, filled};
use super::url::{self, Url};
use crate::model::data_url::DataUrl;
use crate::model::text::short;

/// Knowledge of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// It may be missing.
    Optional,
    /// It may not be missing.
    Required,
    /// The reader of files decodes it, and refuses all but data URLs.
    OfFile,
}

pub(super) fn check(found: &mut Found, field: &str, resource: &Resource, source: Source, minor: u32) {
    // In 3.0, the sources of other configs and of certificates have none.
    let has_compression = minor >= 1 || source == Source::OfFile;
    let compression = filled(resource.compression.as_ref()).filter(|name| has_compression && *name != "gzip");
    if let Some(compression) = compression {
        let cause = format!("{:?} is not supported; use gzip or none", short(compression, 40));
        found.add(format!("{field} compression"), cause);
    }
    if let Some(hash) = resource.verification.as_ref().and_then(|verification| verification.hash.as_deref()) {
        let cause = if resource.source.is_none() {
            Some("there is no source to verify; write one or remove it")
        } else {
            None
        };
        found.add_some(cause.or_else(|| broken_hash(hash, minor)), || format!("{field} verification.hash"));
    }
    check_source(found, field, resource, source, minor);
    if let Some(headers) = resource.http_headers.as_ref().filter(|headers| minor >= 1 && !headers.is_empty())
    {
        check_headers(found, field, headers, resource.source.as_deref());
    }
}

fn check_source(found: &mut Found, field: &str, resource: &Resource, source: Source, minor: u32) {
    let cause = match (filled(resource.source.as_ref()), source) {
        (_, Source::OfFile) | (None, Source::Optional) => return,
        (None, Source::Required) => "it is missing; write a URL".to_owned(),
        (Some(text), Source::Optional | Source::Required) => {
            let Err(cause) = url::check(text, minor).and_then(|()| decoded(text)) else { return };
            cause
        }
    };
    found.add(format!("{field} source"), cause);
}

/// Decodes a data URL, to see that it can be.
fn decoded(source: &str) -> Result<(), String> {
    match source.get(..5) {
        Some(scheme) if scheme.eq_ignore_ascii_case("data:") => DataUrl::parse(source)?.decode().map(drop),
        Some(_) | None => Ok(()),
    }
}

/// Returns why a digest is none.
fn broken_hash(hash: &str, minor: u32) -> Option<&'static str> {
    let (digits, value) = match hash.split_once('-') {
        Some(("sha512", value)) => (128, value),
        Some(("sha256", value)) if minor >= 1 => (64, value),
        Some(("sha256", _)) => {
            return Some("Ignition 3.0 knows sha512 alone; write sha512-HEX, or another ignition.version");
        }
        Some(_) | None => return Some("it is neither sha512-HEX nor sha256-HEX; correct or remove it"),
    };
    let is_digest = value.len() == digits && value.bytes().all(|digit| digit.is_ascii_hexdigit());
    (!is_digest).then_some(
        "it has not as many hex digits as its digest (sha512: 128, sha256: 64); correct or remove it",
    )
}

fn check_headers(found: &mut Found, field: &str, headers: &HttpHeaders, source: Option<&str>) {
    let name = |place: usize| format!("{field} httpHeaders[{place}]");
    for (place, header) in headers.iter().enumerate() {
        if header.name.is_empty() {
            found.add(name(place), "its name is empty; write one or remove it");
        }
        if header.value.as_deref() == Some("") {
            found.add(name(place), "its value is empty; write one or remove it");
        }
    }
    found.add_repeated(headers.iter().map(|header| header.name.as_str()), |place, _| name(place));
    let is_http = source.and_then(Url::parse).is_some_and(|url| matches!(&*url.scheme, "http" | "https"));
    if !is_http {
        found.add(format!("{field} httpHeaders"), "headers need a source of http or https; remove them");
    }
}
