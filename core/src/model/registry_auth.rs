//! Selection of a pull secret's entry for an image.

use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Deserialize)]
struct Secret {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    auth: Option<String>,
}

/// Returns `user:password` in base64 for a repository: the entry of its longest part, down to its registry.
pub fn registry_auth(secret: &[u8], repository: &str) -> Option<String> {
    let Secret { auths } = serde_json::from_slice(secret).ok()?;
    let mut part = repository;
    loop {
        if let Some(auth) =
            auths.get(part).and_then(|entry| entry.auth.clone()).filter(|auth| !auth.is_empty())
        {
            return Some(auth);
        }
        part = part.rsplit_once('/')?.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_part_of_repository_wins() {
        let secret = br#"{"auths":{"r.test:5000":{"auth":"aG9zdA=="},"r.test:5000/a":{"auth":"YQ=="},
            "r.test:5000/a/b/c":{"auth":""},"other":{}}}"#;
        let auth = |repository: &str| registry_auth(secret, repository);
        assert_eq!(auth("r.test:5000/a/b/c").as_deref(), Some("YQ=="));
        assert_eq!(auth("r.test:5000/x").as_deref(), Some("aG9zdA=="));
        assert_eq!(auth("r.test/x"), None);
        assert_eq!(auth("other/x"), None);
        assert_eq!(registry_auth(b"\n", "r.test:5000/x"), None);
    }
}
