//! The contents of an Ignition resource: a data URL, maybe compressed, maybe with a digest to hold it to.
//!
//! Nothing is fetched. The output is bounded, so that a few kilobytes of gzip can't fill the node's memory.

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use data_url::DataUrl;
use data_url::forgiving_base64::DecodeError;
use flate2::write::MultiGzDecoder;
use ignition_config::v3_6::Resource;
use sha2::Digest as _;

use super::Contents;

/// Largest size of a file: ten times what fits uncompressed into the largest MachineConfig (etcd takes 1.5 MiB).
const MAX_FILE: usize = 16 << 20;

/// Largest size of all files of a config together: two configs at this size still fit into the agent's memory limit.
const MAX_TOTAL: usize = 64 << 20;

/// Decodes the resources of one config and counts their bytes.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    total: usize,
}

impl Decoder {
    /// Decodes one resource; the error is the cause and the next step.
    pub(super) fn decode(&mut self, resource: Option<&Resource>) -> Result<Contents, String> {
        let Some(resource) = resource else { return Ok(Contents::new(Vec::new())) };
        let packed = match resource.compression.as_deref() {
            None | Some("") => Packed::No,
            Some("gzip") => Packed::Gzip,
            Some(other) => {
                let other = super::text::short(other, 40);
                return Err(format!("compression {other:?} is not supported; use gzip or none"));
            }
        };
        let bytes = match resource.source.as_deref() {
            None => Vec::new(),
            Some(source) => decode_url(source, packed, MAX_FILE.min(MAX_TOTAL.saturating_sub(self.total)))?,
        };
        let hash = resource.verification.as_ref().and_then(|verification| verification.hash.as_deref());
        if let Some(hash) = hash.filter(|hash| !hash.is_empty()) {
            verify(hash, &bytes)?;
        }
        self.total = self.total.saturating_add(bytes.len());
        Ok(Contents::new(bytes))
    }
}

#[derive(Clone, Copy)]
enum Packed {
    No,
    Gzip,
}

/// Collects bytes up to a limit.
struct Bounded {
    bytes: Vec<u8>,
    limit: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.limit.saturating_sub(self.bytes.len()) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn decode_url(source: &str, packed: Packed, limit: usize) -> Result<Vec<u8>, String> {
    let scheme = source.split_once(':').map_or("", |(scheme, _)| scheme);
    if !scheme.eq_ignore_ascii_case("data") {
        let scheme = super::text::short(scheme, 20);
        return Err(format!(
            "its source is no data URL ({scheme:?}); nothing is downloaded, put the contents into the config"
        ));
    }
    let sink = Bounded { bytes: Vec::new(), limit };
    match (plain_base64(source), packed) {
        (Some(bytes), Packed::No) if bytes.len() <= limit => Ok(bytes),
        (Some(_), Packed::No) => Err(unpacking(&io::ErrorKind::FileTooLarge.into())),
        (Some(bytes), Packed::Gzip) => unpacked(write(&bytes, MultiGzDecoder::new(sink))?),
        (None, Packed::No) => pour(&any_form(source)?, sink).map(|sink| sink.bytes),
        (None, Packed::Gzip) => unpacked(pour(&any_form(source)?, MultiGzDecoder::new(sink))?),
    }
}

/// Decodes base64 without escapes and with its padding, as nearly all configs have it: several times as fast as what takes any
/// form. What is not of this form, or is wrong, is [`any_form`]'s.
fn plain_base64(source: &str) -> Option<Vec<u8>> {
    let (header, body) = source.split_once(',')?;
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'%' | b'#');
    if !header.ends_with(";base64") || !header.bytes().all(is_plain) {
        return None;
    }
    BASE64.decode(body).ok()
}

fn any_form(source: &str) -> Result<DataUrl<'_>, String> {
    // A URL parser would drop these silently; a file must not lose bytes.
    if has_control(source) || source.ends_with(' ') {
        return Err("its data URL holds a control character or ends in a space; write it as %XX".to_owned());
    }
    if !escapes_are_whole(source) {
        return Err("its data URL holds a `%` that two hex digits do not follow; write it as %25".to_owned());
    }
    DataUrl::process(source).map_err(|error| format!("its data URL is broken: {error}"))
}

/// Returns true if there is a control character. Nearly all URLs are ASCII, and bytes are faster to go through than characters.
fn has_control(source: &str) -> bool {
    if source.is_ascii() {
        source.bytes().any(|byte| byte.is_ascii_control())
    } else {
        source.chars().any(char::is_control)
    }
}

/// Returns true if each `%` begins an escape: a URL parser keeps others as they are, Ignition refuses them.
fn escapes_are_whole(source: &str) -> bool {
    let is_hex = |digit: Option<&u8>| digit.is_some_and(u8::is_ascii_hexdigit);
    source.split('%').skip(1).all(|rest| {
        let digits = rest.as_bytes();
        is_hex(digits.first()) && is_hex(digits.get(1))
    })
}

fn write<W: Write>(bytes: &[u8], mut sink: W) -> Result<W, String> {
    sink.write_all(bytes).map_err(|error| unpacking(&error))?;
    Ok(sink)
}

