//! Accounts of registries: a Secret `kubernetes.io/dockerconfigjson`, or the older `kubernetes.io/dockercfg`.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;

use super::RegistryError;

/// The largest Secret.
const MAX_BYTES: usize = 1 << 20;

/// Accounts by registry, or by registry and repository. Empty is anonymous.
#[derive(Clone, Default)]
pub(super) struct Credentials {
    accounts: BTreeMap<String, Account>,
}

/// Prints their number, which is no secret.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("accounts", &self.accounts.len()).finish()
    }
}

/// The account.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Account {
    /// With a password.
    Password {
        /// The name.
        user: String,
        /// The password.
        password: String,
    },
    /// With a token that a token server takes.
    Refresh(String),
}

/// Credentials that can't be read. Nothing of their text is shown.
#[derive(Debug, thiserror::Error)]
#[error("the credentials can't be read: {rule}; write them as `kubectl create secret docker-registry` does")]
pub(super) struct CredentialsError {
    rule: &'static str,
}

impl From<CredentialsError> for RegistryError {
    fn from(error: CredentialsError) -> Self {
        Self::Refused(error.to_string())
    }
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    auth: String,
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    identitytoken: String,
}

impl Credentials {
    /// Reads them; nothing is nobody's.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, CredentialsError> {
        let wrong = |rule| CredentialsError { rule };
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        if bytes.len() > MAX_BYTES {
            return Err(wrong("they are larger than 1 MiB"));
        }
        let mut text: Value = serde_json::from_slice(bytes).map_err(|_| wrong("they are not JSON"))?;
        // The older form is the inner part alone.
        let entries = match text.get_mut("auths") {
            Some(entries) => entries.take(),
            None => text,
        };
        let entries: BTreeMap<String, Entry> =
            serde_json::from_value(entries).map_err(|_| wrong("they have no accounts by registry"))?;
        let mut accounts = BTreeMap::new();
        for (key, entry) in entries {
            if let Some(account) = account(entry).map_err(wrong)? {
                accounts.insert(normal(&key).to_owned(), account);
            }
        }
        Ok(Self { accounts })
    }

    /// Returns the account for a repository: the longest key that leads to it, as in containers-auth.json(5).
    pub(super) fn account(&self, host: &str, repository: &str) -> Option<&Account> {
        let mut path = format!("{host}/{repository}");
        loop {
            if let Some(account) = self.accounts.get(&path) {
                return Some(account);
            }
            path.truncate(path.rfind('/')?);
        }
    }
}

fn account(entry: Entry) -> Result<Option<Account>, &'static str> {
    if !entry.identitytoken.is_empty() {
        return Ok(Some(Account::Refresh(entry.identitytoken)));
    }
    if !entry.auth.is_empty() {
        let text = STANDARD.decode(entry.auth.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let text = text.ok_or("an `auth` is not base64")?;
        let (user, password) = text.split_once(':').ok_or("an `auth` is not USER:PASSWORD")?;
        let password = password.trim_end_matches('\0').to_owned();
        return Ok(Some(Account::Password { user: user.to_owned(), password }));
    }
    let Entry { username: user, password, .. } = entry;
    // An empty entry is written by tools that keep passwords elsewhere.
    Ok((!user.is_empty()).then_some(Account::Password { user, password }))
}

/// Older tools write a URL, for Docker Hub one of its own.
fn normal(key: &str) -> &str {
    let key = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    let key = key.trim_end_matches('/');
    let key = key.strip_suffix("/v1").or_else(|| key.strip_suffix("/v2")).unwrap_or(key);
    match key {
        "index.docker.io" | "registry-1.docker.io" | "registry.hub.docker.com" => "docker.io",
        other => other,
    }
}
