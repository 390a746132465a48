//! Accounts and groups of a MachineConfig. `core` is the one account that comes with the OS.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{ManagedPath, ModelError, UserName};

pub use super::ids::CORE;

/// Path of the keys file, below the home directory (MCD-157).
pub const KEYS_FILE: &str = ".ssh/authorized_keys.d/ignition";

/// Home of an account that has none (`useradd --home-dir /dev/null`).
const NO_HOME: &str = "/dev/null";

/// An SSH public key line. `Debug` shows only its length: comments carry people's names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SshKey(String);

impl SshKey {
    /// Takes one line; `None` when it holds a line break or a NUL.
    pub fn new(line: impl Into<String>) -> Option<Self> {
        let line = line.into();
        (!line.contains(['\n', '\r', '\0'])).then_some(Self(line))
    }

    /// Returns the lines of an entry that hold a key: blank lines and comments are skipped, as sshd skips them.
    pub fn lines(entry: &str) -> impl Iterator<Item = &str> {
        entry.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
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

/// Shorter words are no key in base64: they compare with their whole line.
const MIN_ENCODED: usize = 32;

/// Returns the part of a line that says which key it is: two lines with other options or another comment may be one key.
fn identity(line: &str) -> &str {
    let mut words = line.split_whitespace();
    words.find(|word| word.starts_with("AAAA") && word.len() >= MIN_ENCODED).unwrap_or(line)
}

/// Returns a keys file without the lines of some keys; empty if one was in it and no other key is.
pub fn without_keys<'a>(text: &[u8], keys: impl Iterator<Item = &'a SshKey>) -> Vec<u8> {
    let gone: BTreeSet<&str> = keys.map(|key| identity(key.as_str().trim())).collect();
    let mut left = Vec::with_capacity(text.len());
    let (mut has_keys, mut is_changed) = (false, false);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let own = String::from_utf8_lossy(line);
        if gone.contains(identity(own.trim())) {
            is_changed = true;
        } else {
            has_keys |= SshKey::lines(&own).next().is_some();
            left.extend_from_slice(line);
        }
    }
    // A file of comments alone is the host's own.
    if has_keys || !is_changed { left } else { Vec::new() }
}

/// Returns those of some keys that are in a keys file.
pub fn keys_in<'a>(text: &[u8], keys: impl Iterator<Item = &'a SshKey>) -> BTreeSet<SshKey> {
    let text = String::from_utf8_lossy(text);
    let found: BTreeSet<&str> = SshKey::lines(&text).map(identity).collect();
    keys.filter(|key| found.contains(identity(key.as_str().trim()))).cloned().collect()
}

/// Returns those of some keys that are none of others.
pub fn keys_beside<'a>(keys: &'a BTreeSet<SshKey>, others: &'a [SshKey]) -> impl Iterator<Item = &'a SshKey> {
    let others: BTreeSet<&str> = others.iter().map(|key| identity(key.as_str().trim())).collect();
    keys.iter().filter(move |key| !others.contains(identity(key.as_str().trim())))
}

/// Returns the path of the keys file in a home; `None` if that is none.
pub fn keys_path(home: &str) -> Result<Option<ManagedPath>, ModelError> {
    if home == NO_HOME {
        return Ok(None);
    }
    ManagedPath::new(format!("{}/{KEYS_FILE}", home.trim_end_matches('/'))).map(Some)
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

    /// Returns true if no password opens the account.
    pub fn is_locked(&self) -> bool {
        self.0.starts_with(['!', '*'])
    }

    /// Returns the hash that a lock keeps (`usermod -L`, `passwd -l`): who unlocks the account makes it the password again.
    pub fn behind_lock(&self) -> Option<Self> {
        let hash = self.0.trim_start_matches(['!', '*']);
        (self.is_locked() && !hash.is_empty()).then(|| Self(hash.to_owned()))
    }

    /// Returns true if a new password would open a lock that an administrator has set: a hash is behind it. An account that never had a
    /// password, or was made again, is as `!`, `!!` or `!unprovisioned`.
    pub fn is_lock_that_opens(&self, new: &Self) -> bool {
        let is_hash = |hidden: Self| hidden == *new || hidden.0.starts_with('$');
        !new.is_locked() && self.behind_lock().is_some_and(is_hash)
    }

    /// Returns the same password behind a lock, as usermod(8) keeps it.
    #[must_use]
    pub fn kept_locked(&self) -> Self {
        if self.is_locked() { self.clone() } else { Self(format!("!{}", self.0)) }
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 == "*" { "PasswordHash(locked)" } else { "PasswordHash(set)" })
    }
}

