//! Secrets that the bundle must not contain: those of this host by their values, and any text that looks like one.

use std::collections::BTreeSet;

use base64::Engine as _;
use serde_json::Value;

use crate::host::redact::{MASK, is_secret_name, redact};
use crate::host::{HostError, Root};
use crate::journal::{Stored, mcd, state};
use crate::model::HostSpec;

/// Files that are secret as a whole, with registry credentials, tokens and keys.
const FILES: [&str; 10] = [
    "/etc/kubernetes/kubeconfig",
    "/etc/machine-config-agent/kubeconfig",
    "/etc/mco/internal-registry-pull-secret.json",
    "/etc/mco/proxy.env",
    "/etc/ostree/auth.json",
    "/root/.docker/config.json",
    "/run/ostree/auth.json",
    "/var/lib/kubelet/config.json",
    "/var/lib/kubelet/kubeconfig",
    "/var/lib/kubelet/pki/kubelet-client-current.pem",
];

/// The largest one that is read.
const MAX_BYTES: u64 = 1 << 20;

/// Shorter words are no secrets to look for: they would mask half of every text.
const MIN_CHARS: usize = 6;

/// Values that must not be shown. `Debug` shows none.
#[derive(Default)]
pub(super) struct Secrets(BTreeSet<String>);

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Secrets").field(&self.0.len()).finish()
    }
}

impl Secrets {
    /// Reads the secrets that this user may read: an unreadable one is not in the bundle either.
    pub(super) fn load(root: &Root) -> Self {
        let mut secrets = Self::default();
        for path in FILES {
            let read: Result<_, HostError> = root.read_at_most(path, MAX_BYTES);
            secrets.learn(&read.ok().flatten().unwrap_or_default());
        }
        let stored = |path: &str| Stored::load(root, &state(path));
        for stored in [stored("current.json"), stored("target.json"), mcd::read(root)] {
            if let Ok(Some(stored)) = stored {
                secrets.learn_spec(&stored.known_spec());
            }
        }
        secrets
    }

    /// Learns the contents of the secret files of a config.
    fn learn_spec(&mut self, spec: &HostSpec) {
        for file in spec.written().values().filter(|file| file.is_secret()) {
            self.learn(file.contents.bytes());
        }
    }

    /// Learns the words of a secret text. Plain lower-case words are common ones, unless one is all there is.
    fn learn(&mut self, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        let is_only = words(&text).nth(1).is_none();
        for word in words(&text).filter(|word| word.len() >= MIN_CHARS) {
            let is_common =
                word.starts_with('/') || word.chars().all(|c| c.is_ascii_lowercase() || "-_.".contains(c));
            if is_only || !is_common {
                self.0.insert(word.to_owned());
            }
            // `auth` of a pull secret is base64 of user and password.
            let decoded = base64::engine::general_purpose::STANDARD_NO_PAD.decode(word).unwrap_or_default();
            if let Ok(decoded) = String::from_utf8(decoded)
                && let Some((_, password)) = decoded.split_once(':')
                && password.len() >= MIN_CHARS
            {
                self.0.insert(password.to_owned());
            }
        }
    }

    /// Masks the known values, then text that looks like a secret.
    pub(super) fn redact(&self, text: &str) -> String {
        let mut known = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(word) = words(rest).next() {
            let at = word.as_ptr().addr() - rest.as_ptr().addr();
            let (before, from) = rest.split_at_checked(at).unwrap_or((rest, ""));
            known.push_str(before);
            known.push_str(if self.0.contains(word) { MASK } else { word });
            rest = from.get(word.len()..).unwrap_or_default();
        }
        known.push_str(rest);
        redact(&known)
    }

    /// Masks in each string of a document; its shape stays.
    pub(super) fn redact_json(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.redact(&text)),
            Value::Array(list) => list.into_iter().map(|one| self.redact_json(one)).collect(),
            Value::Object(map) => {
                let masked = |(key, value): (String, Value)| {
                    let hide = value.is_string() && is_secret_name(&key);
                    let value = if hide { Value::from(MASK) } else { self.redact_json(value) };
                    (self.redact(&key), value)
                };
                Value::Object(map.into_iter().map(masked).collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value,
        }
    }
}

/// The words of a text, as configuration files, JSON and URLs divide them.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let divides = |c: char| c.is_whitespace() || c.is_control() || "\"'`,;=:@()[]{}<>\\&|".contains(c);
    text.split(divides).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_are_redacted_and_rest_stays() {
        let mut secrets = Secrets::default();
        secrets.learn(br#"{"auths":{"r.test":{"auth":"dXNlcjpPcGVuU2VzYW1lMQ=="}}}"#);
        secrets.learn(b"[Peer]\nkey = aB3dE6gH9\naddress = /etc/hosts\nenabled\n");
        secrets.learn(b"opensesame\n");
        for (text, expected) in [
            ("got 'OpenSesame1' for it", "got '***' for it"),
            ("url https://r.test/?k=aB3dE6gH9&x=1", "url https://r.test/?k=***&x=1"),
            ("opensesame, /etc/hosts enabled", "***, /etc/hosts enabled"),
            ("dXNlcjpPcGVuU2VzYW1lMQ", "***"),
            ("password: x", "password: ***"),
        ] {
            assert_eq!(secrets.redact(text), expected);
        }
        let json = serde_json::json!({"a": ["opensesame", 1], "token": "x", "next": null});
        let expected = serde_json::json!({"a": [MASK, 1], "token": MASK, "next": null});
        assert_eq!(secrets.redact_json(json), expected);
    }
}
