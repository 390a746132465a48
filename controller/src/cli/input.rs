//! Flags that several verbs have.

use std::path::{Path, PathBuf};

use super::CliError;
use crate::manifests::{ManifestError, Manifests, UnknownFields};

/// Source of the objects.
#[derive(Debug, clap::Args)]
pub(super) struct Input {
    /// Directory with MachineConfigs, pools, the ControllerConfig and the disruption policy
    #[arg(long, value_name = "DIR")]
    pub(super) manifests: PathBuf,
    /// OS image of pools whose MachineConfigs name none, in place of the ControllerConfig's
    #[arg(long, value_name = "IMAGE")]
    pub(super) os_image: Option<String>,
    #[command(flatten)]
    pub(super) unknown: Unknown,
}

/// `MachineOSConfig`s that need no image at the installation.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Left {
    /// Leave the image of this pool to the cluster, which builds it later
    #[arg(long, value_name = "POOL")]
    pub(super) leave_to_cluster: Vec<String>,
}

/// Treatment of fields that nobody knows.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct Unknown {
    /// Accept unknown fields: report them, and do not apply them
    #[arg(long)]
    allow_unknown_fields: bool,
}

impl Unknown {
    pub(super) fn fields(self) -> UnknownFields {
        if self.allow_unknown_fields { UnknownFields::Named } else { UnknownFields::Refused }
    }
}

impl Input {
    /// Reads the directory.
    pub(super) fn read(&self) -> Result<Manifests, CliError> {
        read_all(&self.manifests, self.unknown)
    }
}

/// Reads a directory.
pub(super) fn read_all(directory: &Path, unknown: Unknown) -> Result<Manifests, CliError> {
    clean(Manifests::collect(directory, unknown.fields())?)
}

/// Refuses objects with faults; the error comes after the notes about those that are not read.
pub(super) fn clean((manifests, errors): (Manifests, Vec<ManifestError>)) -> Result<Manifests, CliError> {
    match ManifestError::all(errors) {
        Some(error) => Err(CliError::from(error).noted(manifests.notes)),
        None => Ok(manifests),
    }
}