/// Accounts and groups of the config.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Users {
    /// `passwd.users`.
    pub accounts: BTreeMap<UserName, Account>,
    /// `passwd.groups`.
    pub groups: BTreeMap<UserName, Group>,
}

impl Users {
    /// Returns an account.
    pub fn account(&self, name: &str) -> Option<&Account> {
        self.accounts.iter().find(|(one, _)| one.as_str() == name).map(|(_, account)| account)
    }

    /// Returns the accounts whose keys files are of the config.
    pub fn keyed(&self) -> impl Iterator<Item = &str> {
        let keyed = self.accounts.iter().filter(|(name, account)| account.desired_keys(name).is_some());
        keyed.map(|(name, _)| name.as_str())
    }

    /// Returns true if the host has a user of this name once the config is applied.
    pub fn makes_user(&self, name: &str) -> bool {
        let of_name = |(one, account): (&UserName, &Account)| one.as_str() == name && account.is_made(one);
        self.accounts.iter().any(of_name)
    }

    /// Returns the user id of an account that the config makes; where useradd chooses it, one that stands for it and that no
    /// account has.
    pub fn id_ahead(&self, name: &str) -> u32 {
        let made = self.accounts.iter().enumerate().find(|(_, (one, _))| one.as_str() == name);
        let index = made.and_then(|(index, _)| u32::try_from(index).ok()).map_or(0, |index| index + 1);
        made.and_then(|(_, (_, account))| account.uid).unwrap_or(u32::MAX - 1 - index)
    }

    /// Returns the account that an id of [`Users::id_ahead`] stands for.
    pub fn name_ahead(&self, uid: u32) -> Option<&UserName> {
        self.accounts.keys().find(|name| self.id_ahead(name.as_str()) == uid)
    }

    /// Returns true if the config makes a group of this name: one of its own, or of a user that the host lacks.
    pub fn makes_group(&self, name: &str, has_user: impl Fn(&str) -> bool) -> bool {
        let own = self.groups.iter().any(|(one, group)| one.as_str() == name && group.should_exist);
        let of_user = |(one, account): (&UserName, &Account)| {
            one.as_str() == name && account.is_made(one) && account.has_user_group() && !has_user(name)
        };
        own || self.accounts.iter().any(of_user)
    }
}

/// Names an entry of `passwd.users`.
pub fn user_field(name: &str) -> String {
    format!("passwd.users {name:?}")
}

/// Names the groups of an entry of `passwd.users`.
pub fn groups_field(name: &str) -> String {
    format!("{} groups", user_field(name))
}

/// Names the keys of an entry of `passwd.users`.
pub fn keys_field(name: &str) -> String {
    format!("{} sshAuthorizedKeys", user_field(name))
}

/// Names an entry of `passwd.groups`.
pub fn group_field(name: &str) -> String {
    format!("passwd.groups {name:?}")
}

/// Names what an entry sets beside keys and password.
pub fn attributes_field(name: &str) -> String {
    format!("{} attributes", user_field(name))
}

/// An entry of `passwd.users`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of Ignition")]
pub struct Account {
    /// The account is to be there.
    pub should_exist: bool,
    /// Its keys, in order (MCD-157).
    pub keys: Vec<SshKey>,
    /// Its password; of `core`, a locked one where the entry sets keys alone (MCD-161).
    pub password: Option<PasswordHash>,
    /// Its user id.
    pub uid: Option<u32>,
    /// The comment of its entry.
    pub gecos: Option<String>,
    /// Its home directory.
    pub home: Option<String>,
    /// No home directory is made.
    pub no_create_home: bool,
    /// Its primary group.
    pub primary_group: Option<String>,
    /// Groups that it is a member of, beside those that the host has it in.
    pub groups: BTreeSet<String>,
    /// No group of its name is made.
    pub no_user_group: bool,
    /// It is left out of lastlog and faillog.
    pub no_log_init: bool,
    /// Its login shell.
    pub shell: Option<String>,
    /// It is a system account.
    pub system: bool,
}

impl Default for Account {
    fn default() -> Self {
        Self {
            should_exist: true,
            keys: Vec::new(),
            password: None,
            uid: None,
            gecos: None,
            home: None,
            no_create_home: false,
            primary_group: None,
            groups: BTreeSet::new(),
            no_user_group: false,
            no_log_init: false,
            shell: None,
            system: false,
        }
    }
}