fn unpacked(decoder: MultiGzDecoder<Bounded>) -> Result<Vec<u8>, String> {
    decoder.finish().map(|sink| sink.bytes).map_err(|error| unpacking(&error))
}

fn pour<W: Write>(url: &DataUrl<'_>, mut sink: W) -> Result<W, String> {
    let fragment = url.decode(|bytes| sink.write_all(bytes)).map_err(|error| match error {
        DecodeError::InvalidBase64(_) => "its data URL is not valid base64".to_owned(),
        DecodeError::WriteError(error) => unpacking(&error),
    })?;
    if fragment.is_some() {
        return Err("its data URL holds a bare `#`, where a URL ends; write it as %23".to_owned());
    }
    Ok(sink)
}

fn unpacking(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::FileTooLarge {
        "its contents are too large (one file: 16 MiB, all files: 64 MiB); put large files into the OS image"
            .to_owned()
    } else {
        format!("its gzip contents can't be unpacked: {error}")
    }
}

fn verify(hash: &str, bytes: &[u8]) -> Result<(), String> {
    let hex = |digest: &[u8]| digest.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    let (found, desired) = match hash.split_once('-') {
        Some(("sha256", desired)) => (hex(&sha2::Sha256::digest(bytes)), desired),
        Some(("sha512", desired)) => (hex(&sha2::Sha512::digest(bytes)), desired),
        _ => return Err("its verification.hash is neither sha256-<hex> nor sha512-<hex>".to_owned()),
    };
    if found.eq_ignore_ascii_case(desired) {
        Ok(())
    } else {
        Err("its contents do not match verification.hash; correct one of them".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(source: &str, compression: Option<&str>) -> Result<Contents, String> {
        let resource = Resource {
            source: Some(source.to_owned()),
            compression: compression.map(str::to_owned),
            ..Resource::default()
        };
        Decoder::default().decode(Some(&resource))
    }

    fn gzip(bytes: &[u8]) -> String {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        let packed = BASE64.encode(encoder.finish().unwrap());
        format!("data:;base64,{packed}")
    }

    /// MCD-118, MCD-119, FIL-004: base64, percent-encoding and gzip give the same bytes.
    #[test]
    fn forms_decode_alike() {
        for (source, compression) in [
            ("data:,a%20b%0A".to_owned(), None),
            ("data:text/plain;charset=utf-8;base64,YSBiCg==".to_owned(), Some("")),
            ("data:text/plain;charset=utf-8;base64,YSB%69Cg==".to_owned(), None),
            ("data:;base64,YSBiCg".to_owned(), None),
            ("data:;base64 ,YSBiCg==".to_owned(), None),
            (gzip(b"a b\n"), Some("gzip")),
            (gzip(b"a b\n").replace('=', "%3D"), Some("gzip")),
        ] {
            assert_eq!(decode(&source, compression).unwrap().bytes(), b"a b\n", "{source}");
        }
        assert!(decode("data:,", None).unwrap().is_empty());
        assert!(Decoder::default().decode(None).unwrap().is_empty());
    }

    /// MCD-119, MCD-121, FIL-004: another compression, and contents that would have to be downloaded, are refused.
    #[test]
    fn lossy_or_remote_contents_are_refused() {
        for (source, compression, word) in [
            ("https://example.test/x", None, "nothing is downloaded"),
            ("s3://bucket/x", None, "nothing is downloaded"),
            ("", None, "no data URL"),
            ("data:nothing", None, "broken"),
            ("data:;base64,@@@", None, "base64"),
            ("data:a#;base64,YQ==", None, "broken"),
            ("data:,a#b", None, "%23"),
            ("data:,%zz", None, "two hex digits"),
            ("data:,100%", None, "two hex digits"),
            ("data:;base64,YQ%3", None, "two hex digits"),
            ("data:,a\nb", None, "control character"),
            ("data:,a\u{7f}b", None, "control character"),
            ("data:,\u{e4}\u{85}b", None, "control character"),
            ("data:,a ", None, "space"),
            ("data:,a", Some("xz"), "\"xz\" is not supported"),
            ("data:,a", Some("gzip"), "can't be unpacked"),
        ] {
            let error = decode(source, compression).unwrap_err();
            assert!(error.contains(word), "{source:?}: {error}");
        }
    }

    #[test]
    fn decompression_bomb_is_refused() {
        let error = decode(&gzip(&vec![0; MAX_FILE + 1]), Some("gzip")).unwrap_err();
        assert!(error.contains("16 MiB"), "{error}");
        assert_eq!(decode(&gzip(&vec![0; MAX_FILE]), Some("gzip")).unwrap().len(), MAX_FILE);
        let mut full = Decoder { total: MAX_TOTAL - 1 };
        let two = Resource { source: Some("data:,ab".to_owned()), ..Resource::default() };
        assert!(full.decode(Some(&two)).unwrap_err().contains("64 MiB"));
    }

    #[test]
    fn document_must_match_digest() {
        let sha = "sha256-fb8e20fc2e4c3f248c60c39bd652f3c1347298bb977b8b4d5903b85055620603";
        assert!(verify(sha, b"ab").is_ok());
        assert!(verify(sha, b"ac").unwrap_err().contains("do not match"));
        assert!(verify("md5-00", b"ab").is_err());
    }
}
