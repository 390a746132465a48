//! Errors of a pool's config.

/// Error of a pool's config.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoConfig {
    /// It will not come by itself.
    #[error("there is no pool {pool} in {place}")]
    NoPool {
        /// The pool.
        pool: String,
        /// The cluster or the directory.
        place: String,
    },
    /// It may come: the node retries.
    #[error("{0}")]
    NotYet(String),
}
