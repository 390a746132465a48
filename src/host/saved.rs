//! Original of a path before the agent touched it: saved, restored, and kept until the path is no longer managed.
//!
//! Invariants: a restored path equals its original, to the byte, the mode, the owner and the attributes. The original
//! that a write will replace is read by the walk that the write takes, so that the three (saved, written, restored) are
//! of one file. `Debug` shows no contents.

use std::fmt;
use std::io::Seek as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use super::HostError;
use super::durable::{Attributes, Change, DesiredPath, same_bytes};
use super::error::ORIGINALS;
use super::root::{
    AttributeList, Entry, FLAGS, Hands, LaidPath, Missing, Root, attributes, no_name, read_at_most, split,
};
use crate::model::obstacles::{LARGEST_ORIGINAL, LARGEST_ORIGINAL_OF_USER};
use crate::model::users::{SshKey, without_keys};
use crate::model::{Contents, ManagedPath, ObservedFile, Sha256};

/// Directory of originals, below the agent's state.
pub const PREIMAGES: &str = "/var/lib/machine-config-agent/preimages";

/// The folder of those that outlive their update: the paths are managed now.
pub const SAVED_DIRECTORY: &str = "kept";

/// The attribute that gives a program privileges.
const CAPABILITY: &str = "security.capability";

/// The attribute with the label of SELinux.
const LABEL: &str = "security.selinux";

/// Bytes that may be a secret: base64 in JSON, a length in `Debug`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Bytes(Vec<u8>);

impl Bytes {
    /// Copies bytes.
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    /// Returns the bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes as text; bytes that are not UTF-8 are replaced.
    pub fn to_text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl TryFrom<String> for Bytes {
    type Error = base64::DecodeError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        BASE64.decode(text).map(Self)
    }
}

impl From<Bytes> for String {
    fn from(bytes: Bytes) -> String {
        BASE64.encode(bytes.0)
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// A path as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum PathSnapshot {
    /// Nothing was there.
    Absent,
    /// A regular file.
    File {
        /// Its bytes.
        bytes: Bytes,
        /// Its mode, setuid, setgid and sticky included.
        mode: u32,
        /// Its owner.
        uid: u32,
        /// Its group.
        gid: u32,
        /// Its extended attributes.
        attributes: Vec<Attribute>,
        /// Its flags of chattr(1), those that are kept.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        flags: Option<u32>,
    },
    /// A symbolic link.
    Link {
        /// Text of the link.
        target: String,
        /// Its owner.
        #[serde(default)]
        uid: u32,
        /// Its group.
        #[serde(default)]
        gid: u32,
    },
    /// Another name of a file that the old config had.
    HardLink {
        /// The path of the file.
        target: String,
    },
    /// A directory; what is in it is not of the original.
    Directory {
        /// Its mode, setuid, setgid and sticky included.
        mode: u32,
        /// Its owner.
        uid: u32,
        /// Its group.
        gid: u32,
    },
    /// A regular file with the content of the config that is in force: its bytes are not copied.
    Own {
        /// Digest of its bytes.
        sha256: String,
        /// Its mode, setuid, setgid and sticky included.
        mode: u32,
        /// Its owner.
        uid: u32,
        /// Its group.
        gid: u32,
        /// Its extended attributes.
        attributes: Vec<Attribute>,
        /// Its flags of chattr(1), those that are kept.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        flags: Option<u32>,
    },
}

/// One extended attribute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribute {
    name: String,
    value: Bytes,
}

impl PathSnapshot {
    /// Reads the file at a path, a link at its end not followed: for inspection only.
    pub fn read(root: &Root, path: &str) -> Result<Self, HostError> {
        Self::from_entry(Entry::at(root, path)?, path, None)
    }

