//! The CA in a kubeconfig's text, replaced in place: nothing else of the file changes, not even its spaces.
//!
//! Pure text: the file is YAML or JSON, and its first `certificate-authority-data` is that of its first cluster.

use std::collections::BTreeSet;
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const KEY: &str = "certificate-authority-data";

/// Last line of a certificate.
const END: &str = "-----END CERTIFICATE-----";

/// A kubeconfig in which the CA can't be replaced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it has no certificate-authority-data in one line")]
pub struct NoAuthority;

/// Returns the text with the certificates of this CA; `None` where it trusts all of them already.
pub fn with_authority(text: &str, pem: &[u8]) -> Result<Option<String>, NoAuthority> {
    let place = value_range(text).ok_or(NoAuthority)?;
    let old = text.get(place.clone()).unwrap_or_default();
    let found = STANDARD.decode(old).map_err(|_| NoAuthority)?;
    if certificates(pem).is_subset(&certificates(&found)) {
        return Ok(None);
    }
    let mut new = text.to_owned();
    new.replace_range(place, &STANDARD.encode(pem));
    Ok(Some(new))
}

/// Finds the value, as base64.
fn value_range(text: &str) -> Option<Range<usize>> {
    let after_key = text.find(KEY)? + KEY.len();
    let rest = text.get(after_key..)?;
    let value = rest.trim_start_matches(['"', '\'']).trim_start().strip_prefix(':')?;
    let value = value.trim_start_matches([' ', '\t', '"', '\'']);
    let start = text.len() - value.len();
    let length =
        value.find(|c: char| !(c.is_ascii_alphanumeric() || "+/=".contains(c))).unwrap_or(value.len());
    (length > 0).then_some(start..start + length)
}

/// Returns the certificates, each without its white space.
fn certificates(pem: &[u8]) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(pem);
    let parts = text.split(END).map(|part| part.split_ascii_whitespace().collect::<String>());
    parts.filter(|part| !part.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem(bodies: &[&str]) -> Vec<u8> {
        let one = |body: &&str| format!("-----BEGIN CERTIFICATE-----\n{body}\n{END}\n");
        bodies.iter().map(one).collect::<String>().into_bytes()
    }

    /// MCD-238: only the CA changes, and only where a certificate is missing.
    #[test]
    fn authority_is_replaced_in_place() {
        let (old, new) = (STANDARD.encode(pem(&["YQ=="])), STANDARD.encode(pem(&["YQ==", "Yg=="])));
        for template in [
            "clusters:\n- cluster:\n    certificate-authority-data: CA  # kept\n    server: https://a\n- cluster: {certificate-authority-data: b3RoZXI=}\n",
            "clusters: [{cluster: {certificate-authority-data: 'CA', server: x}}]\n",
            "{\"clusters\":[{\"cluster\":{\"certificate-authority-data\":\"CA\",\"server\":\"x\"}}]}",
            "a: {certificate-authority-data:\tCA}",
        ] {
            let text = template.replacen("CA", &old, 1);
            let changed = with_authority(&text, &pem(&["YQ==", "Yg=="])).unwrap().unwrap();
            assert_eq!(changed, template.replacen("CA", &new, 1));
            assert_eq!(with_authority(&changed, &pem(&["YQ==", "Yg=="])), Ok(None));
            // Other trusted certificates stay.
            assert_eq!(with_authority(&changed, &pem(&["Yg=="])), Ok(None));
        }
    }

    #[test]
    fn text_without_authority_is_refused() {
        let folded = "certificate-authority-data: >-\n  YQ==\n";
        for text in [
            "",
            "certificate-authority: /ca.crt",
            folded,
            "certificate-authority-data:",
            "certificate-authority-data: Y",
        ] {
            assert_eq!(with_authority(text, &pem(&["YQ=="])), Err(NoAuthority), "{text}");
        }
    }
}
