//! From a rendered config to an OS image that carries it: the Containerfile, and the builder on this machine.
//!
//! [`compose()`] is pure: what a build is made of, as text and files. [`local`] has buildah build and push it. The steps are the Machine Config Operator's (`docs/images.md`), with two differences: the config
//! is brought in by the agent's own `apply`, so that an image is what a node makes of the config, and the last step is the
//! agent's own `verify`, so that an image that does not carry its config never leaves the builder. How a build is called is
//! said in `build`.

mod archive;
mod bound;
mod compose;
mod dockerfile;
mod error;
pub mod local;
mod packages;
mod user;

#[cfg(test)]
mod tests;

pub use archive::MAX_ARCHIVE;
pub use compose::{AGENT, ApplyBy, Context, Request, compose};
pub use error::ImageError;
pub use user::{Checked, check as check_containerfile};