    /// Reads what a change would replace. An entry that the change would refuse is an error here, so nothing is touched. In a
    /// directory of another account, a file that is not its own may be a hard link to any file of the host: its copy has no
    /// privileges. Bytes that are `own` are not copied, however many.
    pub fn read_to_replace(
        root: &Root,
        change: &Change<'_>,
        own: Option<&Contents>,
    ) -> Result<Self, HostError> {
        let (path, hands) = (change.path(), change.hands());
        if let Some(target) = change.hard_link_before()
            && root.is_hard_link(path, target)?
        {
            return Ok(Self::HardLink { target: target.to_owned() });
        }
        let (directory, name) = split(path).ok_or_else(|| no_name(path))?;
        let walked = root.walk(directory, hands, Missing::Leave, &mut Vec::new());
        let Some(directory) = walked.map_err(|error| super::durable::named(error, path))? else {
            return Ok(Self::Absent);
        };
        let mut saved = Self::from_entry(Entry::of(&directory, name, path)?, path, own)?;
        if matches!(saved, Self::Directory { .. }) && !change.may_be_directory() {
            return Err(HostError::Kind {
                path: path.to_owned(),
                expected: "a file, a link or nothing",
                found: "a directory",
            });
        }
        if let (
            Some(account),
            Self::File { mode, uid, attributes, .. } | Self::Own { mode, uid, attributes, .. },
        ) = (directory.account(), &mut saved)
            && *uid != account
        {
            *mode &= 0o777;
            attributes.retain(|one| one.name != CAPABILITY);
        }
        Ok(saved)
    }

    fn from_entry(found: Entry, path: &str, own: Option<&Contents>) -> Result<Self, HostError> {
        match found {
            Entry::Absent => Ok(Self::Absent),
            Entry::Link { target, owner: (uid, gid) } => Ok(Self::Link { target, uid, gid }),
            Entry::Directory { stat } => {
                let mode = stat.st_mode & 0o7777;
                Ok(Self::Directory { mode, uid: stat.st_uid, gid: stat.st_gid })
            }
            Entry::File { mut file, stat } => {
                let (mode, uid, gid) = (stat.st_mode & 0o7777, stat.st_uid, stat.st_gid);
                let (attributes, flags) = saved_attributes(attributes(&file, path)?);
                if let Some(own) = own
                    && same_bytes(&file, &stat, own.bytes())
                        .map_err(|source| HostError::io("read", path, source))?
                {
                    let sha256 = own.sha256().to_string();
                    return Ok(Self::Own { sha256, mode, uid, gid, attributes, flags });
                }
                file.rewind().map_err(|source| HostError::io("read", path, source))?;
                let limit = if uid == 0 { LARGEST_ORIGINAL } else { LARGEST_ORIGINAL_OF_USER };
                let size = u64::try_from(stat.st_size).unwrap_or_default();
                let bytes = read_at_most(&file, size, path, limit)?;
                Ok(Self::File { bytes: Bytes(bytes), mode, uid, gid, attributes, flags })
            }
            Entry::Other(found) => {
                Err(HostError::Kind { path: path.to_owned(), expected: "a file, a link or nothing", found })
            }
        }
    }

