//! The bytes of a file and their digest.

use std::fmt;
use std::io::BufWriter;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::Digest as _;

use super::error::ModelError;
use super::text::short;

/// A SHA-256 digest, shown as 64 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct Sha256([u8; 32]);

impl Sha256 {
    /// Digests bytes.
    pub fn digest(bytes: &[u8]) -> Self {
        Self(sha2::Sha256::digest(bytes).into())
    }

    /// Digests a value's compact JSON, without the text as a whole.
    pub fn digest_json<T: Serialize>(value: &T) -> Result<Self, serde_json::Error> {
        let mut text = BufWriter::new(sha2::Sha256::new());
        serde_json::to_writer(&mut text, value)?;
        let digest = text.into_inner().map_err(|error| serde_json::Error::io(error.into_error()))?;
        Ok(Self(digest.finalize().into()))
    }

    /// Wraps a finished digest.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Reads 64 hex digits.
    pub fn parse(hex: &str) -> Result<Self, ModelError> {
        let wrong = || ModelError::Name {
            what: "digest",
            value: short(hex, 100),
            rule: "it must be 64 lower-case hex digits",
        };
        let lower = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if hex.len() != 64 || !hex.bytes().all(lower) {
            return Err(wrong());
        }
        let mut bytes = [0_u8; 32];
        for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
            let pair = hex.get(at..at + 2).ok_or_else(wrong)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Sha256 {
    type Error = ModelError;
    fn try_from(hex: String) -> Result<Self, ModelError> {
        Self::parse(&hex)
    }
}

impl From<Sha256> for String {
    fn from(digest: Sha256) -> String {
        digest.to_string()
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The decoded bytes of a file. Two are equal when their bytes are; `Debug` shows only the length.
#[derive(Clone, PartialEq, Eq)]
pub struct Contents {
    sha256: Sha256,
    bytes: Arc<[u8]>,
}

impl Contents {
    /// Takes bytes and digests them once.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        let bytes = bytes.into();
        Self { sha256: Sha256::digest(&bytes), bytes }
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the digest of the bytes.
    pub fn sha256(&self) -> Sha256 {
        self.sha256
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns true if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}
