//! A MachineConfig in the cache. Its Ignition config is most of it and is read for a rendering alone, so it is kept
//! compressed. Contents in base64 are kept as the bytes that they stand for: base64 of a text hides what repeats in it.

use std::io::{self, Read, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use serde_json::Value;

use crate::api::MachineConfig;

/// A MachineConfig, packed.
#[derive(Debug, Clone)]
pub(super) struct StoredConfig {
    /// The object without its Ignition config.
    pub(super) object: MachineConfig,
    ignition: Packed,
}

/// The Ignition config.
#[derive(Debug, Clone, PartialEq)]
enum Packed {
    /// As it is: it is small, or absent.
    Plain(Option<Value>),
    /// Its text, as [`write_parts`] writes it.
    Deflated(Vec<u8>),
}

/// Most bytes of a config that is kept as it is.
const MAX_PLAIN: usize = 512;

/// End of the head of a `data:` URL with contents in base64.
const BASE64: &str = ";base64,";

impl StoredConfig {
    /// Packs an object.
    pub(super) fn new(mut object: MachineConfig) -> Self {
        let ignition = Packed::new(object.spec.config.take());
        Self { object, ignition }
    }

    /// Returns the whole object.
    pub(super) fn whole(&self) -> MachineConfig {
        let mut object = self.object.clone();
        object.spec.config = self.ignition.unpack();
        object
    }

    /// Returns true if both are rendered to the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let inputs = |config: &Self| {
            let metadata = &config.object.metadata;
            (config.object.spec.clone(), metadata.labels.clone(), metadata.annotations.clone())
        };
        self.ignition == other.ignition && inputs(self) == inputs(other)
    }
}

impl Packed {
    fn new(config: Option<Value>) -> Self {
        let Some(value) = &config else { return Self::Plain(None) };
        let text = value.to_string();
        if text.len() <= MAX_PLAIN {
            return Self::Plain(config);
        }
        // Into memory: it does not fail. If it did, the config would stay as it is.
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        let packed = write_parts(&text, &mut encoder).and_then(|()| encoder.finish());
        packed.map_or(Self::Plain(config), |mut packed| {
            packed.shrink_to_fit();
            Self::Deflated(packed)
        })
    }

    fn unpack(&self) -> Option<Value> {
        match self {
            Self::Plain(config) => config.clone(),
            Self::Deflated(packed) => {
                serde_json::from_str(&read_parts(DeflateDecoder::new(packed.as_slice())).ok()?).ok()
            }
        }
    }
}

/// Writes a text in parts: the bytes that base64 at its beginning stands for, and the rest, each behind its length.
fn write_parts(text: &str, to: &mut impl Write) -> io::Result<()> {
    let mut is_first = true;
    for part in text.split_inclusive(BASE64) {
        let end = if std::mem::take(&mut is_first) { None } else { part.find('"') };
        let (contents, rest) = part.split_at(end.unwrap_or_default());
        // It is strict: what it reads is written the same again.
        let (contents, rest) =
            STANDARD.decode(contents).map_or((Vec::new(), part), |contents| (contents, rest));
        for bytes in [contents.as_slice(), rest.as_bytes()] {
            let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
            to.write_all(&length.to_le_bytes())?;
            to.write_all(bytes)?;
        }
    }
    Ok(())
}

/// Reads the text again.
fn read_parts(mut from: impl Read) -> io::Result<String> {
    let (mut text, mut part) = (String::new(), Vec::new());
    while let Some(length) = read_length(&mut from)? {
        part.clear();
        from.by_ref().take(length).read_to_end(&mut part)?;
        STANDARD.encode_string(&part, &mut text);
        let length = read_length(&mut from)?.unwrap_or_default();
        from.by_ref().take(length).read_to_string(&mut text)?;
    }
    Ok(text)
}

/// Reads the length of a part; `None` at the end.
fn read_length(from: &mut impl Read) -> io::Result<Option<u64>> {
    let mut bytes = Vec::new();
    from.take(4).read_to_end(&mut bytes)?;
    Ok(<[u8; 4]>::try_from(bytes.as_slice()).ok().map(|bytes| u64::from(u32::from_le_bytes(bytes))))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(contents: &str) -> MachineConfig {
        let file = json!({ "path": "/etc/a", "contents": { "source": contents } });
        let mut object = MachineConfig::default();
        object.metadata.name = Some("50-a".to_owned());
        object.spec.kernel_arguments = Some(vec!["quiet".to_owned()]);
        object.spec.config = Some(json!({ "storage": { "files": [file] } }));
        object
    }

    #[test]
    fn config_comes_back_as_it_was() {
        for length in [0, 1, MAX_PLAIN, 1_000_000] {
            let object = config(&"data:,a%20b".repeat(length / 11 + 1));
            let stored = StoredConfig::new(object.clone());
            assert_eq!(stored.whole(), object);
            assert!(stored.object.spec.config.is_none());
        }
        assert_eq!(StoredConfig::new(MachineConfig::default()).whole(), MachineConfig::default());
    }

    /// Contents in base64, such that no other text stands for the same bytes, and such that one does.
    #[test]
    fn contents_in_base64_come_back_as_they_were() {
        let text = STANDARD.encode("net.ipv4.ip_forward = 1\n".repeat(2000));
        let all = [
            format!("data:text/plain;charset=utf-8;base64,{text}"),
            "data:;base64,".to_owned(),
            format!("data:;base64,{}", text.trim_end_matches('=')),
            format!("data:;base64,{text}\n"),
            format!("data:;base64,{text};base64,{text}"),
            "data:;base64,YQ==".to_owned(),
            "data:;base64,YR==".to_owned(),
            "data:;base64,YQ=".to_owned(),
            format!("data:;base64,ä\"\\{text}"),
            ";base64,".repeat(100),
        ];
        let mut object = config("");
        let file = |source: &String| json!({ "path": source, "contents": { "source": source } });
        for files in [all.iter().map(file).collect::<Vec<_>>(), vec![file(&all.join("\""))]] {
            object.spec.config = Some(json!({ "storage": { "files": files }, ";base64,YQ==": null }));
            let stored = StoredConfig::new(object.clone());
            assert!(matches!(&stored.ignition, Packed::Deflated(_)));
            assert_eq!(stored.whole(), object);
        }
    }

    #[test]
    fn contents_in_base64_are_packed_as_bytes() {
        let lines: Vec<String> =
            (0..5000).map(|number| format!("option-{number} = {}", number * number)).collect();
        let text = lines.join("\n");
        let packed = |source: String| match StoredConfig::new(config(&source)).ignition {
            Packed::Deflated(packed) => packed.len(),
            Packed::Plain(_) => 0,
        };
        let (plain, base64) =
            (packed(text.clone()), packed(format!("data:;base64,{}", STANDARD.encode(text))));
        assert!(base64 < plain * 11 / 10, "{base64} {plain}");
    }

    #[test]
    fn large_config_is_small_and_compared_whole() {
        let object = config(&"data:,a%20b".repeat(100_000));
        let stored = StoredConfig::new(object.clone());
        assert!(matches!(&stored.ignition, Packed::Deflated(packed) if packed.len() < 100_000));
        assert!(stored.is_same(&StoredConfig::new(object.clone())));
        assert!(!stored.is_same(&StoredConfig::new(config(&format!("{}x", "data:,a%20b".repeat(100_000))))));
        let other = MachineConfig { metadata: kube::api::ObjectMeta::default(), ..object };
        assert!(stored.is_same(&StoredConfig::new(other)), "its name is its key");
    }
}