    /// Returns the original of a keys file without some keys.
    #[must_use]
    pub fn without_keys<'a>(self, keys: impl Iterator<Item = &'a SshKey>) -> Self {
        match self {
            Self::File { bytes, mode, uid, gid, attributes, flags } => {
                let left = without_keys(bytes.as_slice(), keys);
                if left.is_empty() && !bytes.as_slice().is_empty() {
                    return Self::Absent;
                }
                Self::File { bytes: Bytes(left), mode, uid, gid, attributes, flags }
            }
            other @ (Self::Absent
            | Self::Link { .. }
            | Self::HardLink { .. }
            | Self::Directory { .. }
            | Self::Own { .. }) => other,
        }
    }

    /// Returns the mask of a unit.
    pub fn mask() -> Self {
        Self::link("/dev/null".to_owned())
    }

    /// Returns a link of root.
    pub fn link(target: String) -> Self {
        Self::Link { target, uid: 0, gid: 0 }
    }

    /// Returns true if it is the mask of a unit.
    pub fn is_mask(&self) -> bool {
        matches!(self, Self::Link { target, .. } if target == "/dev/null")
    }

    /// Returns true if its bytes are those of the old config.
    pub fn is_own(&self) -> bool {
        matches!(self, Self::Own { .. })
    }

    /// Makes a whole file of one whose bytes are those of the old config.
    pub fn fill(&mut self, path: &str, own: Option<&Contents>) -> Result<(), HostError> {
        let Self::Own { sha256, mode, uid, gid, attributes, flags } = self else { return Ok(()) };
        let Some(own) = own.filter(|own| own.sha256().to_string() == *sha256) else {
            let cause = format!("the content of {path} is not in the config that was in force");
            return Err(HostError::Malformed { path: PREIMAGES.to_owned(), format: ORIGINALS, cause });
        };
        let bytes = Bytes::new(own.bytes());
        let (attributes, flags) = (std::mem::take(attributes), *flags);
        *self = Self::File { bytes, mode: *mode, uid: *uid, gid: *gid, attributes, flags };
        Ok(())
    }

    /// Returns true if both have the same bytes, mode and owner, whatever their attributes are.
    pub fn is_same_file(&self, other: &Self) -> bool {
        self.observed() == other.observed()
    }

    /// Returns it as it would be observed.
    pub fn observed(&self) -> ObservedFile {
        self.laid().observed()
    }

    /// Returns it with the security label of another version of the same path.
    #[must_use]
    pub(super) fn labelled_as(mut self, other: &Self) -> Self {
        let label = match other {
            Self::File { attributes, .. } => attributes.iter().find(|one| one.name == LABEL).cloned(),
            Self::Absent
            | Self::Link { .. }
            | Self::HardLink { .. }
            | Self::Directory { .. }
            | Self::Own { .. } => None,
        };
        if let Self::File { attributes, .. } = &mut self {
            attributes.retain(|one| one.name != LABEL);
            attributes.extend(label);
        }
        self
    }

    /// Returns it without a security label.
    #[must_use]
    pub fn without_label(self) -> Self {
        self.labelled_as(&Self::Absent)
    }

    /// Returns its approximate size in bytes.
    pub fn size(&self) -> usize {
        match self {
            Self::Absent | Self::Directory { .. } => 0,
            Self::Link { target, .. } | Self::HardLink { target } => target.len(),
            Self::File { bytes, attributes, .. } => bytes.0.len() + size_of(attributes),
            Self::Own { attributes, .. } => size_of(attributes),
        }
    }

    /// Returns its extended attributes, as [`PathSnapshot::put_back`] wants them.
    pub fn attributes(&self) -> Vec<(String, Vec<u8>)> {
        match self {
            Self::Absent | Self::Link { .. } | Self::HardLink { .. } | Self::Directory { .. } => Vec::new(),
            Self::File { attributes, flags, .. } | Self::Own { attributes, flags, .. } => {
                let attributes = attributes.iter().map(|one| (one.name.clone(), one.value.0.clone()));
                attributes
                    .chain(flags.map(|flags| (FLAGS.to_owned(), flags.to_le_bytes().to_vec())))
                    .collect()
            }
        }
    }

    /// Returns it as it is laid over a root. A hard link is laid with its file.
    pub fn laid(&self) -> LaidPath {
        match self {
            // Originals are loaded with their bytes.
            Self::Absent | Self::Own { .. } | Self::HardLink { .. } => LaidPath::Absent,
            Self::File { bytes, mode, uid, gid, .. } => {
                LaidPath::File { bytes: bytes.0.clone(), mode: *mode, uid: *uid, gid: *gid }
            }
            Self::Link { target, uid, gid } => {
                LaidPath::Link { target: target.clone(), uid: *uid, gid: *gid }
            }
            Self::Directory { mode, uid, gid } => LaidPath::Directory { mode: *mode, uid: *uid, gid: *gid },
        }
    }

    /// Makes the change that restores it. `hands` as in [`Change::hands`]: the accounts whom the replacing write trusted.
    /// Where that is root only, its owner; but where it entered directories of others, they could choose the owner.
    pub fn put_back<'a>(
        &'a self,
        path: &str,
        hands: impl Into<Hands>,
        attributes: &'a [(String, Vec<u8>)],
    ) -> Change<'a> {
        let Hands { trusted, enters } = hands.into();
        let change = match self {
            // Originals are loaded with their bytes.
            Self::Absent | Self::Own { .. } => Change::new(path, trusted, DesiredPath::Absent),
            Self::Link { target, uid, gid } => {
                let want = DesiredPath::Link { target: target.clone(), owner: Some((*uid, *gid)) };
                Change::new(path, trusted, want)
            }
            Self::HardLink { target } => {
                Change::new(path, trusted, DesiredPath::HardLink { target: target.clone() })
            }
            Self::Directory { mode, uid, gid } => {
                let want = DesiredPath::Directory { mode: Some(*mode), uid: Some(*uid), gid: Some(*gid) };
                Change::new(path, if trusted == 0 && !enters { *uid } else { trusted }, want)
            }
            Self::File { bytes, mode, uid, gid, .. } => {
                let attributes = Attributes::Exactly(attributes);
                let want =
                    DesiredPath::File { bytes: &bytes.0, mode: *mode, uid: *uid, gid: *gid, attributes };
                Change::new(path, if trusted == 0 && !enters { *uid } else { trusted }, want)
            }
        };
        change.entering(enters)
    }
}