impl Account {
    /// Creates an entry of keys and a password alone.
    pub fn with(keys: Vec<SshKey>, password: PasswordHash) -> Self {
        Self { keys, password: Some(password), ..Self::default() }
    }

    /// Returns true if the account is made where the host lacks it. `core` comes with the OS: an entry that sets
    /// nothing but its keys and its password waits for it (MCD-160).
    pub fn is_made(&self, name: &UserName) -> bool {
        self.should_exist && (name.as_str() != CORE || self.sets_attributes())
    }

    /// Returns true if a home is made with the account. Programs of the host say by `/dev/null` that it has none.
    pub fn makes_home(&self) -> bool {
        !self.no_create_home && !self.has_no_home()
    }

    /// Returns true if the account has no home at all.
    pub fn has_no_home(&self) -> bool {
        self.home.as_deref() == Some(NO_HOME)
    }

    /// Returns true if the entry sets something beside keys and password.
    pub fn sets_attributes(&self) -> bool {
        let alone = Self { keys: self.keys.clone(), password: self.password.clone(), ..Self::default() };
        *self != alone
    }

    /// Returns true if a group of its name comes with it.
    pub fn has_user_group(&self) -> bool {
        self.primary_group.is_none() && !self.no_user_group
    }

    /// Returns the keys that its keys file has to hold; `None` where the entry decides nothing about it. The file of
    /// `core` is the config's as soon as the entry sets its keys or its password.
    pub fn desired_keys(&self, name: &UserName) -> Option<&[SshKey]> {
        let sets = !self.keys.is_empty() || (name.as_str() == CORE && self.password.is_some());
        (self.should_exist && sets).then_some(self.keys.as_slice())
    }

    /// Returns the text of the keys file: one key a line.
    pub fn keys_text(&self) -> String {
        keys_text(&self.keys)
    }
}

/// Returns the text of a keys file: one key a line.
pub fn keys_text(keys: &[SshKey]) -> String {
    keys.iter().flat_map(|key| [key.as_str(), "\n"]).collect()
}

/// An entry of `passwd.groups`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The group is to be there.
    pub should_exist: bool,
    /// Its id.
    pub gid: Option<u32>,
    /// Its password.
    pub password: Option<PasswordHash>,
    /// It is a system group.
    pub system: bool,
}

impl Default for Group {
    fn default() -> Self {
        Self { should_exist: true, gid: None, password: None, system: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_keep_hashes() {
        let hash = |text: &str| PasswordHash::new(text).unwrap();
        for locked in ["!$6$a", "!!$6$a", "*$6$a"] {
            assert_eq!(hash(locked).behind_lock(), Some(hash("$6$a")), "{locked}");
            assert_eq!(hash(locked).kept_locked(), hash(locked));
        }
        for none in ["!", "!!", "*", "", "$6$a", "x"] {
            assert_eq!(hash(none).behind_lock(), None, "{none}");
        }
        assert_eq!(hash("$6$a").kept_locked(), hash("!$6$a"));
    }

    #[test]
    fn keys_are_compared_without_options_and_comment() {
        let encoded = "AAAAC3NzaC1lZDI1NTE5AAAAIJ3yGmJm7Y0lX0Zg7xP5o2m1y0b1zqVt7sXbq3w8n4aB";
        let key = |text: String| SshKey::new(text).unwrap();
        let config =
            [key(format!("ssh-ed25519 {encoded} of the config")), key("ssh-ed25519 AAAA a".to_owned())];
        let text = format!(
            "# mine\nssh-ed25519 AAAA b\n  ssh-ed25519 AAAA a \nfrom=\"10.0.0.1\" ssh-ed25519 {encoded} other\nssh-rsa own"
        );
        let left = String::from_utf8(without_keys(text.as_bytes(), config.iter())).unwrap();
        assert_eq!(left, "# mine\nssh-ed25519 AAAA b\nssh-rsa own");
        assert_eq!(keys_in(text.as_bytes(), config.iter()).len(), 2);
        assert_eq!(keys_in(left.as_bytes(), config.iter()), BTreeSet::new());
        assert_eq!(without_keys(b"# only\n\nssh-ed25519 AAAA a\n", config.iter()), b"");
        assert_eq!(without_keys(b"# only\n", config.iter()), b"# only\n");
        let all = config.iter().cloned().collect();
        let changed = [key(format!("{encoded} again"))];
        assert_eq!(keys_beside(&all, &changed).count(), 1);
    }
}
