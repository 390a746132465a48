//! Flags that several verbs have.

use std::path::PathBuf;

/// Source of the objects.
#[derive(Debug, clap::Args)]
pub(super) struct Input {
    /// Directory with MachineConfigs, pools, the ControllerConfig and the disruption policy
    #[arg(long, value_name = "DIR")]
    pub(super) manifests: PathBuf,
    /// OS image of pools whose MachineConfigs name none, in place of the ControllerConfig's
    #[arg(long, value_name = "IMAGE")]
    pub(super) os_image: Option<String>,
}