/// Returns attributes as they are saved. Flags are apart: an agent that does not know them takes the rest.
fn saved_attributes(found: AttributeList) -> (Vec<Attribute>, Option<u32>) {
    let bits = |(_, value): &(String, Vec<u8>)| <[u8; 4]>::try_from(&**value).ok().map(u32::from_le_bytes);
    let flags = found.iter().find(|(name, _)| name == FLAGS).and_then(bits);
    let attributes = found.into_iter().filter(|(name, _)| name != FLAGS);
    (attributes.map(|(name, value)| Attribute { name, value: Bytes(value) }).collect(), flags)
}

fn size_of(attributes: &[Attribute]) -> usize {
    attributes.iter().map(|one| one.name.len() + one.value.0.len()).sum()
}

/// Returns the name of the document with the original of a path.
pub fn document_name(path: &ManagedPath) -> String {
    let name = path.as_str().replace('%', "%25").replace('/', "%2F");
    // NAME_MAX is 255; the digest stands for a longer one.
    let name = if name.len() <= 240 { name } else { Sha256::digest(path.as_str().as_bytes()).to_string() };
    format!("{name}.json")
}

/// Returns the path of the saved original of a managed path.
pub fn original_path(path: &ManagedPath) -> String {
    format!("{PREIMAGES}/{SAVED_DIRECTORY}/{}", document_name(path))
}

/// Reads the saved original of a path.
pub fn load_original(root: &Root, path: &ManagedPath) -> Result<Option<PathSnapshot>, HostError> {
    load_document(root, &original_path(path))
}

/// Reads a document with an original.
pub fn load_document(root: &Root, at: &str) -> Result<Option<PathSnapshot>, HostError> {
    let Some(bytes) = root.read(at)? else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| malformed(at, &error))
}

/// Reads the booted image's own version of a path below `/etc`.
pub fn of_image(root: &Root, path: &ManagedPath) -> Result<PathSnapshot, HostError> {
    of_deployment(root, "", path)
}

/// Reads the version of a path below `/etc` that the image of a deployment brings, by its directory.
pub fn of_deployment(root: &Root, deployment: &str, path: &ManagedPath) -> Result<PathSnapshot, HostError> {
    let below = path.as_str().strip_prefix("/etc/");
    let at = below.map(|below| format!("{deployment}/usr/etc/{below}"));
    at.map_or(Ok(PathSnapshot::Absent), |at| PathSnapshot::read(root, &at))
}

/// Creates the error of an unreadable file of the agent, without its contents.
pub fn malformed(path: &str, error: &serde_json::Error) -> HostError {
    let cause = format!("line {}, column {}: {:?}", error.line(), error.column(), error.classify());
    HostError::Malformed { path: path.to_owned(), format: ORIGINALS, cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_through_json_and_debug_is_silent() {
        let attributes = vec![Attribute { name: "user.a".to_owned(), value: Bytes(vec![0, 255]) }];
        let saved = PathSnapshot::File {
            bytes: Bytes(b"secret\xff".to_vec()),
            mode: 0o4755,
            uid: 1,
            gid: 2,
            attributes,
            flags: Some(0x80),
        };
        let json = serde_json::to_string(&saved).unwrap();
        assert_eq!(serde_json::from_str::<PathSnapshot>(&json).unwrap(), saved);
        assert!(!format!("{saved:?}").contains("secret"));
        let broken =
            serde_json::from_str::<PathSnapshot>("{\"kind\":\"file\",\"bytes\":\"c2VjcmV0#\"}").unwrap_err();
        assert!(!malformed("/x", &broken).to_string().contains("c2Vj"));
    }

    #[test]
    fn kept_names_are_distinct_and_short() {
        let path = |text: &str| ManagedPath::new(text).unwrap();
        assert!(original_path(&path("/etc/a%2Fb")).ends_with("/kept/%2Fetc%2Fa%252Fb.json"));
        assert_ne!(original_path(&path("/etc/a%2Fb")), original_path(&path("/etc/a/b")));
        let long = format!("/{}/{}", "a".repeat(200), "b".repeat(200));
        assert!(original_path(&path(&long)).len() < 255);
    }
}
