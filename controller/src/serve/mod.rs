//! The server of new nodes (machine-config-server): Ignition by pool, over TLS.
//!
//! | file | holds |
//! |---|---|
//! | `accept` | which version a node gets; pure |
//! | `downgrade` | an Ignition config in an older version; pure |
//! | `ignition` | the document for a node of a pool; pure |
//! | `authorities` | the cluster's certificates as files of a node; pure |
//! | `choice` | which config and image a pool's new nodes get; pure |
//! | `guard` | tokens; pure |
//! | `source`, `cluster`, `directory` | where pools and configs come from |
//! | `no_config` | why a pool has none |
//! | `kubeconfig`, `files`, `tls` | files that other programs renew |
//! | `answer` | a request to its answer |
//! | `listen` | TLS and HTTP |
//! | `connections` | connections: their number, their time, their end; the controllers' listener has them, too |
//!
//! # Decisions
//!
//! - Ignition retries after a status of 500 and more, and fails the boot at one below. Whatever the administrator can
//!   still mend (no pool yet, no config, no kubeconfig, a field that this node can't read) is a 5xx; what needs another image
//!   or another first config is a 4xx.
//! - An answer has a text with the cause. Upstream's are empty, and the reason is in a log that an installer can't read.
//! - One request for each connection: a node sends one.

mod accept;
mod answer;
pub mod authorities;
mod choice;
mod cluster;
pub(crate) mod connections;
mod directory;
mod downgrade;
mod files;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod guard;
pub mod ignition;
mod kubeconfig;
mod listen;
mod no_config;
mod source;
mod tls;

pub use accept::{NEWEST, NotServed, Version};
pub use answer::Answers;
pub use cluster::Cluster;
pub use directory::Directory;
pub use downgrade::Lost;
pub use kubeconfig::{Kubeconfig, url as api_server_url};
pub use listen::{ListenError, Listener};
pub use no_config::NoConfig;
pub use source::Source;
pub use tls::TlsFiles;

/// Returns true if this may be the name of an object: it also becomes the name of a file.
fn is_name(name: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty()
            && !word.starts_with('-')
            && !word.ends_with('-')
            && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    name.len() <= 253 && name.split('.').all(is_word)
}

#[cfg(test)]
mod tests;
