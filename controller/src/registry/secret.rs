//! The credentials that a Secret holds.

use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};

/// Key of the common form.
const CONFIG: &str = ".dockerconfigjson";

/// Key of the older form, which is the inner part alone.
const AUTHS: &str = ".dockercfg";

/// Returns the credentials of a Secret, of either form, as a `.dockerconfigjson`.
pub fn credentials_of_secret(secret: &Secret) -> Option<Vec<u8>> {
    if let Some(config) = entry(secret, CONFIG) {
        return Some(config);
    }
    let auths: Value = serde_json::from_slice(&entry(secret, AUTHS)?).ok()?;
    Some(json!({ "auths": auths }).to_string().into_bytes())
}

/// Returns the value of a key. Plain text is stronger, as in an API server; only a file has it.
fn entry(secret: &Secret, key: &str) -> Option<Vec<u8>> {
    let plain = || Some(secret.string_data.as_ref()?.get(key)?.clone().into_bytes());
    plain().or_else(|| Some(secret.data.as_ref()?.get(key)?.0.clone()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::ByteString;

    use super::*;

    #[test]
    fn secrets_of_both_forms_have_credentials() {
        let secret = |key: &str, value: &str| Secret {
            data: Some(BTreeMap::from([(key.to_owned(), ByteString(value.as_bytes().to_vec()))])),
            ..Secret::default()
        };
        assert_eq!(credentials_of_secret(&secret(".dockerconfigjson", "{}")), Some(b"{}".to_vec()));
        let older = credentials_of_secret(&secret(".dockercfg", "{\"r\":{}}"));
        assert_eq!(older, Some(b"{\"auths\":{\"r\":{}}}".to_vec()));
        assert_eq!(credentials_of_secret(&secret("password", "{}")), None);
        let plain = BTreeMap::from([(".dockerconfigjson".to_owned(), "{\"a\":1}".to_owned())]);
        let both = Secret { string_data: Some(plain), ..secret(".dockerconfigjson", "{}") };
        assert_eq!(credentials_of_secret(&both), Some(b"{\"a\":1}".to_vec()), "as an API server stores it");
    }
}
