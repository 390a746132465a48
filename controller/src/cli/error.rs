//! Errors of the verbs.

use crate::manifests::ManifestError;
use crate::render::RenderError;

/// Errors of a verb.
#[derive(Debug, thiserror::Error)]
pub(super) enum CliError {
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Run(#[from] crate::controllers::RunError),
    #[error(transparent)]
    Render(#[from] RenderError),
    #[error(transparent)]
    Image(#[from] crate::image::ImageError),
    #[error(transparent)]
    Local(#[from] crate::image::local::LocalError),
    #[error("{0}")]
    Usage(String),
    #[error("the output can't be written: {0}")]
    Output(std::io::Error),
}
