//! Queries to the registries of built images: presence of an image, its deletion, and the right to push one.

mod client;
mod credentials;
mod failure;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod options;
mod reference;
mod secret;
mod session;

use std::pin::Pin;

pub use client::Client;
pub use options::Options;
pub use secret::credentials_of_secret;

/// An answer that takes time.
pub type RegistryFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, RegistryError>> + Send + 'a>>;

/// Error of a query to a registry. Each names the registry, the cause and the next step, and no credentials.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// It says no, and would again: the credentials, the reference, a registry that deletes nothing.
    #[error("{0}")]
    Refused(String),
    /// It did not answer, or is busy: the same request may succeed later.
    #[error("{0}")]
    Unavailable(String),
}

/// A registry's client. Credentials are the contents of a `.dockerconfigjson`; each answer comes within a bound.
pub trait Registry: std::fmt::Debug + Send + Sync {
    /// Returns the digest (`sha256:...`) of an image, named by tag or by digest; `None` where the registry does not have it.
    fn digest<'a>(&'a self, image: &'a str, credentials: &'a [u8]) -> RegistryFuture<'a, Option<String>>;

    /// Deletes an image, named by digest. One that is gone already is no error.
    fn delete<'a>(&'a self, image: &'a str, credentials: &'a [u8]) -> RegistryFuture<'a, ()>;

    /// Returns why the registry takes no push of an image with these credentials; `None` where it does. Nothing is pushed.
    fn push_refusal<'a>(
        &'a self,
        image: &'a str,
        credentials: &'a [u8],
    ) -> RegistryFuture<'a, Option<String>>;
}

/// In place of a client: no registry answers.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoRegistry;

impl NoRegistry {
    fn error<'a, T>(image: &str) -> RegistryFuture<'a, T> {
        let why = format!("{image}: this version asks no registry");
        Box::pin(async move { Err(RegistryError::Unavailable(why)) })
    }
}

impl Registry for NoRegistry {
    fn digest<'a>(&'a self, image: &'a str, _: &'a [u8]) -> RegistryFuture<'a, Option<String>> {
        Self::error(image)
    }
    fn delete<'a>(&'a self, image: &'a str, _: &'a [u8]) -> RegistryFuture<'a, ()> {
        Self::error(image)
    }
    fn push_refusal<'a>(&'a self, image: &'a str, _: &'a [u8]) -> RegistryFuture<'a, Option<String>> {
        Self::error(image)
    }
}

#[cfg(test)]
mod tests;
