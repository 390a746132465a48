//! Options and limits of connections to registries.

use std::time::Duration;

/// Time limit of a query, with all its requests.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);

/// Options of connections to registries.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Registries without TLS, as `HOST` or `HOST:PORT`.
    pub insecure: Vec<String>,
    /// Certificates that are trusted in addition to the machine's, PEM.
    pub trust: Vec<u8>,
}
