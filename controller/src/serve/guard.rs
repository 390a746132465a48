//! Access to configs: a client shows a token of the pool, or a certificate.
//!
//! A rendered config has the pull secret, keys and the kubeconfig of the first contact. Upstream gives it to everybody who
//! reaches the port. A token is in the node's first Ignition config, as a header; a pool of its own has a token of its own,
//! so one that leaks from a worker opens no control plane.

use std::collections::BTreeSet;

use machine_config_core::model::Sha256;

/// The shortest token: 16 characters.
const SHORTEST: usize = 16;

/// The most tokens of a file.
const MOST: usize = 1000;

/// Tokens, by their digest: the time of a comparison reveals nothing of a token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tokens {
    /// The pool, and the digest. Without a pool: of each one.
    known: BTreeSet<(Option<String>, String)>,
}

/// Error in a file of tokens. It never contains a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {cause}")]
pub(super) struct TokenError {
    line: usize,
    cause: &'static str,
}

impl Tokens {
    /// Reads lines `TOKEN` and `POOL TOKEN`; `#` begins a comment.
    pub(super) fn parse(text: &str) -> Result<Self, TokenError> {
        let mut known = BTreeSet::new();
        for (at, line) in text.lines().enumerate() {
            let wrong = |cause| TokenError { line: at + 1, cause };
            let words: Vec<&str> = line.split_whitespace().collect();
            let (pool, token) = match words.as_slice() {
                [] => continue,
                [first, ..] if first.starts_with('#') => continue,
                [token] => (None, *token),
                [pool, token] => (Some((*pool).to_owned()), *token),
                _ => return Err(wrong("it has more than a pool and a token; write POOL TOKEN")),
            };
            if token.len() < SHORTEST {
                return Err(wrong(
                    "the token is shorter than 16 characters; make one with: openssl rand -hex 32",
                ));
            }
            known.insert((pool, digest(token)));
            if known.len() > MOST {
                return Err(wrong("there are more than 1000 tokens; remove old ones"));
            }
        }
        Ok(Self { known })
    }

    /// Returns true if the header `Authorization` shows a token of the pool.
    pub(super) fn permits(&self, authorization: Option<&str>, pool: &str) -> bool {
        let token = authorization.and_then(|header| {
            let (scheme, token) = header.trim().split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        token.is_some_and(|token| {
            let digest = digest(token);
            self.known.contains(&(None, digest.clone()))
                || self.known.contains(&(Some(pool.to_owned()), digest))
        })
    }
}

fn digest(token: &str) -> String {
    Sha256::digest(token.as_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# of all pools\n0123456789abcdef0\n\nworker  fedcba9876543210f # no comment here\n";

    #[test]
    fn token_opens_its_pool() {
        let text = FILE.replace(" # no comment here", "");
        let tokens = Tokens::parse(&text).unwrap();
        for (header, pool, expected) in [
            (Some("Bearer 0123456789abcdef0"), "master", true),
            (Some("bearer  0123456789abcdef0 "), "worker", true),
            (Some("Bearer fedcba9876543210f"), "worker", true),
            (Some("Bearer fedcba9876543210f"), "master", false),
            (Some("Basic 0123456789abcdef0"), "worker", false),
            (Some("Bearer "), "worker", false),
            (Some("0123456789abcdef0"), "worker", false),
            (None, "worker", false),
        ] {
            assert_eq!(tokens.permits(header, pool), expected, "{header:?} {pool}");
        }
        assert!(!Tokens::default().permits(Some("Bearer 0123456789abcdef0"), "worker"));
        assert!(!format!("{tokens:?}").contains("fedcba9876543210f"));
    }

    #[test]
    fn bad_line_is_named_without_its_token() {
        let many = Tokens::parse(FILE).unwrap_err().to_string();
        assert!(
            many.starts_with("line 4: ") && many.contains("POOL TOKEN") && !many.contains("fedcba"),
            "{many}"
        );
        let short = Tokens::parse("short").unwrap_err().to_string();
        assert!(short.contains("line 1: the token is shorter") && short.contains("openssl"), "{short}");
        assert_eq!(Tokens::parse("# nothing\n"), Ok(Tokens::default()));
    }
}
