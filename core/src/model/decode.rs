//! The contents of an Ignition resource: a data URL, maybe compressed, maybe with a digest to hold it to.
//!
//! Nothing is fetched. The output is bounded, so that a few kilobytes of gzip can't fill the node's memory.

use std::io::{self, Write};

use flate2::write::MultiGzDecoder;
use ignition_config::v3_6::Resource;
use sha2::Digest as _;

use super::Contents;
use super::data_url::DataUrl;

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
    pub(super) fn decode(&mut self, resource: Option<&Resource>) -> Result<Decoded, String> {
        let Some(resource) = resource else {
            return Ok(Decoded { contents: Contents::new(Vec::new()), is_stale: false });
        };
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
        let is_stale = match hash.filter(|hash| !hash.is_empty()) {
            Some(hash) => !matches(hash, &bytes)?,
            None => false,
        };
        self.total = self.total.saturating_add(bytes.len());
        Ok(Decoded { contents: Contents::new(bytes), is_stale })
    }
}

/// Decoded contents.
#[derive(Debug)]
pub(super) struct Decoded {
    /// The bytes.
    pub(super) contents: Contents,
    /// True if they are not those of the digest beside them: a merge of configs leaves the digest of replaced contents behind.
    pub(super) is_stale: bool,
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

/// Decodes a data URL, in any form that Ignition takes.
fn decode_url(source: &str, packed: Packed, limit: usize) -> Result<Vec<u8>, String> {
    let scheme = source.split_once(':').map_or("", |(scheme, _)| scheme);
    if !scheme.eq_ignore_ascii_case("data") {
        let scheme = super::text::short(scheme, 20);
        return Err(format!(
            "its source is not a data URL ({scheme:?}); nothing is downloaded, put the contents into the config"
        ));
    }
    let url = DataUrl::parse(source)?;
    match packed {
        // The last digits may be padding.
        Packed::No if url.most_bytes() > limit.saturating_add(2) => {
            Err(unpacking(&io::ErrorKind::FileTooLarge.into()))
        }
        Packed::No => {
            let bytes = url.decode()?;
            if bytes.len() <= limit { Ok(bytes) } else { Err(unpacking(&io::ErrorKind::FileTooLarge.into())) }
        }
        Packed::Gzip => {
            let sink = Bounded { bytes: Vec::new(), limit };
            unpacked(write(&url.decode()?, MultiGzDecoder::new(sink))?)
        }
    }
}

fn write<W: Write>(bytes: &[u8], mut sink: W) -> Result<W, String> {
    sink.write_all(bytes).map_err(|error| unpacking(&error))?;
    Ok(sink)
}

fn unpacked(decoder: MultiGzDecoder<Bounded>) -> Result<Vec<u8>, String> {
    decoder.finish().map(|sink| sink.bytes).map_err(|error| unpacking(&error))
}

fn unpacking(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::FileTooLarge {
        "its contents are too large (one file: 16 MiB, all files: 64 MiB); put large files into the OS image"
            .to_owned()
    } else {
        format!("its gzip contents can't be unpacked: {error}")
    }
}

/// Returns true if the bytes are those of the digest; the error is the cause.
fn matches(hash: &str, bytes: &[u8]) -> Result<bool, String> {
    let hex = |digest: &[u8]| digest.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    let (found, desired) = match hash.split_once('-') {
        Some(("sha256", desired)) => (hex(&sha2::Sha256::digest(bytes)), desired),
        Some(("sha512", desired)) => (hex(&sha2::Sha512::digest(bytes)), desired),
        _ => return Err("its verification.hash is neither sha256-<hex> nor sha512-<hex>".to_owned()),
    };
    if found.len() != desired.len() || !desired.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(format!(
            "its verification.hash is not of {} hex digits; correct or remove it",
            found.len()
        ));
    }
    Ok(found.eq_ignore_ascii_case(desired))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;

    use super::*;

    fn decode(source: &str, compression: Option<&str>) -> Result<Contents, String> {
        let resource = Resource {
            source: Some(source.to_owned()),
            compression: compression.map(str::to_owned),
            ..Resource::default()
        };
        Decoder::default().decode(Some(&resource)).map(|decoded| decoded.contents)
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
            (gzip(b"a b\n"), Some("gzip")),
        ] {
            assert_eq!(decode(&source, compression).unwrap().bytes(), b"a b\n", "{source}");
        }
        assert!(decode("data:,", None).unwrap().is_empty());
        assert!(Decoder::default().decode(None).unwrap().contents.is_empty());
    }

    /// MCD-119, MCD-121, FIL-004: another compression, and contents that would have to be downloaded, are refused.
    #[test]
    fn lossy_or_remote_contents_are_refused() {
        for (source, compression, word) in [
            ("https://example.test/x", None, "nothing is downloaded"),
            ("s3://bucket/x", None, "nothing is downloaded"),
            ("", None, "not a data URL"),
            ("data:nothing", None, "broken"),
            ("data:;base64,@@@", None, "base64"),
            ("data:a#;base64,YQ==", None, "broken"),
            ("data:,a#b", None, "%23"),
            ("data:,%zz", None, "two hex digits"),
            ("data:,100%", None, "two hex digits"),
            ("data:;base64,YQ%3D", None, "base64"),
            ("data:;base64,YSBiCg", None, "padding"),
            ("data:,a\nb", None, "control character"),
            ("data:,a\u{7f}b", None, "control character"),
            ("data:,\u{e4}\u{85}b", None, "not ASCII"),
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

    /// A digest that does not fit is told of, and one that is none is refused.
    #[test]
    fn digest_of_other_contents_is_stale() {
        let sha = "sha256-fb8e20fc2e4c3f248c60c39bd652f3c1347298bb977b8b4d5903b85055620603";
        assert_eq!((matches(sha, b"ab"), matches(sha, b"ac")), (Ok(true), Ok(false)));
        for malformed in
            ["md5-00", "sha256", "sha256-00", "sha512-fb", &sha.replace('f', "g"), &sha.replace("256", "512")]
        {
            assert!(matches(malformed, b"ab").unwrap_err().contains("verification.hash"), "{malformed}");
        }
        let resource = Resource {
            source: Some("data:,ac".to_owned()),
            verification: Some(ignition_config::v3_6::Verification { hash: Some(sha.to_owned()) }),
            ..Resource::default()
        };
        let decoded = Decoder::default().decode(Some(&resource)).unwrap();
        assert!(decoded.is_stale && decoded.contents.bytes() == b"ac");
    }
}
