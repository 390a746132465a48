//! The parsers of requests and of the file of tokens, as targets of `fuzz/`.

use super::accept;
use super::guard::Tokens;

/// Reads the header by which a machine asks for a version of Ignition.
pub(crate) fn accept_header(bytes: &[u8]) -> Vec<String> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Vec::new() };
    accept::version(Some(text)).err().map(|error| error.to_string()).into_iter().collect()
}

/// Reads the file of tokens. No text has a token.
pub(crate) fn tokens(bytes: &[u8]) -> Vec<String> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Vec::new() };
    match Tokens::parse(text) {
        Ok(read) => {
            let first = text.lines().next().unwrap_or_default();
            let _ = (read.permits(Some(first), "worker"), read.permits(None, "worker"));
            assert!(!read.permits(None, "worker"), "nothing opens nothing");
            Vec::new()
        }
        Err(error) => vec![error.to_string()],
    }
}
