//! The one account that a MachineConfig may change: `core`.

use std::fmt;

use super::UserName;

/// The account's name.
pub const CORE: &str = "core";

/// Path of the keys file, below the home directory (MCD-157).
pub const KEYS_FILE: &str = ".ssh/authorized_keys.d/ignition";

/// An SSH public key line. `Debug` shows only its length: comments carry people's names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SshKey(String);

impl SshKey {
    /// Takes one line; `None` when it holds a line break or a NUL.
    pub fn new(line: impl Into<String>) -> Option<Self> {
        let line = line.into();
        (!line.contains(['\n', '\r', '\0'])).then_some(Self(line))
    }

    /// Returns the line.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SshKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SshKey({} characters)", self.0.len())
    }
}

/// A crypt(3) hash, or `*` for none. `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash(String);

impl PasswordHash {
    /// Takes a hash; `None` when it would break out of its field in `/etc/shadow`.
    pub fn new(hash: impl Into<String>) -> Option<Self> {
        let hash = hash.into();
        (!hash.contains([':', '\n', '\r', '\0'])).then_some(Self(hash))
    }

    /// The locked password (MCD-161): no login by password.
    pub fn locked() -> Self {
        Self("*".to_owned())
    }

    /// Returns the field for `/etc/shadow`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 == "*" { "PasswordHash(locked)" } else { "PasswordHash(set)" })
    }
}

/// Accounts of the config.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Users {
    /// The keys and the password of `core`; `None` when no user is listed.
    pub core: Option<Core>,
    /// Names of other listed users, and `core` fields that can't be changed: the reconcilability check refuses them.
    pub unsupported: Vec<UnsupportedUser>,
}

/// Settings of `core`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Core {
    /// The keys of all listed users, in order (MCD-157).
    pub keys: Vec<SshKey>,
    /// The password.
    pub password: PasswordHash,
}

impl Core {
    /// Returns the text of the keys file: one key a line.
    pub fn keys_text(&self) -> String {
        let lines = self.keys.iter().flat_map(|key| [key.as_str(), "\n"]);
        lines.collect()
    }
}

/// A passwd entry that the agent will not carry out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsupportedUser {
    /// The user.
    pub user: UserName,
    /// Why.
    pub why: Unsupported,
}

/// Reason why a passwd entry is not applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsupported {
    /// It is not `core`.
    OtherUser,
    /// This field of `core` can't be set.
    Field(&'static str),
    /// It sets neither a key nor a password.
    NothingSet,
}
