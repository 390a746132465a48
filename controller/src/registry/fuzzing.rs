//! The parsers of credentials and of names of images, as targets of `fuzz/`.

use super::credentials::Credentials;
use super::reference::Reference;

/// Reads a pull or push secret.
pub(crate) fn registry_credentials(bytes: &[u8]) -> Vec<String> {
    match Credentials::parse(bytes) {
        Ok(read) => {
            let _ = read.account("registry.test:5000", "a/b/c");
            Vec::new()
        }
        Err(error) => vec![error.to_string()],
    }
}

/// Reads the name of an image.
pub(crate) fn registry_reference(bytes: &[u8]) -> Vec<String> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Vec::new() };
    match Reference::parse(text) {
        Ok(read) => {
            assert!(!read.host().is_empty() && !read.repository().is_empty(), "registry and repository");
            assert!(!read.server().is_empty() && !read.name().is_empty(), "where it is");
            let _ = (read.digest(), read.is_loopback());
            Vec::new()
        }
        Err(error) => vec![error.to_string()],
    }
}
