//! A MachineConfig in the cache. Its Ignition config is most of it and is read for a rendering alone, so it is kept
//! compressed.

use std::io::{Read as _, Write as _};

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
    Deflated(Vec<u8>),
}

/// Most bytes of a config that is kept as it is.
const MAX_PLAIN: usize = 512;

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
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        let packed = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
        packed.map_or(Self::Plain(config), |mut packed| {
            packed.shrink_to_fit();
            Self::Deflated(packed)
        })
    }

    fn unpack(&self) -> Option<Value> {
        match self {
            Self::Plain(config) => config.clone(),
            Self::Deflated(packed) => {
                let mut text = Vec::new();
                DeflateDecoder::new(packed.as_slice()).read_to_end(&mut text).ok()?;
                serde_json::from_slice(&text).ok()
            }
        }
    }
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
